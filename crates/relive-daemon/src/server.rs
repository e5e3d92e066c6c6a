//! The socket: HTTP and JSON for whoever has the same uid.

mod caller_access;
mod connection;
mod connections;
mod data_directory;
mod expiry;
mod files;
mod flows;
mod handles;
mod identity;
mod inbox;
mod list;
mod listener;
mod mistakes;
mod myself;
mod repeat;
mod streams;
mod traffic;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{DefaultBodyLimit, FromRequest, FromRequestParts, Path, Query, Request, State};
use axum::http::request::Parts;
use axum::middleware;
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use relive_api::{
    Accepted, Affected, BODY_MAX, Created, DaemonStatus, ExecRequest, ExecStarted, GateRequest, GcAnswer, GcRequest,
    InputRequest, Lineage, ListQuery, PauseRequest, PoolReport, Process, REQUEST_ID_HEADER, Removed, RenameRequest,
    ResolveRequest, ResumeRequest, Resumed, RunRequest, SignalMaskRequest, SignalRequest, SignalState, StopQuery,
    Stopping, UsageQuery, UsageReport, WaitAnswer, WaitRequest,
};
use relive_core::ErrorCode;
use serde::de::DeserializeOwned;
use tokio::sync::{Semaphore, watch};

use caller_access::{CallerAccess, Guarded};
pub(crate) use connections::Connections;
use data_directory::DataDirectory;
pub(crate) use identity::Identities;
pub(crate) use listener::bind;
use mistakes::plain;
use traffic::{Class, Traffic};

use crate::error::{Answer, HttpError};
use relive_runtime::{About, Runtime, SelfConnection};

/// How many streams read from the disk at once: the threads they read on are also those that journals are written on.
const STREAM_READS_MAX: usize = 8;

/// The state that every handler gets.
#[derive(Debug, Clone)]
pub(crate) struct Server {
    guarded: Guarded,
    about: Arc<About>,
    stream_reads: Arc<Semaphore>,
}

impl Server {
    pub(crate) fn new(runtime: Arc<Runtime>, about: Arc<About>, stop: watch::Sender<bool>) -> Self {
        Self { guarded: Guarded::new(runtime, stop), about, stream_reads: Arc::new(Semaphore::new(STREAM_READS_MAX)) }
    }

    /// Tells when the daemon stops.
    fn stopping(&self) -> watch::Receiver<bool> {
        self.guarded.stopping()
    }

