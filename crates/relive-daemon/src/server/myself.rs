//! What a program inside of a process asks about that process.

use axum::Json;
use axum::extract::State;
use relive_api::{Affected, EndSelfRequest, SelfInfo};
use relive_runtime::Caller;

use super::{CallerAccess, JsonAnswer, RequestId, RequiredJson, ServerState, traffic};

pub(super) async fn info(CallerAccess(access): CallerAccess) -> JsonAnswer<SelfInfo> {
    access.self_info().await.map(Json).map_err(Into::into)
}

/// Ends the process. A program inside of it gets no answer but a refusal: it ends with the process. The person who acts
/// as the process from outside does not, and is told.
pub(super) async fn end(
    State(server): ServerState,
    CallerAccess(access): CallerAccess,
    RequestId(request_id): RequestId,
    RequiredJson(request): RequiredJson<EndSelfRequest>,
) -> JsonAnswer<Affected> {
    let pid = access.end_self(request, request_id).await?;
    if matches!(access.caller(), Caller::Acting(_)) {
        return Ok(Json(Affected { affected: 1, pids: vec![pid], ..Affected::default() }));
    }
    let mut stop = server.stopping();
    let _ = stop.wait_for(|stopping| *stopping).await;
    Err(traffic::stopping())
}
