//! Admission of requests: classes with their own limits, complete bodies, and a deadline for the answer.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody as _};
use axum::extract::{Request, State};
use axum::http::{HeaderValue, Method};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use futures_util::StreamExt as _;
use relive_api::{API_HEADER, API_VERSION, BODY_MAX, VERSION_HEADER};
use relive_core::ErrorCode;
use relive_runtime::Caller;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use super::connection::Connection;
use super::repeat::{self, Repeats};
use crate::error::{Answer, HttpError};

/// How long the body of a request may take.
const BODY_WITHIN: Duration = Duration::from_secs(10);
/// How many bytes of long bodies are in memory at once. Short ones are always accepted, so that long ones cannot block
/// a signal.
const BODIES_MAX_BYTES: usize = 256 << 20;
const SHORT_BODY: usize = 64 << 10;
/// When a client is told that its request takes too long.
const ANSWER_WITHIN: Duration = Duration::from_secs(30);

/// How many streams and waits programs inside of processes have together.
const STREAMS_INSIDE_MAX: usize = 256;

/// Requests that share a limit. A full class refuses, without affecting the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Class {
    /// Requests that a person needs to stay in control.
    Control,
    /// Requests that start, list or change something.
    Others,
    /// Streams and waits, which stay open.
    Streams,
}

impl Class {
    const fn max(self) -> usize {
        match self {
            Self::Control => 64,
            Self::Others => 256,
            Self::Streams => 512,
        }
    }

    fn plural(self) -> &'static str {
        match self {
            Self::Control => "control requests",
            Self::Others => "requests",
            Self::Streams => "streams and waits",
        }
    }
}

/// The running requests, cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct Traffic {
    control: Arc<Semaphore>,
    others: Arc<Semaphore>,
    streams: Arc<Semaphore>,
    /// The streams that programs of Relive hold: the rest is for people.
    streams_inside: Arc<Semaphore>,
    bodies: Arc<Semaphore>,
    repeats: Repeats,
    stop: watch::Receiver<bool>,
}

/// The resources of a request until it is done.
#[derive(Debug)]
pub(super) struct Room {
    _of_class: OwnedSemaphorePermit,
    _of_inside: Option<OwnedSemaphorePermit>,
    _of_body: Option<Arc<OwnedSemaphorePermit>>,
}

/// The share of a request in the bytes of all bodies.
#[derive(Debug, Clone)]
struct BodyRoom(Arc<OwnedSemaphorePermit>);

impl Traffic {
    pub(super) fn new(stop: watch::Receiver<bool>) -> Self {
        let room = |class: Class| Arc::new(Semaphore::new(class.max()));
        Self {
            control: room(Class::Control),
            others: room(Class::Others),
            streams: room(Class::Streams),
            streams_inside: Arc::new(Semaphore::new(STREAMS_INSIDE_MAX)),
            bodies: Arc::new(Semaphore::new(BODIES_MAX_BYTES)),
            repeats: Repeats::default(),
            stop,
        }
    }

    fn admit(&self, class: Class, request: &Request) -> Answer<Room> {
        // A stop, and questions about it, are answered to the end.
        let is_new_work = !request.uri().path().starts_with("/v1/daemon");
        if is_new_work && *self.stop.borrow() {
            return Err(stopping());
        }
        let semaphore = match class {
            Class::Control => &self.control,
            Class::Others => &self.others,
            Class::Streams => &self.streams,
        };
        let is_person = matches!(request.extensions().get::<Caller>(), Some(Caller::Person));
        let of_inside = if class == Class::Streams && !is_person {
            let refused = |_| {
                let message = format!("programs have {STREAMS_INSIDE_MAX} streams and waits, the limit");
                HttpError::new(ErrorCode::Unavailable, message)
            };
            Some(Arc::clone(&self.streams_inside).try_acquire_owned().map_err(refused)?)
        } else {
            None
        };
        let of_class = Arc::clone(semaphore).try_acquire_owned().map_err(|_| {
            let message = format!("{} {} are being served, the limit", class.max(), class.plural());
            HttpError::new(ErrorCode::Unavailable, message).with_hint("relive daemon status")
        })?;
        let of_body = request.extensions().get::<BodyRoom>().map(|room| Arc::clone(&room.0));
        Ok(Room { _of_class: of_class, _of_inside: of_inside, _of_body: of_body })
    }
}

/// Returns the refusal of a stopping daemon.
pub(super) fn stopping() -> HttpError {
    HttpError::new(ErrorCode::Unavailable, "the daemon is stopping").with_hint("relive daemon status")
}

