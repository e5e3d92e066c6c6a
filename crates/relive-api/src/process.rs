//! A process as every client sees it.

use relive_core::{Body, State};
use relive_types::{Generation, Pid, ProcessStatus, Signal, SuspendReason, Timestamp, Usd, Uuid, Why};
use serde::{Deserialize, Serialize};

use crate::program::Session;

/// The fields other programs may rely on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the published names, described in docs/interface.md")]
pub struct Process {
    pub pid: Pid,
    pub ppid: Pid,
    pub uuid: Uuid,
    pub parent_uuid: Option<Uuid>,
    pub origin_uuid: Option<Uuid>,
    pub origin_step: Option<u32>,
    pub generation: Generation,
    pub successor_pid: Option<Pid>,
    pub name: Option<String>,
    pub body: Body,
    pub intent: String,
    pub cwd: String,
    pub state: State,
    pub paused: bool,
    pub paused_at: Option<Timestamp>,
    pub display: String,
    pub suspend_reason: Option<SuspendReason>,
    /// When it continues by itself, if it does.
    pub resume_at: Option<Timestamp>,
    pub ending: Option<Signal>,
    pub status: Option<ProcessStatus>,
    pub why: Option<Why>,
    pub killed_by: Option<Pid>,
    pub killed_from: Option<Pid>,
    pub exit: Option<Exit>,
    pub step: u32,
    pub max_steps: Option<u32>,
    pub tokens_in: u64,
    pub tokens_out: u64,
    pub max_tokens: Option<u64>,
    pub cost_usd: Option<Usd>,
    pub model: Option<String>,
    pub suspended_below: u32,
    pub resumable: bool,
    pub stalled: bool,
    pub created_at: Timestamp,
    pub started_at: Option<Timestamp>,
    pub dead_at: Option<Timestamp>,
    pub elapsed_ms: u64,
    /// The session of a program.
    pub session: Option<Session>,
    /// The activity of a command line agent; none yet.
    pub agent: Option<serde_json::Value>,
    /// What it waits for, and the way out, where a person has to do something.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// Where its instructions come from; only in the answer about one process.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub instructions: Vec<Instructions>,
    /// The call that a human is asked about; `info` only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval: Option<PendingCall>,
    /// The calls whose outcome a human is asked for; `info` only.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub in_doubt: Vec<PendingCall>,
    /// What it and all below it have used, where there is something below it; `info` only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tree: Option<TreeUsage>,
    /// That the PID which was asked for continues as another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// A file that was read into the instructions of an agent at its start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "each name says it")]
pub struct Instructions {
    pub path: String,
    pub bytes: u64,
    /// Whether only its beginning was taken.
    #[serde(default)]
    pub cut: bool,
}

/// A call that waits for a human's word.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PendingCall {
    /// Names the question, for the answer to it.
    #[serde(default)]
    pub id: u64,
    /// Which of the step's calls.
    pub call: u32,
    /// The tool.
    pub tool: String,
    /// What for, whole.
    pub args: serde_json::Value,
    /// When it was begun, or when the question was asked.
    pub at: Timestamp,
    /// How Relive tried to find out what became of it, and what that says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub looked: Option<String>,
}

/// What a process and all below it have used, the ended too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "each name says it")]
pub struct TreeUsage {
    pub processes: usize,
    pub tokens_in: u64,
    pub tokens_out: u64,
    pub cost_usd: Option<Usd>,
}

/// The plain view of an end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "each name says it")]
pub struct Exit {
    pub code: i32,
    pub reason: String,
    pub err: Option<String>,
}
