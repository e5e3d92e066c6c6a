//! The sessions that have work, as far as the output of an agent shows.

use std::collections::BTreeMap;

use crate::ids::shorten;

/// An agent works on a few sessions at a time; more are not told apart.
const MAX_SESSIONS: usize = 64;

/// Needed because the reply to a prompt does not name its session. A session that waits for an approval has not ended.
#[derive(Debug, Default)]
pub(super) struct LiveSessions {
    sessions: BTreeMap<String, Asking>,
}

#[derive(Debug, PartialEq, Eq)]
enum Asking {
    Nothing,
    /// For a permission, of this call if it is named.
    For(Option<String>),
}

impl LiveSessions {
    /// Notes that a session asks for a permission.
    pub(super) fn ask(&mut self, session_id: &str, tool_id: Option<&str>) {
        self.set(session_id, Asking::For(tool_id.map(|id| shorten(id).into_owned())));
    }

    /// Notes that the agent works on a session, and on which call if there is one. Work on another call than the one
    /// that needs the permission does not imply an answer.
    pub(super) fn work(&mut self, session_id: &str, tool_id: Option<&str>) {
        let asked = self.sessions.get(shorten(session_id).as_ref());
        let is_other_call = match (asked, tool_id) {
            (Some(Asking::For(Some(asked))), Some(tool_id)) => *asked != shorten(tool_id),
            (Some(_) | None, _) => false,
        };
        if !is_other_call {
            self.set(session_id, Asking::Nothing);
        }
    }

    fn set(&mut self, session_id: &str, asking: Asking) {
        let session_id = shorten(session_id);
        if self.sessions.len() < MAX_SESSIONS || self.sessions.contains_key(session_id.as_ref()) {
            self.sessions.insert(session_id.into_owned(), asking);
        }
    }

    /// Notes that a prompt ended without being cancelled. Returns whether no session has work any more. A session that
    /// waits for a permission keeps its work if the end can belong to another session.
    pub(super) fn end_one(&mut self) -> bool {
        let had_other = self.sessions.values().any(|asking| *asking == Asking::Nothing);
        self.sessions.retain(|_, asking| had_other && *asking != Asking::Nothing);
        self.sessions.is_empty()
    }

    pub(super) fn end_all(&mut self) {
        self.sessions.clear();
    }
}
