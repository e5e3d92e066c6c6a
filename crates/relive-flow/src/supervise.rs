//! Decisions of a supervisor: what is restarted, what is restarted with it, and when it gives up.

use crate::event::{Decision, Origin, Outcome, Start, Verdict};
use crate::flow::{Definition, Flow, Rejected};
use crate::restart::Policy;
use crate::slot::{SlotState, Then};

pub(crate) fn ended(flow: &mut Flow, place: usize, outcome: Outcome, at_ms: u64) {
    let Definition::Supervisor(file) = &flow.blueprint.definition else { return };
    let child = &file.children[place];
    let (policy, fresh) = (child.restart, child.fresh);
    let (strategy, intensity, backoff) = (file.strategy, file.intensity, file.backoff);
    let succeeded = match (outcome, &flow.slots[place].state) {
        (Outcome::NeverRan, _) => return flow.never_ran(place, at_ms),
        (_, SlotState::ToStop { then: Then::Nothing, .. }) => {
            let finished = outcome == Outcome::Succeeded && !policy.restarts(true);
            flow.slots[place].state = if finished { SlotState::Succeeded } else { SlotState::Halted };
            let too_often = flow.escalated.as_ref().filter(|_| !finished);
            let note = too_often.map(|slot| format!("ended because {slot} was restarted too often").into());
            flow.slots[place].note = note.or_else(|| flow.slots[place].note.take());
            return;
        }
        // One that finished while it was about to be ended has finished.
        (Outcome::Succeeded, SlotState::ToStop { .. }) if !policy.restarts(true) => {
            flow.slots[place].state = SlotState::Succeeded;
            return;
        }
        (Outcome::Stopped, SlotState::ToStop { .. } | SlotState::Running { .. })
        | (Outcome::Halted, SlotState::Running { .. }) => {
            flow.slots[place].state = Flow::final_state(outcome);
            return;
        }
        // It would reach the same limit at once, however often it is resumed. The other children keep running.
        (Outcome::Failed { .. }, _) if flow.slots[place].at_end.limit && !fresh => {
            flow.slots[place].state = Flow::final_state(outcome);
            return;
        }
        (_, SlotState::ToStop { then: Then::Restart, .. }) if policy != Policy::Temporary => {
            // Not before the one that failed, which may be what it needs.
            let at_ms = flow.slots.iter().filter_map(|slot| slot.state.due_at()).fold(at_ms, u64::max);
            flow.slots[place].state = SlotState::Due { start: Flow::restart(fresh), at_ms };
            return;
        }
        (Outcome::Succeeded, _) => true,
        (Outcome::Failed { .. } | Outcome::Stopped | Outcome::Halted, _) => false,
    };
    if !policy.restarts(succeeded) {
        let is_taken_along = matches!(flow.slots[place].state, SlotState::ToStop { then: Then::Restart, .. });
        if is_taken_along && outcome == Outcome::Halted {
            let note = "ended because another child was restarted; `restart: temporary` starts it once";
            flow.slots[place].note = Some(note.into());
        }
        flow.slots[place].state = Flow::final_state(outcome);
        return;
    }
    let Some(window) = intensity.admit(&flow.restarts, at_ms) else {
        flow.slots[place].state = Flow::final_state(outcome);
        flow.escalated = Some(flow.slots[place].name.to_string());
        stop_where(flow, Then::Nothing, |_| true);
        return;
    };
    let times = u32::try_from(window.len()).unwrap_or(u32::MAX);
    flow.restarts = window;
    let at_ms = at_ms.saturating_add(backoff.delay_ms(times));
    flow.slots[place].state = SlotState::Due { start: Flow::restart(fresh), at_ms };
    stop_where(flow, Then::Restart, |other| strategy.takes_along(place, other));
}

/// Marks the running children that `picked` selects as to be stopped.
fn stop_where(flow: &mut Flow, then: Then, picked: impl Fn(usize) -> bool) {
    for (place, slot) in flow.slots.iter_mut().enumerate() {
        if let Some(uuid) = slot.state.living().filter(|_| picked(place)) {
            slot.state = SlotState::ToStop { uuid, then };
        }
    }
}

