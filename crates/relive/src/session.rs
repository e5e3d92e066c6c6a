//! A program's session for the command line: its output is read from its log, its input goes directly to its shim.
//!
//! The daemon is not involved, so a daemon that dies or hangs does not affect a watcher. Leaving stops nothing.

pub(crate) mod input;
pub(crate) mod output;
mod readers;
mod told;
pub(crate) mod watch;

use std::path::Path;
use std::time::Duration;

use relive_session::connection::{AdoptError, Connection};
use relive_session::directory::{Found, SessionDirectory, boot_id};
use relive_session::exit::ExitRecord;
use relive_session::protocol::Verb;
use relive_session::stage::SessionResult;

use crate::error::{CommandError, Outcome};

/// How often a session that is starting or ending is checked again.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// How long it may take to start or end.
const SETTLED_WITHIN: Duration = Duration::from_secs(10);

/// The state of a session.
#[derive(Debug)]
pub(crate) enum Opened {
    /// It runs, and this is an attached connection to its shim.
    Live(Connection),
    Ended(ExitRecord),
    /// It ended without an exit record. The daemon may know more.
    Lost,
}

/// Finds out what happened to the session in a directory. Without a directory there never was a session.
pub(crate) async fn open(folder: &str) -> Outcome<Opened> {
    if folder.is_empty() {
        return Ok(Opened::Lost);
    }
    let path = Path::new(folder);
    let cannot = |error| CommandError::internal(format!("{folder}: the session cannot be reached")).because(error);
    let boot = boot_id().map_err(cannot)?;
    let looks = async {
        loop {
            let found = SessionDirectory::open(path).and_then(|folder| folder.look(&boot)).map_err(cannot)?;
            match found {
                Found::Ended(record) => return Ok(Opened::Ended(record)),
                Found::NeverRan | Found::ShimLost(_) | Found::OtherBoot(_) => return Ok(Opened::Lost),
                Found::Starting => tokio::time::sleep(LOOK_EVERY).await,
                Found::Alive(socket) => match Connection::adopt(socket).await {
                    Ok(connection) => {
                        // A session that has ended by now has reported it, or its directory will.
                        let _ = connection.request(Verb::Attach).await;
                        return Ok(Opened::Live(connection));
                    }
                    // It was about to exit.
                    Err(AdoptError::HungUp) => tokio::time::sleep(LOOK_EVERY).await,
                    Err(error) => {
                        let message = format!("{folder}: the session cannot be attached to");
                        return Err(CommandError::unavailable(message).because(error));
                    }
                },
            }
        }
    };
    tokio::time::timeout(SETTLED_WITHIN, looks).await.unwrap_or_else(|_| {
        let message = format!("{folder}: the session has not started after {} s", SETTLED_WITHIN.as_secs());
        Err(CommandError::unavailable(message).with_hint("relive doctor"))
    })
}

/// Returns the exit code of a command whose program ended like this.
pub(crate) fn exit_code(result: &SessionResult) -> u8 {
    const SIGNALED: i32 = 128;
    const ABORTED: u8 = 125;
    const CANNOT_RUN: u8 = 126;
    const NOT_FOUND: u8 = 127;
    match result {
        SessionResult::Exited(code) => u8::try_from(*code).unwrap_or(u8::MAX),
        SessionResult::Signaled(number) => u8::try_from(SIGNALED + number).unwrap_or(u8::MAX),
        SessionResult::Aborted => ABORTED,
        SessionResult::Error(failure) if failure.stage == "execve" && failure.errno == "ENOENT" => NOT_FOUND,
        SessionResult::Error(_) => CANNOT_RUN,
    }
}

#[cfg(test)]
mod tests {
    use relive_session::stage::Failure;

    use super::*;

    #[test]
    fn the_end_of_a_session_maps_to_the_exit_code_of_a_shell() {
        let failed = |stage: &str, errno: &str| {
            SessionResult::Error(Failure { stage: stage.into(), errno: errno.into(), code: 0 })
        };
        let check = |result: SessionResult, code| assert_eq!(exit_code(&result), code, "{result:?}");
        check(SessionResult::Exited(0), 0);
        check(SessionResult::Exited(7), 7);
        check(SessionResult::Signaled(15), 143);
        check(SessionResult::Aborted, 125);
        check(failed("execve", "ENOENT"), 127);
        check(failed("execve", "EACCES"), 126);
        check(failed("chdir", "ENOENT"), 126);
    }
}
