//! Handles: given, listed, released.

use axum::Json;
use relive_api::{GrantRequest, Handle, HandleList, ReleaseRequest};

use super::{CallerAccess, JsonAnswer, RequestId, RequiredJson};

pub(super) async fn list(CallerAccess(access): CallerAccess) -> JsonAnswer<HandleList> {
    access.handles().await.map(Json).map_err(Into::into)
}

pub(super) async fn grant(
    CallerAccess(access): CallerAccess,
    RequestId(request_id): RequestId,
    RequiredJson(request): RequiredJson<GrantRequest>,
) -> JsonAnswer<Handle> {
    access.grant(request, request_id).await.map(Json).map_err(Into::into)
}

pub(super) async fn release(
    CallerAccess(access): CallerAccess,
    RequestId(request_id): RequestId,
    RequiredJson(request): RequiredJson<ReleaseRequest>,
) -> JsonAnswer<HandleList> {
    access.release(request, request_id).await.map(Json).map_err(Into::into)
}
