//! A fork of a long history, beside copying its file.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use relive_core::Uuid;
use relive_journal::DataFolder;
use relive_journal::data::{ForkPoint, ForkRequest};
use relive_journal::record::OpenedBy;

use crate::Result;
use crate::options::Options;
use crate::place::Place;
use crate::rounds::{Rounds, seconds};
use crate::sample::{Agent, Checkpoint, data_folder, opening, uuid};
use crate::table::{Mark, Row, milliseconds};

pub(super) fn measure(options: &Options, place: &Place) -> Result<Vec<Row>> {
    eprintln!("fork: making a history of {} MB", options.history_bytes >> 20);
    let root = place.folder("fork")?;
    let folder = data_folder(&root)?;
    let agent = Agent::with_history(&folder, options.history_bytes, Checkpoint::Recent)?;
    let (source, last) = (agent.uuid()?, agent.writer.history().completed_step);
    let journal = folder.folder(source).steps();
    drop(agent);

    let (mut at_end, mut at_step) = (Rounds::default(), Rounds::default());
    for round in 0..=options.rounds {
        let copied = copy(&journal, &root.join("copy"))?;
        let end = fork(&folder, source, ForkPoint::End)?;
        let step = fork(&folder, source, ForkPoint::Step(last))?;
        // The first round warms up.
        if round > 0 {
            at_end.add(end, copied);
            at_step.add(step, copied);
        }
    }
    let row = |name: String, rounds: &Rounds| Row {
        name,
        ours: milliseconds(rounds.ours()),
        peer: format!("{}  copy+fsync", milliseconds(rounds.peer())),
        ratio: rounds.ratio(),
        mark: Mark::AtMost(3.0),
    };
    let size = format!("{} MB", options.history_bytes >> 20);
    Ok(vec![row(format!("fork {size} at its end"), &at_end), row(format!("fork {size} from its last step"), &at_step)])
}

/// How long a copy takes; it is removed again.
fn copy(from: &Path, to: &Path) -> Result<f64> {
    let (taken, ()) = seconds(|| {
        let mut file = File::create_new(to)?;
        io::copy(&mut File::open(from)?, &mut file)?;
        Ok(file.sync_all()?)
    })?;
    fs::remove_file(to)?;
    Ok(taken)
}

/// How long a fork takes; it is removed again.
fn fork(folder: &DataFolder, source: Uuid, point: ForkPoint) -> Result<f64> {
    let request = ForkRequest {
        uuid: uuid(),
        opening: opening(folder, OpenedBy::Spawn)?,
        source,
        point,
        name: None,
        parent_uuid: None,
        limits: None,
        input: None,
    };
    let (taken, writer) = seconds(|| Ok(folder.fork(request)?))?;
    fs::remove_dir_all(writer.folder().path())?;
    Ok(taken)
}
