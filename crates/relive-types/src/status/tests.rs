//! The table of causes, row by row.

use super::*;
use crate::signal::Signal;

struct Row {
    cause: &'static str,
    end: End,
    code: i32,
    reason: &'static str,
    err: Option<&'static str>,
    exit_code: u8,
}

fn row(
    cause: &'static str,
    end: End,
    (code, reason, err): (i32, &'static str, Option<&'static str>),
    exit_code: u8,
) -> Row {
    Row { cause, end, code, reason, err, exit_code }
}

fn exited(code: i32) -> End {
    End::of(ProcessStatus::Exited { code })
}

fn faulted(fault: &str) -> End {
    End::of(ProcessStatus::Faulted { fault: fault.into() })
}

fn killed(signal: impl Into<KillSignal>, why: Why) -> End {
    let status = ProcessStatus::Killed { signal: signal.into() };
    End { cause: Some(Cause::runtime(why)), ..End::of(status) }
}

fn os(number: u8) -> KillSignal {
    KillSignal::Os(number)
}

fn failed_to_start(stage: &str, errno: &str, code: i32) -> End {
    End::of(ProcessStatus::StartupFailed { stage: stage.into(), errno: errno.into(), code })
}

fn rows() -> Vec<Row> {
    use Signal::{Int, Kill, Term};
    let interrupted = (1, "interrupted", None);
    let aborted = End { cause: Some(Cause::runtime(Why::Aborted)), ..failed_to_start("gate", "ECANCELED", 125) };
    let paused = |end| End { while_paused: true, ..end };
    let limit = End { limit: Some("pids limit".into()), ..killed(Kill, Why::Limit) };
    vec![
        row("done", exited(0), (0, "completed", None), 0),
        row("program ended n", exited(3), (3, "exited", None), 3),
        row("program ended 255", exited(255), (255, "exited", None), 255),
        row("a code no program can have is no success", exited(256), (256, "exited", None), 1),
        row("model error", faulted("model said no"), (1, "model said no", Some("model said no")), 1),
        row("panic", faulted(""), (1, "unexpected exit", None), 1),
        row("max steps", faulted(MAX_STEPS_EXCEEDED), (1, "max steps exceeded", Some("max steps exceeded")), 1),
        row("kill", killed(Kill, Why::User), interrupted, 1),
        row("term", killed(Term, Why::User), interrupted, 1),
        row("Ctrl-C", killed(Int, Why::User), interrupted, 1),
        row("parent", killed(Term, Why::Parent), interrupted, 1),
        row("supervisor", killed(Term, Why::Supervisor), interrupted, 1),
        row("daemon stop", killed(Term, Why::DaemonStop), interrupted, 1),
        row("host lost", killed(Kill, Why::HostLost), interrupted, 1),
        row("shim lost", killed(Kill, Why::ShimLost), interrupted, 1),
        row("timeout", killed(Term, Why::Timeout), (1, "timed out", None), 1),
        row("idle", killed(Term, Why::Idle), (1, "idle", None), 1),
        row("stalled", killed(Term, Why::Stalled), (1, "stalled", None), 1),
        row("exec killed", killed(os(15), Why::User), (1, "interrupted", Some("ended by SIGTERM")), 143),
        row("exec timed out", killed(os(9), Why::Timeout), (1, "timed out", Some("ended by SIGKILL")), 137),
        row(
            "exec crashed",
            End::of(ProcessStatus::Killed { signal: os(11) }),
            (1, "interrupted", Some("ended by SIGSEGV")),
            139,
        ),
        row("killed while paused", paused(killed(Kill, Why::User)), (1, "context cancelled while paused", None), 1),
        row("budget while paused", paused(killed(Term, Why::Budget)), (2, "budget_exceeded", None), 2),
        row("budget", killed(Term, Why::Budget), (2, "budget_exceeded", None), 2),
        row("exec over budget", killed(os(15), Why::Budget), (2, "budget_exceeded", Some("ended by SIGTERM")), 2),
        row("out of memory", killed(Kill, Why::Oom), (1, "out of memory", None), 137),
        row("exec out of memory", killed(os(9), Why::Oom), (1, "out of memory", Some("ended by SIGKILL")), 137),
        row("limit", limit, (1, "pids limit", None), 137),
        row("limit, unnamed", killed(Kill, Why::Limit), (1, "limit exceeded", None), 137),
        row("gave itself up", End::of(ProcessStatus::Abandoned), (1, "abandoned", None), 1),
        row(
            "not found",
            failed_to_start("execve", "ENOENT", 2),
            (1, "execve: ENOENT", Some("execve: ENOENT (2)")),
            127,
        ),
        row(
            "cannot run",
            failed_to_start("execve", "EACCES", 13),
            (1, "execve: EACCES", Some("execve: EACCES (13)")),
            126,
        ),
        row("aborted at the gate", aborted, (1, "aborted", None), 125),
    ]
}

#[test]
fn each_cause_of_an_end_has_its_code_reason_and_exit_code() {
    for Row { cause, end, code, reason, err, exit_code } in rows() {
        let exit = end.exit();
        assert_eq!((exit.code, &*exit.reason, exit.err.as_deref()), (code, reason, err), "{cause}");
        assert_eq!(end.exit_code(), exit_code, "{cause}");
        assert_eq!(exit.code == 0, end.exit_code() == 0, "{cause}: both views agree on success");
    }
}

#[test]
fn every_end_survives_json() {
    for Row { cause, end, .. } in rows() {
        let text = serde_json::to_string(&end).unwrap();
        assert_eq!(serde_json::from_str::<End>(&text).unwrap(), end, "{cause}: {text}");
    }
}

#[test]
fn status_json_has_the_published_shape() {
    let check = |status: ProcessStatus, expect: &str| {
        assert_eq!(serde_json::to_string(&status).unwrap(), expect);
        assert_eq!(serde_json::from_str::<ProcessStatus>(expect).unwrap(), status);
    };
    check(ProcessStatus::Exited { code: 0 }, r#"{"kind":"exited","code":0}"#);
    check(ProcessStatus::Abandoned, r#"{"kind":"abandoned"}"#);
    check(ProcessStatus::Killed { signal: Signal::Term.into() }, r#"{"kind":"killed","signal":"SIGTERM"}"#);
    check(ProcessStatus::Killed { signal: os(15) }, r#"{"kind":"killed","signal":"SIGTERM","os_signal":15}"#);
    check(ProcessStatus::Killed { signal: os(40) }, r#"{"kind":"killed","signal":"signal 40","os_signal":40}"#);
    check(ProcessStatus::Faulted { fault: "x".into() }, r#"{"kind":"faulted","fault":"x"}"#);
    check(
        failed_to_start("execve", "ENOENT", 2).status,
        r#"{"kind":"startup_failed","stage":"execve","errno":"ENOENT","code":2}"#,
    );
    assert!(serde_json::from_str::<ProcessStatus>(r#"{"kind":"killed","signal":"SIGSEGV"}"#).is_err());
}
