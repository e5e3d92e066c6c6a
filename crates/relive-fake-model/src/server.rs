//! Reads requests and sends answers.

use std::collections::HashMap;
use std::convert::Infallible;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::{StreamExt as _, stream};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Bytes, Frame, Incoming};
use hyper::service::service_fn;
use hyper::{HeaderMap, Response};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::sync::{oneshot, watch};

use crate::script::{Failure, Turn};
use crate::summary;
use crate::wire::Wire;

/// A received request.
#[derive(Debug, Clone)]
pub struct Request {
    pub path: String,
    pub key: Option<String>,
    pub body: Value,
    /// The status of the answer; 0 if it was never answered.
    pub status: u16,
    /// The reason for a refusal.
    pub refused: Option<String>,
}

type Body = BoxBody<Bytes, io::Error>;

/// Who asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Clients {
    Native,
    /// CLI agents of other vendors.
    Agents,
}

/// The state of the server.
#[derive(Debug)]
pub(crate) struct Shared {
    clients: Clients,
    turns: Vec<Turn>,
    state: Mutex<State>,
    /// Held by every answer that is being sent.
    speaking: Arc<()>,
    /// Whether answers no longer wait.
    is_let_go: watch::Sender<bool>,
}

#[derive(Debug, Default)]
struct State {
    requests: Vec<Request>,
    /// How often each turn was requested.
    attempts: HashMap<usize, usize>,
    handed_out: (u64, u64),
}

/// The reply to a request.
enum Reply {
    Refused(u16, String),
    Fails(Failure, Vec<String>),
    /// After how many pieces it waits.
    Answers(Vec<String>, Option<usize>),
}

impl Shared {
    pub(crate) fn new(clients: Clients, turns: Vec<Turn>) -> Self {
        Self { clients, turns, state: Mutex::default(), speaking: Arc::default(), is_let_go: watch::Sender::new(false) }
    }

    pub(crate) fn requests(&self) -> Vec<Request> {
        self.lock().requests.clone()
    }

    pub(crate) fn handed_out(&self) -> (u64, u64) {
        self.lock().handed_out
    }

    pub(crate) fn let_go(&self) {
        self.is_let_go.send_replace(true);
    }

    pub(crate) fn under_way(&self) -> usize {
        Arc::strong_count(&self.speaking) - 1
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn reply(&self, wire: Wire, headers: &HeaderMap, body: &Value) -> Reply {
        if wire.wants_key() && wire.key(headers).is_none() {
            return Reply::Refused(401, "no key".to_owned());
        }
        let said = body.to_string();
        let before = summary::answers_before(&said);
        // Summarized turns are no longer in the conversation and cannot be checked.
        let known = self.turns.get(before..).unwrap_or_default();
        let history = wire.read(headers, body).and_then(|history| history.check(known, before).map(|()| history));
        let history = match self.clients {
            Clients::Native => history.map(|history| history.turn()),
            Clients::Agents if body["tools"].as_array().is_none_or(Vec::is_empty) => {
                return self.answered(wire.write(0, &Turn::text("a title")), &Turn::text("a title"));
            }
            Clients::Agents => Ok(wire.answers(body)),
        };
        let number = match history {
            Ok(_) if summary::is_asked_for(&said) => {
                let (answers, summary) = summary::sum_up(&said);
                return Reply::Answers(wire.write(answers, &Turn::text(&summary)), None);
            }
            Ok(number) => before + number,
            Err(reason) => return Reply::Refused(400, reason),
        };
        let past_the_end = Turn::text("done");
        let turn = self.turns.get(number).unwrap_or(&past_the_end);
        let attempt = {
            let mut state = self.lock();
            let attempts = state.attempts.entry(number).or_default();
            *attempts += 1;
            *attempts - 1
        };
        let pieces = wire.write(number, turn);
        match turn.failures.get(attempt) {
            Some(failure) => Reply::Fails(failure.clone(), pieces),
            None => self.answered(pieces, turn),
        }
    }

    fn answered(&self, pieces: Vec<String>, turn: &Turn) -> Reply {
        if let Some(used) = turn.usage {
            let mut state = self.lock();
            state.handed_out.0 += used.input;
            state.handed_out.1 += used.output;
        }
        Reply::Answers(pieces, turn.waits_after)
    }

    fn streamed(
        &self,
        wire: Wire,
        pieces: impl stream::Stream<Item = io::Result<String>> + Send + Sync + 'static,
    ) -> Response<Body> {
        let speaking = Arc::clone(&self.speaking);
        let frames = pieces.then(|piece| async move {
            // Each piece is sent on its own: the pieces before a cut have arrived.
            tokio::task::yield_now().await;
            piece.map(|piece| Frame::data(Bytes::from(piece)))
        });
        // Held once by each answer, so that an answer counts once, also while a piece of it is on its way.
        let frames = frames.inspect(move |_| {
            let _held = &speaking;
        });
        response(200, wire.content_type(), BodyExt::boxed(StreamBody::new(frames)))
    }

    fn note(&self, (path, key): (String, Option<String>), body: Value, status: u16, refused: Option<String>) {
        self.lock().requests.push(Request { path, key, body, status, refused });
    }
}

/// Serves until `stopped`.
pub(crate) async fn serve(listener: std::net::TcpListener, shared: Arc<Shared>, stopped: oneshot::Receiver<()>) {
    let Ok(listener) = tokio::net::TcpListener::from_std(listener) else { return };
    let accept = async {
        while let Ok((connection, _)) = listener.accept().await {
            let shared = Arc::clone(&shared);
            let service = service_fn(move |request| answer(Arc::clone(&shared), request));
            let serving =
                hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(connection), service);
            // Some turns break the connection on purpose.
            tokio::spawn(async move { drop(serving.await) });
        }
    };
    tokio::select! {
        () = accept => {}
        _ = stopped => {}
    }
}

