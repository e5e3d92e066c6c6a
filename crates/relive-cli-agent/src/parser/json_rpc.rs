//! JSON-RPC, which codex app-server and ACP speak: requests, notifications and replies.

use std::collections::VecDeque;

use crate::ids::shorten;
use crate::json::Json;

/// A client has a handful of requests open; the oldest of more than this is forgotten.
const MAX_PENDING: usize = 256;

#[derive(Debug, Clone)]
pub(super) enum RpcMessage<'a> {
    Request {
        id: Json<'a>,
        method: String,
        params: Option<Json<'a>>,
    },
    Notification {
        method: String,
        params: Option<Json<'a>>,
    },
    Reply {
        id: Json<'a>,
        result: Option<Json<'a>>,
    },
    ErrorReply {
        id: Json<'a>,
        error: Json<'a>,
    },
    /// An error that is about no request, such as a line that could not be read.
    ErrorWithoutId {
        error: Json<'a>,
    },
    /// An object that is none of these.
    Invalid,
}

impl<'a> RpcMessage<'a> {
    pub(super) fn of(line: Json<'a>) -> Self {
        let [method, id, params, result, error] = line.fields(["method", "id", "params", "result", "error"]);
        match (method.and_then(Json::text), id, error) {
            (Some(method), Some(id), _) => Self::Request { id, method, params },
            (Some(method), None, _) => Self::Notification { method, params },
            (None, Some(id), Some(error)) => Self::ErrorReply { id, error },
            (None, Some(id), None) => Self::Reply { id, result },
            (None, None, Some(error)) => Self::ErrorWithoutId { error },
            (None, None, None) => Self::Invalid,
        }
    }
}

/// Requests that were written to the CLI and have no reply yet. `T` is the kind of a request: the reply itself does not
/// say what it answers.
#[derive(Debug)]
pub(super) struct PendingRequests<T> {
    requests: VecDeque<(String, T)>,
}

impl<T> Default for PendingRequests<T> {
    fn default() -> Self {
        Self { requests: VecDeque::new() }
    }
}

impl<T: Copy + PartialEq> PendingRequests<T> {
    pub(super) fn add(&mut self, id: Json<'_>, kind: T) {
        if self.requests.len() == MAX_PENDING {
            self.requests.pop_front();
        }
        self.requests.push_back((key(id), kind));
    }

    /// Removes the request that a reply answers.
    pub(super) fn take(&mut self, id: Json<'_>) -> Option<T> {
        let key = key(id);
        let index = self.requests.iter().position(|(sent, _)| *sent == key)?;
        self.requests.remove(index).map(|(_, kind)| kind)
    }

    /// Forgets the requests of all other kinds.
    pub(super) fn keep(&mut self, kind: T) {
        self.requests.retain(|(_, sent)| *sent == kind);
    }

    /// Returns whether a request of this kind has no reply yet.
    pub(super) fn contains(&self, kind: T) -> bool {
        self.requests.iter().any(|(_, sent)| *sent == kind)
    }
}

fn key(id: Json<'_>) -> String {
    shorten(id.as_str()).into_owned()
}
