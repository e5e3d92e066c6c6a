//! The port of one process: its requests, and their way to the provider and back.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::stream;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Limited, StreamBody};
use hyper::body::{Bytes, Frame, Incoming};
use hyper::header::{CONNECTION, CONTENT_TYPE, HeaderValue};
use hyper::service::service_fn;
use hyper::{HeaderMap, Method, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use jiff::Timestamp;
use serde::Deserialize;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, mpsc, oneshot};

use crate::answers::{Body, failed, final_answer, redirect, unreachable, whole};
use crate::api::{Api, gemini_model};
use crate::entry::{Doing, Passed, Served};
use crate::hooks::{BODY_MAX, HOOKS_PATH};
use crate::limits;
use crate::log::{Asked, Begun, Cut, Ended};
use crate::meter::Meter;
use crate::upstream::{self, Question};

/// The longest request: providers take less.
const REQUEST_MAX: usize = 64 << 20;
/// How many pieces of an answer wait for an agent that does not read.
const PIECES_MAX: usize = 16;
/// The longest name of a model or a subagent that is recorded.
const NAME_MAX: usize = 256;
/// How long to wait after the listener failed, for lack of descriptors.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);
/// How long to wait before a request is passed on again to a gateway that does not listen yet.
const PASS_ON_AGAIN: Duration = Duration::from_millis(100);
/// How often it is passed on: for about a minute, which is much longer than the start of a gateway takes.
const PASS_ON_TRIES: u32 = 600;

/// How many connections of one process are open at a time. Further ones wait in the queue of its socket.
const CONNECTIONS_MAX: usize = 128;
/// How long a connection may take to show the token of its process.
const TOKEN_WITHIN: Duration = Duration::from_secs(10);
/// How long a connection may wait for its next request.
const NEXT_WITHIN: Duration = Duration::from_secs(300);

/// Says why a key is refused: claude, which was given a token in its place, has found it in the settings of a repository.
const FOREIGN_KEY: &str = "Relive: the agent uses a key from its settings instead of the token that it was given; remove the \
                           key (ANTHROPIC_API_KEY under `env`, or apiKeyHelper, in .claude/settings.json), or use --no-gateway";

type Reply = oneshot::Sender<Response<Body>>;

/// The part of a request's body that is read.
#[derive(Deserialize)]
struct Head {
    model: Option<String>,
}

/// Serves the port of a process until it is closed, or another gateway serves it.
pub(crate) async fn accept_all(served: Arc<Served>, listener: TcpListener, client: reqwest::Client) {
    let connections = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let accept = async {
            let place = Arc::clone(&connections).acquire_owned().await.map_err(io::Error::other)?;
            Ok::<_, io::Error>((listener.accept().await?.0, place))
        };
        let accepted = tokio::select! {
            accepted = accept => accepted,
            () = served.closing() => break,
            () = served.retired() => break,
        };
        let Ok((stream, place)) = accepted else {
            tokio::time::sleep(ACCEPT_AGAIN).await;
            continue;
        };
        let _ = stream.set_nodelay(true);
        let (served, client) = (Arc::clone(&served), client.clone());
        let connected = served.exist();
        tokio::spawn(async move {
            let has_token = AtomicBool::new(false);
            let service = service_fn(|request| answer(Arc::clone(&served), client.clone(), request, &has_token));
            let mut builder = hyper::server::conn::http1::Builder::new();
            builder.timer(TokioTimer::new()).header_read_timeout(NEXT_WITHIN);
            let serving = builder.serve_connection(TokioIo::new(stream), service);
            tokio::select! {
                // A connection that breaks concerns only those at its ends.
                _ = serving => {}
                () = served.closing() => {}
                () = is_a_stranger(&has_token) => {}
            }
            drop((connected, place));
        });
    }
    drop(listener);
    served.accepts_no_more();
}

/// Waits until a connection has taken too long to show a token, or for ever if it has shown one.
async fn is_a_stranger(has_token: &AtomicBool) {
    tokio::time::sleep(TOKEN_WITHIN).await;
    if has_token.load(Ordering::Relaxed) {
        std::future::pending::<()>().await;
    }
}

