//! The exact cost of each operation of a process.

use std::fs;

use relive_journal::data::{ForkPoint, ForkRequest};
use relive_journal::record::{Body, OpenedBy};
use relive_journal::{Counts, DataDirectory, Durability};

use crate::Result;
use crate::place::Place;
use crate::rounds::wait_until_still;
use crate::sample::{self, Agent, StepData, data_directory, opening, uuid};

const HEADER: &str = "\
exact counts, 2 KB a step (opens: files opened or made for change; files: held open afterwards)
what                            | syncs | writes |  bytes | opens | renames | unlinks | files
--------------------------------+-------+--------+--------+-------+---------+---------+------";

/// Counts the operations of `act`, and the files it leaves open.
struct Counter<'a> {
    directory: &'a DataDirectory,
    place: &'a Place,
    lines: Vec<String>,
}

impl Counter<'_> {
    fn count<T>(&mut self, what: &str, act: impl FnOnce(&DataDirectory) -> Result<T>) -> Result<T> {
        let (before, open_before) = (self.directory.io().disk.counts(), open_files(self.place)?);
        let answer = act(self.directory)?;
        wait_until_still(|| self.directory.io().disk.counts());
        let Counts { opens, writes, bytes, syncs, renames, unlinks, .. } =
            self.directory.io().disk.counts().since(before);
        let open = open_files(self.place)? - open_before;
        self.lines.push(format!(
            "{what:<31} | {syncs:>5} | {writes:>6} | {bytes:>6} | {opens:>5} | {renames:>7} | {unlinks:>7} | {open:>+5}"
        ));
        Ok(answer)
    }
}

pub(crate) fn counts(place: &Place) -> Result<Vec<String>> {
    let directory = data_directory(&place.directory("counts")?)?;
    let data = StepData::of_bytes(2048)?;
    // Reserves a block of PIDs.
    Agent::spawn(&directory, &data)?;
    let mut counter = Counter { directory: &directory, place, lines: vec![HEADER.to_owned()] };

    let mut agent = counter.count("spawn, and model_started", |directory| Agent::spawn(directory, &data))?;
    for (what, calls) in [("step with no call", 0), ("step with 1 call", 1), ("step with 5 calls", 5)] {
        counter.count(what, |_| step(&mut agent, calls, &data))?;
    }
    agent.event()?;
    agent.step(Durability::Synced)?;
    wait_until_still(|| directory.io().disk.counts());
    counter.count("step with 1 call and 1 event", |_| {
        agent.append(Durability::Synced)?;
        agent.event()?;
        agent.append(Durability::Synced)
    })?;
    for _ in 0..1_000 {
        agent.step(Durability::Written)?;
    }
    agent.writer.checkpoint()?;
    counter.count("checkpoint at step 1,000", |_| Ok(agent.writer.checkpoint()?))?;
    let source = agent.uuid()?;
    drop(agent);
    let writer = counter.count("resume", |directory| crate::sample::reopen(directory, source))?;
    drop(writer);
    let mut agent = Agent::spawn(&directory, &data)?;
    let source = agent.uuid()?;
    let request = ForkRequest {
        uuid: uuid(),
        opening: opening(&directory, OpenedBy::Spawn)?,
        source,
        point: ForkPoint::End,
        name: None,
        parent_uuid: None,
        limits: None,
        input: None,
        workspace: None,
        request: None,
        within: None,
    };
    drop(counter.count("fork", |directory| Ok(directory.fork(request)?))?);
    counter.count("end and retire", |directory| {
        agent.end()?;
        Ok(directory.retire(source, agent.writer.history())?)
    })?;
    Ok(counter.lines)
}

/// Writes a step with this many calls according to the protocol, including the next model call.
fn step(agent: &mut Agent, calls: u32, data: &StepData) -> Result<()> {
    let mut batch = vec![sample::model_ended(calls, data)];
    let mut append = |batch: Vec<Body>| agent.writer.append(sample::moment(), batch, Durability::Synced);
    for call in 0..calls {
        batch.push(sample::call_started(call));
        append(std::mem::replace(&mut batch, vec![sample::call_ended(call, data)]))?;
    }
    batch.push(sample::model_started());
    Ok(append(batch)?)
}

/// Returns how many files below the run's directory this program has open.
fn open_files(place: &Place) -> Result<i64> {
    let mut count = 0;
    for descriptor in fs::read_dir("/proc/self/fd")? {
        // The descriptor of the listing itself is gone by now.
        let Ok(target) = fs::read_link(descriptor?.path()) else { continue };
        count += i64::from(target.starts_with(place.root()));
    }
    Ok(count)
}
