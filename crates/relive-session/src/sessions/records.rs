//! The exit records of sessions whose shim could write none.

use std::time::SystemTime;

use crate::directory::State;
use crate::exit::{self, EndedBy, ExitRecord, Used};
use crate::stage::{Failure, SessionResult};

/// The record of a session whose machine went down.
#[must_use]
pub fn host_lost() -> ExitRecord {
    record_of_lost(None, EndedBy::HostLost, failure(Failure::BOOT, "EHOSTDOWN", libc::EHOSTDOWN))
}

/// Returns the record of a session whose directory was removed, with its record.
#[must_use]
pub fn shim_lost() -> ExitRecord {
    record_of_lost(None, EndedBy::ShimLost, failure(Failure::SHIM, "ESRCH", libc::ESRCH))
}

pub(super) fn record_of_lost(state: Option<&State>, why: EndedBy, failure: Failure) -> ExitRecord {
    let snapshot = state.map(|state| &state.snapshot);
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    ExitRecord {
        version: exit::VERSION,
        result: SessionResult::Error(failure),
        why: Some(why),
        by: None,
        last_signal: None,
        host_pid: snapshot.and_then(|snapshot| snapshot.host_pid),
        child_pid: snapshot.and_then(|snapshot| snapshot.child_pid),
        at_ms: u64::try_from(since.as_millis()).unwrap_or(u64::MAX),
        up_ms: None,
        log_end: 0,
        used: Used::default(),
        // What was in its pipes is gone, and nobody knows whether something was.
        output_lost: true,
        timed_out: false,
        oom_kills: 0,
        left: Vec::new(),
    }
}

pub(super) fn failure(stage: &str, errno: &str, code: i32) -> Failure {
    Failure { stage: stage.to_owned(), errno: errno.to_owned(), code }
}
