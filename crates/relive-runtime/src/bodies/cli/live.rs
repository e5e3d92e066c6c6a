//! What is known of the CLI agents that run, for `ps` and `info`.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use relive_cli_agent::{Activity, ApprovalRequest, Dialect, Lifecycle, RawJson, Waiting};
use relive_core::{Timestamp, Uuid};
use serde_json::{Value, json};

/// The state of the CLI agents that run.
#[derive(Debug, Clone, Default)]
pub(crate) struct LiveAgents {
    by_uuid: Arc<Mutex<HashMap<Uuid, LiveAgent>>>,
}

/// The state of one CLI agent.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct LiveAgent {
    pub(crate) dialect: Dialect,
    pub(crate) lifecycle: Lifecycle,
    pub(crate) activity: Activity,
    pub(crate) last_active: Timestamp,
    pub(crate) idle_kill_at: Option<Timestamp>,
    pub(crate) session_id: Option<String>,
    pub(crate) waiting: Option<Waiting>,
    /// The tool that runs, and since when.
    pub(crate) tool: Option<(String, Timestamp)>,
    /// Since when it has a turn.
    pub(crate) turn_since: Option<Timestamp>,
    /// The request for permission that a person is asked about.
    pub(crate) asked: Option<Asked>,
    /// What a person should know about a wait: a retry, a quota.
    pub(crate) note: Option<String>,
}

/// A request for permission, for people.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Asked {
    pub(crate) tool: String,
    pub(crate) args: Value,
}

impl Asked {
    pub(super) fn of(request: &ApprovalRequest) -> Self {
        let args = request.input.as_ref().map_or("{}", RawJson::as_str);
        Self { tool: request.tool.clone(), args: serde_json::from_str(args).unwrap_or_default() }
    }
}

impl LiveAgents {
    fn lock(&self) -> MutexGuard<'_, HashMap<Uuid, LiveAgent>> {
        self.by_uuid.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn get(&self, uuid: Uuid) -> Option<LiveAgent> {
        self.lock().get(&uuid).cloned()
    }

    /// Publishes the state of an agent; `true` if it is another one.
    pub(super) fn put(&self, uuid: Uuid, agent: LiveAgent) -> bool {
        let before = self.lock().insert(uuid, agent.clone());
        before != Some(agent)
    }

    pub(super) fn remove(&self, uuid: Uuid) {
        self.lock().remove(&uuid);
    }
}

impl LiveAgent {
    /// Returns the field `agent` of a process.
    pub(crate) fn to_json(&self) -> Value {
        json!({
            "dialect": self.dialect,
            "lifecycle": self.lifecycle,
            "activity": self.activity,
            "last_active": self.last_active.to_string(),
            "idle_kill_at": self.idle_kill_at.map(|at| at.to_string()),
            "session_id": self.session_id,
        })
    }
}
