//! A daemon with many ended processes: its start, look-ups and lists, next to reading one journal.

use std::fs;
use std::hint::black_box;
use std::time::{Duration, Instant};

use relive_client::{BlockingClient, Error};
use relive_core::ErrorCode;
use relive_journal::ProcInfo;

use super::start::with_histories;
use crate::Result;
use crate::daemon::{Daemon, Home};
use crate::options::Options;
use crate::place::Place;
use crate::rounds::{Ratio, Rounds, median_seconds};
use crate::sample::data_directory;
use crate::table::{Mark, Row, milliseconds};

const TIMES: usize = 21;
/// In milliseconds, on a machine that does nothing else.
const LOOK_UP_MAX_MS: f64 = 5.0;
const PAGE_MAX_MS: f64 = 50.0;
const INDEXED_WITHIN: Duration = Duration::from_secs(600);
const LOOK_EVERY: Duration = Duration::from_millis(5);

const UNKNOWN: &str = "/v1/processes/nobody";
const PAGE: &str = "/v1/processes?all=true&limit=256";
const NEWEST: &str = "/v1/processes?all=true&limit=256&newest=true";
const MATCHES_NONE: &str = "/v1/processes?all=true&limit=256&name=nobody-*";

pub(super) fn measure(options: &Options, place: &Place) -> Result<Vec<Row>> {
    let root = place.directory("daemon-histories")?;
    let (nothing, many) = (Home::new(root.join("nothing"))?, Home::new(root.join("many"))?);
    with_histories(&many.data(), options.histories, place)?;
    let one = {
        let data = data_directory(&many.data())?;
        let uuid = data.uuids()?.pop().ok_or("no histories")?;
        data.directory(uuid)
    };
    let mut rows = vec![first_start(options, &nothing, &many)?, later_starts(options, &nothing, &many)?];
    let (_, daemon) = Daemon::start(&many)?;
    let client = daemon.client()?;
    until_indexed(&client)?;
    let asked = [
        ("unknown name", UNKNOWN, Some(ErrorCode::NotFound), LOOK_UP_MAX_MS),
        ("page of ps -a", PAGE, None, PAGE_MAX_MS),
        ("newest page", NEWEST, None, PAGE_MAX_MS),
        ("filter, no match", MATCHES_NONE, None, PAGE_MAX_MS),
    ];
    for (what, path, expected, limit_ms) in asked {
        let mut rounds = Rounds::default();
        for round in 0..=options.rounds {
            let ours = median_seconds(TIMES, || match refusal(&client, path)? {
                refused if refused == expected => Ok(()),
                refused => Err(format!("{path}: {refused:?}").into()),
            })?;
            let reading = median_seconds(TIMES, || {
                black_box(ProcInfo::read(&one)?);
                Ok(())
            })?;
            // The first round warms up.
            if round > 0 {
                rounds.add(ours, reading);
            }
        }
        rows.push(Row {
            name: format!("{} histories: {what}", options.histories),
            ours: milliseconds(rounds.ours()),
            peer: format!("{}  reading one", milliseconds(rounds.peer())),
            ratio: rounds.ratio(),
            mark: Mark::Within { ms: rounds.ours() * 1e3, limit_ms },
        });
    }
    drop(daemon);
    // For the next row that needs them.
    fs::rename(many.data().join("steps"), place.histories())?;
    Ok(rows)
}

/// Measures a start without an index, which is then built in the background.
fn first_start(options: &Options, nothing: &Home, many: &Home) -> Result<Row> {
    let (alone, _) = Daemon::start(nothing)?;
    let (among, daemon) = Daemon::start(many)?;
    let built = until_indexed(&daemon.client()?)?;
    eprintln!("histories: indexed in {}", milliseconds(built));
    Ok(start_row(format!("{} histories: first start", options.histories), among, alone, among / alone))
}

/// Measures starts after a kill: changes that the index has missed are found in the background.
fn later_starts(options: &Options, nothing: &Home, many: &Home) -> Result<Row> {
    let mut rounds = Rounds::default();
    for round in 0..=options.crowd_rounds {
        let (alone, _) = Daemon::start(nothing)?;
        let (among, daemon) = Daemon::start(many)?;
        let compared = until_indexed(&daemon.client()?)?;
        if round > 0 {
            rounds.add(among, alone);
        } else {
            eprintln!("histories: compared in {}", milliseconds(compared));
        }
    }
    let name = format!("{} histories: start", options.histories);
    Ok(start_row(name, rounds.ours(), rounds.peer(), rounds.ratio()))
}

fn start_row(name: String, ours: f64, peer: f64, ratio: impl Into<Ratio>) -> Row {
    let peer = format!("{}  nothing", milliseconds(peer));
    Row { name, ours: milliseconds(ours), peer, ratio: ratio.into(), mark: Mark::AtMost(1.2) }
}

/// Waits until the daemon can answer that a process does not exist. Returns how long that took.
pub(super) fn until_indexed(client: &BlockingClient) -> Result<f64> {
    let begun = Instant::now();
    while refusal(client, UNKNOWN)? != Some(ErrorCode::NotFound) {
        if begun.elapsed() > INDEXED_WITHIN {
            return Err("the index is not complete".into());
        }
        std::thread::sleep(LOOK_EVERY);
    }
    Ok(begun.elapsed().as_secs_f64())
}

/// Sends a request, and returns the code of the refusal, if there is one.
fn refusal(client: &BlockingClient, path: &str) -> Result<Option<ErrorCode>> {
    match client.call(|client| client.fetch(path)) {
        Ok(_) => Ok(None),
        Err(Error::Refused(detail)) => Ok(Some(detail.code)),
        Err(error) => Err(error.into()),
    }
}
