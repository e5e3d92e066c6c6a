//! The socket: HTTP and JSON for whoever has the same uid.

mod listener;
mod repeat;
mod streams;

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::body::{Body, HttpBody as _};
use axum::extract::{DefaultBodyLimit, FromRequest, FromRequestParts, Path, Query, Request, State};
use axum::http::HeaderValue;
use axum::http::request::Parts;
use axum::middleware::{self, Next};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use relive_api::{
    Accepted, Affected, BODY_MAX, Created, DaemonStatus, ExecRequest, ExecStarted, GcAnswer, GcRequest, InputRequest,
    Lineage, PauseRequest, Process, ProcessList, REQUEST_ID_HEADER, ResolveRequest, ResumableList, ResumeRequest,
    Resumed, RunRequest, SignalMaskRequest, SignalRequest, SignalState, Stopping, VERSION_HEADER, WaitAnswer,
    WaitRequest,
};
use relive_core::ErrorCode;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::sync::watch;

pub(crate) use listener::bind;
use repeat::Repeats;

use crate::error::{Answer, HttpError};
use relive_runtime::{About, Runtime};

/// How many requests, streams included, are served at once.
const REQUESTS_MAX: usize = 1024;

/// What every handler has.
#[derive(Debug, Clone)]
pub(crate) struct Server {
    runtime: Arc<Runtime>,
    about: Arc<About>,
    stop: watch::Sender<bool>,
    repeats: Repeats,
    serving: Arc<AtomicUsize>,
}

impl Server {
    pub(crate) fn new(runtime: Arc<Runtime>, about: Arc<About>, stop: watch::Sender<bool>) -> Self {
        Self { runtime, about, stop, repeats: Repeats::default(), serving: Arc::default() }
    }

    pub(crate) fn router(self) -> Router {
        Router::new()
            .route("/v1/daemon", get(status))
            .route("/v1/daemon/stop", post(stop))
            .route("/v1/processes", get(processes).post(run))
            .route("/v1/programs", post(exec))
            .route("/v1/processes/{id}", get(process))
            .route("/v1/processes/{id}/wait", post(wait))
            .route("/v1/processes/{id}/pause", post(pause))
            .route("/v1/processes/{id}/resume", post(resume))
            .route("/v1/processes/{id}/signal", post(signal))
            .route("/v1/processes/{id}/signals", get(signal_mask).post(set_signal_mask))
            .route("/v1/processes/{id}/input", post(input))
            .route("/v1/processes/{id}/resolve", post(resolve))
            .route("/v1/processes/{id}/proceed", post(proceed))
            .route("/v1/processes/{id}/abort", post(abort))
            .route("/v1/processes/{id}/lineage", get(lineage))
            .route("/v1/processes/{id}/journal", get(streams::journal))
            .route("/v1/processes/{id}/events", get(streams::events))
            .route("/v1/resumable", get(resumable))
            .route("/v1/gc", post(gc))
            .fallback(nothing_here)
            .layer(DefaultBodyLimit::max(BODY_MAX))
            .layer(middleware::from_fn_with_state(self.clone(), repeat::answer_once))
            .layer(middleware::from_fn_with_state(self.clone(), bounded))
            .with_state(self)
    }
}

/// Refuses what is too much, and names the version in every answer.
async fn bounded(State(server): State<Server>, request: Request, next: Next) -> Response {
    let before = server.serving.fetch_add(1, Ordering::Relaxed);
    // From here on, so that one who hangs up meanwhile is not counted for ever.
    let guard = Serving(server.serving);
    let mut response = if before >= REQUESTS_MAX {
        HttpError::new(ErrorCode::Unavailable, format!("{REQUESTS_MAX} requests are being served, the limit"))
            .with_hint("ask again in a moment")
            .into_response()
    } else {
        next.run(request).await
    };
    response.headers_mut().insert(VERSION_HEADER, HeaderValue::from_static(env!("CARGO_PKG_VERSION")));
    if response.body().size_hint().exact().is_some() {
        return response;
    }
    // A stream counts until its last byte.
    response.map(|body| {
        let frames = http_body_stream(body, guard);
        Body::from_stream(frames)
    })
}

struct Serving(Arc<AtomicUsize>);

impl Drop for Serving {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

fn http_body_stream(
    body: Body,
    guard: Serving,
) -> impl futures_util::Stream<Item = Result<axum::body::Bytes, axum::Error>> {
    use futures_util::StreamExt as _;
    body.into_data_stream().map(move |frame| {
        let _counted = &guard;
        frame
    })
}

async fn nothing_here(request: Request) -> HttpError {
    HttpError::new(ErrorCode::NotFound, format!("there is nothing at {} {}", request.method(), request.uri().path()))
}

/// A JSON body, or none for the default; what is wrong with it is said.
struct Asked<T>(T);

impl<T: DeserializeOwned + Default> FromRequest<Server> for Asked<T> {
    type Rejection = HttpError;

    async fn from_request(request: Request, state: &Server) -> Result<Self, HttpError> {
        let bytes = axum::body::Bytes::from_request(request, state).await.map_err(too_large)?;
        if bytes.is_empty() { Ok(Self(T::default())) } else { parse(&bytes).map(Self) }
    }
}

/// A JSON body that has to be there.
struct Needed<T>(T);

impl<T: DeserializeOwned> FromRequest<Server> for Needed<T> {
    type Rejection = HttpError;

