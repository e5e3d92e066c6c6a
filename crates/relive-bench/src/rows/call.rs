//! One request to the API, next to a one-byte echo on a unix socket.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;

use crate::Result;
use crate::daemon::{Daemon, Home};
use crate::options::Options;
use crate::place::Place;
use crate::rounds::{Rounds, median_seconds};
use crate::table::{Mark, Row, milliseconds};

const PATH: &str = "/v1/daemon";

pub(super) fn measure(options: &Options, place: &Place) -> Result<Vec<Row>> {
    let (_, daemon) = Daemon::start(&Home::new(place.directory("call")?)?)?;
    let (mut echo, client) = (echo()?, daemon.client()?);
    let (mut kept, mut anew) = (Rounds::default(), Rounds::default());
    for round in 0..=options.rounds {
        let raw = median_seconds(options.steps, || {
            echo.write_all(b"x")?;
            Ok(echo.read_exact(&mut [0])?)
        })?;
        let call = median_seconds(options.steps, || Ok(client.call(|client| client.fetch(PATH)).map(drop)?))?;
        let connected = median_seconds(options.steps, || {
            client.call(|client| {
                client.disconnect();
                client.fetch(PATH)
            })?;
            Ok(())
        })?;
        // The first round warms up.
        if round > 0 {
            kept.add(call, raw);
            anew.add(connected, raw);
        }
    }
    let row = |name: &str, rounds: &Rounds| Row {
        name: name.to_owned(),
        ours: milliseconds(rounds.ours()),
        peer: format!("{}  1-byte echo", milliseconds(rounds.peer())),
        ratio: rounds.ratio(),
        mark: Mark::None,
    };
    Ok(vec![row("call: GET /v1/daemon", &kept), row("  on a new connection", &anew)])
}

/// Returns the near end of a socket whose far end, on its own thread, echoes everything.
fn echo() -> Result<UnixStream> {
    let (near, mut far) = UnixStream::pair()?;
    std::thread::spawn(move || {
        let mut byte = [0];
        // Until the near end is closed.
        while far.read_exact(&mut byte).and_then(|()| far.write_all(&byte)).is_ok() {}
    });
    Ok(near)
}
