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
    one_line(&relive_api::end_reason(status, reason))
}

/// Returns why a program never ran, in words and with its name.
pub(crate) fn not_started(process: &Process) -> Option<String> {
    relive_api::not_started(process).map(|why| one_line(&why))
}

/// Returns an end for a list: `exit 2`, `exit 1, SIGTERM`, `exit 1, max steps exceeded`.
pub(crate) fn brief(code: i32, reason: &str) -> String {
    match reason.strip_prefix("ended by ").unwrap_or(reason) {
        "exited" => format!("exit {code}"),
        reason => format!("exit {code}, {reason}"),
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
        check(Some(&killed), "budget_exceeded", "budget exceeded");
        let agent = ProcessStatus::Killed { signal: Signal::Term.into() };
        check(Some(&agent), "context cancelled while paused", "ended by SIGTERM while suspended");
        check(Some(&ProcessStatus::Exited { code: 1 }), "the model\nfailed", "the model failed");
        check(None, "interrupted", "interrupted");
        let absent = ProcessStatus::StartupFailed { stage: "execve".into(), errno: "ENOENT".into(), code: 2 };
        check(Some(&absent), "execve: ENOENT", "program not found");
    }

    #[test]
    fn a_program_that_never_ran_is_named() {
        let check = |body: &str, stage: &str, errno: &str, expect: Option<&str>| {
            let mut process = crate::render::processes::tests::process(1, 0);
            process.intent = "/nope --fast".into();
            process.agent = Some(serde_json::json!({ "dialect": "claude" }));
            process.body = serde_json::from_value(body.into()).unwrap();
            let status = serde_json::json!({ "kind": "startup_failed", "stage": stage, "errno": errno, "code": 2 });
            process.status = serde_json::from_value(status).unwrap();
            assert_eq!(not_started(&process).as_deref(), expect);
        };
        check("exec", "execve", "ENOENT", Some("program not found: /nope"));
        check("exec", "execve", "EACCES", Some("permission denied: /nope"));
        check("exec", "chdir", "ENOENT", Some("no such directory: /w"));
        check("exec", "memory.max", "ENOENT", None);
        check("agent", "execve", "ENOENT", None);
        check("cli", "execve", "ENOENT", Some("program not found: the CLI agent `claude` is not installed"));
    }

    #[test]
    fn a_list_shows_the_code_first() {
        assert_eq!(brief(2, "exited"), "exit 2");
        assert_eq!(brief(1, "ended by SIGTERM"), "exit 1, SIGTERM");
        assert_eq!(brief(0, "completed"), "exit 0, completed");
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
