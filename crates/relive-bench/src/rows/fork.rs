//! A fork of a long journal, next to copying its file.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use relive_core::Uuid;
use relive_journal::DataDirectory;
use relive_journal::data::{ForkPoint, ForkRequest};
use relive_journal::record::OpenedBy;

use crate::Result;
use crate::options::Options;
use crate::place::Place;
use crate::rounds::{Rounds, seconds};
use crate::sample::{Agent, Checkpoint, data_directory, opening, uuid};
use crate::table::{Mark, Row, milliseconds};

pub(super) fn measure(options: &Options, place: &Place) -> Result<Vec<Row>> {
    eprintln!("fork: making two histories of {} MB", options.history_bytes >> 20);
    let root = place.directory("fork")?;
    let directory = data_directory(&root)?;
    let bare = Agent::with_history(&directory, options.history_bytes, Checkpoint::None)?.uuid()?;
    let agent = Agent::with_history(&directory, options.history_bytes, Checkpoint::Recent)?;
    let (checkpointed, last) = (agent.uuid()?, agent.writer.history().completed_step);
    let journal = directory.directory(checkpointed).steps();
    drop(agent);

    let size = format!("{} MB", options.history_bytes >> 20);
    let mut rows = [
        (format!("fork {size} at its end"), checkpointed, ForkPoint::End, Rounds::default()),
        (format!("fork {size} from its last step"), checkpointed, ForkPoint::Step(last), Rounds::default()),
        ("  without a checkpoint".to_owned(), bare, ForkPoint::Step(last), Rounds::default()),
    ];
    for round in 0..=options.rounds {
        for (_, source, point, rounds) in &mut rows {
            let copied = copy(&journal, &root.join("copy"))?;
            let forked = fork(&directory, *source, *point)?;
            // The first round warms up.
            if round > 0 {
                rounds.add(forked, copied);
            }
        }
    }
    let row = |(name, _, _, rounds): (String, _, _, Rounds)| Row {
        name,
        ours: milliseconds(rounds.ours()),
        peer: format!("{}  copy+fsync", milliseconds(rounds.peer())),
        ratio: rounds.ratio(),
        mark: Mark::AtMost(3.0),
    };
    Ok(rows.into_iter().map(row).collect())
}

/// Returns how long a copy takes; it is removed again.
fn copy(from: &Path, to: &Path) -> Result<f64> {
    let (taken, ()) = seconds(|| {
        let mut file = File::create_new(to)?;
        io::copy(&mut File::open(from)?, &mut file)?;
        Ok(file.sync_all()?)
    })?;
    fs::remove_file(to)?;
    Ok(taken)
}

/// Returns how long a fork takes; it is removed again.
fn fork(directory: &DataDirectory, source: Uuid, point: ForkPoint) -> Result<f64> {
    let request = ForkRequest {
        uuid: uuid(),
        opening: opening(directory, OpenedBy::Spawn)?,
        source,
        point,
        name: None,
        parent_uuid: None,
        limits: None,
        input: None,
        workspace: None,
        request: None,
        within: None,
    };
    let (taken, writer) = seconds(|| Ok(directory.fork(request)?))?;
    fs::remove_dir_all(writer.directory().path())?;
    Ok(taken)
}
