//! What is known of the CLI agents that run, for `ps` and `info`.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use relive_cli_agent::{Activity, Answer, ApprovalRequest, Dialect, Encoder, Lifecycle, RawJson, Waiting};
use relive_core::{Timestamp, Uuid};
use serde_json::{Value, json};

use super::subagents::Subagents;

/// The state of the CLI agents that run.
#[derive(Debug, Clone, Default)]
pub(crate) struct LiveAgents {
    by_uuid: Arc<Mutex<HashMap<Uuid, LiveAgent>>>,
}

/// The state of one CLI agent.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct LiveAgent {
    pub(crate) name: String,
    pub(crate) dialect: Dialect,
    pub(crate) lifecycle: Lifecycle,
    pub(crate) activity: Activity,
    pub(crate) last_active: Timestamp,
    pub(crate) idle_kill_at: Option<Timestamp>,
    pub(crate) session_id: Option<String>,
    pub(crate) waiting: Option<Waiting>,
    /// Since when it waits in a dialog of its own.
    pub(crate) dialog_since: Option<Timestamp>,
    /// The tool that runs, and since when.
    pub(crate) tool: Option<(String, Timestamp)>,
    pub(crate) subagents: Subagents,
    /// Since when it has a turn.
    pub(crate) turn_since: Option<Timestamp>,
    /// The request for permission that a person is asked about.
    pub(crate) asked: Option<Asked>,
    /// What a person should know about a wait: a retry, a quota.
    pub(crate) note: Option<String>,
    /// What its model calls do, if they go through the gateway.
    pub(crate) gateway: Option<LiveGateway>,
    /// Whether it has its own full-screen interface, which is not read.
    pub(crate) in_terminal: bool,
    /// Whether it reports what it does there. Otherwise all that is known of it are its model calls.
    pub(crate) reports: bool,
}

/// The field `agent` of a process, whether it runs, waits for a place or has ended.
#[derive(Debug)]
pub(crate) struct ShownAgent<'a> {
    pub(crate) name: &'a str,
    pub(crate) dialect: &'a str,
    pub(crate) lifecycle: Lifecycle,
    pub(crate) activity: Activity,
    pub(crate) last_active: Option<Timestamp>,
    pub(crate) idle_kill_at: Option<Timestamp>,
    pub(crate) session_id: Option<&'a str>,
    /// `counted` or `claimed`; absent before the first run.
    pub(crate) usage: Option<&'a str>,
    pub(crate) gateway: Option<LiveGateway>,
    pub(crate) in_terminal: bool,
    /// What it waits for, of a person.
    pub(crate) waiting: Option<Waiting>,
    pub(crate) dialog: Option<Dialog<'a>>,
    pub(crate) subagents: &'a Subagents,
    pub(crate) queued: Option<Value>,
}

impl ShownAgent<'_> {
    pub(crate) fn to_json(&self) -> Value {
        json!({
            "name": self.name,
            "dialect": self.dialect,
            "lifecycle": self.lifecycle,
            "activity": self.activity,
            "last_active": self.last_active.map(|at| at.to_string()),
            "idle_kill_at": self.idle_kill_at.map(|at| at.to_string()),
            "session_id": self.session_id,
            "usage": self.usage,
            "gateway": self.gateway.map(LiveGateway::to_json),
            "terminal": self.in_terminal,
            "waiting": self.waiting,
            "dialog": self.dialog.as_ref().map(Dialog::to_json),
            "subagents": self.subagents.to_json(),
            "queued": self.queued,
        })
    }
}

/// A dialog in the terminal of an agent that waits for a person.
#[derive(Debug)]
pub(crate) struct Dialog<'a> {
    since: Timestamp,
    /// The tool that it asks about.
    tool: Option<&'a str>,
}

impl Dialog<'_> {
    fn to_json(&self) -> Value {
        json!({"since": self.since.to_string(), "tool": self.tool})
    }
}

/// The model calls of a CLI agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LiveGateway {
    /// Those that are over.
    pub(crate) calls: u64,
    pub(crate) in_flight: u32,
    /// Those that wait, because the process is paused or the provider takes none.
    pub(crate) held: u32,
    /// When the provider takes calls again.
    pub(crate) limited_until: Option<Timestamp>,
}

impl LiveGateway {
    fn to_json(self) -> Value {
        json!({
            "calls": self.calls,
            "in_flight": self.in_flight,
            "held": self.held,
            "limited_until": self.limited_until.map(|at| at.to_string()),
        })
    }
}

/// A request for permission, for people.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Asked {
    pub(crate) tool: String,
    pub(crate) args: Value,
    pub(crate) offered: Offered,
}

/// The answers to a request that an agent takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Offered {
    pub(crate) allow: bool,
    pub(crate) allow_always: bool,
    pub(crate) deny: bool,
}

impl Offered {
    pub(super) const ALL: Self = Self { allow: true, allow_always: true, deny: true };

    pub(super) fn of(request: &ApprovalRequest, encoder: &Encoder) -> Self {
        Self {
            allow: encoder.offers(request, &Answer::Allow),
            allow_always: encoder.offers(request, &Answer::AllowAlways),
            deny: encoder.offers(request, &Answer::Deny { reason: None }),
        }
    }
}

impl Asked {
    pub(super) fn of(request: &ApprovalRequest, offered: Offered) -> Self {
        let args = request.input.as_ref().map_or("{}", RawJson::as_str);
        let args = serde_json::from_str(args).unwrap_or_default();
        Self { tool: request.tool.clone(), args, offered }
    }
}

impl LiveAgents {
    fn lock(&self) -> MutexGuard<'_, HashMap<Uuid, LiveAgent>> {
        self.by_uuid.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn get(&self, uuid: Uuid) -> Option<LiveAgent> {
        self.lock().get(&uuid).cloned()
    }

    /// Tells whether an agent waits for a person in a dialog of its own.
    pub(crate) fn has_dialog(&self, uuid: Uuid) -> bool {
        self.lock().get(&uuid).is_some_and(|agent| agent.dialog_since.is_some())
    }

    /// Returns the agent that has a subagent with this id.
    pub(crate) fn with_subagent(&self, id: &str) -> Option<Uuid> {
        self.lock().iter().find(|(_, agent)| agent.subagents.contains(id)).map(|(uuid, _)| *uuid)
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
        let shown = ShownAgent {
            name: &self.name,
            dialect: self.dialect.name(),
            lifecycle: self.lifecycle,
            activity: self.activity,
            last_active: Some(self.last_active),
            idle_kill_at: self.idle_kill_at,
            session_id: self.session_id.as_deref(),
            usage: Some(if self.gateway.is_some() { "counted" } else { "claimed" }),
            gateway: self.gateway,
            in_terminal: self.in_terminal,
            waiting: self.waiting,
            dialog: self.dialog_since.map(|since| {
                let tool = self.asked.as_ref().map(|asked| asked.tool.as_str());
                Dialog { since, tool }
            }),
            subagents: &self.subagents,
            queued: None,
        };
        shown.to_json()
    }
}