/// Reads the body before anything is done, and adds the version to every answer: half a request is not a request.
pub(super) async fn whole(State(traffic): State<Traffic>, request: Request, next: Next) -> Response {
    let connection = request.extensions().get::<Arc<Connection>>().cloned();
    let mut response = match tokio::time::timeout(BODY_WITHIN, read_body(&traffic, request)).await {
        Ok(Ok(request)) => {
            if let Some(connection) = connection {
                connection.has_request();
            }
            next.run(request).await
        }
        Ok(Err(error)) => error.into_response(),
        Err(_) => {
            let message = format!("the body was not there after {} s", BODY_WITHIN.as_secs());
            HttpError::new(ErrorCode::Timeout, message).into_response()
        }
    };
    response.headers_mut().insert(VERSION_HEADER, HeaderValue::from_static(env!("CARGO_PKG_VERSION")));
    response.headers_mut().insert(API_HEADER, HeaderValue::from(API_VERSION));
    response
}

async fn read_body(traffic: &Traffic, request: Request) -> Answer<Request> {
    let (mut head, body) = request.into_parts();
    let too_large = || HttpError::new(ErrorCode::Invalid, format!("the body has more than {BODY_MAX} bytes"));
    if body.is_end_stream() {
        return Ok(Request::from_parts(head, Body::empty()));
    }
    if body.size_hint().lower() > BODY_MAX as u64 {
        return Err(too_large());
    }
    let (mut bytes, mut room) = (Vec::new(), None::<OwnedSemaphorePermit>);
    let mut frames = body.into_data_stream();
    while let Some(frame) = frames.next().await {
        let frame = frame.map_err(|error| HttpError::new(ErrorCode::Invalid, format!("the body: {error}")))?;
        if bytes.len() + frame.len() > BODY_MAX {
            return Err(too_large());
        }
        bytes.extend_from_slice(&frame);
        let taken = room.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
        if bytes.len() > SHORT_BODY {
            let more = u32::try_from(bytes.len() - taken).map_err(|_| too_large())?;
            let more = Arc::clone(&traffic.bodies).try_acquire_many_owned(more).map_err(|_| {
                let message = format!("requests of {} MiB are being served, the limit", BODIES_MAX_BYTES >> 20);
                HttpError::new(ErrorCode::Unavailable, message).with_hint("relive daemon status")
            })?;
            match &mut room {
                Some(room) => room.merge(more),
                None => room = Some(more),
            }
        }
    }
    if let Some(room) = room {
        head.extensions.insert(BodyRoom(Arc::new(room)));
    }
    Ok(Request::from_parts(head, Body::from(Bytes::from(bytes))))
}

/// Serves a request if its class is not full.
pub(super) async fn admit(State((traffic, class)): State<(Traffic, Class)>, request: Request, next: Next) -> Response {
    let room = match traffic.admit(class, &request) {
        Ok(room) => room,
        Err(error) => return error.into_response(),
    };
    match class {
        Class::Streams => {
            if let Some(connection) = request.extensions().get::<Arc<Connection>>() {
                connection.is_stream();
            }
            until_last_byte(next.run(request).await, room)
        }
        Class::Control | Class::Others => in_time(&traffic, request, next, room).await,
    }
}

async fn in_time(traffic: &Traffic, request: Request, next: Next, room: Room) -> Response {
    let (is_verb, hint) = (request.method() == Method::POST, hint_for(request.uri().path()));
    let answer = async {
        if is_verb {
            repeat::to_the_end(&traffic.repeats, request, next, room).await
        } else {
            until_last_byte(next.run(request).await, room)
        }
    };
    tokio::time::timeout(ANSWER_WITHIN, answer).await.unwrap_or_else(|_| {
        let continues = if is_verb { "; it continues" } else { "" };
        let message = format!("not done after {} s{continues}", ANSWER_WITHIN.as_secs());
        HttpError::new(ErrorCode::Timeout, message).with_hint(hint).into_response()
    })
}

/// Returns the command that tells what happened to a request.
fn hint_for(path: &str) -> String {
    let id = path.strip_prefix("/v1/processes/").and_then(|rest| rest.split('/').next());
    match id.filter(|id| id.len() <= 64 && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')) {
        Some(id) if !id.is_empty() => format!("relive info {id}"),
        Some(_) | None => "relive daemon status".to_owned(),
    }
}

/// Holds the resources of an answer of unknown length until its last byte.
fn until_last_byte(response: Response, room: Room) -> Response {
    if response.body().size_hint().exact().is_some() {
        return response;
    }
    response.map(|body| {
        Body::from_stream(body.into_data_stream().map(move |frame| {
            let _taken = &room;
            frame
        }))
    })
}

#[cfg(test)]
mod tests;