    async fn from_request(request: Request, state: &Server) -> Result<Self, HttpError> {
        let bytes = axum::body::Bytes::from_request(request, state).await.map_err(too_large)?;
        parse(&bytes).map(Self)
    }
}

fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Answer<T> {
    serde_json::from_slice(bytes).map_err(|error| HttpError::new(ErrorCode::Invalid, format!("the body: {error}")))
}

fn too_large(rejection: axum::extract::rejection::BytesRejection) -> HttpError {
    HttpError::new(ErrorCode::Invalid, format!("the body: {}, at most {BODY_MAX} bytes", rejection.body_text()))
}

/// The id that the client gave the request.
struct RequestId(Option<String>);

impl FromRequestParts<Server> for RequestId {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &Server) -> Result<Self, Infallible> {
        let id = parts.headers.get(REQUEST_ID_HEADER).and_then(|id| id.to_str().ok());
        Ok(Self(id.map(str::to_owned)))
    }
}

type Asks = State<Server>;
type Told<T> = Answer<Json<T>>;

async fn status(State(server): Asks) -> Told<DaemonStatus> {
    server.runtime.status(&server.about).await.map(Json).map_err(Into::into)
}

async fn stop(State(server): Asks) -> Json<Stopping> {
    let stopping = server.runtime.begin_stop();
    server.stop.send_replace(true);
    Json(stopping)
}

#[derive(Debug, Deserialize)]
struct ListQuery {
    #[serde(default)]
    all: bool,
}

async fn processes(State(server): Asks, Query(query): Query<ListQuery>) -> Told<ProcessList> {
    server.runtime.processes(query.all).await.map(Json).map_err(Into::into)
}

async fn run(State(server): Asks, Needed(request): Needed<RunRequest>) -> Told<Created> {
    server.runtime.run(request).await.map(Json).map_err(Into::into)
}

async fn exec(State(server): Asks, Needed(request): Needed<ExecRequest>) -> Told<ExecStarted> {
    server.runtime.exec(request).await.map(Json).map_err(Into::into)
}

async fn proceed(State(server): Asks, Path(id): Path<String>) -> Told<Affected> {
    server.runtime.proceed(&id).await.map(Json).map_err(Into::into)
}

async fn abort(State(server): Asks, Path(id): Path<String>) -> Told<Affected> {
    server.runtime.abort(&id).await.map(Json).map_err(Into::into)
}

async fn process(State(server): Asks, Path(id): Path<String>) -> Told<Process> {
    server.runtime.process(&id).await.map(Json).map_err(Into::into)
}

async fn wait(State(server): Asks, Path(id): Path<String>, Asked(request): Asked<WaitRequest>) -> Told<WaitAnswer> {
    let mut stop = server.stop.subscribe();
    tokio::select! {
        answer = server.runtime.wait(&id, request.timeout_ms.map(Duration::from_millis)) => answer.map(Json).map_err(Into::into),
        // The daemon goes, and does not wait for those who wait.
        _ = stop.wait_for(|stopping| *stopping) => {
            Err(HttpError::new(ErrorCode::Unavailable, "the daemon is stopping").with_hint("ask again in a moment"))
        }
    }
}

async fn pause(
    State(server): Asks,
    Path(id): Path<String>,
    RequestId(request_id): RequestId,
    Asked(request): Asked<PauseRequest>,
) -> Told<Affected> {
    server.runtime.pause(&id, request, request_id).await.map(Json).map_err(Into::into)
}

async fn resume(
    State(server): Asks,
    Path(id): Path<String>,
    RequestId(request_id): RequestId,
    Asked(request): Asked<ResumeRequest>,
) -> Told<Resumed> {
    server.runtime.resume(&id, request, request_id).await.map(Json).map_err(Into::into)
}

async fn signal(
    State(server): Asks,
    Path(id): Path<String>,
    RequestId(request_id): RequestId,
    Needed(request): Needed<SignalRequest>,
) -> Told<Affected> {
    server.runtime.signal(&id, request, request_id).await.map(Json).map_err(Into::into)
}

async fn signal_mask(State(server): Asks, Path(id): Path<String>) -> Told<SignalState> {
    server.runtime.signal_mask(&id).await.map(Json).map_err(Into::into)
}

async fn set_signal_mask(
    State(server): Asks,
    Path(id): Path<String>,
    RequestId(request_id): RequestId,
    Asked(request): Asked<SignalMaskRequest>,
) -> Told<SignalState> {
    server.runtime.set_signal_mask(&id, request, request_id).await.map(Json).map_err(Into::into)
}

async fn input(State(server): Asks, Path(id): Path<String>, Needed(request): Needed<InputRequest>) -> Told<Accepted> {
    server.runtime.send(&id, request).await.map(Json).map_err(Into::into)
}

async fn resolve(
    State(server): Asks,
    Path(id): Path<String>,
    RequestId(request_id): RequestId,
    Needed(request): Needed<ResolveRequest>,
) -> Told<Affected> {
    server.runtime.answer(&id, request, request_id).await.map(Json).map_err(Into::into)
}

async fn lineage(State(server): Asks, Path(id): Path<String>) -> Told<Lineage> {
    server.runtime.lineage(&id).await.map(Json).map_err(Into::into)
}

async fn resumable(State(server): Asks) -> Told<ResumableList> {
    server.runtime.resumable().await.map(Json).map_err(Into::into)
}

async fn gc(State(server): Asks, Needed(request): Needed<GcRequest>) -> Told<GcAnswer> {
    server.runtime.gc(request).await.map(Json).map_err(Into::into)
}
