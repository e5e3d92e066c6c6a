//! The list that a dialect's parser fills while it reads a line.

use crate::event::{Event, EventKind, TurnOutcome};
use crate::ids::shorten;

#[derive(Debug, Default)]
pub(crate) struct LineEvents {
    events: Vec<Event>,
    /// The subagent that the line is about.
    subagent: Option<String>,
}

impl LineEvents {
    pub(crate) fn push(&mut self, kind: EventKind) {
        self.events.push(Event { kind, subagent: self.subagent.clone() });
    }

    /// Marks the events of this line as a subagent's. Each of them repeats the id, so a long one is cut. An empty id
    /// means that the line is the agent's own.
    pub(crate) fn set_subagent(&mut self, id: &str) {
        self.subagent = Some(shorten(id).into_owned()).filter(|id| !id.is_empty());
    }

    pub(crate) fn is_by_subagent(&self) -> bool {
        self.subagent.is_some()
    }

    /// The subagent that the line is about.
    pub(crate) fn subagent(&self) -> Option<&str> {
        self.subagent.as_deref()
    }

    pub(crate) fn other(&mut self, name: impl Into<String>) {
        self.push(EventKind::Other { name: name.into() });
    }

    pub(crate) fn unknown(&mut self, name: impl Into<String>) {
        self.push(EventKind::Unknown { name: name.into() });
    }

    pub(crate) fn warning(&mut self, message: impl Into<String>) {
        self.push(EventKind::Warning { message: message.into() });
    }

    pub(crate) fn turn_ended(&mut self, outcome: TurnOutcome, message: Option<String>) {
        self.push(EventKind::TurnEnded { outcome, message });
    }

    /// Reports that another process has started in the same stream: nothing of the one before is open any more.
    pub(crate) fn process_replaced(&mut self) {
        self.push(EventKind::SessionEnded { reason: Some("another process started".into()) });
    }

    /// Reports a known line without any content as `other`: every line has at least one event.
    pub(crate) fn other_if_empty(&mut self, name: impl Into<String>) {
        if self.events.is_empty() {
            self.other(name);
        }
    }

    pub(crate) fn as_slice(&self) -> &[Event] {
        &self.events
    }

    pub(crate) fn into_vec(self) -> Vec<Event> {
        self.events
    }
}
