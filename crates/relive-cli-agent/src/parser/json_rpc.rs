//! JSON-RPC, which codex app-server and ACP speak: requests, notifications and replies.

use std::collections::VecDeque;

use crate::ids::shorten;
use crate::json::Json;

/// A client has a handful of requests open; the oldest of more than this is forgotten.
const MAX_PENDING: usize = 256;

#[derive(Debug, Clone, Copy)]
pub(super) enum RpcMessage<'a> {
    Request {
        id: Json<'a>,
        params: Option<Json<'a>>,
    },
    Notification {
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
    /// An object that is none of these.
    Invalid,
}

impl<'a> RpcMessage<'a> {
    /// Returns the message and the method it names; replies name none.
    pub(super) fn of(line: Json<'a>) -> (Self, String) {
        let [method, id, params, result, error] = line.fields(["method", "id", "params", "result", "error"]);
        let method = method.and_then(Json::text);
        let message = match (&method, id, error) {
            (Some(_), Some(id), _) => Self::Request { id, params },
            (Some(_), None, _) => Self::Notification { params },
            (None, Some(id), Some(error)) => Self::ErrorReply { id, error },
            (None, Some(id), None) => Self::Reply { id, result },
            (None, None, _) => Self::Invalid,
        };
        (message, method.unwrap_or_default())
    }
}

/// Requests that were written to the CLI and have no reply yet, each with what its reply will mean.
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
    pub(super) fn add(&mut self, id: Json<'_>, meaning: T) {
        if self.requests.len() == MAX_PENDING {
            self.requests.pop_front();
        }
        self.requests.push_back((key(id), meaning));
    }

    /// Removes the request that a reply answers.
    pub(super) fn take(&mut self, id: Json<'_>) -> Option<T> {
        let key = key(id);
        let index = self.requests.iter().position(|(sent, _)| *sent == key)?;
        self.requests.remove(index).map(|(_, meaning)| meaning)
    }

    pub(super) fn contains(&self, meaning: T) -> bool {
        self.requests.iter().any(|(_, sent)| *sent == meaning)
    }
}

fn key(id: Json<'_>) -> String {
    shorten(id.as_str()).into_owned()
}
