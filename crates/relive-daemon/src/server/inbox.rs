//! What waits for a person, and the stream of all processes.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::sse::{Event, KeepAlive, Sse};
use futures_util::Stream;
use relive_api::{AckRequest, Acked, Inbox};
use relive_runtime::{FeedPart, FeedReader, FeedReady};
use tokio::sync::watch;
use tokio::time::Instant;

use super::streams::StreamQuery;
use super::{CallerAccess, Id, JsonAnswer, OptionalJson, Params, RequestId, Server};
use crate::error::Answer;

/// How often changes are sent at most. A process that changes more often is sent as it is then.
const PACE: Duration = Duration::from_millis(100);

pub(super) async fn list(CallerAccess(access): CallerAccess) -> JsonAnswer<Inbox> {
    access.inbox().await.map(Json).map_err(Into::into)
}

pub(super) async fn ack(
    CallerAccess(access): CallerAccess,
    Id(id): Id,
    RequestId(request_id): RequestId,
    OptionalJson(request): OptionalJson<AckRequest>,
) -> JsonAnswer<Acked> {
    access.ack(&id, request, request_id).await.map(Json).map_err(Into::into)
}

/// Sends every process and then each that changes: `reset`, `change` with what is known of a process, and `ready` when
/// the reader has all that was known when it began.
pub(super) async fn stream(
    State(server): State<Server>,
    CallerAccess(access): CallerAccess,
    headers: HeaderMap,
    Params(query): Params<StreamQuery>,
) -> Answer<Sse<impl Stream<Item = Result<Event, Infallible>>>> {
    let query = query.resumed(&headers)?;
    let feed = access.feed(query.after())?;
    let follower = Follower {
        feed,
        stop: server.stopping(),
        waiting: VecDeque::new(),
        ready: false,
        sent: None,
        follow: query.follows(),
    };
    let stream = futures_util::stream::unfold(follower, Follower::next);
    Ok(Sse::new(stream).keep_alive(KeepAlive::default()))
}

struct Follower {
    feed: FeedReader,
    stop: watch::Receiver<bool>,
    waiting: VecDeque<Event>,
    /// Whether the reader knows all that there was when it began.
    ready: bool,
    /// When the last changes were sent.
    sent: Option<Instant>,
    follow: bool,
}

impl Follower {
    async fn next(mut self) -> Option<(Result<Event, Infallible>, Self)> {
        loop {
            if let Some(event) = self.waiting.pop_front() {
                return Some((Ok(event), self));
            }
            if *self.stop.borrow() || self.ready && !self.follow {
                return None;
            }
            if self.ready {
                tokio::select! {
                    () = self.feed.changed() => {}
                    _ = self.stop.wait_for(|stopping| *stopping) => return None,
                }
                if let Some(sent) = self.sent {
                    tokio::time::sleep_until(sent + PACE).await;
                }
            }
            let part = self.feed.next().await;
            self.take(part);
        }
    }

    fn take(&mut self, part: FeedPart) {
        let FeedPart { reset, changes, id, ready } = part;
        if reset {
            self.ready = false;
            self.waiting.push_back(Event::default().event("reset").data("{}"));
        }
        let last = changes.len();
        for (place, change) in (1..).zip(changes) {
            let Ok(data) = serde_json::to_string(&change) else { continue };
            let event = Event::default().event("change").data(data);
            // The position is after all of them.
            let id = id.as_ref().filter(|_| place == last && self.ready);
            self.waiting.push_back(match id {
                Some(id) => event.id(id),
                None => event,
            });
        }
        if let (Some(id), Some(FeedReady { incomplete })) = (id, ready) {
            self.ready = true;
            let data = if incomplete { r#"{"incomplete":true}"# } else { "{}" };
            self.waiting.push_back(Event::default().event("ready").id(id).data(data));
        }
        self.sent = Some(Instant::now());
    }
}
