//! The state of a tree: the fold of its events.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use relive_types::suggest::closest;
use relive_types::{Uuid, WorkspaceKind};
use serde::{Deserialize, Serialize};

use crate::event::{Decision, Event, Origin, Outcome, Start};
use crate::file::{ComposeFile, Condition, Run, SupervisorFile};
use crate::slot::{Slot, SlotState, SlotStatus};
use crate::{compose, supervise};

/// What a tree consists of.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Definition {
    Compose(ComposeFile),
    Supervisor(SupervisorFile),
}

impl Definition {
    /// Returns the names of the slots, in the order of the file.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let (nodes, children) = match self {
            Self::Compose(file) => (file.nodes.as_slice(), [].as_slice()),
            Self::Supervisor(file) => ([].as_slice(), file.children.as_slice()),
        };
        nodes.iter().map(|node| node.name.as_str()).chain(children.iter().map(|child| child.name.as_str()))
    }
}

/// A node that worked on a copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnNode {
    pub slot: String,
    pub uuid: Uuid,
    /// The directory that it is a copy of, as [`crate::Task::cwd`].
    pub cwd: Option<String>,
}

/// Why an event does not fit the state.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Rejected {
    #[error("there is no node `{name}`{}", meant(suggestion.as_deref()))]
    NoSuchSlot {
        name: String,
        /// The name that was probably meant.
        suggestion: Option<String>,
    },
    #[error("{slot} is {state}, not running as {uuid}")]
    NotRunning { slot: String, state: &'static str, uuid: Uuid },
    #[error("{slot} is {state}: it is not about to be started again")]
    NotDue { slot: String, state: &'static str },
    #[error("{slot} cannot be started: it is {state}")]
    NotStartable { slot: String, state: &'static str },
    #[error("{0} has not run yet: it starts when what it depends on is done")]
    NeverRan(String),
    #[error("{0} is running")]
    Runs(String),
    #[error("{dependent}, which depends on {slot}, is running")]
    DependentRuns { slot: String, dependent: String },
}

fn meant(suggestion: Option<&str>) -> String {
    suggestion.map(|name| format!(" (did you mean `{name}`?)")).unwrap_or_default()
}

/// What never changes about a tree. It is shared, because a tree is copied before each of its events.
#[derive(Debug, PartialEq)]
pub(crate) struct Blueprint {
    pub(crate) definition: Definition,
    /// The nodes of a compose file, each after those that it depends on.
    pub(crate) order: Vec<usize>,
    places: HashMap<Arc<str>, usize>,
    /// The nodes whose results others ask for.
    asked_for: HashSet<String>,
    /// The nodes whose start others wait for.
    awaited: HashSet<usize>,
}

impl Blueprint {
    fn new(definition: Definition) -> Self {
        let (order, asked_for, awaited) = match &definition {
            Definition::Compose(file) => {
                let asked_for = file.nodes.iter().flat_map(|node| node.task.asks_for());
                let on = file.nodes.iter().flat_map(|node| &node.depends_on);
                let awaited = on.filter(|on| on.condition == Condition::Started).map(|on| on.node).collect();
                (file.order(), asked_for.collect(), awaited)
            }
            Definition::Supervisor(_) => (Vec::new(), HashSet::new(), HashSet::new()),
        };
        let places = definition.names().map(Arc::from).enumerate().map(|(place, name)| (name, place)).collect();
        Self { definition, order, places, asked_for, awaited }
    }
}

/// A tree of processes.
#[derive(Debug, Clone, PartialEq)]
pub struct Flow {
    pub(crate) blueprint: Arc<Blueprint>,
    pub(crate) slots: Vec<Slot>,
    started: u64,
    reopened_after: u32,
    /// When a supervisor restarted a child, within the window.
    pub(crate) restarts: Vec<u64>,
    /// The child that was to be restarted once too often.
    pub(crate) escalated: Option<String>,
}

impl Flow {
    #[must_use]
    pub fn new(definition: Definition) -> Self {
        let slots = definition.names().map(Slot::new).collect();
        let blueprint = Arc::new(Blueprint::new(definition));
        Self { blueprint, slots, started: 0, reopened_after: 0, restarts: Vec::new(), escalated: None }
    }

    #[must_use]
    pub fn definition(&self) -> &Definition {
        &self.blueprint.definition
    }

    /// Returns the last generation of the tree that had ended when the tree was continued; 0 in its first run.
    #[must_use]
    pub fn reopened_after(&self) -> u32 {
        self.reopened_after
    }

    /// Returns the slot with this name.
    #[must_use]
    pub fn slot(&self, name: &str) -> Option<SlotStatus<'_>> {
        self.place(name).ok().map(|place| self.status(place))
    }

    fn status(&self, place: usize) -> SlotStatus<'_> {
        let slot = &self.slots[place];
        SlotStatus {
            name: &slot.name,
            state: &slot.state,
            uuid: slot.last,
            starts: slot.all_starts,
            has_started: slot.has_started,
            note: slot.note.as_deref(),
            at_end: slot.at_end,
        }
    }

    /// Returns all slots, in the order of the file.
    pub fn slots(&self) -> impl Iterator<Item = SlotStatus<'_>> {
        (0..self.slots.len()).map(|place| self.status(place))
    }

    /// Returns what a slot runs, with the results of other nodes put in by [`Flow::result`].
    #[must_use]
    pub fn work_of(&self, slot: &str) -> Option<Run> {
        match &self.blueprint.definition {
            Definition::Compose(file) => {
                let node = file.nodes.get(self.place(slot).ok()?)?;
                Some(Run::Task(node.task.filled(|name| self.result(name))))
            }
            Definition::Supervisor(file) => file.children.get(self.place(slot).ok()?).map(|child| child.run.clone()),
        }
    }

    /// Returns what a node said last.
    #[must_use]
    pub fn result(&self, slot: &str) -> String {
        let slot = self.place(slot).ok().map(|place| &self.slots[place]);
        slot.and_then(|slot| slot.result.as_deref()).unwrap_or_default().to_owned()
    }

    /// Returns the nodes whose changes are merged before a slot starts: those that it waits for, that worked on a copy, and
    /// that succeeded. What one that failed did stays in its copy.
    #[must_use]
    pub fn merged_before(&self, slot: &str) -> Vec<OwnNode> {
        let Definition::Compose(file) = &self.blueprint.definition else { return Vec::new() };
        let Some(node) = self.place(slot).ok().and_then(|place| file.nodes.get(place)) else { return Vec::new() };
        let on = node.depends_on.iter().filter(|on| on.condition != Condition::Started);
        let own = on.filter_map(|on| {
            let (node, slot) = (&file.nodes[on.node], &self.slots[on.node]);
            let is_meant = node.task.workspace == Some(WorkspaceKind::Own) && slot.state == SlotState::Succeeded;
            slot.last.filter(|_| is_meant).map(|uuid| OwnNode {
                slot: slot.name.to_string(),
                uuid,
                cwd: node.task.cwd.clone(),
            })
        });
        own.collect()
    }

    /// Returns the first dependency of a node that can no longer be met.
    #[must_use]
    pub fn unmet(&self, slot: &str) -> Option<SlotStatus<'_>> {
        let Definition::Compose(file) = &self.blueprint.definition else { return None };
        let node = file.nodes.get(self.place(slot).ok()?)?;
        let on = node.depends_on.iter().find(|on| compose::is_never_met(self, **on))?;
        Some(self.status(on.node))
    }

    /// Tells whether an agent runs, or is still to run: one that spends.
    #[must_use]
    pub fn has_agents_left(&self) -> bool {
        let spends = |place: usize| match &self.blueprint.definition {
            Definition::Compose(file) => file.nodes.get(place).is_some_and(|node| node.task.spends()),
            Definition::Supervisor(file) => file.children.get(place).is_some_and(|child| child.run.spends()),
        };
        (0..self.slots.len()).any(|place| !self.slots[place].state.is_over() && spends(place))
    }

    /// Tells whether a slot has failed because of a limit that would end it again at once: it is not restarted.
    #[must_use]
    pub fn is_at_limit(&self, slot: &str) -> bool {
        self.place(slot).is_ok_and(|place| self.is_exhausted(place))
    }

    /// Tells whether a slot of the tree is at its limit: nothing changes if the tree is started again as it is.
    #[must_use]
    pub fn has_limit_reached(&self) -> bool {
        (0..self.slots.len()).any(|place| self.is_exhausted(place))
    }

    fn is_exhausted(&self, place: usize) -> bool {
        let restarts = match &self.blueprint.definition {
            Definition::Compose(file) => {
                file.nodes[place].restart.filter(|restart| !restart.fresh).is_some_and(|it| it.policy.restarts(false))
            }
            Definition::Supervisor(file) => {
                let child = &file.children[place];
                !child.fresh && child.restart.restarts(false)
            }
        };
        let slot = &self.slots[place];
        restarts && slot.at_end.limit && matches!(slot.state, SlotState::Failed { .. })
    }

    /// Tells whether another node waits for the start of this one.
    #[must_use]
    pub fn is_start_awaited(&self, slot: &str) -> bool {
        self.place(slot).is_ok_and(|place| self.blueprint.awaited.contains(&place))
    }

    /// Tells whether another node asks for the result of this one.
    #[must_use]
    pub fn wants_result(&self, slot: &str) -> bool {
        self.blueprint.asked_for.contains(slot)
    }

    /// Applies an event. One that is rejected has changed nothing.
    pub fn apply(&mut self, event: &Event) -> Result<(), Rejected> {
        match event {
            Event::Starting { slot, uuid, start } => self.starting(slot, *uuid, start)?,
            Event::Started { slot, uuid } => {
                let place = self.running(slot, *uuid)?;
                self.slots[place].has_started = true;
            }
            Event::Ended { slot, uuid, outcome, at_ms, result, note, at_end } => {
                let place = self.running(slot, *uuid)?;
                if *outcome != Outcome::NeverRan {
                    self.slots[place].at_end = *at_end;
                }
                self.slots[place].result = result.as_deref().map(Arc::from);
                self.slots[place].note = note.as_deref().map(Arc::from);
                match &self.blueprint.definition {
                    Definition::Compose(_) => compose::ended(self, place, *outcome, *at_ms),
                    Definition::Supervisor(_) => supervise::ended(self, place, *outcome, *at_ms),
                }
            }
            Event::Stopped { slot, uuid, note } => self.stopped(slot, *uuid, note.as_deref())?,
            Event::Redo { slot, origin, run } => {
                match &self.blueprint.definition {
                    Definition::Compose(_) => compose::redo(self, slot, origin)?,
                    Definition::Supervisor(_) => supervise::redo(self, slot, origin, *run)?,
                }
                self.reopened_after = self.reopened_after.max(*run);
            }
            Event::Reopened { run } => {
                self.reopened_after = self.reopened_after.max(*run);
                match &self.blueprint.definition {
                    Definition::Compose(_) => compose::reopened(self),
                    Definition::Supervisor(_) => supervise::reopened(self),
                }
            }
        }
        if matches!(self.blueprint.definition, Definition::Compose(_)) {
            compose::skip_unreachable(self);
        }
        Ok(())
    }

    /// Decides what is to be done now, with room for so many more processes at once.
    #[must_use]
    pub fn decide(&self, now_ms: u64, room: usize) -> Vec<Decision> {
        match &self.blueprint.definition {
            Definition::Compose(file) => compose::decide(self, file, now_ms, room),
            Definition::Supervisor(_) => supervise::decide(self, now_ms, room),
        }
    }

    pub(crate) fn place(&self, slot: &str) -> Result<usize, Rejected> {
        self.blueprint.places.get(slot).copied().ok_or_else(|| Rejected::NoSuchSlot {
            name: slot.to_owned(),
            suggestion: closest(slot, self.blueprint.definition.names()).map(str::to_owned),
        })
    }

    /// Returns the place of a slot that runs this process.
    fn running(&self, slot: &str, uuid: Uuid) -> Result<usize, Rejected> {
        let place = self.place(slot)?;
        let state = &self.slots[place].state;
        if state.living() != Some(uuid) {
            return Err(Rejected::NotRunning { slot: slot.to_owned(), state: state.word(), uuid });
        }
        Ok(place)
    }

    fn starting(&mut self, slot: &str, uuid: Uuid, start: &Start) -> Result<(), Rejected> {
        let place = self.place(slot)?;
        let number = self.started + 1;
        let found = &mut self.slots[place];
        // Journals from before `created` was recorded have starts of nodes that the fold takes for skipped.
        if !matches!(found.state, SlotState::Waiting | SlotState::Due { .. } | SlotState::Skipped) {
            return Err(Rejected::NotStartable { slot: slot.to_owned(), state: found.state.word() });
        }
        let was_skipped = found.state == SlotState::Skipped;
        found.state = SlotState::Running { uuid, start: start.clone(), number };
        found.starts += 1;
        found.all_starts += 1;
        found.last = Some(uuid);
        found.note = None;
        self.started = number;
        if was_skipped {
            compose::unskip_dependents(self, place);
        }
        Ok(())
    }

    /// Has a slot that waits for its time stay as it is.
    fn stopped(&mut self, slot: &str, uuid: Uuid, note: Option<&str>) -> Result<(), Rejected> {
        let place = self.place(slot)?;
        let found = &mut self.slots[place];
        if !matches!(found.state, SlotState::Due { .. }) || found.last != Some(uuid) {
            return Err(Rejected::NotDue { slot: slot.to_owned(), state: found.state.word() });
        }
        found.state = SlotState::Stopped;
        found.note = note.map(Arc::from);
        Ok(())
    }

    /// Returns how a slot that waits for its time starts if that has come, or else the time; nothing for other slots.
    pub(crate) fn due(&self, place: usize, now_ms: u64) -> Option<Result<Start, u64>> {
        match &self.slots[place].state {
            SlotState::Due { start, at_ms } if *at_ms <= now_ms => Some(Ok(start.clone())),
            SlotState::Due { at_ms, .. } => Some(Err(*at_ms)),
            SlotState::Waiting
            | SlotState::Running { .. }
            | SlotState::ToStop { .. }
            | SlotState::Succeeded
            | SlotState::Failed { .. }
            | SlotState::Stopped
            | SlotState::Halted
            | SlotState::Skipped => None,
        }
    }

    /// Marks a process that was never created as one that is still to be started: a fork as a fork, others as new ones.
    pub(crate) fn never_ran(&mut self, place: usize, at_ms: u64) {
        let slot = &mut self.slots[place];
        slot.starts = slot.starts.saturating_sub(1);
        slot.all_starts = slot.all_starts.saturating_sub(1);
        let start = match &slot.state {
            SlotState::Running { start: start @ Start::Fork { .. }, .. } => start.clone(),
            SlotState::Running { .. }
            | SlotState::ToStop { .. }
            | SlotState::Waiting
            | SlotState::Due { .. }
            | SlotState::Succeeded
            | SlotState::Failed { .. }
            | SlotState::Stopped
            | SlotState::Halted
            | SlotState::Skipped => Start::New,
        };
        slot.last = match &start {
            Start::Fork { from, .. } => Some(*from),
            Start::New | Start::Resume { .. } => None,
        };
        slot.state = SlotState::Due { start, at_ms };
    }

    /// Returns how a slot continues that a person resumes, and refuses one that runs or has not run.
    pub(crate) fn continued(&self, place: usize, origin: &Origin) -> Result<Start, Rejected> {
        let slot = &self.slots[place];
        if slot.state.living().is_some() {
            return Err(Rejected::Runs(slot.name.to_string()));
        }
        let last = slot.last.ok_or_else(|| Rejected::NeverRan(slot.name.to_string()))?;
        Ok(match origin {
            Origin::End { input, limits } => Start::Resume { input: input.clone(), limits: *limits },
            Origin::Fork { from_step, input, limits } => {
                Start::Fork { from: last, from_step: *from_step, input: input.clone(), limits: *limits }
            }
        })
    }

    /// The state of a slot that ended and is not started again.
    pub(crate) fn final_state(outcome: Outcome) -> SlotState {
        match outcome {
            Outcome::Succeeded => SlotState::Succeeded,
            Outcome::Failed { code } => SlotState::Failed { code },
            Outcome::Stopped => SlotState::Stopped,
            Outcome::Halted | Outcome::NeverRan => SlotState::Halted,
        }
    }

    /// How a slot that ended is started again.
    pub(crate) fn restart(fresh: bool) -> Start {
        if fresh { Start::New } else { Start::resume() }
    }
}
