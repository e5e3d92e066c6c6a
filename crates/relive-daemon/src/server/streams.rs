//! Streams are read from the files: any number of readers, each at its own place, none in the writer's way.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::Arc;

use axum::extract::State;
use axum::response::sse::{Event, KeepAlive, Sse};
use futures_util::Stream;
use relive_core::{ErrorCode, Uuid};
use relive_journal::ProcessDirectory;
use relive_journal::reader::{Cursor, Item, Reader};
use serde::Deserialize;
use tokio::sync::{Semaphore, watch};

use super::{Id, Params, Server};
use crate::error::{Answer, HttpError};
use relive_runtime::Runtime;

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

pub(super) async fn journal(
    State(server): State<Server>,
    Id(id): Id,
    Params(query): Params<StreamQuery>,
) -> Answer<Sse<impl Stream<Item = Result<Event, Infallible>>>> {
    open(server, id, query, ProcessDirectory::steps, Shown::OnDisk).await
}

pub(super) async fn events(
    State(server): State<Server>,
    Id(id): Id,
    Params(query): Params<StreamQuery>,
) -> Answer<Sse<impl Stream<Item = Result<Event, Infallible>>>> {
    open(server, id, query, ProcessDirectory::events, Shown::Written).await
}

async fn open(
    server: Server,
    id: String,
    query: StreamQuery,
    file: fn(&ProcessDirectory) -> PathBuf,
    shown: Shown,
) -> Answer<Sse<impl Stream<Item = Result<Event, Infallible>>>> {
    let after = match query.after.as_deref() {
        None | Some("") => Cursor::default(),
        Some(text) => text.parse().map_err(|error| HttpError::new(ErrorCode::Invalid, format!("after: {error}")))?,
    };
    let uuid = server.runtime.process(&id).await?.uuid;
    let path = file(&server.runtime.directory(uuid));
    let follower = Follower {
        bell: server.runtime.follow(uuid),
        stop: server.stop.subscribe(),
        runtime: server.runtime,
        reads: server.stream_reads,
        uuid,
        shown,
        reader: Some(Reader::new(path, after)),
        follow: query.follow,
        waiting: VecDeque::new(),
        over: false,
    };
    let stream = futures_util::stream::unfold(follower, Follower::next);
    Ok(Sse::new(stream).keep_alive(KeepAlive::default()))
}

/// How much of a file a stream shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shown {
    /// Only what a power cut cannot take back.
    OnDisk,
    /// All of it.
    Written,
}

struct Follower {
    runtime: Arc<Runtime>,
    reads: Arc<Semaphore>,
    uuid: Uuid,
    shown: Shown,
    /// Absent while a job has it.
    reader: Option<Reader>,
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
            // A daemon that stops ends its streams; whoever follows comes back with the last id.
            if self.over || *self.stop.borrow() {
                return None;
            }
            // Asked before reading: what is written between the two is still read.
            self.bell.borrow_and_update();
            let ended = self.runtime.is_over(self.uuid);
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
                }
            }
        }
    }

    async fn read(&mut self) -> Option<Vec<Item>> {
        let mut reader = self.reader.take()?;
        if self.shown == Shown::OnDisk {
            reader.set_limit(self.runtime.synced_end(self.uuid).unwrap_or(u64::MAX));
        }
        let _turn = self.reads.acquire().await.ok()?;
        let (reader, items) = self
            .runtime
            .pools()
            .reads
            .run(move || {
                let (mut items, mut bytes) = (Vec::new(), 0);
                while items.len() < BATCH
                    && bytes < BATCH_BYTES
                    && let Ok(Some(item)) = reader.next_item()
                {
                    bytes += match &item {
                        Item::Record(entry) => entry.line.len(),
                        Item::Damaged { .. } => 0,
                    };
                    items.push(item);
                }
                (reader, items)
            })
            .await
            .ok()?;
        self.reader = Some(reader);
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