/// Resumes a supervisor that had ended. Children that finished, and those that a person stopped, stay as they are.
pub(crate) fn reopened(flow: &mut Flow) {
    let Definition::Supervisor(file) = &flow.blueprint.definition else { return };
    flow.escalated = None;
    flow.restarts.clear();
    for (slot, child) in flow.slots.iter_mut().zip(&file.children) {
        // Whoever resumes the supervisor means its children too.
        slot.at_end.paused = false;
        match slot.state {
            SlotState::Halted => slot.state = SlotState::Due { start: Start::resume(), at_ms: 0 },
            SlotState::Failed { .. } | SlotState::Succeeded if child.restart == Policy::Permanent => {
                slot.state = SlotState::Due { start: Flow::restart(child.fresh), at_ms: 0 };
            }
            SlotState::Failed { .. } if child.restart == Policy::Transient => {
                slot.state = SlotState::Due { start: Flow::restart(child.fresh), at_ms: 0 };
            }
            SlotState::Waiting
            | SlotState::Due { .. }
            | SlotState::Running { .. }
            | SlotState::ToStop { .. }
            | SlotState::Succeeded
            | SlotState::Failed { .. }
            | SlotState::Stopped
            | SlotState::Skipped => {}
        }
    }
}

/// Resumes a child that is not started any more, or not yet, and the supervisor if that had ended since `run`.
pub(crate) fn redo(flow: &mut Flow, name: &str, origin: &Origin, run: u32) -> Result<(), Rejected> {
    let place = flow.place(name)?;
    let start = flow.continued(place, origin)?;
    if run > flow.reopened_after() {
        reopened(flow);
    }
    flow.slots[place].begin_anew(SlotState::Due { start, at_ms: 0 });
    Ok(())
}

/// Returns how a supervisor ended of which no child is left to run.
fn verdict(flow: &Flow) -> Verdict {
    let at_limit = flow.slots.iter().filter(|slot| flow.is_at_limit(&slot.name));
    let slots: Vec<String> = at_limit.map(|slot| slot.name.to_string()).collect();
    if slots.is_empty() { Verdict::Succeeded } else { Verdict::Failed { slots } }
}

pub(crate) fn decide(flow: &Flow, now_ms: u64, room: usize) -> Vec<Decision> {
    let stops: Vec<Decision> = flow
        .slots
        .iter()
        .filter_map(|slot| match slot.state {
            SlotState::ToStop { uuid, .. } => Some(Decision::Stop { slot: slot.name.to_string(), uuid }),
            SlotState::Waiting
            | SlotState::Due { .. }
            | SlotState::Running { .. }
            | SlotState::Succeeded
            | SlotState::Failed { .. }
            | SlotState::Stopped
            | SlotState::Halted
            | SlotState::Skipped => None,
        })
        .collect();
    if !stops.is_empty() {
        // Nothing starts before all that are restarted together have ended.
        return stops;
    }
    if let Some(slot) = &flow.escalated {
        return vec![Decision::Finish(Verdict::Escalated { slot: slot.clone() })];
    }
    let (mut decisions, mut next, mut room) = (Vec::new(), None, room);
    for (place, slot) in flow.slots.iter().enumerate() {
        let start = match flow.due(place, now_ms) {
            Some(Ok(start)) => Some(start),
            Some(Err(at_ms)) => {
                next = Some(next.map_or(at_ms, |next: u64| next.min(at_ms)));
                None
            }
            None => (slot.state == SlotState::Waiting).then_some(Start::New),
        };
        if let Some(start) = start.filter(|_| room > 0) {
            room -= 1;
            decisions.push(Decision::Start { slot: slot.name.to_string(), start });
        }
    }
    if flow.slots.iter().all(|slot| slot.state.is_over()) {
        return vec![Decision::Finish(verdict(flow))];
    }
    decisions.extend(next.map(|until_ms| Decision::Wait { until_ms }));
    decisions
}
