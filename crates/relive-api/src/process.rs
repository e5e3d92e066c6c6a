//! A process as every client sees it.

use relive_core::{Body, State};
use relive_types::{
    Generation, Isolation, Network, Pid, ProcessStatus, Signal, SuspendReason, Timestamp, Usd, Uuid, Why,
};
use serde::{Deserialize, Serialize};

use crate::program::Session;

/// The fields other programs may rely on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Process {
    pub pid: Pid,
    pub ppid: Pid,
    pub uuid: Uuid,
    /// The last digits of the UUID, as people read and type them.
    #[serde(default)]
    pub short: String,
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
    /// What it does now, in a line for a person; only while it lives.
    #[serde(default)]
    pub doing: Option<String>,
    pub suspend_reason: Option<SuspendReason>,
    /// When it continues by itself, if it does.
    pub resume_at: Option<Timestamp>,
    pub ending: Option<Signal>,
    pub status: Option<ProcessStatus>,
    pub why: Option<Why>,
    pub killed_by: Option<Pid>,
    pub killed_from: Option<Pid>,
    pub exit: Option<Exit>,
    /// The exit code that `wait` gives, once it ended: 128+n for a program that signal n ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<u8>,
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
    /// Since when it has stalled, while it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stalled_at: Option<Timestamp>,
    pub created_at: Timestamp,
    pub started_at: Option<Timestamp>,
    pub dead_at: Option<Timestamp>,
    pub elapsed_ms: u64,
    pub session: Option<Session>,
    /// What the commands of an agent may reach; only `info` says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub isolation: Option<Isolation>,
    /// What they reach of the network, if that was chosen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<Network>,
    /// The files it works on, where they are known; only `info` says.
    #[serde(default)]
    pub workspace: Option<crate::Workspace>,
    /// The state of a CLI agent: `dialect`, `lifecycle`, `activity`, `last_active`, `idle_kill_at` and `session_id`.
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
    /// The question that the agent asks a person; `info` only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub question: Option<PendingQuestion>,
    /// Whether it has ended, and nobody has seen it yet: it is in the inbox.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unseen: bool,
    /// The calls whose outcome a human is asked for; `info` only.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub in_doubt: Vec<PendingCall>,
    /// What it and all below it have used, where there is something below it; `info` only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tree: Option<TreeUsage>,
    /// Who ended it or is ending it, in words: `you (SIGINT)`, `PID 4 (lead)`; `info` only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_by: Option<String>,
    /// Who paused it, in words; `info` only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused_by: Option<String>,
    /// Whether somebody paused it while it waits, so that it is paused once it has its answer, or what else it waits for.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub pause_kept: bool,
    /// Who resumed it last, in words; `info` only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resumed_by: Option<String>,
    /// The suspended processes below it; `info` only.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub suspended: Vec<SuspendedBelow>,
    /// The signals that wait until it unblocks them, in their order of delivery; `info` only.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pending_signals: Vec<String>,
    /// The signals it blocks; `info` only.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub blocked_signals: Vec<String>,
    /// The signals it handles itself; `info` only.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub handled_signals: Vec<String>,
    /// That the PID which was asked for continues as another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// A suspended process below another one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SuspendedBelow {
    pub pid: Pid,
    /// Its name, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    pub reason: SuspendReason,
}

/// A file that was read into the instructions of an agent at its start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
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
    /// The index of the call in its step.
    pub call: u32,
    pub tool: String,
    /// The complete arguments.
    pub args: serde_json::Value,
    /// When it was begun, or when the question was asked.
    pub at: Timestamp,
    /// How Relive tried to find out what became of it, and what that says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub looked: Option<String>,
}

/// A question of an agent that waits for a person's answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PendingQuestion {
    /// Names the question, for the answer to it.
    pub id: u64,
    pub text: String,
    /// The answers that the agent proposes; any other is as good.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub choices: Vec<String>,
    /// When it was asked.
    pub at: Timestamp,
}

/// What a process and all below it have used, the ended too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TreeUsage {
    pub processes: usize,
    pub tokens_in: u64,
    pub tokens_out: u64,
    pub cost_usd: Option<Usd>,
}

/// The plain view of an end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exit {
    pub code: i32,
    pub reason: String,
    pub err: Option<String>,
}

/// The plain word for why something is suspended, as JSON has it.
#[must_use]
pub fn reason_word(reason: SuspendReason) -> &'static str {
    match reason {
        SuspendReason::User => "user",
        SuspendReason::BudgetExceeded => "budget_exceeded",
        SuspendReason::DiskFull => "disk_full",
        SuspendReason::IoError => "io_error",
        SuspendReason::CrashLoop => "crash_loop",
        SuspendReason::InDoubt => "in_doubt",
        SuspendReason::Approval => "approval",
        SuspendReason::Question => "question",
        SuspendReason::Quota => "quota",
        SuspendReason::NeedsCredentials => "needs_credentials",
        SuspendReason::DaemonStop => "daemon_stop",
        SuspendReason::Stalled => "stalled",
    }
}
