//! The streams of a process: its journal and its events, read once or followed to its end.
//!
//! A stream that breaks off is joined again after the last id, so nothing is missed and nothing comes twice, also
//! across daemons. The end of a process is learned by a wait, not from the stream.

use std::collections::VecDeque;
use std::pin::pin;
use std::time::Duration;

use http_body_util::BodyExt as _;
use hyper::Method;
use hyper::body::Incoming;
use relive_api::WaitAnswer;

use super::http::{self, Ask, Failure};
use super::sse::{Event, Parser};
use super::{ANSWER_WITHIN, Client, RETRY_EVERY};
use crate::error::Outcome;

/// Which stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    Journal,
    Events,
}

/// How long a stream that ended while its process goes on is left alone.
const REJOIN_AFTER: Duration = Duration::from_millis(100);

struct Stream {
    body: Incoming,
    parser: Parser,
    ready: VecDeque<Event>,
}

impl Stream {
    /// The next event; `None` at the stream's end.
    async fn next(&mut self) -> Result<Option<Event>, Failure> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Ok(Some(event).filter(|event| event.name != "end"));
            }
            let Some(frame) = self.body.frame().await else { return Ok(None) };
            let frame = frame.map_err(|error| http::judge(&error))?;
            if let Some(chunk) = frame.data_ref() {
                let mut events = Vec::new();
                let pushed = self.parser.push(chunk, &mut events);
                pushed.map_err(|_| Failure::Foreign("it sends an event that never ends".into()))?;
                self.ready.extend(events);
            }
        }
    }
}

impl Client<'_> {
    async fn stream(&self, uuid: &str, source: Source, after: Option<&str>, follow: bool) -> Result<Stream, Failure> {
        let name = match source {
            Source::Journal => "journal",
            Source::Events => "events",
        };
        let mut path = format!("/v1/processes/{}/{name}?follow={follow}", http::segment(uuid));
        if let Some(after) = after {
            path = format!("{path}&after={}", http::segment(after));
        }
        let ask = Ask { method: Method::GET, path, body: None, request_id: None, within: Some(ANSWER_WITHIN) };
        let answer = http::exchange(&self.context.paths.socket, &ask).await?;
        self.check_version(&answer.version).await?;
        Ok(Stream { body: answer.body, parser: Parser::default(), ready: VecDeque::new() })
    }

    /// Hands out what there is after `last`, which moves along.
    pub(crate) async fn read(
        &self,
        uuid: &str,
        source: Source,
        last: &mut Option<String>,
        mut sink: impl AsyncFnMut(Event) -> Outcome<()>,
    ) -> Outcome<()> {
        let mut patience = super::Patience::default();
        loop {
            let begun = std::time::Instant::now();
            let failure = match self.stream(uuid, source, last.as_deref(), false).await {
                Ok(mut stream) => loop {
                    match stream.next().await {
                        Ok(Some(event)) => {
                            *last = Some(event.id.clone());
                            sink(event).await?;
                        }
                        Ok(None) => return Ok(()),
                        Err(failure) => break failure,
                    }
                },
                Err(failure) => failure,
            };
            self.recover(failure, begun, &mut patience).await?;
        }
    }

    /// Hands out what comes after `last` until the process has ended, and how it ended.
    pub(crate) async fn follow(
        &self,
        uuid: &str,
        source: Source,
        last: &mut Option<String>,
        mut sink: impl AsyncFnMut(Event) -> Outcome<()>,
    ) -> Outcome<WaitAnswer> {
        let mut wait = pin!(self.wait(uuid, uuid, None));
        let answer = loop {
            let joined = tokio::select! {
                waited = &mut wait => break waited?.answer()?,
                joined = self.stream(uuid, source, last.as_deref(), true) => joined,
            };
            let left = match joined {
                Ok(mut stream) => loop {
                    let next = tokio::select! {
                        biased;
                        next = stream.next() => next,
                        waited = &mut wait => break Some(waited?.answer()?),
                    };
                    match next {
                        Ok(Some(event)) => {
                            *last = Some(event.id.clone());
                            sink(event).await?;
                        }
                        Ok(None) => break None,
                        Err(failure) if failure.passes() => break None,
                        Err(failure) => return Err(self.explain(failure)),
                    }
                },
                // The wait looks for the daemon, and starts it if it has to.
                Err(failure) if failure.passes() => None,
                Err(failure) => return Err(self.explain(failure)),
            };
            if let Some(answer) = left {
                break answer;
            }
            tokio::select! {
                waited = &mut wait => break waited?.answer()?,
                () = tokio::time::sleep(REJOIN_AFTER.max(RETRY_EVERY)) => {}
            }
        };
        self.read(uuid, source, last, sink).await?;
        Ok(answer)
    }
}
