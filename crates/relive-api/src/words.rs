//! Why a process has ended or is suspended, in words: every list, the inbox and the screens say the same.

use relive_core::Body;
use relive_types::status::{BUDGET_EXCEEDED, MAX_STEPS_EXCEEDED};
use relive_types::{Cause, Isolation, LimitKind, Pid, ProcessStatus, Why};

use crate::process::Process;

/// Returns the reason of an end. It names the signal of a process that one ended.
#[must_use]
pub fn end_reason(status: Option<&ProcessStatus>, reason: &str) -> String {
    let signal = match status {
        Some(ProcessStatus::Killed { signal }) => signal,
        Some(ProcessStatus::StartupFailed { stage, errno, .. }) => {
            return match (stage.as_str(), errno.as_str()) {
                ("execve", "ENOENT") => "program not found".to_owned(),
                ("execve", "EACCES") => "permission denied".to_owned(),
                _ => reason.to_owned(),
            };
        }
        Some(ProcessStatus::Exited { .. } | ProcessStatus::Abandoned | ProcessStatus::Faulted { .. }) | None => {
            return reason.to_owned();
        }
    };
    match reason {
        "interrupted" => format!("ended by {}", signal.name()),
        "budget_exceeded" => "budget exceeded".to_owned(),
        "context cancelled while paused" => format!("ended by {} while suspended", signal.name()),
        other => other.to_owned(),
    }
}

/// Returns why a program never ran, with its name.
#[must_use]
pub fn not_started(process: &Process) -> Option<String> {
    let Some(ProcessStatus::StartupFailed { stage, errno, .. }) = &process.status else { return None };
    match process.body {
        Body::Exec => {}
        Body::Cli => return cli_not_started(process, stage, errno),
        Body::Agent | Body::Compose | Body::Supervisor => return None,
    }
    // The intent is the command line; a name with a space in it is quoted there.
    let program = process.intent.split(' ').next().filter(|word| !word.starts_with('\''))?;
    match (stage.as_str(), errno.as_str()) {
        ("execve", "ENOENT") => Some(format!("program not found: {program}")),
        ("execve", "EACCES") => Some(format!("permission denied: {program}")),
        ("execve", "ENOEXEC") => Some(format!("not in a format that can be executed: {program}")),
        ("chdir", "ENOENT") => Some(format!("no such directory: {}", process.cwd)),
        _ => None,
    }
}

fn cli_not_started(process: &Process, stage: &str, errno: &str) -> Option<String> {
    if (stage, errno) != ("execve", "ENOENT") {
        return None;
    }
    let agent = process.agent.as_ref()?;
    // A daemon of an earlier version gives no name. The name of the protocol is that of no program.
    let name = agent["name"].as_str().or_else(|| agent["dialect"].as_str().filter(|dialect| *dialect != "acp"));
    let agent = name.map_or_else(|| "the agent".to_owned(), |name| format!("the CLI agent `{name}`"));
    let hidden = match process.isolation {
        Some(Isolation::Confined | Isolation::Sealed) => {
            ", or is in a directory that an isolated process does not see, such as /tmp"
        }
        Some(Isolation::None) | None => "",
    };
    Some(format!("program not found: {agent} is not installed{hidden}"))
}

/// Names the limit of its own that stopped a process: `--max-steps 20`.
#[must_use]
pub fn reached_limit(process: &Process) -> Option<String> {
    let value = |value: Option<String>| value.map(|value| format!(" {value}")).unwrap_or_default();
    Some(match process.reached_limit? {
        LimitKind::MaxSteps => format!("--max-steps{}", value(process.max_steps.map(|steps| steps.to_string()))),
        LimitKind::Timeout => format!("--timeout{}", value(process.timeout_ms.map(crate::elapsed))),
        LimitKind::MaxTokens => format!("--max-tokens{}", value(process.max_tokens.map(|tokens| tokens.to_string()))),
        LimitKind::MaxCost => "--max-cost".to_owned(),
    })
}

/// Names the limit that ended a process: its own with the value, or that of an ancestor.
fn ended_by_limit(process: &Process) -> Option<String> {
    let exit = process.exit.as_ref()?;
    let is_budget = process.why == Some(Why::Budget) && exit.reason == BUDGET_EXCEEDED;
    if !is_budget && process.why != Some(Why::Timeout) && exit.reason != MAX_STEPS_EXCEEDED {
        return None;
    }
    let of_ancestor = is_budget && process.hint.is_none() && process.successor_pid.is_none();
    reached_limit(process).or_else(|| of_ancestor.then(|| "the budget of an ancestor".to_owned()))
}

/// Returns why a process has ended; `None` if it has not.
#[must_use]
pub fn end_in_words(process: &Process) -> Option<String> {
    let exit = process.exit.as_ref()?;
    let reason = not_started(process).unwrap_or_else(|| end_reason(process.status.as_ref(), &exit.reason));
    Some(match ended_by_limit(process) {
        Some(limit) => format!("{reason}: {limit}"),
        None => reason,
    })
}

/// Says who ended or paused a process: `you (SIGINT)`, `you (abort)`, `PID 4 (lead)`, `Relive (timeout)`. `by` and `root`
/// are the words for the process that asked and for the root of the tree that was meant.
#[must_use]
pub fn cause_in_words(cause: Cause, signal: Option<&str>, by: &str, root: &str) -> String {
    let who = match (cause.by, cause.why) {
        (Pid::RUNTIME, Why::User) => {
            let signal = signal.map(|signal| format!(" ({signal})")).unwrap_or_default();
            format!("you{signal}")
        }
        (Pid::RUNTIME, Why::Aborted) => "you (abort)".to_owned(),
        (Pid::RUNTIME, why) => format!("Relive ({})", why_in_words(why)),
        _ => by.to_owned(),
    };
    match cause.root {
        Some(_) => format!("{who}, with all below {root}"),
        None => who,
    }
}

/// Returns why Relive itself ended or paused a process.
fn why_in_words(why: Why) -> &'static str {
    match why {
        Why::User => "you asked for it",
        Why::Parent => "its parent ended",
        Why::Timeout => "timeout",
        Why::Budget => "budget",
        Why::Idle => "idle",
        Why::Stalled => "stalled",
        Why::Oom => "out of memory",
        Why::Limit => "limit",
        Why::Supervisor => "supervisor",
        Why::DaemonStop => "the daemon stopped",
        Why::HostLost => "the machine went down",
        Why::ShimLost => "its shim was lost",
        Why::Aborted => "aborted",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_person_a_process_and_relive_are_told_apart() {
        let check =
            |cause, expect: &str| assert_eq!(cause_in_words(cause, Some("SIGINT"), "PID 4 (lead)", "PID 2"), expect);
        check(Cause::runtime(Why::User), "you (SIGINT)");
        check(Cause::runtime(Why::Timeout), "Relive (timeout)");
        check(Cause::runtime(Why::Aborted), "you (abort)");
        check(Cause::process(Why::Aborted, Pid(4)), "PID 4 (lead)");
        check(Cause::process(Why::Parent, Pid(4)), "PID 4 (lead)");
        let of_tree = Cause { root: Some(Pid(2)), ..Cause::process(Why::Parent, Pid(4)) };
        check(of_tree, "PID 4 (lead), with all below PID 2");
    }
}
