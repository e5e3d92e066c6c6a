//! A start after a kill -9 with many programs that run on, beside a start with nothing.

use std::time::Instant;

use relive_api::ExecRequest;
use relive_api::SignalRequest;
use relive_core::uuid_v7;
use serde_json::json;

use super::recover::await_running;
use super::sessions::SLEEP;
use crate::Result;
use crate::daemon::{Daemon, Home};
use crate::options::Options;
use crate::place::Place;
use crate::rounds::Rounds;
use crate::table::{Mark, Row, milliseconds};

/// In milliseconds, on a machine that does nothing else.
const ADOPTED_MAX_MS: f64 = 200.0;
const CONNECTIONS: usize = 8;

pub(super) fn measure(options: &Options, place: &Place) -> Result<Vec<Row>> {
    let (count, root) = (options.alive, place.directory("adopt")?);
    let (nothing, many) = (Home::new(root.join("nothing"))?, Home::new(root.join("many"))?);
    let (_, mut daemon) = Daemon::start(&many)?;
    let requests = (0..count).map(request).collect::<Result<Vec<_>>>()?;
    let begun = Instant::now();
    daemon.at_once(CONNECTIONS, &requests, |client, request| Ok(client.call(|client| client.exec(request))?))?;
    let started = begun.elapsed().as_secs_f64();
    let mut rounds = Rounds::default();
    for round in 0..=options.session_rounds {
        await_running(&daemon, count)?;
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
    let kill = SignalRequest { signal: "SIGKILL".to_owned(), subtree: false };
    daemon.at_once(CONNECTIONS, &requests, |client, request| {
        let id = request.uuid.to_string();
        Ok(client.call(async |client| {
            client.signal(&id, &kill).await?;
            client.wait_for_end(&id).await
        })?)
    })?;
    let adopted = Row {
        name: format!("adoption of {count} programs"),
        ours: milliseconds(rounds.ours()),
        peer: format!("{}  nothing", milliseconds(rounds.peer())),
        ratio: rounds.ratio(),
        mark: Mark::Within { ms: rounds.ours() * 1e3, limit_ms: ADOPTED_MAX_MS },
    };
    let begun = Row {
        name: format!("exec -d of {count} programs"),
        ours: milliseconds(started),
        peer: "-".to_owned(),
        ratio: f64::NAN.into(),
        mark: Mark::None,
    };
    Ok(vec![begun, adopted])
}

fn request(number: usize) -> Result<ExecRequest> {
    let mut random = [0; 10];
    // The last bytes: the version and the variant of a UUID replace bits of the first ones.
    random[2..].copy_from_slice(&(number as u64).to_be_bytes());
    let uuid = uuid_v7(relive_core::Timestamp::from_millisecond(1_700_000_000_000)?, random);
    let request = json!({"uuid": uuid, "argv": SLEEP, "cwd": "/", "stdio": "null", "env": {}});
    Ok(serde_json::from_value(request)?)
}
