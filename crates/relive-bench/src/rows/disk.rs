//! What 1,000 steps take on the disk, beside what they hold.

use std::fs;
use std::path::Path;

use relive_journal::Durability;

use crate::Result;
use crate::options::Options;
use crate::place::Place;
use crate::sample::{Agent, StepData, data_folder};
use crate::table::{Mark, Row, kilobytes};

const STEPS: u64 = 1_000;
const CHECKPOINT_EVERY: u64 = 5;

pub(super) fn measure(_options: &Options, place: &Place) -> Result<Vec<Row>> {
    let directory = data_folder(&place.directory("disk")?)?;
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
        rows.push(Row { name: format!("disk: {STEPS} steps of {kilobyte} KB"), ours, peer, ratio, mark });
    }
    Ok(rows)
}

/// The lengths of all files of a directory.
fn bytes_in(directory: &Path) -> Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let metadata = entry.metadata()?;
        bytes += if metadata.is_dir() { bytes_in(&entry.path())? } else { metadata.len() };
    }
    Ok(bytes)
}
