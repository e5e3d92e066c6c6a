//! A graph of programs that do nothing, beside the same number of programs without a graph.

use std::fmt::Write as _;
use std::time::Instant;

use relive_api::{ExecRequest, FlowRequest};
use relive_core::{Uuid, uuid_v7};
use serde_json::json;

use crate::Result;
use crate::daemon::{Daemon, Home};
use crate::options::Options;
use crate::place::Place;
use crate::rounds::Rounds;
use crate::table::{Mark, Row, milliseconds};

/// The nodes of one level, and the programs that are started at once without a graph.
const WIDTH: usize = 40;
const NODES: usize = 1000;
/// The programs of a full run of `adopt`.
const FULL_ALIVE: usize = 200;
/// Each takes a while.
const ROUNDS: usize = 2;

pub(super) fn measure(options: &Options, place: &Place) -> Result<Vec<Row>> {
    // A smoke run has fewer of everything.
    let count = if options.alive < FULL_ALIVE { NODES / 10 } else { NODES };
    let root = place.directory("compose")?;
    let home = Home::new(root.join("home"))?;
    let (_, daemon) = Daemon::start(&home)?;
    let text = graph(count)?;
    let mut rounds = Rounds::default();
    for round in 0..=ROUNDS {
        let run = uuid(round, count)?;
        let request: FlowRequest = serde_json::from_value(
            json!({"uuid": run, "kind": "compose", "file": "graph.yaml", "text": text, "cwd": "/", "env": {}}),
        )?;
        let begun = Instant::now();
        daemon.at_once(1, &[request], |client, request| {
            client.call(|client| client.start_flow(request))?;
            let id = request.uuid.to_string();
            Ok(client.call(|client| client.wait_for_end(&id))?)
        })?;
        let ours = begun.elapsed().as_secs_f64();
        let programs = (0..count).map(|number| program(round, number)).collect::<Result<Vec<_>>>()?;
        let begun = Instant::now();
        daemon.at_once(WIDTH, &programs, |client, request| {
            client.call(|client| client.exec(request))?;
            let id = request.uuid.to_string();
            Ok(client.call(|client| client.wait_for_end(&id))?)
        })?;
        // The first round warms up.
        if round > 0 {
            let each = count as f64;
            rounds.add(ours / each, begun.elapsed().as_secs_f64() / each);
        }
    }
    Ok(vec![Row {
        name: format!("compose: a node of {count}"),
        ours: milliseconds(rounds.ours()),
        peer: format!("{}  exec", milliseconds(rounds.peer())),
        ratio: rounds.ratio(),
        mark: Mark::None,
    }])
}

/// Each node depends on two of the level before.
fn graph(count: usize) -> Result<String> {
    let mut text = "nodes:\n".to_owned();
    for node in 0..count {
        let on = match node.checked_sub(WIDTH) {
            Some(above) if above % WIDTH == 0 => format!("[n{above}]"),
            Some(above) => format!("[n{}, n{above}]", above - 1),
            None => "[]".to_owned(),
        };
        writeln!(text, "  n{node}: {{command: [/bin/true], depends_on: {on}}}")?;
    }
    Ok(text)
}

fn uuid(round: usize, number: usize) -> Result<Uuid> {
    let mut random = [0; 10];
    random[..4].copy_from_slice(&u32::try_from(round)?.to_le_bytes());
    random[4..8].copy_from_slice(&u32::try_from(number)?.to_le_bytes());
    Ok(uuid_v7(relive_core::Timestamp::from_millisecond(1_700_000_000_000)?, random))
}

fn program(round: usize, number: usize) -> Result<ExecRequest> {
    let uuid = uuid(round, number)?;
    let request = json!({"uuid": uuid, "argv": ["/bin/true"], "cwd": "/", "stdio": "null", "env": {}});
    Ok(serde_json::from_value(request)?)
}
