//! The conversation that a CLI is in.

use super::line_events::LineEvents;
use crate::event::EventKind;
use crate::ids::shorten;

/// Remembers the id of the conversation, which some CLIs repeat with every line.
#[derive(Debug, Default)]
pub(super) struct Conversation {
    id: Option<String>,
}

/// Whether a line moved the CLI to another conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Entered {
    Another,
    Same,
}

impl Conversation {
    /// Reports the conversation if its id differs from the last one. A line without an id names no conversation.
    pub(super) fn enter(&mut self, id: Option<String>, model: Option<String>, events: &mut LineEvents) -> Entered {
        match id {
            Some(id) if !id.is_empty() && !self.is(&id) => {
                self.id = Some(shorten(&id).into_owned());
                events.push(EventKind::SessionStarted { session_id: id, model });
                Entered::Another
            }
            Some(_) | None => Entered::Same,
        }
    }

    pub(super) fn is(&self, id: &str) -> bool {
        self.id.as_deref() == Some(shorten(id).as_ref())
    }
}