async fn answer(
    served: Arc<Served>,
    client: reqwest::Client,
    request: hyper::Request<Incoming>,
    has_token: &AtomicBool,
) -> Result<Response<Body>, Infallible> {
    let mut response = answer_of(&served, client, request, has_token).await;
    if served.is_retired() {
        // The next request comes by a connection to the gateway that serves now.
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    Ok(response)
}

async fn answer_of(
    served: &Arc<Served>,
    client: reqwest::Client,
    request: hyper::Request<Incoming>,
    has_token: &AtomicBool,
) -> Response<Body> {
    let (head, body) = request.into_parts();
    let path = head.uri.path_and_query().map_or("/", |path| path.as_str()).to_owned();
    let api = Api::of(head.uri.path()).filter(|_| head.method == Method::POST);
    let is_hook = head.uri.path() == HOOKS_PATH;
    let is_ours = upstream::token(&head.headers).is_some_and(|token| match is_hook {
        true => served.target().accepts_hooks(token),
        false => served.target().accepts(token),
    });
    if !is_ours {
        let has_key = upstream::token(&head.headers).is_some_and(|token| !token.is_empty());
        let message = match api {
            Some(Api::Anthropic) if has_key => FOREIGN_KEY,
            _ if has_key => "the token of this request is not that of its process",
            _ => "this port needs the token of its process",
        };
        return final_answer(failed(api, 401, "authentication_error", message));
    }
    has_token.store(true, Ordering::Relaxed);
    if api.is_none() && !is_hook && !Api::is_free(&head.method, head.uri.path()) {
        let message = format!("the gateway of Relive does not pass on {} {}", head.method, shortened(head.uri.path()));
        return failed(None, 404, "not_found_error", &message);
    }
    let max = if is_hook { BODY_MAX } else { REQUEST_MAX };
    let Ok(body) = Limited::new(body, max).collect().await else {
        return failed(api, 413, "request_too_large", "the request is too long");
    };
    let body = body.to_bytes();
    // Not before the body is read: a hook that is kept after this gateway has retired is lost.
    if is_hook && !served.is_retired() {
        return take_hook(served, &body);
    }
    let question = Question { method: head.method, path, headers: head.headers, body };
    let (reply, replied) = oneshot::channel();
    // In a task of its own, because this one is dropped when the agent hangs up.
    let (doing, served) = (served.exist(), Arc::clone(served));
    match api {
        _ if served.is_retired() => drop(tokio::spawn(async move {
            pass_on(&served, &client, &question, reply).await;
            drop(doing);
        })),
        Some(api) => drop(tokio::spawn(Call { served, client, question, api, _doing: doing }.run(reply))),
        None => drop(tokio::spawn(pass_through(served, client, question, reply, doing))),
    }
    replied.await.unwrap_or_else(|_| failed(api, 503, "api_error", "the gateway of Relive ends"))
}

/// Passes a request on to the gateway that serves the process now, which may not listen yet.
async fn pass_on(served: &Served, client: &reqwest::Client, question: &Question, mut reply: Reply) {
    let api = Api::of(question.path.split('?').next().unwrap_or_default());
    for _ in 0..PASS_ON_TRIES {
        let sent = tokio::select! {
            sent = upstream::pass_on(client, served.port, question) => sent,
            () = reply.closed() => return,
            () = served.closing() => return,
        };
        match sent {
            Ok(response) => return copy(response, reply).await,
            Err(error) if error.is_connect() => tokio::time::sleep(PASS_ON_AGAIN).await,
            Err(error) => {
                drop(reply.send(failed(api, 502, "api_error", &unreachable(&error))));
                return;
            }
        }
    }
    drop(reply.send(failed(api, 503, "api_error", "no gateway of Relive serves this process now")));
}

/// Keeps what the agent reports of itself. The answer decides nothing: the agent continues as it would without the hook.
fn take_hook(served: &Served, body: &[u8]) -> Response<Body> {
    match served.take_hook(body) {
        true => whole(200, "{}".to_owned()),
        false => failed(None, 400, "invalid_request_error", "this is no hook"),
    }
}

/// Passes a request on that is no model call.
async fn pass_through(served: Arc<Served>, client: reqwest::Client, question: Question, reply: Reply, _doing: Doing) {
    let target = served.target();
    match upstream::send(&client, &target.upstream, &target.auth, &question).await {
        Ok(response) => match redirect(None, &response) {
            Some(refused) => drop(reply.send(refused)),
            None => copy(response, reply).await,
        },
        Err(error) => drop(reply.send(failed(None, 502, "api_error", &unreachable(&error)))),
    }
}

/// Passes an answer on that is not counted here.
async fn copy(mut response: reqwest::Response, reply: Reply) {
    let Some(pieces) = begin(reply, &response) else { return };
    loop {
        let piece = tokio::select! {
            piece = response.chunk() => piece,
            // Whoever counts the answer hears that the agent has hung up.
            () = pieces.closed() => return,
        };
        let piece = match piece {
            Ok(Some(piece)) => Ok(piece),
            Ok(None) => return,
            Err(error) => Err(io::Error::other(error)),
        };
        let is_over = piece.is_err();
        if pieces.send(piece).await.is_err() || is_over {
            return;
        }
    }
}

/// A model call.
struct Call {
    served: Arc<Served>,
    client: reqwest::Client,
    question: Question,
    api: Api,
    _doing: Doing,
}

/// How an attempt went.
enum Attempt {
    Over,
    /// The provider takes it later.
    Later(Reply),
}

impl Call {
    async fn run(self, mut reply: Reply) {
        let head = serde_json::from_slice::<Head>(&self.question.body).ok();
        let model = head.and_then(|head| head.model).map(|model| shortened(&model));
        let path = self.question.path.split('?').next().unwrap_or_default();
        let model = model.or_else(|| gemini_model(path).map(shortened));
        let subagent = self.question.headers.get("x-claude-code-agent-id").and_then(|id| id.to_str().ok());
        let subagent = subagent.map(shortened);
        loop {
            let number = self.served.number();
            let priced = format!("{}/{}", self.api.provider(), model.as_deref().unwrap_or_default());
            let passed = tokio::select! {
                passed = self.served.pass(number, &priced) => passed,
                () = reply.closed() => return,
                () = self.served.closing() => return,
                () = self.served.retired() => return pass_on(&self.served, &self.client, &self.question, reply).await,
            };
            let asked = Asked {
                number,
                at: Timestamp::now(),
                api: self.api,
                model: model.clone(),
                bytes: self.question.body.len() as u64,
                subagent: subagent.clone(),
            };
            if let Passed::Refused(reason) = passed {
                return self.refuse(&asked, reason, reply).await;
            }
            match self.served.record_begin(&asked, || !reply.is_closed()).await {
                Ok(Begun::Recorded) => {}
                Ok(Begun::Retired) => return pass_on(&self.served, &self.client, &self.question, reply).await,
                Err(error) => {
                    let message = format!("Relive cannot record this call: {error}");
                    drop(reply.send(failed(Some(self.api), 500, "api_error", &message)));
                    return;
                }
            }
            match self.attempt(&asked, reply).await {
                Attempt::Over => return,
                Attempt::Later(back) => reply = back,
            }
        }
    }

    async fn refuse(&self, asked: &Asked, reason: String, reply: Reply) {
        let (status, body) = self.api.over_budget(&format!("Relive: {reason}"));
        let ended = Ended { status: Some(status), refused: Some(reason), ..asked.ended(asked.at) };
        // Recorded or not, it is not made here.
        if let Ok(Begun::Retired) = self.served.record_refusal(ended, || !reply.is_closed()).await {
            return pass_on(&self.served, &self.client, &self.question, reply).await;
        }
        drop(reply.send(final_answer(whole(status, body))));
    }

    async fn attempt(&self, asked: &Asked, mut reply: Reply) -> Attempt {
        let doing = self.served.ask();
        let target = self.served.target();
        let sent = tokio::select! {
            sent = upstream::send(&self.client, &target.upstream, &target.auth, &self.question) => sent,
            () = reply.closed() => {
                self.end_unanswered(asked, Cut::Agent).await;
                return Attempt::Over;
            }
            () = self.served.closing() => {
                self.end_unanswered(asked, Cut::Agent).await;
                return Attempt::Over;
            }
        };
        let response = match sent {
            Ok(response) => response,
            Err(error) if error.is_connect() => {
                // Nothing was sent, so nothing was used.
                let ended = Ended { cut: Some(Cut::Upstream), ..asked.ended(Timestamp::now()) };
                let _ = self.served.record_end(ended).await;
                drop(reply.send(failed(Some(self.api), 502, "api_error", &unreachable(&error))));
                return Attempt::Over;
            }
            Err(error) => {
                self.end_unanswered(asked, Cut::Upstream).await;
                drop(reply.send(failed(Some(self.api), 502, "api_error", &unreachable(&error))));
                return Attempt::Over;
            }
        };
        let now = Timestamp::now();
        let status = response.status().as_u16();
        if let Some(resets_at) = limits::far_reset(status, response.headers(), now) {
            let ended = Ended { status: Some(status), resets_at: Some(resets_at), ..asked.ended(now) };
            if self.served.record_end(ended).await.is_ok() {
                self.served.limit(resets_at, asked.number);
                return Attempt::Later(reply);
            }
        }
        if let Some(refused) = redirect(Some(self.api), &response) {
            let ended = Ended { status: Some(status), ..asked.ended(now) };
            let _ = self.served.record_end(ended).await;
            drop(reply.send(refused));
            return Attempt::Over;
        }
        self.relay(asked, response, reply, doing).await;
        Attempt::Over
    }

    /// Ends a call that the provider got and has not answered: what it used is not known.
    async fn end_unanswered(&self, asked: &Asked, cut: Cut) {
        let ended = asked.ended(Timestamp::now());
        let tokens_in = crate::meter::estimate(asked.bytes);
        let _ = self.served.record_end(Ended { tokens_in, estimated: true, cut: Some(cut), ..ended }).await;
    }

    /// Passes an answer on, and records its usage before its last byte.
    async fn relay(&self, asked: &Asked, mut response: reqwest::Response, reply: Reply, doing: Doing) {
        let status = response.status();
        let first_ms = Timestamp::now().duration_since(asked.at).as_millis();
        let mut answer = Answer {
            asked,
            status,
            first_ms: u64::try_from(first_ms).ok(),
            meter: status.is_success().then(|| Meter::new(self.api, is_stream(response.headers()))),
            left: response.content_length(),
            doing: Some(doing),
        };
        let Some(pieces) = begin(reply, &response) else {
            let _ = answer.record(&self.served, Some(Cut::Agent)).await;
            return;
        };
        loop {
            let piece = tokio::select! {
                piece = response.chunk() => piece,
                () = pieces.closed() => {
                    let _ = answer.record(&self.served, Some(Cut::Agent)).await;
                    return;
                }
                () = self.served.closing() => {
                    let _ = answer.record(&self.served, Some(Cut::Agent)).await;
                    let _ = pieces.send(Err(io::ErrorKind::ConnectionAborted.into())).await;
                    return;
                }
            };
            let (recorded, piece) = match piece {
                Ok(Some(piece)) if answer.is_complete_with(&piece) => {
                    (answer.record(&self.served, None).await, Some(Ok(piece)))
                }
                Ok(Some(piece)) => (Ok(()), Some(Ok(piece))),
                Ok(None) => (answer.record(&self.served, answer.cut_at_end()).await, None),
                Err(error) => {
                    let recorded = answer.record(&self.served, Some(Cut::Upstream)).await;
                    (recorded, Some(Err(io::Error::other(error))))
                }
            };
            // An end that cannot be recorded is not passed on.
            let piece = match recorded {
                Ok(()) => piece,
                Err(error) => Some(Err(error)),
            };
            let is_last = !matches!(piece, Some(Ok(_)));
            if let Some(piece) = piece
                && pieces.send(piece).await.is_err()
            {
                let _ = answer.record(&self.served, Some(Cut::Agent)).await;
                return;
            }
            if is_last {
                return;
            }
        }
    }
}

/// An answer on its way.
struct Answer<'a> {
    asked: &'a Asked,
    status: StatusCode,
    first_ms: Option<u64>,
    /// Absent for an error, which costs nothing.
    meter: Option<Meter>,
    /// The bytes that are still to come, if that is known.
    left: Option<u64>,
    /// Present until the end is recorded.
    doing: Option<Doing>,
}

