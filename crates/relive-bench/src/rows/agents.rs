//! Many concurrent agents in the daemon, next to the same records written by the journal alone.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use relive_client::Client;
use relive_journal::data::SpawnRequest;
use relive_journal::reader::{Cursor, Item, Reader};
use relive_journal::record::{Body, Input, OpenedBy, Spawned};
use relive_journal::{DataDirectory, Durability, Pool, ProcessMeta, Writer};
use tokio::runtime::Runtime;

use crate::daemon::{Daemon, Home};
use crate::options::Options;
use crate::place::Place;
use crate::rounds::{Rounds, seconds};
use crate::runs::{self, Work};
use crate::sample::{data_directory, moment, opening, uuid};
use crate::table::{Mark, Row, milliseconds, per_second};
use crate::{Error, Result};

const STEPS: usize = 20;

const NOTE: &str = "The configuration is read once, at the start. A file with a mistake is refused as a whole.\n";

pub(super) fn measure(options: &Options, place: &Place) -> Result<Vec<Row>> {
    let count = options.agents;
    eprintln!("agents: {count} at once, {STEPS} steps each, {} rounds", options.agent_rounds);
    let root = place.directory("agents")?;
    let work = work_directory(&root)?;
    let home = Home::new(root.join("home"))?;
    let (_, daemon) = Daemon::start(&home)?;
    let sample = Recorded::read(&daemon, &work)?;
    let directory = Arc::new(data_directory(&root.join("alone"))?);
    let (pool, runtime) = (Pool::default(), tokio::runtime::Builder::new_multi_thread().build()?);
    let mut times = Rounds::default();
    for round in 0..=options.agent_rounds {
        let (alone, ()) = seconds(|| write_alone(&runtime, &pool, &directory, &sample, count))?;
        let (whole, ()) = seconds(|| run_all(&daemon, &work, count))?;
        eprintln!("agents: round {round}, {whole:.2} s, the journal alone {alone:.2} s");
        // The first round warms up.
        if round > 0 {
            times.add(whole, alone);
        }
    }
    #[expect(clippy::cast_precision_loss, reason = "a rate is not exact")]
    let steps = (count * STEPS) as f64;
    Ok(vec![
        Row {
            name: format!("{count} agents, {STEPS} steps: time"),
            ours: milliseconds(times.ours()),
            peer: format!("{}  journal", milliseconds(times.peer())),
            ratio: times.ratio(),
            mark: Mark::None,
        },
        Row {
            name: "  steps".to_owned(),
            ours: per_second(steps / times.ours()),
            peer: format!("{}  journal", per_second(steps / times.peer())),
            ratio: times.ratio().inverse(),
            mark: Mark::None,
        },
    ])
}

/// Creates a directory with a file to read and a script that reads it.
fn work_directory(root: &Path) -> Result<Work> {
    let turn = "  - text: The note may say more than it did.\n    calls: [{name: read, args: {path: note.txt}}]\n";
    let work = Work::new(root.join("work"), &format!("{turn}    repeat: {STEPS}\n"))?;
    fs::write(work.path().join("note.txt"), NOTE)?;
    Ok(work)
}

/// Starts all agents, and waits for all of them.
fn run_all(daemon: &Daemon, work: &Work, count: usize) -> Result<()> {
    let uuids = runs::begin_all(daemon, work, count)?;
    let status = daemon.client()?.call(Client::daemon)?;
    eprintln!("agents: {} of {count} run when the last one was begun", status.running);
    runs::wait_for_all(daemon, &uuids)
}

/// The records of one agent.
#[derive(Debug)]
struct Recorded {
    meta: ProcessMeta,
    spawned: Spawned,
    input: Input,
    /// The rest, in the batches in which it was written.
    batches: Vec<Vec<Body>>,
}

