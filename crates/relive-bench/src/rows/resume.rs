//! Resuming a long process: opening its journal and planning the next step, next to parsing and reading the file.

use std::fs::{self, File};
use std::hint::black_box;
use std::path::Path;

use relive_core::Uuid;
use relive_journal::DataDirectory;
use serde::de::IgnoredAny;

use crate::Result;
use crate::options::Options;
use crate::place::Place;
use crate::rounds::{Rounds, seconds};
use crate::sample::{Agent, Checkpoint, data_directory};
use crate::table::{Mark, Row, milliseconds};

pub(super) fn measure(options: &Options, place: &Place) -> Result<Vec<Row>> {
    eprintln!("resume: making two histories of {} MB", options.history_bytes >> 20);
    let directory = data_directory(&place.directory("resume")?)?;
    let bare = Agent::with_history(&directory, options.history_bytes, Checkpoint::None)?.uuid()?;
    let checkpointed = Agent::with_history(&directory, options.history_bytes, Checkpoint::Recent)?.uuid()?;
    let journal = directory.directory(bare).steps();
    let text = fs::read(&journal)?;
    let lines: Vec<&[u8]> = text.split_inclusive(|byte| *byte == b'\n').collect();

    let mut rounds: [Rounds; 4] = Default::default();
    for round in 0..=options.rounds {
        let parse = seconds(|| parse(&lines))?.0;
        let read = seconds(|| Ok(black_box(fs::read(&journal)?)))?.0;
        let from_start = seconds(|| resume(&directory, bare))?.0;
        let from_checkpoint = seconds(|| resume(&directory, checkpointed))?.0;
        let with_conversation =
            seconds(|| converse(&directory, checkpointed, &directory.directory(checkpointed).steps()))?.0;
        // The first round warms up.
        if round > 0 {
            let pairs = [(from_start, parse), (from_start, read), (from_checkpoint, parse), (with_conversation, parse)];
            for (rounds, (ours, peer)) in rounds.iter_mut().zip(pairs) {
                rounds.add(ours, peer);
            }
        }
    }
    let size = format!("{} MB", options.history_bytes >> 20);
    let row = |name: String, rounds: &Rounds, peer: &str, mark| Row {
        name,
        ours: milliseconds(rounds.ours()),
        peer: format!("{}  {peer}", milliseconds(rounds.peer())),
        ratio: rounds.ratio(),
        mark,
    };
    let [parsed, read, checkpoint, conversation] = &rounds;
    Ok(vec![
        row(format!("open and plan {size}, no checkpoint"), parsed, "parsing it", Mark::AtMost(10.0)),
        row("  the same".to_owned(), read, "reading it", Mark::None),
        row(format!("open and plan {size}, checkpoint"), checkpoint, "parsing it", Mark::AtMost(10.0)),
        row("  and rebuild the conversation".to_owned(), conversation, "parsing it", Mark::AtMost(10.0)),
    ])
}

fn parse(lines: &[&[u8]]) -> Result<()> {
    for line in lines {
        black_box(serde_json::from_slice::<IgnoredAny>(line)?);
    }
    Ok(())
}

fn resume(directory: &DataDirectory, uuid: Uuid) -> Result<()> {
    let writer = crate::sample::reopen(directory, uuid)?;
    black_box(writer.history().plan());
    Ok(())
}

fn converse(directory: &DataDirectory, uuid: Uuid, journal: &Path) -> Result<()> {
    let writer = crate::sample::reopen(directory, uuid)?;
    black_box(writer.history().plan());
    black_box(writer.history().conversation(&File::open(journal)?)?);
    Ok(())
}
