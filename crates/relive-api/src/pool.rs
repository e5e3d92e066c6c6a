//! The pool of CLI agents.

use relive_types::{Pid, Timestamp, Uuid};
use serde::{Deserialize, Serialize};

/// The answer to `pool --json`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct PoolReport {
    pub limits: PoolLimits,
    /// The number of agents with a running program.
    pub running: u32,
    pub queued: u32,
    /// The memory that their programs use together.
    pub memory_mb: u64,
    /// The agents: first the running ones, then the queue in its order.
    pub agents: Vec<PooledAgent>,
}

/// The limits of `pool:` in config.yaml; null where there is none.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct PoolLimits {
    pub max_running: Option<u64>,
    pub max_memory_mb: Option<u64>,
    pub idle_timeout_ms: Option<u64>,
}

/// A CLI agent that has not ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PooledAgent {
    pub pid: Pid,
    pub uuid: Uuid,
    pub short: String,
    pub name: Option<String>,
    /// `queued`, or what `ps` shows, with `idle` and `working` for `running`.
    pub state: String,
    /// The place of one that waits, from 1.
    pub place: Option<u64>,
    /// Since when it waits.
    pub queued_since: Option<Timestamp>,
    /// When an idle one is ended.
    pub idle_kill_at: Option<Timestamp>,
    pub memory_mb: Option<u64>,
    pub doing: Option<String>,
    pub intent: String,
}
