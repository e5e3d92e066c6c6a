//! How a program ended, or could not be started, in the words of the runtime.

use std::io;

use relive_core::{Cause, End, KillSignal, Pid, ProcessStatus, Signal, Why};
use relive_session::exit::{EndedBy, ExitRecord};
use relive_session::launch::LaunchError;
use relive_session::stage::{Failure, SessionResult};
use rustix::io::Errno;

use crate::bodies::Context;

const SIGKILL: u8 = 9;
/// Why a program did not run whose shims were lost without an error.
const NO_SHIM: &str = "its shim was killed again and again before the program ran";

/// Returns how a program ended, from its session's record. Only the owner knows who asked for it.
pub(super) fn end_of(record: &ExitRecord) -> End {
    let status = match &record.result {
        SessionResult::Exited(code) => ProcessStatus::Exited { code: *code },
        SessionResult::Signaled(number) => os_killed(u8::try_from(*number).unwrap_or(0)),
        SessionResult::Aborted => {
            ProcessStatus::StartupFailed { stage: "gate".to_owned(), errno: "ECANCELED".to_owned(), code: 125 }
        }
        // Whoever noticed it has killed the program.
        SessionResult::Error(_) if record.why == Some(EndedBy::ShimLost) => os_killed(SIGKILL),
        SessionResult::Error(_) if record.why == Some(EndedBy::HostLost) => {
            ProcessStatus::Killed { signal: Signal::Kill.into() }
        }
        SessionResult::Error(failure) => ProcessStatus::StartupFailed {
            stage: failure.stage.clone(),
            errno: failure.errno.clone(),
            code: failure.code,
        },
    };
    let why = match record.why {
        Some(EndedBy::Oom) => Some(Why::Oom),
        Some(EndedBy::Abort) => Some(Why::Aborted),
        Some(EndedBy::ShimLost) => Some(Why::ShimLost),
        Some(EndedBy::HostLost) => Some(Why::HostLost),
        Some(EndedBy::Kill | EndedBy::Signal) | None if record.timed_out => Some(Why::Timeout),
        Some(EndedBy::Kill | EndedBy::Signal | EndedBy::Version) | None => None,
    };
    let cause = why.map(|why| match (why, record.by) {
        (Why::Aborted, Some(by)) => Cause::process(why, Pid(by)),
        (why, _) => Cause::runtime(why),
    });
    End { cause, ..End::of(status) }
}

/// Adds who ended the program with a signal of the operating system, of which there was no order: a process, or else the
/// person. SIGPIPE is sent by the command whose reader is gone.
pub(super) fn attributed(end: End, record: &ExitRecord, cx: &Context) -> End {
    const SIGPIPE: u8 = 13;
    const SIGTERM: u8 = 15;
    if record.result == SessionResult::Aborted && cx.orders.borrow().end == Some(Signal::Term) {
        // It was told to end while it waited at its gate.
        return End::of(os_killed(SIGTERM));
    }
    let sent = record.why == Some(EndedBy::Signal) && end.status != os_killed(SIGPIPE);
    if sent && end.cause.is_none() && cx.orders.borrow().end.is_none() {
        let person = || Cause::runtime(Why::User);
        let cause = record.by.map_or_else(person, |by| Cause::process(cx.owner.why_of(Pid(by)), Pid(by)));
        return End { cause: Some(cause), ..end };
    }
    end
}

pub(super) fn os_killed(number: u8) -> ProcessStatus {
    ProcessStatus::Killed { signal: KillSignal::Os(number) }
}

/// Returns the status of a program whose last shim was lost before the program ran; with the reason, if the shim never
/// answered.
pub(super) fn given_up(lost: Option<LaunchError>) -> ProcessStatus {
    let errno = lost.map_or_else(|| NO_SHIM.to_owned(), |error| error.to_string());
    ProcessStatus::StartupFailed { stage: Failure::SHIM.to_owned(), errno, code: Errno::SRCH.raw_os_error() }
}

pub(super) fn startup_failed(stage: &str, error: &io::Error) -> ProcessStatus {
    let code = error.raw_os_error().unwrap_or(0);
    ProcessStatus::StartupFailed { stage: stage.to_owned(), errno: error.to_string(), code }
}

#[cfg(test)]
mod tests {
    use relive_session::connection::AdoptError;

    use super::*;

    #[test]
    fn the_status_of_an_abandoned_launch_names_the_failure_of_its_last_shim() {
        let check = |lost, expect: &str| {
            let status = given_up(lost);
            assert!(
                matches!(&status, ProcessStatus::StartupFailed { errno, code: 3, .. } if errno == expect),
                "{status:?}"
            );
        };
        let silent = LaunchError::Answer { program: "/bin/relive".into(), source: AdoptError::HungUp };
        check(
            Some(silent),
            "the shim /bin/relive does not answer correctly: the shim hung up before it introduced itself",
        );
        check(None, "its shim was killed again and again before the program ran");
    }
}
