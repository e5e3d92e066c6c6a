//! Requests that are sent again: a repeat gets the answer of the first, also while that is under way.
//!
//! This is for repeats that meet the same daemon. What a verb changed is in the journal with the request's id, so a
//! repeat is recognised by the next daemon too. A refusal is not remembered: asking again may help.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{Request, State};
use axum::http::{Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use relive_api::{BODY_MAX, REQUEST_ID_HEADER};
use relive_core::ErrorCode;
use relive_journal::Hash;
use tokio::sync::OnceCell;

use super::Server;
use crate::error::HttpError;

/// How many answers are remembered.
const REMEMBERED: usize = 1024;
/// The longest request id.
const ID_MAX: usize = 100;

type Answer = Arc<OnceCell<(StatusCode, Bytes)>>;

/// The answers to the last requests that had an id.
#[derive(Debug, Clone, Default)]
pub(super) struct Repeats {
    inner: Arc<Mutex<Inner>>,
}

#[derive(Debug, Default)]
struct Inner {
    answers: HashMap<String, Answer>,
    order: VecDeque<String>,
}

impl Repeats {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn of(&self, key: &str) -> Answer {
        let mut inner = self.lock();
        if let Some(known) = inner.answers.get(key) {
            return Arc::clone(known);
        }
        if inner.order.len() == REMEMBERED
            && let Some(oldest) = inner.order.pop_front()
        {
            inner.answers.remove(&oldest);
        }
        inner.order.push_back(key.to_owned());
        Arc::clone(inner.answers.entry(key.to_owned()).or_default())
    }

    fn forget(&self, key: &str) {
        let mut inner = self.lock();
        inner.answers.remove(key);
        inner.order.retain(|known| known != key);
    }
}

/// Serves a request with an id once, to its end, whether or not its client stays.
pub(super) async fn answer_once(State(server): State<Server>, request: Request, next: Next) -> Response {
    let id = request.headers().get(REQUEST_ID_HEADER).and_then(|id| id.to_str().ok()).map(str::to_owned);
    // Whoever only waits is done when they hang up.
    let is_verb = request.method() == Method::POST && !request.uri().path().ends_with("/wait");
    let Some(id) = id.filter(|_| is_verb) else { return next.run(request).await };
    if id.len() > ID_MAX {
        return HttpError::new(ErrorCode::Invalid, format!("a request id has at most {ID_MAX} bytes")).into_response();
    }
    // Read whole before anything is done: half a request is no request.
    let (head, body) = request.into_parts();
    let bytes = match to_bytes(body, BODY_MAX).await {
        Ok(bytes) => bytes,
        Err(error) => {
            let message = format!("the body: {error}, at most {BODY_MAX} bytes");
            return HttpError::new(ErrorCode::Invalid, message).into_response();
        }
    };
    let key = format!("{} {id} {}", head.uri.path(), Hash::of(&bytes));
    let (repeats, answer) = (server.repeats.clone(), server.repeats.of(&key));
    let served = async move {
        let request = Request::from_parts(head, Body::from(bytes));
        let (status, bytes) = answer.get_or_init(|| serve(next, request)).await.clone();
        if !status.is_success() {
            repeats.forget(&key);
        }
        (status, bytes)
    };
    #[cfg(feature = "faults")]
    if relive_runtime::faults::is_on("inline-verbs") {
        return response(served.await);
    }
    match tokio::spawn(served).await {
        Ok(answered) => response(answered),
        Err(error) => HttpError::new(ErrorCode::Internal, format!("the request failed: {error}")).into_response(),
    }
}

fn response((status, bytes): (StatusCode, Bytes)) -> Response {
    (status, [("content-type", "application/json")], Body::from(bytes)).into_response()
}

async fn serve(next: Next, request: Request) -> (StatusCode, Bytes) {
    let response = next.run(request).await;
    let status = response.status();
    let bytes = to_bytes(response.into_body(), BODY_MAX).await.unwrap_or_default();
    (status, bytes)
}
