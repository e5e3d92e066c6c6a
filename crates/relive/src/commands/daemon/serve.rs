//! `relive daemon serve`: be the daemon, in the foreground, until told to stop.
//!
//! CONNECT HERE: this is the one place that calls `relive_daemon`. It runs outside any runtime, so the daemon makes its
//! own. What it writes to stderr is in the daemon's log. A data folder that another daemon has is to end with
//! [`relive_core::ErrorCode::Conflict`]: whoever started us then waits for that other one instead of giving up.

use crate::context::Context;
use crate::error::{CommandError, Outcome};

pub(crate) fn run(_context: &Context) -> Outcome<u8> {
    Err(CommandError::unavailable("this build has no daemon"))
}
