//! The approvals and questions that are still open, in bounded memory.

use std::borrow::Cow;

use crate::ids::shorten;
use crate::machine::Waiting;

/// Agents ask a few things at a time.
const MAX_REQUESTS: usize = 256;

#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct OpenRequests {
    requests: Vec<OpenRequest>,
    /// The first of the agent's own requests beyond the limit. Its answer cannot be told from a repeated answer to another
    /// request, so it counts as open until the turn ends.
    forgotten: Option<Waiting>,
    /// The same for requests of subagents, which may outlive the turn: it counts as open until the process ends.
    forgotten_of_subagents: Option<Waiting>,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct OpenRequest {
    id: String,
    tool_id: Option<String>,
    subagent: Option<String>,
    waiting: Waiting,
}

impl OpenRequest {
    pub(crate) fn new(id: &str, tool_id: Option<&str>, subagent: Option<&str>, waiting: Waiting) -> Self {
        let owned = |id: &str| shorten(id).into_owned();
        Self { id: owned(id), tool_id: tool_id.map(owned), subagent: subagent.map(owned), waiting }
    }
}

impl OpenRequests {
    /// Adds a request, unless it is there already.
    pub(crate) fn add(&mut self, request: OpenRequest) {
        if self.requests.iter().any(|open| open.id == request.id) {
            return;
        }
        if self.requests.len() < MAX_REQUESTS {
            self.requests.push(request);
        } else if request.subagent.is_some() {
            self.forgotten_of_subagents.get_or_insert(request.waiting);
        } else {
            self.forgotten.get_or_insert(request.waiting);
        }
    }

    pub(crate) fn close(&mut self, id: &str) {
        let id = shorten(id);
        self.requests.retain(|request| request.id != id);
    }

    /// Closes the approval of a call that has a result, wherever the answer came from.
    pub(crate) fn close_for_tool(&mut self, tool_id: &str) {
        let tool_id = Some(shorten(tool_id));
        self.requests.retain(|request| request.tool_id.as_deref().map(Cow::Borrowed) != tool_id);
    }

    pub(crate) fn close_for_subagent(&mut self, subagent: &str) {
        let subagent = Some(shorten(subagent));
        self.requests.retain(|request| request.subagent.as_deref().map(Cow::Borrowed) != subagent);
    }

    /// Closes the agent's own requests. A subagent may work, and wait, beyond the turn that started it.
    pub(crate) fn end_turn(&mut self) {
        self.requests.retain(|request| request.subagent.is_some());
        self.forgotten = None;
    }

    /// Returns the kind of the oldest open request.
    pub(crate) fn waiting(&self) -> Option<Waiting> {
        let first = self.requests.first().map(|request| request.waiting);
        first.or(self.forgotten).or(self.forgotten_of_subagents)
    }
}
