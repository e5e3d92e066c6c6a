//! Requests about the files that processes work on.

use axum::Json;
use relive_api::{
    Blame, BlameRequest, DiffQuery, FilesChanged, FilesDiff, MergeRequest, OwnWorkspace, OwnWorkspaces,
    RemoveWorkspaceRequest, RestoreRequest, RewindRequest, Rewound,
};

use super::{Asked, Id, JsonAnswer, OptionalJson, Params, RequestId, RequiredJson};

pub(super) async fn diff(Asked(access): Asked, Id(id): Id, Params(query): Params<DiffQuery>) -> JsonAnswer<FilesDiff> {
    access.diff(&id, query).await.map(Json).map_err(Into::into)
}

pub(super) async fn rewind(
    Asked(access): Asked,
    Id(id): Id,
    RequestId(request_id): RequestId,
    RequiredJson(request): RequiredJson<RewindRequest>,
) -> JsonAnswer<Rewound> {
    access.rewind(&id, request, request_id).await.map(Json).map_err(Into::into)
}

pub(super) async fn restore(
    Asked(access): Asked,
    Id(id): Id,
    RequestId(request_id): RequestId,
    RequiredJson(request): RequiredJson<RestoreRequest>,
) -> JsonAnswer<FilesChanged> {
    access.restore(&id, request, request_id).await.map(Json).map_err(Into::into)
}

pub(super) async fn merge(
    Asked(access): Asked,
    Id(id): Id,
    RequestId(request_id): RequestId,
    OptionalJson(request): OptionalJson<MergeRequest>,
) -> JsonAnswer<FilesChanged> {
    access.merge(&id, request, request_id).await.map(Json).map_err(Into::into)
}

pub(super) async fn blame(
    Asked(access): Asked,
    RequiredJson(request): RequiredJson<BlameRequest>,
) -> JsonAnswer<Blame> {
    access.blame(request).await.map(Json).map_err(Into::into)
}

pub(super) async fn workspaces(Asked(access): Asked) -> JsonAnswer<OwnWorkspaces> {
    access.own_workspaces().await.map(Json).map_err(Into::into)
}

pub(super) async fn remove_workspace(
    Asked(access): Asked,
    RequiredJson(request): RequiredJson<RemoveWorkspaceRequest>,
) -> JsonAnswer<OwnWorkspace> {
    access.remove_workspace(request).await.map(Json).map_err(Into::into)
}
