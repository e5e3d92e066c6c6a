//! The disk space of 1,000 steps, next to their payload: by the journal alone, and through the daemon.

use std::fs;
use std::path::Path;

use relive_journal::Durability;

use crate::Result;
use crate::daemon::{Daemon, Home};
use crate::options::Options;
use crate::place::Place;
use crate::runs::{self, Work};
use crate::sample::{Agent, StepData, data_directory};
use crate::table::{Mark, Row, kilobytes};

const STEPS: u64 = 1_000;
const CHECKPOINT_EVERY: u64 = 5;

pub(super) fn measure(_options: &Options, place: &Place) -> Result<Vec<Row>> {
    let directory = data_directory(&place.directory("disk")?)?;
    let mut rows = Vec::new();
    for (kilobyte, mark) in [(1, Mark::None), (4, Mark::AtMost(1.3))] {
        eprintln!("disk: {STEPS} steps of {kilobyte} KB");
        let data = StepData::of_bytes(kilobyte << 10)?;
        let mut agent = Agent::spawn(&directory, &data)?;
        for step in 1..=STEPS {
            agent.step(Durability::Written)?;
            if step % CHECKPOINT_EVERY == 0 {
                agent.writer.checkpoint()?;
            }
        }
        agent.end()?;
        directory.retire(agent.uuid()?, agent.writer.history())?;
        let (held, used) = (data.bytes() as u64 * STEPS, bytes_in(agent.writer.directory().path())?);
        #[expect(clippy::cast_precision_loss, reason = "a ratio is not exact")]
        let ratio = used as f64 / held as f64;
        let (ours, peer) = (kilobytes(used), format!("{}  in the steps", kilobytes(held)));
        rows.push(Row { name: format!("disk: {STEPS} steps of {kilobyte} KB"), ours, peer, ratio: ratio.into(), mark });
    }
    rows.push(through_the_daemon(place)?);
    Ok(rows)
}

/// Runs an agent that reads 4 KB in each step; returns the size of its directory next to the payload.
fn through_the_daemon(place: &Place) -> Result<Row> {
    eprintln!("disk: {STEPS} steps through the daemon");
    let root = place.directory("disk-daemon")?;
    let (said, args, read) =
        ("The note may say more.", r#"{"path":"note.txt"}"#, "a line that is like others, as most are\n".repeat(100));
    let turn = format!("  - text: {said}\n    calls: [{{name: read, args: {args}}}]\n    repeat: {STEPS}\n");
    let work = Work::new(root.join("work"), &turn)?;
    fs::write(work.path().join("note.txt"), &read)?;
    let (_, daemon) = Daemon::start(&Home::new(root.join("home"))?)?;
    let uuid = runs::run(&daemon.client()?, &work)?;
    let directory = daemon.home().process(uuid);
    let held = (said.len() + args.len() + read.len()) as u64 * STEPS;
    let used = bytes_in(directory.path())?;
    for file in [directory.steps(), directory.events()] {
        let name = file.file_name().unwrap_or_default().display().to_string();
        eprintln!("disk: {name} {} bytes a step", fs::metadata(&file)?.len() / STEPS);
    }
    #[expect(clippy::cast_precision_loss, reason = "a ratio is not exact")]
    let ratio = used as f64 / held as f64;
    Ok(Row {
        name: "  through the daemon, with events".to_owned(),
        ours: kilobytes(used),
        peer: format!("{}  in the steps", kilobytes(held)),
        ratio: ratio.into(),
        mark: Mark::AtMost(1.3),
    })
}

/// Returns the length of all files of a directory.
fn bytes_in(directory: &Path) -> Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let metadata = entry.metadata()?;
        bytes += if metadata.is_dir() { bytes_in(&entry.path())? } else { metadata.len() };
    }
    Ok(bytes)
}
