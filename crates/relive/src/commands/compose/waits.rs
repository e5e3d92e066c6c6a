//! Processes of a run that wait for a person, in the words of `compose up`.

use relive_api::{FlowKind, FlowStatus, Item, ItemKind, Process, item_of};
use relive_core::{Body, SuspendReason, Uuid};
use relive_types::short_id;

use crate::render::processes::suspension_of;
use crate::terminal::one_line;

/// Returns what a tree is.
pub(super) fn word(flow: &FlowStatus) -> &'static str {
    match flow.kind {
        FlowKind::Compose => "run",
        FlowKind::Supervisor => "supervisor",
    }
}

/// Tells whether a node was ended, and has no exit code of its own.
pub(super) fn was_ended(state: &str) -> bool {
    matches!(state, "stopped" | "halted")
}

/// Says why a tree itself is suspended, and on a second line the command that helps.
pub(super) fn told_of_tree(process: &Process) -> String {
    let what = if process.body == Body::Supervisor { "supervisor" } else { "run" };
    let why = match process.suspend_reason {
        Some(reason) if reason != SuspendReason::User => format!("suspended: {}", suspension_of(process, reason)),
        Some(_) | None => "paused".to_owned(),
    };
    let next = process.hint.as_deref().map(|hint| format!("\nto continue it: {}", one_line(hint)));
    format!("{what} {} {why}{}", process.pid, next.unwrap_or_default())
}

/// Returns the name of a process in its run: that of its node, if it is one.
pub(super) fn node_of(process: &Process, run: Uuid) -> String {
    let Some(name) = &process.name else { return format!("PID {}", process.pid) };
    let node = name.strip_suffix(&short_id::short(run)).and_then(|name| name.strip_suffix('.'));
    one_line(node.unwrap_or(name)).to_string()
}

/// Says what a process of a run waits for, and on a second line the command that helps; `None` if it does not wait.
pub(super) fn told(process: &Process, run: Uuid) -> Option<String> {
    let (node, pid) = (node_of(process, run), process.pid);
    let reason = process.suspend_reason.filter(|_| process.dead_at.is_none())?;
    let Some(Item { kind, text, answers, .. }) = item_of(process) else {
        let is_paused = reason == SuspendReason::User;
        return is_paused.then(|| format!("{node} paused (PID {pid})\nto continue it: relive resume {pid}"));
    };
    let text = one_line(&text);
    let resolve = format!("relive resolve {pid}");
    let (waits, help, command) = match kind {
        ItemKind::Approval => ("waits for your approval", "to answer", resolve),
        ItemKind::Question => ("asks you", "to answer", resolve),
        ItemKind::InDoubt => ("waits for your answer", "to answer", resolve),
        ItemKind::Budget
        | ItemKind::Quota
        | ItemKind::Credentials
        | ItemKind::Stalled
        | ItemKind::Failed
        | ItemKind::Damaged
        | ItemKind::Finished => ("suspended", "to continue it", answers.into_iter().next()?.command),
    };
    Some(format!("{node} {waits} (PID {pid}): {text}\n{help}: {command}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::processes::tests::process;

    #[test]
    fn a_suspended_tree_is_told_with_the_hint_of_the_daemon() {
        let check = |reason, hint: Option<&str>, expect: &str| {
            let (suspend_reason, hint) = (Some(reason), hint.map(str::to_owned));
            let tree = Process { body: Body::Compose, suspend_reason, hint, ..process(5, 0) };
            assert_eq!(told_of_tree(&tree), expect);
        };
        let next = "relive resume --subtree 5";
        check(SuspendReason::User, Some(next), "run 5 paused\nto continue it: relive resume --subtree 5");
        check(
            SuspendReason::DiskFull,
            Some("relive resume 5"),
            "run 5 suspended: disk full\nto continue it: relive resume 5",
        );
        check(SuspendReason::IoError, None, "run 5 suspended: io error");
    }
}