    pub(crate) fn router(self) -> Router {
        let traffic = Traffic::new(self.stopping());
        let control = Router::new()
            .route("/v1/daemon", get(status))
            .route("/v1/daemon/stop", post(stop))
            .route("/v1/processes/{id}/pause", post(pause))
            .route("/v1/processes/{id}/signal", post(signal))
            .route("/v1/processes/{id}/resolve", post(resolve))
            .route("/v1/processes/{id}/ack", post(inbox::ack))
            .route("/v1/processes/{id}/proceed", post(proceed))
            .route("/v1/processes/{id}/abort", post(abort))
            .route("/v1/creations/{id}/cancel", post(files::cancel_start));
        let others = Router::new()
            .route("/v1/processes", get(processes).post(run))
            .route("/v1/programs", post(exec))
            .route("/v1/flows", post(flows::start))
            .route("/v1/processes/{id}/flow", get(flows::status))
            .route("/v1/processes/{id}/node", post(flows::resume_node))
            .route("/v1/processes/{id}", get(process))
            .route("/v1/processes/{id}/resume", post(resume))
            .route("/v1/processes/{id}/signals", get(signal_mask).post(set_signal_mask))
            .route("/v1/processes/{id}/input", post(input))
            .route("/v1/processes/{id}/rename", post(rename))
            .route("/v1/processes/{id}/remove", post(remove))
            .route("/v1/processes/{id}/lineage", get(lineage))
            .route("/v1/processes/{id}/diff", get(files::diff))
            .route("/v1/processes/{id}/rewind", post(files::rewind))
            .route("/v1/processes/{id}/restore", post(files::restore))
            .route("/v1/processes/{id}/merge", post(files::merge))
            .route("/v1/blame", post(files::blame))
            .route("/v1/workspaces", get(files::workspaces))
            .route("/v1/workspaces/remove", post(files::remove_workspace))
            .route("/v1/resumable", get(resumable))
            .route("/v1/inbox", get(inbox::list))
            .route("/v1/usage", get(usage))
            .route("/v1/pool", get(agent_pool))
            .route("/v1/self", get(myself::info))
            .route("/v1/handles", get(handles::list).post(handles::grant))
            .route("/v1/handles/release", post(handles::release))
            .route("/v1/gc", post(gc));
        let streams = Router::new()
            .route("/v1/stream", get(inbox::stream))
            .route("/v1/self/end", post(myself::end))
            .route("/v1/processes/{id}/wait", post(wait))
            .route("/v1/processes/{id}/journal", get(streams::journal))
            .route("/v1/processes/{id}/events", get(streams::events));
        let of_class = |class: Class, routes: Router<Self>| {
            // The wait for a place counts.
            let routes = routes.route_layer(middleware::from_fn(expiry::in_time));
            routes.route_layer(middleware::from_fn_with_state((traffic.clone(), class), traffic::admit))
        };
        of_class(Class::Control, control)
            .merge(of_class(Class::Others, others))
            .merge(of_class(Class::Streams, streams))
            .fallback(nothing_here)
            .method_not_allowed_fallback(nothing_here)
            .layer(DefaultBodyLimit::max(BODY_MAX))
            .layer(middleware::from_fn_with_state(DataDirectory::new(&self.about), data_directory::is_ours))
            .layer(middleware::from_fn_with_state(traffic, traffic::whole))
            .with_state(self)
    }
}

/// Serves the connections to the sockets of processes, as long as there are any.
pub(crate) fn serve_processes(runtime: &Runtime, connections: &Connections, identities: &Identities, router: &Router) {
    let Some(mut accepted) = runtime.self_connections() else { return };
    let (connections, identities, router) = (connections.clone(), identities.clone(), router.clone());
    let uid = rustix::process::getuid().as_raw();
    tokio::spawn(async move {
        while let Some(SelfConnection { uuid, stream }) = accepted.recv().await {
            if stream.peer_cred().is_ok_and(|peer| peer.uid() == uid) {
                let identities = identities.clone();
                connections.serve(stream, move |stream| identities.caller_of(uuid, stream), router.clone(), None);
            }
        }
    });
}

async fn nothing_here(request: Request) -> HttpError {
    HttpError::new(ErrorCode::NotFound, format!("there is nothing at {} {}", request.method(), request.uri().path()))
}

/// A JSON body, or none for the default; what is wrong with it is said.
struct OptionalJson<T>(T);

impl<T: DeserializeOwned + Default> FromRequest<Server> for OptionalJson<T> {
    type Rejection = HttpError;

    async fn from_request(request: Request, state: &Server) -> Result<Self, HttpError> {
        let bytes = axum::body::Bytes::from_request(request, state).await.map_err(too_large)?;
        if bytes.is_empty() { Ok(Self(T::default())) } else { parse(&bytes).map(Self) }
    }
}

/// A JSON body that has to be there.
struct RequiredJson<T>(T);

impl<T: DeserializeOwned> FromRequest<Server> for RequiredJson<T> {
    type Rejection = HttpError;

    async fn from_request(request: Request, state: &Server) -> Result<Self, HttpError> {
        let bytes = axum::body::Bytes::from_request(request, state).await.map_err(too_large)?;
        parse(&bytes).map(Self)
    }
}

/// The id in the path; what is wrong with it is said.
struct Id(String);

impl FromRequestParts<Server> for Id {
    type Rejection = HttpError;

