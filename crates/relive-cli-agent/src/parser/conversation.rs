//! The conversation that a CLI is in.

use super::line_events::LineEvents;
use crate::event::EventKind;
use crate::ids::shorten;
use crate::json::Json;
use crate::machine::Turn;

/// Remembers the id of the conversation, which some CLIs repeat with every line.
#[derive(Debug, Default)]
pub(super) struct Conversation {
    id: Option<String>,
}

impl Conversation {
    /// Leaves the conversation if its turn is open although a line shows that another process has started.
    pub(super) fn leave_lost_turn(&mut self, turn: &mut Turn, events: &mut LineEvents) {
        if *turn == Turn::Open {
            *turn = Turn::Closed;
            self.leave(events);
        }
    }

    /// Leaves the conversation of a process that is gone.
    pub(super) fn leave(&mut self, events: &mut LineEvents) {
        *self = Self::default();
        events.process_replaced();
    }

    /// Reports the conversation if its id differs from the last one. A line without an id names no conversation.
    pub(super) fn enter(&mut self, id: Option<String>, model: Option<String>, events: &mut LineEvents) {
        if let Some(id) = id.filter(|id| !id.is_empty() && !self.is(id)) {
            self.id = Some(shorten(&id).into_owned());
            events.push(EventKind::SessionStarted { session_id: id, model });
        }
    }

    /// Whether a line that names this conversation is about another one than the CLI is in.
    pub(super) fn is_other(&self, id: Option<Json<'_>>) -> bool {
        let id = id.and_then(Json::text).filter(|id| !id.is_empty());
        self.id.is_some() && id.is_some_and(|id| !self.is(&id))
    }

    pub(super) fn is(&self, id: &str) -> bool {
        self.id.as_deref() == Some(shorten(id).as_ref())
    }
}
