//! Decisions about a compose file: what starts when, what is tried again, and what is skipped.

use crate::event::{Decision, Origin, Outcome, Start, Verdict};
use crate::file::{ComposeFile, Condition, Dependency};
use crate::flow::{Definition, Flow, Rejected};
use crate::slot::{Slot, SlotState, Then};

/// Whether the condition of a dependency is met.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Met {
    Yes,
    NotYet,
    Never,
}

fn met(condition: Condition, on: &Slot) -> Met {
    let has_started = condition == Condition::Started && on.has_started;
    match on.state {
        SlotState::Waiting | SlotState::Due { .. } | SlotState::Running { .. } | SlotState::ToStop { .. } => {
            if has_started {
                Met::Yes
            } else {
                Met::NotYet
            }
        }
        SlotState::Succeeded => Met::Yes,
        SlotState::Failed { .. } | SlotState::Stopped | SlotState::Halted => {
            if has_started || condition == Condition::Completed { Met::Yes } else { Met::Never }
        }
        SlotState::Skipped => Met::Never,
    }
}

pub(crate) fn is_never_met(flow: &Flow, dependency: Dependency) -> bool {
    met(dependency.condition, &flow.slots[dependency.node]) == Met::Never
}

/// Tells whether only services are left, which end with the last of the other nodes.
fn is_winding_down(flow: &Flow, file: &ComposeFile) -> bool {
    let mut others = (0..flow.slots.len()).filter(|place| !file.nodes[*place].is_service()).peekable();
    others.peek().is_some() && others.all(|place| flow.slots[place].state.is_over())
}

pub(crate) fn ended(flow: &mut Flow, place: usize, outcome: Outcome, at_ms: u64) {
    let Definition::Compose(file) = &flow.blueprint.definition else { return };
    let (retries, restart) = (file.nodes[place].retries, file.nodes[place].restart);
    let winding_down = is_winding_down(flow, file) && file.nodes[place].is_service();
    let slot = &mut flow.slots[place];
    let succeeded = match outcome {
        Outcome::NeverRan => return flow.never_ran(place, at_ms),
        // A service that is ended with the run has done its work.
        Outcome::Succeeded | Outcome::Failed { .. } | Outcome::Halted if winding_down => {
            slot.state = SlotState::Succeeded;
            return;
        }
        // The run was ending it when one of the other nodes was resumed: it is needed again.
        Outcome::Succeeded | Outcome::Failed { .. } | Outcome::Halted
            if matches!(slot.state, SlotState::ToStop { then: Then::Restart, .. }) =>
        {
            let start = Flow::restart(restart.is_some_and(|restart| restart.fresh));
            slot.state = SlotState::Due { start, at_ms };
            return;
        }
        Outcome::Stopped | Outcome::Halted => {
            slot.state = Flow::final_state(outcome);
            return;
        }
        Outcome::Succeeded => true,
        Outcome::Failed { .. } => false,
    };
    slot.state = match restart {
        // It would end again at once.
        Some(restart) if slot.at_end.limit && !restart.fresh => Flow::final_state(outcome),
        Some(restart) if restart.policy.restarts(succeeded) => {
            match restart.intensity.admit(&slot.restarts, at_ms) {
                Some(window) => {
                    let times = u32::try_from(window.len()).unwrap_or(u32::MAX);
                    slot.restarts = window;
                    let at_ms = at_ms.saturating_add(restart.backoff.delay_ms(times));
                    SlotState::Due { start: Flow::restart(restart.fresh), at_ms }
                }
                // Not even one that keeps exiting with 0 did what it is for.
                None => SlotState::Failed { code: failure(outcome) },
            }
        }
        None if !succeeded && slot.starts <= retries.max => {
            let at_ms = at_ms.saturating_add(retries.backoff.delay_ms(slot.starts));
            SlotState::Due { start: Start::New, at_ms }
        }
        Some(_) | None => Flow::final_state(outcome),
    };
}

fn failure(outcome: Outcome) -> i32 {
    match outcome {
        Outcome::Failed { code } => code,
        Outcome::Succeeded | Outcome::Stopped | Outcome::Halted | Outcome::NeverRan => 1,
    }
}

/// Resumes a node. The nodes that depend on it begin anew, and no other one changes.
pub(crate) fn redo(flow: &mut Flow, name: &str, origin: &Origin) -> Result<(), Rejected> {
    let Definition::Compose(file) = &flow.blueprint.definition else { return Ok(()) };
    let place = flow.place(name)?;
    let dependents = file.dependents(place);
    let start = flow.continued(place, origin)?;
    if let Some(running) = dependents.iter().find(|other| flow.slots[**other].state.living().is_some()) {
        let dependent = flow.slots[*running].name.to_string();
        return Err(Rejected::DependentRuns { slot: name.to_owned(), dependent });
    }
    let services = ended_services(flow);
    if is_winding_down(flow, file) {
        restart_ending_services(flow);
    }
    flow.slots[place].begin_anew(SlotState::Due { start, at_ms: 0 });
    for (service, start) in services.into_iter().filter(|(service, _)| *service != place) {
        flow.slots[service].begin_anew(SlotState::Due { start, at_ms: 0 });
    }
    // Also services: they need what is done again.
    for other in dependents {
        flow.slots[other].begin_anew(SlotState::Waiting);
    }
    Ok(())
}

/// Ends the services that still run and starts them again: they were told to end with the run, or are about to be. A node
/// that waits for the start of one waits for its next start.
fn restart_ending_services(flow: &mut Flow) {
    let Definition::Compose(file) = &flow.blueprint.definition else { return };
    for (slot, _) in flow.slots.iter_mut().zip(&file.nodes).filter(|(_, node)| node.is_service()) {
        if let Some(uuid) = slot.state.living() {
            slot.state = SlotState::ToStop { uuid, then: Then::Restart };
            slot.has_started = false;
        }
    }
}

