//! Repeated requests: a repeat gets the answer of the first one, even while that is being served.
//!
//! This handles repeats to the same daemon. The journal records the id of a request with its changes, so the next
//! daemon recognizes a repeat too, and so does this one if the answer was too long to be kept. A refusal because
//! of the state of a process (404, 409) is remembered too: an earlier copy of the request may be read after the refusal,
//! and must not be carried out then. Other failures are not remembered, so that another attempt may succeed.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::body::{Body, Bytes, to_bytes};
use axum::extract::Request;
use axum::http::StatusCode;
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use relive_api::REQUEST_ID_HEADER;
use relive_core::ErrorCode;
use relive_journal::Hash;
use tokio::sync::OnceCell;
use tokio::time::Instant;

use super::traffic::Room;
use crate::error::{Answer, HttpError};

/// How many answers are remembered, for how long, and how long one may be.
const REMEMBERED_MAX: usize = 1024;
const REMEMBERED_FOR: Duration = Duration::from_secs(10 * 60);
const ANSWER_MAX: usize = 4 << 10;
/// The longest request id.
const ID_MAX: usize = 100;

type Reply = (StatusCode, Bytes);
type UnderWay = Arc<OnceCell<Reply>>;

/// Identifies a request: id, caller, path and body.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Key {
    id: String,
    request: Hash,
}

/// The answers to requests with an id, cheap to clone.
#[derive(Debug, Clone, Default)]
pub(super) struct Repeats {
    inner: Arc<Mutex<Inner>>,
}

#[derive(Debug, Default)]
struct Inner {
    /// Has no more entries than admitted requests.
    under_way: HashMap<Key, UnderWay>,
    remembered: HashMap<Key, Reply>,
    /// When each was answered, oldest first.
    order: VecDeque<(Instant, Key)>,
}

impl Inner {
    fn forget_the_old(&mut self) {
        let now = Instant::now();
        while let Some((answered, _)) = self.order.front()
            && (now - *answered >= REMEMBERED_FOR || self.order.len() > REMEMBERED_MAX)
            && let Some((_, key)) = self.order.pop_front()
        {
            self.remembered.remove(&key);
        }
    }
}

impl Repeats {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the answer of the first such request, or the cell where it will be.
    fn find(&self, key: &Key) -> UnderWay {
        let mut inner = self.lock();
        inner.forget_the_old();
        if let Some(reply) = inner.remembered.get(key) {
            return Arc::new(OnceCell::new_with(Some(reply.clone())));
        }
        Arc::clone(inner.under_way.entry(key.clone()).or_default())
    }
}

/// Removes a request from the running ones, and remembers its answer if there is one: also when the handler panicked.
struct Finish {
    repeats: Repeats,
    key: Key,
    under_way: UnderWay,
}

impl Drop for Finish {
    fn drop(&mut self) {
        let mut inner = self.repeats.lock();
        if !inner.under_way.get(&self.key).is_some_and(|known| Arc::ptr_eq(known, &self.under_way)) {
            return;
        }
        match self.under_way.get() {
            Some((status, bytes)) => {
                inner.under_way.remove(&self.key);
                if is_remembered(*status) && bytes.len() <= ANSWER_MAX {
                    // Copied, because the bytes may be a part of something larger.
                    let reply = (*status, Bytes::copy_from_slice(bytes));
                    inner.remembered.insert(self.key.clone(), reply);
                    inner.order.push_back((Instant::now(), self.key.clone()));
                    inner.forget_the_old();
                }
            }
            // The map has one, this has one: nobody else tries.
            None if Arc::strong_count(&self.under_way) == 2 => {
                inner.under_way.remove(&self.key);
            }
            None => {}
        }
    }
}

fn is_remembered(status: StatusCode) -> bool {
    status.is_success() || matches!(status, StatusCode::NOT_FOUND | StatusCode::CONFLICT)
}

/// Serves a request completely, even if its client hangs up, and one with an id once.
pub(super) async fn to_the_end(repeats: &Repeats, request: Request, next: Next, room: Room) -> Response {
    let served = match identified(repeats, request, next).await {
        Ok(served) => served,
        Err(error) => return error.into_response(),
    };
    let served = async move {
        let response = served.await;
        drop(room);
        response
    };
    #[cfg(feature = "faults")]
    if relive_runtime::faults::is_on("inline-verbs") {
        return Box::pin(served).await;
    }
    match tokio::spawn(served).await {
        Ok(response) => response,
        Err(error) => HttpError::new(ErrorCode::Internal, format!("the request failed: {error}")).into_response(),
    }
}

async fn identified(
    repeats: &Repeats,
    request: Request,
    next: Next,
) -> Answer<impl Future<Output = Response> + Send + 'static> {
    let id = request.headers().get(REQUEST_ID_HEADER).and_then(|id| id.to_str().ok()).map(str::to_owned);
    if id.as_ref().is_some_and(|id| id.len() > ID_MAX) {
        return Err(HttpError::new(ErrorCode::Invalid, format!("a request id has at most {ID_MAX} bytes")));
    }
    let (head, body) = request.into_parts();
    // It was read completely before.
    let unread = |error| HttpError::new(ErrorCode::Invalid, format!("the body: {error}"));
    let bytes = to_bytes(body, relive_api::BODY_MAX).await.map_err(unread)?;
    let finish = id.map(|id| {
        // A process that repeats the request of another one is answered for itself.
        let caller = format!("{:?}", head.extensions.get::<relive_runtime::Caller>());
        let request = Hash::of(&[caller.as_bytes(), b"\0", head.uri.path().as_bytes(), b"\0", &bytes].concat());
        let key = Key { id, request };
        Finish { repeats: repeats.clone(), under_way: repeats.find(&key), key }
    });
    let request = Request::from_parts(head, Body::from(bytes));
    Ok(async move {
        let Some(finish) = finish else { return next.run(request).await };
        let (status, bytes) = finish.under_way.get_or_init(|| serve(next, request)).await.clone();
        drop(finish);
        (status, [("content-type", "application/json")], Body::from(bytes)).into_response()
    })
}

async fn serve(next: Next, request: Request) -> Reply {
    let response = next.run(request).await;
    let status = response.status();
    match to_bytes(response.into_body(), usize::MAX).await {
        Ok(bytes) => (status, bytes),
        Err(_) => (StatusCode::INTERNAL_SERVER_ERROR, Bytes::new()),
    }
}

#[cfg(test)]
mod tests;
