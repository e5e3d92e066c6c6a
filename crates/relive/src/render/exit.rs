//! The end of a process in words: its exit code, which is that of `wait`, and the reason.

use relive_api::{Exit, Process};
use relive_core::ProcessStatus;

use crate::terminal::one_line;

/// Returns the exit code. A daemon of an earlier version tells only the plain code.
pub(crate) fn code(process: &Process, exit: &Exit) -> i32 {
    process.exit_code.map_or(exit.code, i32::from)
}

/// Returns the reason in one line. It names the signal of a process that one ended.
pub(crate) fn reason(status: Option<&ProcessStatus>, reason: &str) -> String {
    let Some(ProcessStatus::Killed { signal }) = status else { return one_line(reason) };
    match reason {
        "interrupted" => format!("ended by {}", signal.name()),
        "budget_exceeded" => "over budget".to_owned(),
        "context cancelled while paused" => format!("ended by {} while suspended", signal.name()),
        other => one_line(other),
    }
}

/// Returns the reason as the end of a sentence about a process: `ended by SIGTERM`, `ended: timed out`.
pub(crate) fn phrase(status: Option<&ProcessStatus>, exit: &Exit) -> String {
    let reason = reason(status, &exit.reason);
    if reason.starts_with("ended by ") { reason } else { format!("ended: {reason}") }
}

#[cfg(test)]
mod tests {
    use relive_core::{KillSignal, Signal};

    use super::*;

    #[test]
    fn an_end_by_a_signal_names_the_signal() {
        let check = |status: Option<&ProcessStatus>, given: &str, expect: &str| {
            assert_eq!(reason(status, given), expect);
        };
        let killed = ProcessStatus::Killed { signal: KillSignal::Os(9) };
        check(Some(&killed), "interrupted", "ended by SIGKILL");
        check(Some(&killed), "out of memory", "out of memory");
        check(Some(&killed), "budget_exceeded", "over budget");
        let agent = ProcessStatus::Killed { signal: Signal::Term.into() };
        check(Some(&agent), "context cancelled while paused", "ended by SIGTERM while suspended");
        check(Some(&ProcessStatus::Exited { code: 1 }), "the model\nfailed", "the model failed");
        check(None, "interrupted", "interrupted");
    }

    #[test]
    fn a_phrase_says_ended_once() {
        let exit = |code, reason: &str| Exit { code, reason: reason.into(), err: None };
        let killed = ProcessStatus::Killed { signal: KillSignal::Os(15) };
        assert_eq!(phrase(Some(&killed), &exit(1, "interrupted")), "ended by SIGTERM");
        assert_eq!(phrase(Some(&killed), &exit(1, "timed out")), "ended: timed out");
        assert_eq!(phrase(None, &exit(0, "completed")), "ended: completed");
    }
}