async fn answer(shared: Arc<Shared>, request: hyper::Request<Incoming>) -> Result<Response<Body>, Infallible> {
    let (head, body) = request.into_parts();
    let path = head.uri.path().to_owned();
    let body = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    let body = serde_json::from_slice(&body).unwrap_or(Value::Null);
    let Some(wire) = Wire::of(&path) else {
        shared.note((path.clone(), None), body, 404, Some("no such path".to_owned()));
        return Ok(whole(404, "application/json", &format!("{{\"error\":\"no path {path}\"}}")));
    };
    let asked = (path, wire.key(&head.headers));
    let reply = shared.reply(wire, &head.headers, &body);
    let json = "application/json";
    Ok(match reply {
        Reply::Refused(status, reason) => {
            let error = wire.error(status, &reason).to_string();
            shared.note(asked, body, status, Some(reason));
            whole(status, json, &error)
        }
        Reply::Fails(Failure::ContextFull, _) => {
            shared.note(asked, body, 400, None);
            whole(400, json, &wire.error(400, "prompt is too long").to_string())
        }
        Reply::Fails(Failure::Status(status, retry_after), _) => {
            shared.note(asked, body, status, None);
            let mut response = whole(status, json, &wire.error(status, &format!("fake {status}")).to_string());
            if let Some(value) = retry_after.and_then(|text| text.parse().ok()) {
                response.headers_mut().insert("retry-after", value);
            }
            response
        }
        Reply::Fails(Failure::Silence, _) => {
            shared.note(asked, body, 0, None);
            std::future::pending().await
        }
        Reply::Fails(Failure::Cut(after), pieces) => {
            shared.note(asked, body, 200, None);
            let broken = stream::once(async { Err(io::Error::from(io::ErrorKind::ConnectionReset)) });
            shared.streamed(wire, stream::iter(pieces.into_iter().take(after).map(Ok)).chain(broken))
        }
        Reply::Fails(Failure::Stall(after), pieces) => {
            shared.note(asked, body, 200, None);
            shared.streamed(wire, stream::iter(pieces.into_iter().take(after).map(Ok)).chain(stream::pending()))
        }
        Reply::Answers(mut pieces, waits_after) => {
            shared.note(asked, body, 200, None);
            let rest = pieces.split_off(waits_after.unwrap_or(pieces.len()).min(pieces.len()));
            let mut is_let_go = shared.is_let_go.subscribe();
            let rest = stream::once(async move {
                if !rest.is_empty() {
                    // The sender lives as long as the server.
                    let _ = is_let_go.wait_for(|is_let_go| *is_let_go).await;
                }
                stream::iter(rest)
            });
            shared.streamed(wire, stream::iter(pieces).chain(rest.flatten()).map(Ok))
        }
    })
}

fn whole(status: u16, content_type: &str, text: &str) -> Response<Body> {
    let body = Full::new(Bytes::from(text.to_owned())).map_err(|never: Infallible| match never {}).boxed();
    response(status, content_type, body)
}

fn response(status: u16, content_type: &str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = hyper::StatusCode::from_u16(status).unwrap_or(hyper::StatusCode::INTERNAL_SERVER_ERROR);
    if let Ok(value) = content_type.parse() {
        response.headers_mut().insert("content-type", value);
    }
    response
}
