//! The approvals and questions that nobody has answered yet, in bounded memory.

use crate::ids::shorten;
use crate::machine::Waiting;

/// Agents ask a few things at a time.
const MAX_REQUESTS: usize = 256;

#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct OpenRequests {
    requests: Vec<OpenRequest>,
    /// The first request beyond the limit. An answer to it cannot be told from a repeated answer to another one, so it
    /// counts as open until the turn ends.
    forgotten: Option<Waiting>,
}

#[derive(Debug, Clone, PartialEq)]
struct OpenRequest {
    id: String,
    tool_id: Option<String>,
    waiting: Waiting,
}

impl OpenRequests {
    /// Adds a request, unless it is there already.
    pub(crate) fn add(&mut self, id: &str, tool_id: Option<&str>, waiting: Waiting) {
        let id = shorten(id);
        if self.requests.iter().any(|request| request.id == id) {
            return;
        }
        if self.requests.len() == MAX_REQUESTS {
            self.forgotten.get_or_insert(waiting);
            return;
        }
        let tool_id = tool_id.map(|id| shorten(id).into_owned());
        self.requests.push(OpenRequest { id: id.into_owned(), tool_id, waiting });
    }

    pub(crate) fn close(&mut self, id: &str) {
        let id = shorten(id);
        self.requests.retain(|request| request.id != id);
    }

    /// A call that has a result needs no approval any more, wherever the answer came from.
    pub(crate) fn close_of_tool(&mut self, tool_id: &str) {
        let tool_id = shorten(tool_id);
        self.requests.retain(|request| request.tool_id.as_deref() != Some(tool_id.as_ref()));
    }

    /// What the oldest open request asks for.
    pub(crate) fn waiting(&self) -> Option<Waiting> {
        self.requests.first().map(|request| request.waiting).or(self.forgotten)
    }
}
