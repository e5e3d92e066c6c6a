//! What a program inside of a process asks about that process.

use axum::Json;
use axum::extract::State;
use relive_api::{EndSelfRequest, SelfInfo};

use super::{Asked, JsonAnswer, RequestId, RequiredJson, ServerState, traffic};

pub(super) async fn info(Asked(access): Asked) -> JsonAnswer<SelfInfo> {
    access.self_info().await.map(Json).map_err(Into::into)
}

/// Ends the process. There is no answer but a refusal: whoever asked ends with the process.
pub(super) async fn end(
    State(server): ServerState,
    Asked(access): Asked,
    RequestId(request_id): RequestId,
    RequiredJson(request): RequiredJson<EndSelfRequest>,
) -> JsonAnswer<()> {
    access.end_self(request, request_id).await?;
    let mut stop = server.stopping();
    let _ = stop.wait_for(|stopping| *stopping).await;
    Err(traffic::stopping())
}
