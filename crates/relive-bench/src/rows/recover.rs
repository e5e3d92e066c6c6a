//! A start after a kill -9 with many running agents, next to an empty start.

use std::time::{Duration, Instant};

use relive_client::Client;

use crate::Result;
use crate::daemon::{Daemon, Home};
use crate::options::Options;
use crate::place::Place;
use crate::rounds::Rounds;
use crate::runs::{self, Work};
use crate::table::{Mark, Row, milliseconds};

/// In milliseconds, on a machine that does nothing else.
const RECOVERED_MAX_MS: f64 = 600.0;
const RUNNING_WITHIN: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(2);
/// After this time the journal of each agent says that its model was asked. Killed earlier, it would look like one that
/// crashes the daemon.
const RECORDED_WITHIN: Duration = Duration::from_millis(500);

pub(super) fn measure(options: &Options, place: &Place) -> Result<Vec<Row>> {
    let (count, root) = (options.recovered, place.directory("recover")?);
    let work = Work::new(root.join("work"), "  - hang: true\n")?;
    let (nothing, many) = (Home::new(root.join("nothing"))?, Home::new(root.join("many"))?);
    eprintln!("recover: beginning {count} agents");
    let (_, mut daemon) = Daemon::start(&many)?;
    runs::begin_all(&daemon, &work, count)?;
    await_running(&daemon, count)?;
    let mut rounds = Rounds::default();
    for round in 0..=options.crowd_rounds {
        std::thread::sleep(RECORDED_WITHIN);
        drop(daemon);
        let (alone, _) = Daemon::start(&nothing)?;
        let begun = Instant::now();
        daemon = Daemon::start(&many)?.1;
        await_running(&daemon, count)?;
        // The first round warms up.
        if round > 0 {
            rounds.add(begun.elapsed().as_secs_f64(), alone);
        }
    }
    Ok(vec![Row {
        name: format!("recover: {count} running"),
        ours: milliseconds(rounds.ours()),
        peer: format!("{}  nothing", milliseconds(rounds.peer())),
        ratio: rounds.ratio(),
        mark: Mark::Within { ms: rounds.ours() * 1e3, limit_ms: RECOVERED_MAX_MS },
    }])
}

pub(super) fn await_running(daemon: &Daemon, count: usize) -> Result<()> {
    let (client, begun) = (daemon.client()?, Instant::now());
    loop {
        let status = client.call(Client::daemon)?;
        if status.running == count {
            return Ok(());
        }
        if status.suspended > 0 || begun.elapsed() > RUNNING_WITHIN {
            return Err(format!("{} of {count} run, {} are suspended", status.running, status.suspended).into());
        }
        std::thread::sleep(LOOK_EVERY);
    }
}
