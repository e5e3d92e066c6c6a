//! Requests about the files that processes work on.

use axum::Json;
use relive_api::{
    Blame, BlameRequest, DiffQuery, FilesChanged, FilesDiff, MergeRequest, OwnWorkspace, OwnWorkspaces,
    RemoveWorkspaceRequest, RestoreRequest, RewindRequest, Rewound, StartCancelled,
};
use relive_core::ErrorCode;

use super::{CallerAccess, Id, JsonAnswer, OptionalJson, Params, RequestId, RequiredJson};
use crate::error::HttpError;

pub(super) async fn diff(
    CallerAccess(access): CallerAccess,
    Id(id): Id,
    Params(query): Params<DiffQuery>,
) -> JsonAnswer<FilesDiff> {
    access.diff(&id, query).await.map(Json).map_err(Into::into)
}

pub(super) async fn rewind(
    CallerAccess(access): CallerAccess,
    Id(id): Id,
    RequestId(request_id): RequestId,
    RequiredJson(request): RequiredJson<RewindRequest>,
) -> JsonAnswer<Rewound> {
    access.rewind(&id, request, request_id).await.map(Json).map_err(Into::into)
}

pub(super) async fn restore(
    CallerAccess(access): CallerAccess,
    Id(id): Id,
    RequestId(request_id): RequestId,
    RequiredJson(request): RequiredJson<RestoreRequest>,
) -> JsonAnswer<FilesChanged> {
    access.restore(&id, request, request_id).await.map(Json).map_err(Into::into)
}

pub(super) async fn merge(
    CallerAccess(access): CallerAccess,
    Id(id): Id,
    RequestId(request_id): RequestId,
    OptionalJson(request): OptionalJson<MergeRequest>,
) -> JsonAnswer<FilesChanged> {
    access.merge(&id, request, request_id).await.map(Json).map_err(Into::into)
}

pub(super) async fn blame(
    CallerAccess(access): CallerAccess,
    RequiredJson(request): RequiredJson<BlameRequest>,
) -> JsonAnswer<Blame> {
    access.blame(request).await.map(Json).map_err(Into::into)
}

pub(super) async fn cancel_start(CallerAccess(access): CallerAccess, Id(id): Id) -> JsonAnswer<StartCancelled> {
    let uuid = id.parse().map_err(|_| HttpError::new(ErrorCode::Invalid, format!("`{id}` is not a UUID")))?;
    access.cancel_start(uuid).await.map(Json).map_err(Into::into)
}

pub(super) async fn workspaces(CallerAccess(access): CallerAccess) -> JsonAnswer<OwnWorkspaces> {
    access.own_workspaces().await.map(Json).map_err(Into::into)
}

pub(super) async fn remove_workspace(
    CallerAccess(access): CallerAccess,
    RequiredJson(request): RequiredJson<RemoveWorkspaceRequest>,
) -> JsonAnswer<OwnWorkspace> {
    access.remove_workspace(request).await.map(Json).map_err(Into::into)
}
