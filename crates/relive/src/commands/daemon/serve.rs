//! `relive daemon serve`: runs the daemon in the foreground, until it is told to stop.
//!
//! It runs outside any async runtime: the daemon creates its own. Its stderr is the daemon's log. If another daemon
//! uses the data directory it ends with [`ErrorCode::Conflict`]: the starter then waits for that other one.

use std::time::Duration;

use relive_core::ErrorCode;
use relive_daemon::DaemonError;

use crate::context::Context;
use crate::error::{CommandError, Outcome};

pub(crate) fn run(context: &Context) -> Outcome<u8> {
    relive_session::descriptors::close_inherited();
    crate::client::refuse_isolated(&context.paths, None)?;
    let config = crate::commands::config::load(&context.paths)?;
    return_memory();
    match relive_daemon::serve(&context.paths, &config) {
        Ok(()) => Ok(0),
        Err(error @ DaemonError::Data(relive_journal::data::OpenError::Held { .. })) => {
            Err(CommandError::new(ErrorCode::Conflict, error.to_string()))
        }
        Err(error) => Err(CommandError::unavailable(error.to_string())),
    }
}

/// How often free memory is checked, and how much of it is returned.
const LOOK_EVERY: Duration = Duration::from_secs(10);
const FREE_MAX: usize = 4 << 20;

/// Makes the allocator return memory to the system. A list of many processes needs much of it for a moment, and glibc
/// would keep it until the daemon ends.
fn return_memory() {
    // SAFETY: sets a documented parameter, before there is a second thread.
    unsafe { libc::mallopt(libc::M_ARENA_MAX, 2) };
    let watch = || {
        loop {
            std::thread::sleep(LOOK_EVERY);
            // SAFETY: both only read and tidy the allocator's own state, which they lock.
            unsafe {
                if libc::mallinfo2().fordblks > FREE_MAX {
                    libc::malloc_trim(0);
                }
            }
        }
    };
    // Without the thread the daemon only uses more memory.
    let _ = std::thread::Builder::new().name("relive-memory".into()).spawn(watch);
}
