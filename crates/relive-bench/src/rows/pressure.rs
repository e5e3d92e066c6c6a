//! The time of a `kill` while silent connections and searches load the daemon, next to one without load.

use std::fs;
use std::os::unix::net::UnixStream;
use std::path::Path;

use relive_api::SignalRequest;
use relive_client::Client;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::Result;
use crate::daemon::{Daemon, Home};
use crate::options::Options;
use crate::place::Place;
use crate::rounds::{Rounds, median, seconds};
use crate::runs::{self, Work};
use crate::table::{Mark, Row, milliseconds};

const SILENT: usize = 1_024;
const SEARCHES: usize = 80;
/// More than the searches finish in the time.
const SEARCHES_EACH: usize = 10_000;
const FILES: usize = 2_000;
const FILE_BYTES: usize = 16 << 10;
/// Fewer than fit into the 5 s after which silent connections are closed.
const KILLS: usize = 11;

pub(super) fn measure(options: &Options, place: &Place) -> Result<Vec<Row>> {
    let root = place.directory("pressure")?;
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum })?;
    let victim = Work::new(root.join("victim"), "  - hang: true\n")?;
    let turn = "  - calls: [{name: search, args: {pattern: nowhere}}]\n";
    let search = Work::new(root.join("search"), &format!("{turn}    repeat: {SEARCHES_EACH}\n"))?;
    fill(search.path())?;
    let (_, pressed) = Daemon::start(&Home::new(root.join("pressed"))?)?;
    let (_, free) = Daemon::start(&Home::new(root.join("free"))?)?;
    let mut rounds = Rounds::default();
    for round in 0..=options.crowd_rounds {
        eprintln!("pressure: round {round} of {}", options.crowd_rounds);
        let alone = kills(&free, &victim, Vec::new)?;
        let searching = runs::begin_all(&pressed, &search, SEARCHES)?;
        let socket = pressed.home().socket();
        let among = kills(&pressed, &victim, || silent(&socket))?;
        let running = pressed.client()?.call(Client::daemon)?.running;
        if running < SEARCHES {
            return Err(format!("{running} of {SEARCHES} searches were still running").into());
        }
        pressed.at_once(8, &searching, |client, uuid| kill(client, &uuid.to_string()))?;
        runs::await_none(&pressed)?;
        // The first round warms up.
        if round > 0 {
            rounds.add(among, alone);
        }
    }
    Ok(vec![Row {
        name: format!("kill: {SILENT} silent, {SEARCHES} searches"),
        ours: milliseconds(rounds.ours()),
        peer: format!("{}  idle", milliseconds(rounds.peer())),
        ratio: rounds.ratio(),
        mark: Mark::None,
    }])
}

fn fill(directory: &Path) -> Result<()> {
    let text = "a line that is as long as most.\n".repeat(FILE_BYTES / 32);
    (0..FILES).try_for_each(|number| Ok(fs::write(directory.join(format!("{number}.txt")), &text)?))
}

/// Opens silent connections: as many as the daemon accepts, so that each `kill` displaces one of them.
fn silent(socket: &Path) -> Vec<UnixStream> {
    (0..SILENT).filter_map(|_| UnixStream::connect(socket).ok()).collect()
}

/// Returns the median time until a `kill` is answered, each on its own connection.
fn kills(daemon: &Daemon, victim: &Work, press: impl FnOnce() -> Vec<UnixStream>) -> Result<f64> {
    let victims = runs::begin_all(daemon, victim, KILLS)?;
    let _pressing = press();
    let mut times = Vec::new();
    for uuid in victims {
        let (client, id) = (daemon.client()?, uuid.to_string());
        times.push(seconds(|| kill(&client, &id))?.0);
    }
    Ok(median(times))
}

fn kill(client: &relive_client::BlockingClient, id: &str) -> Result<()> {
    let request = SignalRequest { signal: "KILL".to_owned(), subtree: false };
    Ok(client.call(|client| client.signal(id, &request)).map(drop)?)
}
