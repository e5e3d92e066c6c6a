//! The conversation that a CLI is in.

use super::line_events::LineEvents;
use crate::event::EventKind;
use crate::ids::shorten;

/// Remembers the id of the conversation, which some CLIs repeat with every line.
#[derive(Debug, Default)]
pub(super) struct Conversation {
    id: Option<String>,
}

impl Conversation {
    /// Reports the conversation if it is another one than before.
    pub(super) fn enter(&mut self, id: String, model: Option<String>, events: &mut LineEvents) {
        if !self.is(&id) {
            self.id = Some(shorten(&id).into_owned());
            events.push(EventKind::SessionStarted { session_id: id, model });
        }
    }

    pub(super) fn is(&self, id: &str) -> bool {
        self.id.as_deref() == Some(shorten(id).as_ref())
    }
}