/// Returns the services that ended with the run, and how they are started again when it continues.
fn ended_services(flow: &Flow) -> Vec<(usize, Start)> {
    let Definition::Compose(file) = &flow.blueprint.definition else { return Vec::new() };
    let slots = file.nodes.iter().zip(&flow.slots).enumerate();
    let ended = slots.filter(|(_, (node, slot))| node.is_service() && slot.state == SlotState::Succeeded);
    ended.map(|(place, (node, _))| (place, Flow::restart(node.restart.is_some_and(|restart| restart.fresh)))).collect()
}

/// Resumes a run that had ended: nodes that did not succeed continue, services start again, and skipped nodes wait again.
pub(crate) fn reopened(flow: &mut Flow) {
    for (service, start) in ended_services(flow) {
        flow.slots[service].begin_anew(SlotState::Due { start, at_ms: 0 });
    }
    let Definition::Compose(file) = &flow.blueprint.definition else { return };
    for (slot, node) in flow.slots.iter_mut().zip(&file.nodes) {
        match slot.state {
            SlotState::Failed { .. } | SlotState::Stopped | SlotState::Halted => {
                let start = Flow::restart(node.restart.is_some_and(|restart| restart.fresh));
                slot.begin_anew(SlotState::Due { start, at_ms: 0 });
            }
            SlotState::Skipped => slot.state = SlotState::Waiting,
            SlotState::Waiting
            | SlotState::Due { .. }
            | SlotState::Running { .. }
            | SlotState::ToStop { .. }
            | SlotState::Succeeded => {}
        }
    }
}

/// Returns the nodes that were skipped because of this one to `Waiting`.
pub(crate) fn unskip_dependents(flow: &mut Flow, place: usize) {
    let Definition::Compose(file) = &flow.blueprint.definition else { return };
    for dependent in file.dependents(place) {
        if flow.slots[dependent].state == SlotState::Skipped {
            flow.slots[dependent].state = SlotState::Waiting;
        }
    }
}

/// Skips the nodes whose dependencies can never be met any more, and those that depend on them.
pub(crate) fn skip_unreachable(flow: &mut Flow) {
    let Definition::Compose(file) = &flow.blueprint.definition else { return };
    for &place in &flow.blueprint.order {
        if flow.slots[place].state != SlotState::Waiting {
            continue;
        }
        if file.nodes[place].depends_on.iter().any(|dependency| is_never_met(flow, *dependency)) {
            flow.slots[place].state = SlotState::Skipped;
        }
    }
}

pub(crate) fn decide(flow: &Flow, file: &ComposeFile, now_ms: u64, room: usize) -> Vec<Decision> {
    let winding_down = is_winding_down(flow, file);
    let (mut decisions, mut next, mut room) = (Vec::new(), None, room);
    for place in 0..flow.slots.len() {
        let slot = &flow.slots[place];
        let ends = winding_down && file.nodes[place].is_service();
        let is_ending = ends || matches!(slot.state, SlotState::ToStop { .. });
        if let Some(uuid) = slot.state.living().filter(|_| is_ending) {
            decisions.push(Decision::Stop { slot: slot.name.to_string(), uuid });
        }
        if ends {
            continue;
        }
        let start = match flow.due(place, now_ms) {
            // What begins anew waits for what begins anew with it.
            Some(Ok(_)) if slot.starts == 0 && awaits_dependency(flow, file, place) => None,
            Some(Ok(start)) => Some(start),
            Some(Err(at_ms)) => {
                next = Some(next.map_or(at_ms, |next: u64| next.min(at_ms)));
                None
            }
            None => is_ready(flow, file, place).then_some(Start::New),
        };
        if let Some(start) = start.filter(|_| room > 0) {
            room -= 1;
            decisions.push(Decision::Start { slot: slot.name.to_string(), start });
        }
    }
    let over = |place: usize| {
        let state = &flow.slots[place].state;
        state.is_over() || (winding_down && file.nodes[place].is_service() && state.living().is_none())
    };
    if (0..flow.slots.len()).all(over) {
        return vec![Decision::Finish(verdict(flow))];
    }
    decisions.extend(next.map(|until_ms| Decision::Wait { until_ms }));
    decisions
}

/// Tells whether a condition of a node may still be met.
fn awaits_dependency(flow: &Flow, file: &ComposeFile, place: usize) -> bool {
    let is_open = |dependency: &Dependency| met(dependency.condition, &flow.slots[dependency.node]) == Met::NotYet;
    file.nodes[place].depends_on.iter().any(is_open)
}

fn is_ready(flow: &Flow, file: &ComposeFile, place: usize) -> bool {
    let is_met = |dependency: &Dependency| met(dependency.condition, &flow.slots[dependency.node]) == Met::Yes;
    flow.slots[place].state == SlotState::Waiting && file.nodes[place].depends_on.iter().all(is_met)
}

fn verdict(flow: &Flow) -> Verdict {
    let failed = |state: &SlotState| match state {
        SlotState::Failed { .. } | SlotState::Stopped | SlotState::Halted => true,
        SlotState::Succeeded
        | SlotState::Skipped
        | SlotState::Waiting
        | SlotState::Due { .. }
        | SlotState::Running { .. }
        | SlotState::ToStop { .. } => false,
    };
    let slots: Vec<String> =
        flow.slots.iter().filter(|slot| failed(&slot.state)).map(|slot| slot.name.to_string()).collect();
    if slots.is_empty() { Verdict::Succeeded } else { Verdict::Failed { slots } }
}
