//! One step with one call, next to one raw append and `fdatasync` of the step's bytes.

use std::fs::File;
use std::io::Write as _;

use relive_journal::Durability;

use crate::Result;
use crate::options::Options;
use crate::place::Place;
use crate::rounds::{Rounds, median_seconds, wait_until_still};
use crate::sample::{Agent, StepData, data_directory};
use crate::table::{Mark, Row, milliseconds};

pub(super) fn measure(options: &Options, place: &Place) -> Result<Vec<Row>> {
    let root = place.directory("step")?;
    let directory = data_directory(&root)?;
    let data = StepData::of_bytes(1024)?;
    let bytes = Agent::batches_on_disk(&directory, &data)?.concat();
    let mut raw = File::create(root.join("raw"))?;
    let (mut plain, mut eventful) = (Agent::spawn(&directory, &data)?, Agent::spawn(&directory, &data)?);
    let (mut alone, mut with_event) = (Rounds::default(), Rounds::default());
    for round in 0..=options.rounds {
        let raw = median_seconds(options.steps, || {
            raw.write_all(&bytes)?;
            Ok(raw.sync_data()?)
        })?;
        let plain = median_seconds(options.steps, || plain.step(Durability::Synced))?;
        let eventful = median_seconds(options.steps, || {
            eventful.append(Durability::Synced)?;
            eventful.event()?;
            eventful.append(Durability::Synced)
        })?;
        wait_until_still(|| directory.io().disk.counts());
        // The first round warms up.
        if round > 0 {
            alone.add(plain, raw);
            with_event.add(eventful, raw);
        }
    }
    let row = |name: &str, rounds: &Rounds, mark| Row {
        name: name.to_owned(),
        ours: milliseconds(rounds.ours()),
        peer: format!("{}  append+sync", milliseconds(rounds.peer())),
        ratio: rounds.ratio(),
        mark,
    };
    Ok(vec![
        row("step with 1 call (2 syncs)", &alone, Mark::AtMost(2.5)),
        row("  and an event", &with_event, Mark::None),
    ])
}
