//! The events of a tree, in its journal.

use std::collections::HashSet;

use relive_core::{Rights, Uuid};
use relive_flow::{Decision, Event, Flow, SlotState, Start};
use relive_journal::record::{Body as Record, Granted, Released};
use relive_journal::{Durability, JournalError};
use serde_json::json;

use super::child::ChildEnd;
use super::{Context, NODE_EVENT};
use crate::flows::{exit_of, reason_of, record};

/// Records events and applies them, in one write.
pub(super) async fn append(
    cx: &Context,
    flow: &mut Flow,
    events: Vec<Event>,
    durability: Durability,
) -> Result<(), JournalError> {
    let mut next = flow.clone();
    let (mut batch, mut replaced) = (Vec::new(), Vec::new());
    for event in &events {
        let refused = |error: &dyn std::fmt::Display| JournalError::Read(error.to_string());
        let before = started_before(&next, event);
        next.apply(event).map_err(|error| refused(&error))?;
        batch.push(record(event, None).map_err(|error| refused(&error))?);
        if let Event::Starting { uuid, .. } = event {
            // The tree owns what it starts.
            batch.push(Record::Granted(Granted { target: *uuid, rights: Rights::Owner, by: None, req: None }));
        }
        // The tree releases a process that was replaced: kept, its handles would grow without end.
        batch.extend(before.map(|target| Record::Released(Released { target, req: None })));
        replaced.extend(before);
    }
    cx.journal.append(batch, durability).await?;
    for target in replaced {
        cx.owner.release_handle(target).await;
    }
    tell_changes(cx, flow, &next);
    *flow = next;
    Ok(())
}

/// Returns how ends are recorded. They are on the disk before another process is ended because of them, unless that was
/// `told` to end before: a body that knew only the end of that process would take it for one that ended with the tree, and
/// not start it again.
pub(super) fn durability_of(flow: &Flow, ends: &[Event], told: &HashSet<Uuid>) -> Durability {
    let mut next = flow.clone();
    // An end that does not apply is refused when it is recorded.
    let applies = ends.iter().all(|event| next.apply(event).is_ok());
    let is_new = |decision: &Decision| matches!(decision, Decision::Stop { uuid, .. } if !told.contains(uuid));
    // Which processes are to end depends neither on the time nor on the room for others.
    let ends_another = applies && next.decide(0, 0).iter().any(is_new);
    if ends_another { Durability::Synced } else { Durability::Deferred }
}

/// Returns the process that a slot had before, if an event starts another one in its place. A fork needs the one that it is
/// made of.
fn started_before(flow: &Flow, event: &Event) -> Option<Uuid> {
    match event {
        Event::Starting { slot, uuid, start: Start::New } => flow.slot(slot)?.uuid.filter(|last| last != uuid),
        Event::Starting { start: Start::Resume { .. } | Start::Fork { .. }, .. }
        | Event::Started { .. }
        | Event::Ended { .. }
        | Event::Stopped { .. }
        | Event::Redo { .. }
        | Event::Reopened { .. } => None,
    }
}

/// Adds an event for every node whose state has changed. That it runs is told by its start, which knows its PID.
fn tell_changes(cx: &Context, before: &Flow, next: &Flow) {
    for (before, after) in before.slots().zip(next.slots()) {
        let word = after.state.word();
        if word == before.state.word() || matches!(after.state, SlotState::Waiting | SlotState::Running { .. }) {
            continue;
        }
        let mut body = json!({"node": after.name, "state": word, "uuid": after.uuid});
        if let Some(exit) = exit_of(next, &after) {
            body["exit"] = json!(exit);
        }
        if let (None, Some(reason)) = (body.get("exit"), reason_of(next, &after)) {
            body["reason"] = json!(reason);
        }
        if matches!(after.state, SlotState::Failed { .. }) && after.at_end.limit {
            body["at_limit"] = json!(true);
        }
        cx.journal.event(NODE_EVENT, body);
    }
}

/// Tells whether it is not recorded yet that a process has started.
pub(super) fn is_news(flow: &Flow, slot: &str, uuid: Uuid) -> bool {
    let runs = |state: &SlotState| matches!(state, SlotState::Running { uuid: running, .. } if *running == uuid);
    flow.slot(slot).is_some_and(|found| runs(found.state) && !found.has_started)
}

/// Tells whether a process that ended is the one that its slot runs, and in this start of it.
pub(super) fn is_end_of(flow: &Flow, end: &ChildEnd) -> bool {
    let Some(slot) = flow.slot(&end.slot) else { return false };
    match slot.state {
        SlotState::Running { uuid, number, .. } => (*uuid, *number) == (end.uuid, end.number),
        SlotState::ToStop { uuid, .. } => *uuid == end.uuid,
        SlotState::Waiting
        | SlotState::Due { .. }
        | SlotState::Succeeded
        | SlotState::Failed { .. }
        | SlotState::Stopped
        | SlotState::Halted
        | SlotState::Skipped => false,
    }
}

#[cfg(test)]
mod tests {
    use relive_flow::{AtEnd, Definition, Outcome, SupervisorFile};

    use super::*;

    /// Two children that run, and the event that the first one has failed.
    fn failing(strategy: &str) -> (Flow, Event) {
        let text = format!("strategy: {strategy}\nchildren: {{a: {{command: [a]}}, b: {{command: [b]}}}}");
        let mut flow = Flow::new(Definition::Supervisor(SupervisorFile::parse("f", &text).unwrap()));
        for (slot, number) in [("a", 1), ("b", 2)] {
            let starting = Event::Starting { slot: slot.to_owned(), uuid: Uuid::from_u128(number), start: Start::New };
            flow.apply(&starting).unwrap();
        }
        let (uuid, outcome, at_end) = (Uuid::from_u128(1), Outcome::Failed { code: 1 }, AtEnd::default());
        let ended = Event::Ended { slot: "a".to_owned(), uuid, outcome, at_ms: 0, result: None, note: None, at_end };
        (flow, ended)
    }

    #[test]
    fn an_end_because_of_which_another_process_is_ended_is_on_the_disk_first() {
        let check = |strategy: &str, told: &[u128], expect: Durability| {
            let (flow, ended) = failing(strategy);
            let told = told.iter().map(|uuid| Uuid::from_u128(*uuid)).collect();
            assert_eq!(durability_of(&flow, &[ended], &told), expect, "{strategy} {told:?}");
        };
        check("one_for_all", &[], Durability::Synced);
        check("rest_for_one", &[], Durability::Synced);
        check("one_for_one", &[], Durability::Deferred);
        // It was told to end before, for a reason that is on the disk.
        check("one_for_all", &[2], Durability::Deferred);
    }
}
