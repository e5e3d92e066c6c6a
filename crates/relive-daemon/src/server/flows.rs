//! Trees of processes.

use axum::Json;
use relive_api::{Created, FlowRequest, FlowStatus, NodeRequest, NodeResumed};

use super::{CallerAccess, Id, JsonAnswer, RequestId, RequiredJson};

pub(super) async fn start(
    CallerAccess(access): CallerAccess,
    RequiredJson(request): RequiredJson<FlowRequest>,
) -> JsonAnswer<Created> {
    access.start_flow(request).await.map(Json).map_err(Into::into)
}

pub(super) async fn status(CallerAccess(access): CallerAccess, Id(id): Id) -> JsonAnswer<FlowStatus> {
    access.flow_status(&id).await.map(Json).map_err(Into::into)
}

pub(super) async fn resume_node(
    CallerAccess(access): CallerAccess,
    Id(id): Id,
    RequestId(request_id): RequestId,
    RequiredJson(request): RequiredJson<NodeRequest>,
) -> JsonAnswer<NodeResumed> {
    access.resume_node(&id, request, request_id).await.map(Json).map_err(Into::into)
}
