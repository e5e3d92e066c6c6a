//! Launches, next to `posix_spawn` of the same program: one after the other, with a large launcher, and many
//! concurrently.

use std::hint::black_box;
use std::path::Path;
use std::time::Instant;

use relive_session::protocol::Verb;
use relive_session::spec::{Namespace, Spec};
use relive_session::stage::SessionResult;
use relive_session::{Connection, SessionDirectory};

use super::{Raw, SLEEP, quiet};
use crate::Result;
use crate::lab::Lab;
use crate::options::Options;
use crate::rounds::{Rounds, median, seconds};
use crate::table::{Mark, Row, milliseconds};

const PROGRAM: &str = "/bin/true";
const BALLAST_BYTES: usize = 1 << 30;
const PAGE_BYTES: usize = 4096;
/// With a launch by fork the ratio would be more than ten.
const BALLAST_RATIO_MAX: f64 = 1.3;

pub(super) fn measure(options: &Options, lab: &Lab) -> Result<Vec<Row>> {
    let mut rows = one_by_one(options, lab)?;
    rows.push(with_ballast(options, lab)?);
    rows.push(at_once(options, lab)?);
    Ok(rows)
}

/// The seconds from the start until the program runs, and until its end is known.
#[derive(Debug, Clone, Copy)]
struct Times {
    runs: f64,
    ended: f64,
}

fn launched(lab: &Lab, spec: &Spec) -> Result<Times> {
    let path = lab.next()?;
    let begun = Instant::now();
    let connection = lab.launch(&path, spec)?;
    let runs = begun.elapsed().as_secs_f64();
    lab.ended(&connection, &SessionResult::Exited(0))?;
    let ended = begun.elapsed().as_secs_f64();
    wait_for_the_shim(&path)?;
    Ok(Times { runs, ended })
}

/// Waits for the work of a shim after its end is known, so that it does not affect the next launch.
fn wait_for_the_shim(path: &Path) -> Result<()> {
    let folder = SessionDirectory::open(path)?;
    while !folder.lock_is_free()? {
        std::thread::yield_now();
    }
    Ok(())
}

fn spawned() -> Result<Times> {
    let begun = Instant::now();
    let mut child = quiet(&[PROGRAM]).spawn()?;
    let runs = begun.elapsed().as_secs_f64();
    child.wait()?;
    Ok(Times { runs, ended: begun.elapsed().as_secs_f64() })
}

fn medians(count: usize, mut launch: impl FnMut() -> Result<Times>) -> Result<Times> {
    let all = (0..count).map(|_| launch()).collect::<Result<Vec<_>>>()?;
    Ok(Times {
        runs: median(all.iter().map(|times| times.runs).collect()),
        ended: median(all.iter().map(|times| times.ended).collect()),
    })
}

fn one_by_one(options: &Options, lab: &Lab) -> Result<Vec<Row>> {
    let spec = lab.spec(&[PROGRAM], Namespace::AsPlanned);
    let count = options.launches;
    let [mut runs, mut ends] = [(); 2].map(|()| Rounds::default());
    for round in 0..=options.rounds {
        let raw = medians(count, spawned)?;
        let ours = medians(count, || launched(lab, &spec))?;
        // The first round warms up.
        if round > 0 {
            runs.add(ours.runs, raw.runs);
            ends.add(ours.ended, raw.ended);
        }
    }
    let row = |name: &str, rounds: &Rounds, peer: &str| Row {
        name: name.to_owned(),
        ours: milliseconds(rounds.ours()),
        peer: format!("{}  {peer}", milliseconds(rounds.peer())),
        ratio: rounds.ratio(),
        mark: Mark::None,
    };
    Ok(vec![
        row("session /bin/true until it runs", &runs, "posix_spawn"),
        row("  until its end is on the disk", &ends, "spawn, wait"),
    ])
}

fn with_ballast(options: &Options, lab: &Lab) -> Result<Row> {
    let spec = lab.spec(&[PROGRAM], Namespace::AsPlanned);
    let launches = || medians(options.launches, || launched(lab, &spec));
    let mut rounds = Rounds::default();
    for _ in 0..options.rounds {
        let light = launches()?.runs;
        let mut ballast = vec![0_u8; BALLAST_BYTES];
        ballast.iter_mut().step_by(PAGE_BYTES).for_each(|byte| *byte = 1);
        let heavy = launches()?.runs;
        black_box(&ballast);
        rounds.add(heavy, light);
    }
    Ok(Row {
        name: "  with 1 GiB in the launcher".to_owned(),
        ours: milliseconds(rounds.ours()),
        peer: format!("{}  without", milliseconds(rounds.peer())),
        ratio: rounds.ratio(),
        mark: Mark::AtMost(BALLAST_RATIO_MAX),
    })
}

fn at_once(options: &Options, lab: &Lab) -> Result<Row> {
    let spec = lab.spec(&SLEEP, Namespace::AsPlanned);
    let mut rounds = Rounds::default();
    for round in 0..=options.session_rounds {
        let (raw, sleepers) = seconds(|| Raw::spawn(options.alive))?;
        drop(sleepers);
        let paths = (0..options.alive).map(|_| lab.next()).collect::<Result<Vec<_>>>()?;
        let (ours, running) = seconds(|| lab.launch_all(paths.clone(), &spec))?;
        end(lab, &running)?;
        paths.iter().try_for_each(|path| wait_for_the_shim(path))?;
        // The first round warms up.
        if round > 0 {
            rounds.add(ours, raw);
        }
    }
    Ok(Row {
        name: format!("{} sessions at once until all run", options.alive),
        ours: milliseconds(rounds.ours()),
        peer: format!("{}  posix_spawns", milliseconds(rounds.peer())),
        ratio: rounds.ratio(),
        mark: Mark::None,
    })
}

/// Kills them; they must still be running.
fn end(lab: &Lab, running: &[Connection]) -> Result<()> {
    for connection in running {
        lab.done(connection, Verb::Kill)?;
    }
    running.iter().try_for_each(|connection| lab.ended(connection, &SessionResult::Signaled(super::SIGKILL)))
}
