//! A step that writes a file, with and without snapshots of the files: while its model takes half a second, and with a model
//! that answers at once, so that every snapshot is waited for.

use std::fs;
use std::path::Path;

use crate::Result;
use crate::daemon::{Daemon, Home, Snapshots};
use crate::options::Options;
use crate::place::Place;
use crate::rounds::{Rounds, seconds};
use crate::runs::{self, Work};
use crate::table::{Mark, Row, milliseconds};

const FILES: usize = 1_000;
const ROUNDS: usize = 3;

pub(super) fn measure(_: &Options, place: &Place) -> Result<Vec<Row>> {
    let root = place.directory("snapshots")?;
    let (_, with) = Daemon::start(&Home::with(root.join("with"), Snapshots::Taken)?)?;
    let (_, without) = Daemon::start(&Home::with(root.join("without"), Snapshots::Off)?)?;
    let models = [
        (Model { name: "model 500 ms", delay: "500ms", steps: 6 }, Mark::AtMost(1.02)),
        (Model { name: "instant model", delay: "0ms", steps: 100 }, Mark::None),
    ];
    models.into_iter().map(|(model, mark)| row(&root, [&with, &without], &model, mark)).collect()
}

/// A scripted model, and how often it is asked.
struct Model {
    name: &'static str,
    delay: &'static str,
    steps: u32,
}

fn row(root: &Path, daemons: [&Daemon; 2], model: &Model, mark: Mark) -> Result<Row> {
    let Model { name, delay, steps } = model;
    // Unchanged content is not written, so each turn writes something else.
    let call = "calls: [{name: write, args: {path: note.txt, content: \"{{uuid}} {{turn}}\"}}]";
    let turns = format!("  - delay: {delay}\n    {call}\n    repeat: {steps}\n");
    let mut rounds = Rounds::default();
    for round in 0..=ROUNDS {
        eprintln!("snapshots: {name}, round {round} of {ROUNDS}");
        let mut taken = [0.0; 2];
        for (time, (side, daemon)) in taken.iter_mut().zip(["with", "without"].into_iter().zip(daemons)) {
            let work = Work::new(root.join(format!("{side}-{delay}-{round}")), &turns)?;
            for number in 0..FILES {
                fs::write(work.path().join(format!("{number}.txt")), format!("{number}\n"))?;
            }
            *time = seconds(|| runs::run(&daemon.client()?, &work))?.0 / f64::from(*steps);
        }
        // The first round warms up.
        if round > 0 {
            rounds.add(taken[0], taken[1]);
        }
    }
    Ok(Row {
        name: format!("write step, {name}, 1k files"),
        ours: milliseconds(rounds.ours()),
        peer: format!("{} no snapshots", milliseconds(rounds.peer())),
        ratio: rounds.ratio(),
        mark,
    })
}
