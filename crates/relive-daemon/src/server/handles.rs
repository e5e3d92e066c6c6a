//! Handles: given, listed, released.

use axum::Json;
use relive_api::{GrantRequest, Handle, HandleList, ReleaseRequest};

use super::{Asked, JsonAnswer, RequestId, RequiredJson};

pub(super) async fn list(Asked(access): Asked) -> JsonAnswer<HandleList> {
    access.handles().await.map(Json).map_err(Into::into)
}

pub(super) async fn grant(
    Asked(access): Asked,
    RequestId(request_id): RequestId,
    RequiredJson(request): RequiredJson<GrantRequest>,
) -> JsonAnswer<Handle> {
    access.grant(request, request_id).await.map(Json).map_err(Into::into)
}

pub(super) async fn release(
    Asked(access): Asked,
    RequestId(request_id): RequestId,
    RequiredJson(request): RequiredJson<ReleaseRequest>,
) -> JsonAnswer<HandleList> {
    access.release(request, request_id).await.map(Json).map_err(Into::into)
}
