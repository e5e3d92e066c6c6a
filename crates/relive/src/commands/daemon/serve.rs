//! `relive daemon serve`: be the daemon, in the foreground, until told to stop.
//!
//! It runs outside any runtime: the daemon makes its own. What it writes to stderr is in the daemon's log. A data folder
//! that another daemon has ends with [`ErrorCode::Conflict`]: whoever started us then waits for that other one.

use relive_core::ErrorCode;
use relive_daemon::DaemonError;

use crate::context::Context;
use crate::error::{CommandError, Outcome};

pub(crate) fn run(context: &Context) -> Outcome<u8> {
    let config = crate::commands::config::load(context)?;
    match relive_daemon::serve(&context.paths, &config) {
        Ok(()) => Ok(0),
        Err(error @ DaemonError::Data(relive_journal::data::OpenError::Held { .. })) => {
            Err(CommandError::new(ErrorCode::Conflict, error.to_string()))
        }
        Err(error) => Err(CommandError::unavailable(error.to_string())),
    }
}
