//! What the table has to know of a process, from what its journal says.

use relive_core::{ErrorCode, Generation, Limits, Pid, Spec, Uuid};
use relive_journal::{DataDirectory, History, ProcessMeta};

use crate::error::{Error, Result};

/// Returns the table's description of a process.
pub(crate) fn from_history(history: &History, pid: Pid, parent: Pid, model: Option<String>) -> Result<Spec> {
    let Some(identity) = &history.identity else {
        return Err(Error::new(ErrorCode::Internal, "the journal does not say what it is"));
    };
    let spawned = &identity.spawned;
    let unknown = || Error::new(ErrorCode::Internal, format!("it runs `{}`, which is not known here", spawned.body));
    let body = body_of(&spawned.body).ok_or_else(unknown)?;
    Ok(Spec {
        pid,
        uuid: spawned.uuid,
        generation: history.epoch,
        parent,
        parent_uuid: spawned.parent_uuid,
        origin: spawned.origin,
        body,
        name: spawned.name.clone(),
        intent: spawned.intent.head(200).to_owned(),
        cwd: spawned.cwd.clone(),
        model,
        limits: history.limits,
        usage: crate::drive::usage(history),
        created_at: identity.created_at,
        stopwatch: history.stopwatch(),
    })
}

/// Returns what a journal says a process runs; nothing where only a later Relive knows it.
pub(crate) fn body_of(word: &str) -> Option<relive_core::Body> {
    serde_json::from_value(serde_json::Value::String(word.to_owned())).ok()
}

/// The same process in its next incarnation, which has not been recorded yet.
pub(crate) fn next_generation(spec: Spec) -> Spec {
    Spec { generation: Generation(spec.generation.0 + 1), ..spec }
}

/// Returns the limits with those that were named replaced.
pub(crate) fn raised(limits: Limits, named: Limits) -> Limits {
    Limits {
        max_steps: named.max_steps.or(limits.max_steps),
        max_tokens: named.max_tokens.or(limits.max_tokens),
        max_cost_usd: named.max_cost_usd.or(limits.max_cost_usd),
        timeout_ms: named.timeout_ms.or(limits.timeout_ms),
    }
}

pub(crate) fn model_of(data: &DataDirectory, uuid: Uuid) -> Option<String> {
    ProcessMeta::read(&data.directory(uuid)).ok().map(|meta| meta.model)
}
