//! The requests that a journal has answered, so that a repeated one is recognized even after a restart.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::History;
use crate::record::{Body, Record};

/// How many request ids are remembered: a client that repeats a request does so soon.
const REQUESTS_MAX: usize = 64;

/// The record that answered a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AnsweredRequest {
    pub kind: &'static str,
    pub seq: u64,
}

impl Serialize for AnsweredRequest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        (self.kind, self.seq).serialize(serializer)
    }
}

/// Written by hand, because the derived one borrows `kind` from its input.
impl<'de> Deserialize<'de> for AnsweredRequest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let (kind, seq) = <(String, u64)>::deserialize(deserializer)?;
        let known = Body::KINDS.into_iter().find(|known| *known == kind);
        let unknown = || serde::de::Error::custom(format_args!("`{kind}` is not a kind of record"));
        Ok(Self { kind: known.ok_or_else(unknown)?, seq })
    }
}

impl History {
    /// Returns the record that answered a request, if it is among the last 64. Of several records with the same request
    /// id it is the first. A fork remembers only its own requests.
    #[must_use]
    pub fn request(&self, id: &str) -> Option<AnsweredRequest> {
        self.requests.iter().find(|(known, _)| known == id).map(|(_, answered)| *answered)
    }

    pub(super) fn remember_request(&mut self, record: &Record) {
        let Some(id) = record.body.request() else { return };
        if self.request(id).is_some() {
            return;
        }
        if self.requests.len() == REQUESTS_MAX {
            self.requests.pop_front();
        }
        self.requests.push_back((id.to_owned(), AnsweredRequest { kind: record.body.kind(), seq: record.seq }));
    }
}
