//! Derives the table's description of a process from its journal.

use relive_core::{ErrorCode, Generation, Limits, Pid, Spec, Uuid};
use relive_journal::{DataDirectory, History, INTENT_MAX, ProcessMeta};

use crate::bodies::provider_of;
use crate::error::{Error, Result};

/// Returns the table's description of a process.
pub(crate) fn from_history(history: &History, pid: Pid, parent: Pid, model: Option<String>) -> Result<Spec> {
    let Some(identity) = &history.identity else {
        return Err(Error::new(ErrorCode::Internal, "the journal does not describe a process"));
    };
    let spawned = &identity.spawned;
    let unknown =
        || Error::new(ErrorCode::Internal, format!("it runs `{}`, which is not known to this version", spawned.body));
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
        intent: spawned.intent.head(INTENT_MAX).to_owned(),
        intent_cut: spawned.intent.is_longer_than(INTENT_MAX),
        cwd: spawned.cwd.clone(),
        model,
        limits: history.limits,
        usage: crate::drive::usage(history),
        created_at: identity.created_at,
        stopwatch: history.stopwatch(),
    })
}

/// Returns the body in a journal; `None` if only a later Relive knows it.
pub(crate) fn body_of(word: &str) -> Option<relive_core::Body> {
    serde_json::from_value(serde_json::Value::String(word.to_owned())).ok()
}

/// Returns the same process in its next incarnation, which is not recorded yet.
pub(crate) fn next_generation(spec: Spec) -> Spec {
    Spec { generation: Generation(spec.generation.0 + 1), ..spec }
}

/// Returns the limits, with the named ones replaced.
pub(crate) fn raised(limits: Limits, named: Limits) -> Limits {
    Limits {
        max_steps: named.max_steps.or(limits.max_steps),
        max_tokens: named.max_tokens.or(limits.max_tokens),
        max_cost_usd: named.max_cost_usd.or(limits.max_cost_usd),
        timeout_ms: named.timeout_ms.or(limits.timeout_ms),
    }
}

/// Returns the model that a process itself needs a key for. A CLI agent has its own.
pub(crate) fn keyed_model_of(data: &DataDirectory, uuid: Uuid, history: &History) -> Option<String> {
    if history.cli.is_some() { None } else { model_of(data, uuid, history) }
}

/// Returns the model of a process: the one it was given last, else the one it was started with.
pub(crate) fn model_of(data: &DataDirectory, uuid: Uuid, history: &History) -> Option<String> {
    let first = || ProcessMeta::read(&data.directory(uuid)).ok().map(|meta| meta.model);
    let of_cli = cli_model(history);
    if of_cli.is_some() {
        return of_cli;
    }
    history.last_model().map(str::to_owned).or_else(first)
}

/// Returns the model of a CLI agent: the one that it says it uses, else the one that it was started with.
pub(crate) fn cli_model(history: &History) -> Option<String> {
    let cli = history.cli.as_ref()?;
    let model = cli.model.as_ref().or(cli.agent.model.as_ref())?;
    Some(format!("{}/{model}", provider_of(&cli.agent)))
}