impl Answer<'_> {
    /// Takes in a piece, and returns whether it is the last one, or has the last event.
    fn is_complete_with(&mut self, piece: &[u8]) -> bool {
        let is_done = self.meter.as_mut().is_some_and(|meter| meter.feed(piece));
        self.left = self.left.map(|left| left.saturating_sub(piece.len() as u64));
        is_done || self.left == Some(0)
    }

    /// Returns who has cut an answer whose body is over.
    fn cut_at_end(&self) -> Option<Cut> {
        self.meter.as_ref().is_some_and(Meter::is_unfinished_stream).then_some(Cut::Upstream)
    }

    /// Records the end, once.
    async fn record(&mut self, served: &Arc<Served>, cut: Option<Cut>) -> io::Result<()> {
        let Some(doing) = self.doing.take() else { return Ok(()) };
        let counted = self.meter.as_mut().map(|meter| meter.total(self.asked.bytes)).unwrap_or_default();
        let ended = Ended {
            status: Some(self.status.as_u16()),
            tokens_in: counted.tokens_in,
            tokens_out: counted.tokens_out,
            cache_read: counted.cache_read,
            cache_write: counted.cache_write,
            estimated: counted.estimated,
            cut,
            first_ms: self.first_ms,
            ..self.asked.ended(Timestamp::now())
        };
        let recorded = served.record_end(ended).await;
        drop(doing);
        recorded
    }
}

/// Sends the head of an answer, and returns where its body goes; none if the agent is gone.
fn begin(reply: Reply, response: &reqwest::Response) -> Option<mpsc::Sender<io::Result<Bytes>>> {
    let (pieces, received) = mpsc::channel(PIECES_MAX);
    let frames = stream::unfold(received, |mut received: mpsc::Receiver<io::Result<Bytes>>| async {
        let piece = received.recv().await?;
        Some((piece.map(Frame::data), received))
    });
    let mut answer = Response::new(BoxBody::new(StreamBody::new(frames)));
    *answer.status_mut() = response.status();
    *answer.headers_mut() = response.headers().clone();
    upstream::remove_hop_by_hop(answer.headers_mut());
    reply.send(answer).ok().map(|()| pieces)
}

fn is_stream(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    kind.is_some_and(|kind| kind.starts_with("text/event-stream"))
}

fn shortened(name: &str) -> String {
    name[..name.floor_char_boundary(NAME_MAX)].to_owned()
}
