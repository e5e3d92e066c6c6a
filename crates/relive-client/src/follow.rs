//! The streams of a process: its journal and its events, read once or followed to its end.
//!
//! A stream that breaks off is joined again after the last id, so nothing is missed and nothing comes twice, also
//! across daemons. The end of a process is learned by a wait, not from the stream.

use std::collections::VecDeque;
use std::pin::pin;
use std::time::{Duration, Instant};

use http_body_util::BodyExt as _;
use relive_api::WaitAnswer;

use super::client::{Answer, Client, Patience, get};
use super::error::Error;
use super::http;
use super::sse::{EVENT_MAX, Event, Parser};

/// Which of the streams of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "each name says it")]
pub enum Source {
    Journal,
    Events,
}

/// How long a stream that ended before its process is left alone.
const REJOIN_AFTER: Duration = Duration::from_millis(100);
/// How long a stream may take to end after its last event.
const END_WITHIN: Duration = Duration::from_secs(1);

struct Stream<'a> {
    client: &'a Client,
    /// Absent when it has ended.
    answer: Option<Answer>,
    parser: Parser,
    ready: VecDeque<Event>,
}

impl Stream<'_> {
    /// The next event; `None` at the stream's end.
    async fn next(&mut self) -> Result<Option<Event>, Error> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                if event.name == "end" {
                    self.end().await;
                    return Ok(None);
                }
                return Ok(Some(event));
            }
            let Some(answer) = &mut self.answer else { return Ok(None) };
            let Some(frame) = answer.body.frame().await else {
                self.end().await;
                return Ok(None);
            };
            let frame = frame.map_err(|error| http::judge(&self.client.socket, error))?;
            if let Some(chunk) = frame.data_ref() {
                let mut events = Vec::new();
                let pushed = self.parser.push(chunk, &mut events);
                pushed.map_err(|_| {
                    http::not_a_daemon(
                        &self.client.socket,
                        format!("it sent an event longer than {} MiB", EVENT_MAX >> 20),
                    )
                })?;
                self.ready.extend(events);
            }
        }
    }

    /// Keeps the connection for the next request, if the answer is at its end.
    async fn end(&mut self) {
        let Some(mut answer) = self.answer.take() else { return };
        if let Ok(None) = tokio::time::timeout(END_WITHIN, answer.body.frame()).await {
            self.client.keep(answer.connection);
        }
    }
}

impl Client {
    async fn stream(&self, uuid: &str, source: Source, after: Option<&str>, follow: bool) -> Result<Stream<'_>, Error> {
        let name = match source {
            Source::Journal => "journal",
            Source::Events => "events",
        };
        let mut path = format!("/v1/processes/{}/{name}?follow={follow}", http::segment(uuid));
        if let Some(after) = after {
            path = format!("{path}&after={}", http::segment(after));
        }
        let answer = Some(self.exchange(&get(path)).await?);
        Ok(Stream { client: self, answer, parser: Parser::default(), ready: VecDeque::new() })
    }

    /// Hands out what there is after `last`, which moves along.
    pub async fn read<E: From<Error>>(
        &self,
        uuid: &str,
        source: Source,
        last: &mut Option<String>,
        mut sink: impl AsyncFnMut(Event) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut patience = Patience::new(self.retry);
        loop {
            let begun = Instant::now();
            let error = match self.stream(uuid, source, last.as_deref(), false).await {
                Ok(mut stream) => loop {
                    match stream.next().await {
                        Ok(Some(event)) => {
                            *last = Some(event.id.clone());
                            sink(event).await?;
                        }
                        Ok(None) => return Ok(()),
                        Err(error) => break error,
                    }
                },
                Err(error) => error,
            };
            self.recover(error, begun, &mut patience).await?;
        }
    }

    /// Hands out what comes after `last` until the process has ended, and how it ended.
    pub async fn follow<E: From<Error>>(
        &self,
        uuid: &str,
        source: Source,
        last: &mut Option<String>,
        mut sink: impl AsyncFnMut(Event) -> Result<(), E>,
    ) -> Result<WaitAnswer, E> {
        let mut wait = pin!(self.wait_for_end(uuid));
        let answer = loop {
            let joined = tokio::select! {
                waited = &mut wait => break waited?,
                joined = self.stream(uuid, source, last.as_deref(), true) => joined,
            };
            let left = match joined {
                Ok(mut stream) => loop {
                    let next = tokio::select! {
                        biased;
                        next = stream.next() => next,
                        waited = &mut wait => break Some(waited?),
                    };
                    match next {
                        Ok(Some(event)) => {
                            *last = Some(event.id.clone());
                            sink(event).await?;
                        }
                        Ok(None) => break None,
                        Err(error) if error.is_transient() => break None,
                        Err(error) => return Err(error.into()),
                    }
                },
                // The wait looks for the daemon, and starts it if it has to.
                Err(error) if error.is_transient() => None,
                Err(error) => return Err(error.into()),
            };
            if let Some(answer) = left {
                break answer;
            }
            tokio::select! {
                waited = &mut wait => break waited?,
                () = tokio::time::sleep(REJOIN_AFTER.max(self.retry.every)) => {}
            }
        };
        self.read(uuid, source, last, sink).await?;
        Ok(answer)
    }
}
