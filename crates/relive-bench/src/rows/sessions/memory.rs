//! The memory of an idle session: its shim, and its init if it has one.

use std::fs;

use relive_session::Connection;
use relive_session::protocol::Verb;
use relive_session::spec::Namespace;
use relive_session::stage::SessionResult;

use super::{SIGKILL, SLEEP};
use crate::Result;
use crate::daemon::anonymous_share;
use crate::lab::Lab;
use crate::table::{Mark, Row, kilobytes};

/// What an idle session may take.
const BYTES_MAX: u64 = 250_000;

pub(super) fn measure(lab: &Lab) -> Result<Vec<Row>> {
    let kinds = [("idle session: private memory", Namespace::AsPlanned), ("  with an init of its own", Namespace::Pid)];
    let mut rows = Vec::new();
    for (name, namespace) in kinds {
        let connection = lab.launch(&lab.next()?, &lab.spec(&SLEEP, namespace))?;
        let bytes = of_session(lab, &connection);
        lab.done(&connection, Verb::Kill)?;
        lab.ended(&connection, &SessionResult::Signaled(SIGKILL))?;
        match bytes {
            Ok(bytes) => rows.push(row(name, bytes)),
            // A shim hides its memory from other processes of the same user.
            Err(error) => eprintln!("sessions: skipped, only root looks into a shim: {error}"),
        }
    }
    Ok(rows)
}

/// Returns the memory of the shim, and of the processes of its tree that run the same program. An init is forked from its shim:
/// pages that neither has changed since are there once.
fn of_session(lab: &Lab, connection: &Connection) -> Result<u64> {
    let program = |pid: i32| fs::read_link(format!("/proc/{pid}/exe"));
    let shim = program(connection.shim_pid())?;
    let mut bytes = anonymous_share(connection.shim_pid().unsigned_abs())?;
    for pid in lab.members(connection)? {
        if program(pid)? == shim {
            bytes += anonymous_share(pid.unsigned_abs())?;
        }
    }
    Ok(bytes)
}

#[expect(clippy::cast_precision_loss, reason = "shown with three digits")]
fn row(name: &str, bytes: u64) -> Row {
    Row {
        name: name.to_owned(),
        ours: kilobytes(bytes),
        peer: format!("{}  the limit", kilobytes(BYTES_MAX)),
        ratio: (bytes as f64 / BYTES_MAX as f64).into(),
        mark: Mark::AtMost(1.0),
    }
}
