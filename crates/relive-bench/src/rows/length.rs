//! The CPU time of a late step, next to that of an early one of the same agent.

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::Result;
use crate::daemon::{Daemon, Home, cpu_seconds};
use crate::options::Options;
use crate::place::Place;
use crate::rounds::Rounds;
use crate::runs::{self, Work};
use crate::table::{Mark, Row, milliseconds};

/// The step around which the early ones are.
const EARLY: usize = 100;
/// How many steps are measured there and at the end. A clock tick is much shorter than all of them.
const WINDOW: usize = 160;
/// How long the model waits between two parts, and how long the daemon is left alone after its last step.
const DELAY: Duration = Duration::from_millis(1_000);
const SETTLE: Duration = Duration::from_millis(250);
const LOOK_EVERY: Duration = Duration::from_millis(10);
const PART_WITHIN: Duration = Duration::from_secs(120);
/// More than the last record of a step that has not started its call.
const TAIL: u64 = 1024;

pub(super) fn measure(options: &Options, place: &Place) -> Result<Vec<Row>> {
    let root = place.directory("length")?;
    let bounds = bounds(options.long_steps);
    let work = Work::new(root.join("work"), &turns(&bounds))?;
    fs::write(work.path().join("note.txt"), "a line that is as long as most.\n".repeat(128))?;
    let mut rounds = Rounds::default();
    for round in 1..=options.long_rounds {
        eprintln!("length: {} steps, round {round} of {}", options.long_steps, options.long_rounds);
        let (_, daemon) = Daemon::start(&Home::new(root.join(round.to_string()))?)?;
        let client = daemon.client()?;
        let uuid = runs::begin(&client, &work)?.uuid;
        let (journal, mut at) = (daemon.home().process(uuid).steps(), Vec::new());
        for bound in bounds {
            await_step(&journal, bound + 1)?;
            std::thread::sleep(SETTLE);
            at.push(cpu_seconds(daemon.os_pid())?);
        }
        runs::wait_for(&client, uuid)?;
        rounds.add(at[3] - at[2], at[1] - at[0]);
    }
    #[expect(clippy::cast_precision_loss, reason = "a time is not exact")]
    let each = |taken: f64| milliseconds(taken / WINDOW as f64);
    Ok(vec![Row {
        name: format!("CPU of step {}, read 4 KB", options.long_steps),
        ours: each(rounds.ours()),
        peer: format!("{}  of step {EARLY}", each(rounds.peer())),
        ratio: rounds.ratio(),
        mark: Mark::AtMost(1.2),
    }])
}

/// Returns the steps after which the model waits: around the early ones, and around the late ones.
fn bounds(steps: usize) -> [usize; 4] {
    let half = WINDOW / 2;
    [EARLY - half, EARLY + half, steps - half, steps + half]
}

fn turns(bounds: &[usize; 4]) -> String {
    let read = "calls: [{name: read, args: {path: note.txt}}]";
    let (mut turns, mut before) = (String::new(), 0);
    for bound in bounds {
        let delay = if before == 0 { 0 } else { DELAY.as_millis() };
        let rest = bound - before - 1;
        turns += &format!("  - {read}\n    delay: {delay}ms\n  - {read}\n    repeat: {rest}\n");
        before = *bound;
    }
    turns + &format!("  - text: That was all.\n    delay: {}ms\n", DELAY.as_millis())
}

/// Waits until the model is asked for this step, without a request to the daemon.
fn await_step(journal: &Path, step: usize) -> Result<()> {
    let (begun, asked) = (Instant::now(), format!("\"kind\":\"model_started\",\"step\":{step},"));
    while begun.elapsed() < PART_WITHIN {
        if tail(journal)?.lines().next_back().is_some_and(|last| last.contains(&asked)) {
            return Ok(());
        }
        std::thread::sleep(LOOK_EVERY);
    }
    Err(format!("step {step} was not begun within {PART_WITHIN:?}").into())
}

fn tail(path: &Path) -> Result<String> {
    let file = File::open(path)?;
    let length = file.metadata()?.len();
    let from = length.saturating_sub(TAIL);
    let mut bytes = vec![0; usize::try_from(length - from)?];
    file.read_exact_at(&mut bytes, from)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
