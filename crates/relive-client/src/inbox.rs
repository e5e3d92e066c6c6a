//! The inbox, and the stream of all processes.

use relive_api::{AckRequest, Acked, Inbox};

use super::client::{Client, get};
use super::error::Error;
use super::http::segment;
use super::sse::Event;

impl Client {
    /// Returns what waits for a person.
    pub async fn inbox(&self) -> Result<Inbox, Error> {
        self.get("/v1/inbox".to_owned()).await
    }

    /// Notes that a person has seen how a process ended.
    pub async fn ack(&self, id: &str, request: &AckRequest) -> Result<Acked, Error> {
        self.tell(id, "ack", request).await
    }

    /// Calls back for every event of all processes after `last`, and updates `last`. Returns when the daemon ends the
    /// stream or is gone: whoever calls again with the same `last` misses nothing. An event `reset` means that everything
    /// follows anew.
    pub async fn follow_all<E: From<Error>>(
        &self,
        last: &mut Option<String>,
        mut sink: impl AsyncFnMut(Event) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut path = "/v1/stream?follow=true".to_owned();
        if let Some(after) = last.as_deref() {
            path = format!("{path}&after={}", segment(after));
        }
        let answer = self.exchange(&get(path)).await?;
        let mut stream = super::follow::Stream::of(self, answer);
        while let Some(event) = stream.next().await? {
            let id = event.id.clone();
            sink(event).await?;
            // Only what was taken in counts as seen.
            if !id.is_empty() {
                *last = Some(id);
            }
        }
        Ok(())
    }
}
