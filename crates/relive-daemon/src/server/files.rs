//! Requests about the files that processes work on.

use axum::Json;
use relive_api::{
    Blame, BlameRequest, DiffQuery, FilesChanged, FilesDiff, MergeRequest, OwnWorkspace, OwnWorkspaces,
    RemoveWorkspaceRequest, RestoreRequest, RewindRequest, Rewound,
};

use super::{CallerAccess, Id, JsonAnswer, OptionalJson, Params, RequestId, RequiredJson};

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

pub(super) async fn workspaces(CallerAccess(access): CallerAccess) -> JsonAnswer<OwnWorkspaces> {
    access.own_workspaces().await.map(Json).map_err(Into::into)
}

pub(super) async fn remove_workspace(
    CallerAccess(access): CallerAccess,
    RequiredJson(request): RequiredJson<RemoveWorkspaceRequest>,
) -> JsonAnswer<OwnWorkspace> {
    access.remove_workspace(request).await.map(Json).map_err(Into::into)
}