    async fn from_request_parts(parts: &mut Parts, server: &Server) -> Result<Self, HttpError> {
        let invalid =
            |error: PathRejection| HttpError::new(ErrorCode::Invalid, format!("the id: {}", error.body_text()));
        Path::from_request_parts(parts, server).await.map(|Path(id)| Self(id)).map_err(invalid)
    }
}

/// The query; what is wrong with it is said.
struct Params<T>(T);

impl<T: DeserializeOwned> FromRequestParts<Server> for Params<T> {
    type Rejection = HttpError;

    async fn from_request_parts(parts: &mut Parts, server: &Server) -> Result<Self, HttpError> {
        let invalid = |error: QueryRejection| {
            HttpError::new(ErrorCode::Invalid, format!("the query: {}", plain(&error.body_text())))
        };
        Query::from_request_parts(parts, server).await.map(|Query(query)| Self(query)).map_err(invalid)
    }
}

fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Answer<T> {
    let invalid = |error: serde_json::Error| {
        HttpError::new(ErrorCode::Invalid, format!("the body: {}", plain(&error.to_string())))
    };
    serde_json::from_slice(bytes).map_err(invalid)
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

type ServerState = State<Server>;
type JsonAnswer<T> = Answer<Json<T>>;

async fn status(State(server): ServerState, CallerAccess(access): CallerAccess) -> JsonAnswer<DaemonStatus> {
    access.status(&server.about).await.map(Json).map_err(Into::into)
}

async fn stop(
    State(server): ServerState,
    asked: CallerAccess,
    Params(query): Params<StopQuery>,
) -> JsonAnswer<Stopping> {
    asked.stop(&server, query).map(Json).map_err(Into::into)
}

async fn processes(CallerAccess(access): CallerAccess, Params(query): Params<ListQuery>) -> Answer<Response> {
    if query.limit.is_some() {
        return Ok(Json(access.page(query).await?).into_response());
    }
    list::whole(query, move |query| {
        let access = access.clone();
        async move { access.page(query).await.map(|page| (page.processes, page.next)) }
    })
    .await
}

/// The query of a request to run.
#[derive(Debug, serde::Deserialize)]
struct RunQuery {
    /// Whether the client watches the process.
    #[serde(default)]
    attended: bool,
}

async fn run(
    CallerAccess(access): CallerAccess,
    Params(query): Params<RunQuery>,
    RequiredJson(request): RequiredJson<RunRequest>,
) -> JsonAnswer<Created> {
    let created = if query.attended { access.run_attended(request).await } else { access.run(request).await };
    created.map(Json).map_err(Into::into)
}

async fn exec(
    CallerAccess(access): CallerAccess,
    RequiredJson(request): RequiredJson<ExecRequest>,
) -> JsonAnswer<ExecStarted> {
    access.exec(request).await.map(Json).map_err(Into::into)
}

async fn proceed(
    CallerAccess(access): CallerAccess,
    Id(id): Id,
    OptionalJson(request): OptionalJson<GateRequest>,
) -> JsonAnswer<Affected> {
    access.proceed(&id, request).await.map(Json).map_err(Into::into)
}

async fn abort(
    CallerAccess(access): CallerAccess,
    Id(id): Id,
    OptionalJson(request): OptionalJson<GateRequest>,
) -> JsonAnswer<Affected> {
    access.abort(&id, request).await.map(Json).map_err(Into::into)
}

async fn process(CallerAccess(access): CallerAccess, Id(id): Id) -> JsonAnswer<Process> {
    access.info(&id).await.map(Json).map_err(Into::into)
}

async fn wait(
    State(server): ServerState,
    CallerAccess(access): CallerAccess,
    Id(id): Id,
    OptionalJson(request): OptionalJson<WaitRequest>,
) -> JsonAnswer<WaitAnswer> {
    let mut stop = server.stopping();
    tokio::select! {
        answer = access.wait(&id, request.timeout_ms.map(Duration::from_millis)) => answer.map(Json).map_err(Into::into),
        // The daemon goes, and does not wait for those who wait.
        _ = stop.wait_for(|stopping| *stopping) => Err(traffic::stopping()),
    }
}

async fn pause(
    CallerAccess(access): CallerAccess,
    Id(id): Id,
    RequestId(request_id): RequestId,
    OptionalJson(request): OptionalJson<PauseRequest>,
) -> JsonAnswer<Affected> {
    access.pause(&id, request, request_id).await.map(Json).map_err(Into::into)
}

async fn resume(
    CallerAccess(access): CallerAccess,
    Id(id): Id,
    RequestId(request_id): RequestId,
    OptionalJson(request): OptionalJson<ResumeRequest>,
) -> JsonAnswer<Resumed> {
    access.resume(&id, request, request_id).await.map(Json).map_err(Into::into)
}

async fn signal(
    CallerAccess(access): CallerAccess,
    Id(id): Id,
    RequestId(request_id): RequestId,
    RequiredJson(request): RequiredJson<SignalRequest>,
) -> JsonAnswer<Affected> {
    access.signal(&id, request, request_id).await.map(Json).map_err(Into::into)
}

async fn signal_mask(CallerAccess(access): CallerAccess, Id(id): Id) -> JsonAnswer<SignalState> {
    access.signal_mask(&id).await.map(Json).map_err(Into::into)
}

async fn set_signal_mask(
    CallerAccess(access): CallerAccess,
    Id(id): Id,
    RequestId(request_id): RequestId,
    OptionalJson(request): OptionalJson<SignalMaskRequest>,
) -> JsonAnswer<SignalState> {
    access.set_signal_mask(&id, request, request_id).await.map(Json).map_err(Into::into)
}

async fn input(
    CallerAccess(access): CallerAccess,
    Id(id): Id,
    RequiredJson(request): RequiredJson<InputRequest>,
) -> JsonAnswer<Accepted> {
    access.send(&id, request).await.map(Json).map_err(Into::into)
}

async fn resolve(
    CallerAccess(access): CallerAccess,
    Id(id): Id,
    RequestId(request_id): RequestId,
    RequiredJson(request): RequiredJson<ResolveRequest>,
) -> JsonAnswer<Affected> {
    access.answer(&id, request, request_id).await.map(Json).map_err(Into::into)
}

async fn lineage(CallerAccess(access): CallerAccess, Id(id): Id) -> JsonAnswer<Lineage> {
    access.lineage(&id).await.map(Json).map_err(Into::into)
}

async fn resumable(CallerAccess(access): CallerAccess, Params(query): Params<ListQuery>) -> Answer<Response> {
    if query.limit.is_some() {
        return Ok(Json(access.resumable(query).await?).into_response());
    }
    list::whole(query, move |query| {
        let access = access.clone();
        async move { access.resumable(query).await.map(|page| (page.processes, page.next)) }
    })
    .await
}

async fn rename(
    CallerAccess(access): CallerAccess,
    Id(id): Id,
    RequestId(request_id): RequestId,
    RequiredJson(request): RequiredJson<RenameRequest>,
) -> JsonAnswer<Affected> {
    access.rename(&id, request, request_id).await.map(Json).map_err(Into::into)
}

async fn remove(CallerAccess(access): CallerAccess, Id(id): Id) -> JsonAnswer<Removed> {
    access.remove(&id).await.map(Json).map_err(Into::into)
}

async fn agent_pool(CallerAccess(access): CallerAccess) -> JsonAnswer<PoolReport> {
    access.agent_pool().await.map(Json).map_err(Into::into)
}

async fn usage(CallerAccess(access): CallerAccess, Params(query): Params<UsageQuery>) -> JsonAnswer<UsageReport> {
    access.usage(query).await.map(Json).map_err(Into::into)
}

async fn gc(
    CallerAccess(access): CallerAccess,
    RequiredJson(request): RequiredJson<GcRequest>,
) -> JsonAnswer<GcAnswer> {
    access.gc(request).await.map(Json).map_err(Into::into)
}
