//! The streams of a process: its journal and its events, read once or followed to its end.
//!
//! A stream that breaks off is continued after the last id, so nothing is missed or repeated, even across daemons. The
//! end of a process is found by a wait, not from the stream.

use std::collections::VecDeque;
use std::pin::pin;
use std::time::{Duration, Instant};

use http_body_util::BodyExt as _;
use relive_api::WaitAnswer;

use super::client::{Answer, Client, Link, Patience, get};
use super::error::Error;
use super::http;
use super::sse::{EVENT_MAX, Event, Parser};

/// A stream of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    Journal,
    Events,
}

/// How long to wait before continuing a stream that ended before its process.
const REJOIN_AFTER: Duration = Duration::from_millis(100);
/// How long a stream may take to end after its last event.
const END_WITHIN: Duration = Duration::from_secs(1);

pub(super) struct Stream<'a> {
    client: &'a Client,
    /// Absent once it has ended.
    answer: Option<Answer>,
    parser: Parser,
    ready: VecDeque<Event>,
}

/// Why the events of a stream are no longer passed on.
enum Stopped<E> {
    Stream(Error),
    Sink(E),
}

impl<'a> Stream<'a> {
    pub(super) fn of(client: &'a Client, answer: Answer) -> Self {
        Self { client, answer: Some(answer), parser: Parser::default(), ready: VecDeque::new() }
    }

    /// Calls back for every event up to the end of the stream, and updates `last`.
    async fn pass_on<E>(
        &mut self,
        last: &mut Option<String>,
        sink: &mut impl AsyncFnMut(Event) -> Result<(), E>,
    ) -> Result<(), Stopped<E>> {
        while let Some(event) = self.next().await.map_err(Stopped::Stream)? {
            *last = Some(event.id.clone());
            sink(event).await.map_err(Stopped::Sink)?;
        }
        Ok(())
    }

    /// Returns the next event; `None` at the end of the stream.
    pub(super) async fn next(&mut self) -> Result<Option<Event>, Error> {
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

    /// Keeps the connection for the next request, if the answer is complete.
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
        Ok(Stream::of(self, self.exchange(&get(path)).await?))
    }

    /// Calls back for every event after `last`, and updates `last`.
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
                Ok(mut stream) => match stream.pass_on(last, &mut sink).await {
                    Ok(()) => return Ok(()),
                    Err(Stopped::Sink(error)) => return Err(error),
                    Err(Stopped::Stream(error)) => error,
                },
                Err(error) => error,
            };
            self.recover(error, begun, &mut patience).await?;
        }
    }

    /// Calls back for every event after `last` as it is written, and updates `last`. Returns when the stream ends, with the
    /// process or with the daemon; whoever wants to know which asks. It holds one connection, unlike [`Self::follow`].
    pub async fn follow_while_it_lasts<E: From<Error>>(
        &self,
        uuid: &str,
        source: Source,
        last: &mut Option<String>,
        mut sink: impl AsyncFnMut(Event) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut stream = self.stream(uuid, source, last.as_deref(), true).await?;
        stream.pass_on(last, &mut sink).await.map_err(|stopped| match stopped {
            Stopped::Stream(error) => error.into(),
            Stopped::Sink(error) => error,
        })
    }

    /// Calls back for every event after `last` until the process has ended, and returns how it ended.
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
            self.set_link(if joined.is_ok() { Link::Up } else { Link::Lost });
            if joined.is_ok() {
                // One that was stopped is back: it is started again if it crashes.
                self.set_stopped(false);
            }
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
                // The wait finds the daemon, and starts it if necessary.
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
        self.set_link(Link::Up);
        Ok(answer)
    }
}
