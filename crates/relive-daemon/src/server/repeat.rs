//! A request that is sent again gets the answer it got before.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{Request, State};
use axum::http::{Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use relive_api::{BODY_MAX, REQUEST_ID_HEADER};
use relive_core::ErrorCode;
use tokio::sync::OnceCell;

use super::Server;
use crate::error::HttpError;

/// How many answers are remembered.
const REMEMBERED: usize = 1024;
const ID_MAX: usize = 100;

type Remembered = Arc<OnceCell<(StatusCode, Bytes)>>;

/// The answers to the last requests that had an id.
#[derive(Debug, Clone, Default)]
pub(super) struct Repeats {
    inner: Arc<Mutex<Inner>>,
}

#[derive(Debug, Default)]
struct Inner {
    answers: HashMap<String, Remembered>,
    order: VecDeque<String>,
}

impl Repeats {
    fn of(&self, id: &str) -> Remembered {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = inner.answers.get(id) {
            return Arc::clone(known);
        }
        if inner.order.len() == REMEMBERED
            && let Some(oldest) = inner.order.pop_front()
        {
            inner.answers.remove(&oldest);
        }
        inner.order.push_back(id.to_owned());
        Arc::clone(inner.answers.entry(id.to_owned()).or_default())
    }
}

/// Lets a request with an id through once; whoever repeats it, also meanwhile, gets the same answer.
pub(super) async fn answer_once(State(server): State<Server>, request: Request, next: Next) -> Response {
    let id = request.headers().get(REQUEST_ID_HEADER).and_then(|id| id.to_str().ok());
    let key = match id {
        Some(id) if request.method() == Method::POST => format!("{} {id}", request.uri().path()),
        Some(_) | None => return next.run(request).await,
    };
    if id.is_some_and(|id| id.len() > ID_MAX) {
        return HttpError::new(ErrorCode::Invalid, format!("a request id has at most {ID_MAX} bytes")).into_response();
    }
    // Read whole, also by a repetition that needs nothing of it: who still writes when we hang up may never read the answer.
    let (head, body) = request.into_parts();
    let request = match to_bytes(body, BODY_MAX).await {
        Ok(bytes) => Request::from_parts(head, Body::from(bytes)),
        Err(error) => {
            let message = format!("the body: {error}, at most {BODY_MAX} bytes");
            return HttpError::new(ErrorCode::Invalid, message).into_response();
        }
    };
    let remembered = server.repeats.of(&key);
    let mut unserved = Some((next, request));
    let (status, bytes) = remembered.get_or_init(|| whole(unserved.take())).await.clone();
    if let Some((_, request)) = unserved {
        // Whoever is still sending would find the connection closed, and not the answer.
        let _ = to_bytes(request.into_body(), BODY_MAX).await;
    }
    (status, [("content-type", "application/json")], Body::from(bytes)).into_response()
}

async fn whole(unserved: Option<(Next, Request)>) -> (StatusCode, Bytes) {
    let Some((next, request)) = unserved else { return (StatusCode::INTERNAL_SERVER_ERROR, Bytes::new()) };
    let response = next.run(request).await;
    let status = response.status();
    let bytes = to_bytes(response.into_body(), BODY_MAX).await.unwrap_or_default();
    (status, bytes)
}