impl Recorded {
    fn read(daemon: &Daemon, work: &Work) -> Result<Self> {
        let directory = daemon.home().process(runs::run(&daemon.client()?, work)?);
        let mut reader = Reader::new(directory.steps(), Cursor::default());
        let (mut spawned, mut input, mut batches, mut batch) = (None, None, Vec::new(), Vec::new());
        while let Some(Item::Record(record)) = reader.next_item()? {
            let line = record.line.as_str();
            let ends_batch = match record.kind.as_str() {
                "opened" => continue,
                "spawned" => {
                    spawned = Some(serde_json::from_str(line)?);
                    continue;
                }
                "input" => {
                    input = Some(serde_json::from_str(line)?);
                    continue;
                }
                "model_started" => push(&mut batch, Body::ModelStarted(serde_json::from_str(line)?), true),
                "model_ended" => {
                    let ended: relive_journal::record::ModelEnded = serde_json::from_str(line)?;
                    let is_last_word = ended.calls.is_empty();
                    push(&mut batch, Body::ModelEnded(ended), is_last_word)
                }
                "call_started" => push(&mut batch, Body::CallStarted(serde_json::from_str(line)?), true),
                "call_ended" => push(&mut batch, Body::CallEnded(serde_json::from_str(line)?), false),
                "ended" => push(&mut batch, Body::Ended(serde_json::from_str(line)?), true),
                kind => return Err(format!("an agent that reads a note recorded `{kind}`").into()),
            };
            if ends_batch {
                batches.push(std::mem::take(&mut batch));
            }
        }
        // Before the first step, two for each step, the last answer and the end.
        if batches.len() != 2 * STEPS + 3 {
            return Err(format!("an agent of {STEPS} steps recorded {} batches", batches.len()).into());
        }
        let missing = || "the journal does not describe a process";
        let (spawned, input) = (spawned.ok_or_else(missing)?, input.ok_or_else(missing)?);
        Ok(Self { meta: ProcessMeta::read(&directory)?, spawned, input, batches })
    }

    fn spawn(&self, directory: &DataDirectory) -> Result<Writer> {
        let spawned = Spawned { uuid: uuid(), ..self.spawned.clone() };
        let (meta, input) = (Some(self.meta.clone()), Some(self.input.clone()));
        Ok(directory.spawn(SpawnRequest {
            opening: opening(directory, OpenedBy::Spawn)?,
            spawned,
            meta,
            input,
            records: Vec::new(),
        })?)
    }
}

fn push(batch: &mut Vec<Body>, body: Body, ends_batch: bool) -> bool {
    batch.push(body);
    ends_batch
}

/// Writes the same records alone: a task for each agent, and each batch as a job of the pool.
fn write_alone(
    runtime: &Runtime,
    pool: &Pool,
    directory: &Arc<DataDirectory>,
    sample: &Recorded,
    count: usize,
) -> Result<()> {
    let task = |_| {
        let (pool, directory, batches) = (pool.clone(), directory.clone(), sample.batches.clone());
        let fresh = Recorded {
            batches: Vec::new(),
            meta: sample.meta.clone(),
            spawned: sample.spawned.clone(),
            input: sample.input.clone(),
        };
        runtime.spawn(async move {
            let begin_in = directory.clone();
            let mut writer = pool.run(move || fresh.spawn(&begin_in)).await??;
            for batch in batches {
                let durability = match batch[..] {
                    [Body::ModelStarted(_)] => Durability::Written,
                    [..] => Durability::Synced,
                };
                let appended;
                (writer, appended) = pool
                    .run(move || {
                        let appended = writer.append(moment(), batch, durability);
                        (writer, appended)
                    })
                    .await?;
                appended?;
            }
            let uuid = writer.directory().uuid().ok_or("a directory without a UUID")?;
            pool.run(move || directory.retire(uuid, writer.history())).await??;
            Ok::<(), Error>(())
        })
    };
    let running: Vec<_> = (0..count).map(task).collect();
    runtime.block_on(async {
        for task in running {
            task.await??;
        }
        Ok(())
    })
}
