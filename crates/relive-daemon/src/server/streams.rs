//! Streams are read from the files: any number of readers, each at its own position, none blocking the writer.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::sse::{Event, KeepAlive, Sse};
use futures_util::Stream;
use relive_core::ErrorCode;
use relive_journal::ProcessDirectory;
use relive_journal::events::EventReader;
use relive_journal::reader::{Cursor, Item, Reader};
use serde::Deserialize;
use tokio::sync::{Semaphore, watch};

use super::{CallerAccess, Id, Params, Server};
use crate::error::{Answer, HttpError};
use relive_runtime::{Access, Readable};

/// How many records are read at a time, and how many bytes of them.
const BATCH: usize = 64;
const BATCH_BYTES: usize = 256 << 10;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StreamQuery {
    #[serde(default)]
    follow: bool,
    #[serde(default)]
    after: Option<String>,
}

impl StreamQuery {
    pub(super) fn follows(&self) -> bool {
        self.follow
    }

    pub(super) fn after(&self) -> Option<&str> {
        self.after.as_deref().filter(|after| !after.is_empty())
    }

    /// Continues after the last event that a client has seen. A client that connects again sends its first address, so the
    /// header is the newer one.
    pub(super) fn resumed(self, headers: &HeaderMap) -> Answer<Self> {
        let Some(seen) = headers.get("last-event-id").filter(|seen| !seen.is_empty()) else { return Ok(self) };
        let seen = seen.to_str().map_err(|_| HttpError::new(ErrorCode::Invalid, "Last-Event-ID: not an id"))?;
        Ok(Self { after: Some(seen.to_owned()), ..self })
    }
}

pub(super) async fn journal(
    State(server): State<Server>,
    CallerAccess(access): CallerAccess,
    Id(id): Id,
    headers: HeaderMap,
    Params(query): Params<StreamQuery>,
) -> Answer<Sse<impl Stream<Item = Result<Event, Infallible>>>> {
    let query = query.resumed(&headers)?;
    open(server, access, id, query, |directory, after| Source::Journal(Reader::new(directory.steps(), after))).await
}

pub(super) async fn events(
    State(server): State<Server>,
    CallerAccess(access): CallerAccess,
    Id(id): Id,
    headers: HeaderMap,
    Params(query): Params<StreamQuery>,
) -> Answer<Sse<impl Stream<Item = Result<Event, Infallible>>>> {
    let query = query.resumed(&headers)?;
    open(server, access, id, query, |directory, after| Source::Events(Box::new(EventReader::new(directory, after))))
        .await
}

async fn open(
    server: Server,
    access: Access,
    id: String,
    query: StreamQuery,
    source: fn(&ProcessDirectory, Cursor) -> Source,
) -> Answer<Sse<impl Stream<Item = Result<Event, Infallible>>>> {
    let after = match query.after.as_deref() {
        None | Some("") => Cursor::default(),
        Some(text) => text.parse().map_err(|error| HttpError::new(ErrorCode::Invalid, format!("after: {error}")))?,
    };
    let readable = access.readable(&id).await?;
    let source = source(&readable.directory(), after);
    let follower = Follower {
        bell: readable.bell(),
        stop: server.stopping(),
        readable,
        reads: server.stream_reads,
        source: Some(source),
        follow: query.follow,
        waiting: VecDeque::new(),
        over: false,
    };
    let stream = futures_util::stream::unfold(follower, Follower::next);
    Ok(Sse::new(stream).keep_alive(KeepAlive::default()))
}

/// What a stream reads.
enum Source {
    /// Records, of which only those are shown that a power cut cannot take back.
    Journal(Reader),
    /// Events, all that are written.
    Events(Box<EventReader>),
}

impl Source {
    fn next_item(&mut self) -> std::io::Result<Option<Item>> {
        match self {
            Self::Journal(reader) => reader.next_item(),
            Self::Events(reader) => reader.next_item(),
        }
    }
}

struct Follower {
    readable: Readable,
    reads: Arc<Semaphore>,
    /// Absent while a job uses it.
    source: Option<Source>,
    bell: watch::Receiver<()>,
    stop: watch::Receiver<bool>,
    follow: bool,
    waiting: VecDeque<Event>,
    over: bool,
}

impl Follower {
    async fn next(mut self) -> Option<(Result<Event, Infallible>, Self)> {
        loop {
            if let Some(event) = self.waiting.pop_front() {
                return Some((Ok(event), self));
            }
            // A stopping daemon ends its streams; a follower comes back with the last id.
            if self.over || *self.stop.borrow() || !self.readable.is_seen() {
                return None;
            }
            // Marked before reading: what is written between the two is still read.
            self.bell.borrow_and_update();
            let ended = self.readable.is_over();
            let items = self.read().await?;
            if !items.is_empty() {
                self.waiting.extend(items.into_iter().map(event));
            } else if ended || !self.follow {
                self.over = true;
                self.waiting.push_back(Event::default().event("end").data("{}"));
            } else {
                tokio::select! {
                    rung = self.bell.changed() => if rung.is_err() { return None },
                    _ = self.stop.wait_for(|stopping| *stopping) => return None,
                    () = self.readable.loses_sight() => return None,
                }
            }
        }
    }

    async fn read(&mut self) -> Option<Vec<Item>> {
        let mut source = self.source.take()?;
        if let Source::Journal(reader) = &mut source {
            reader.set_limit(self.readable.synced_end().unwrap_or(u64::MAX));
        }
        let _turn = self.reads.acquire().await.ok()?;
        let (source, items) = self
            .readable
            .pools()
            .reads
            .run(move || {
                let (mut items, mut bytes) = (Vec::new(), 0);
                while items.len() < BATCH
                    && bytes < BATCH_BYTES
                    && let Ok(Some(item)) = source.next_item()
                {
                    bytes += match &item {
                        Item::Record(entry) => entry.line.len(),
                        Item::Damaged { .. } => 0,
                    };
                    items.push(item);
                }
                (source, items)
            })
            .await
            .ok()?;
        self.source = Some(source);
        Some(items)
    }
}

fn event(item: Item) -> Event {
    match item {
        Item::Record(entry) => Event::default().id(entry.id.to_string()).event("record").data(entry.line),
        Item::Damaged { offset } => {
            Event::default().event("damaged").data(serde_json::json!({"kind": "damaged", "offset": offset}).to_string())
        }
    }
}
