//! A process as every client sees it.

use relive_core::{Body, State};
use relive_types::{
    Generation, Isolation, LimitKind, Network, Pid, ProcessStatus, Signal, SuspendReason, Timestamp, Usd, Uuid, Why,
};
use serde::{Deserialize, Serialize};

use crate::program::Session;

/// A process, as `ps --json` and `info --json` print it: other programs rely on these fields.
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
    /// In a list the first 200 bytes.
    pub intent: String,
    /// Whether the intent is longer.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub intent_cut: bool,
    pub cwd: String,
    pub state: State,
    pub paused: bool,
    pub paused_at: Option<Timestamp>,
    pub display: String,
    /// Its current activity in one line, while it has not ended.
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
    /// The limit of the time that it may run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    pub tokens_in: u64,
    pub tokens_out: u64,
    /// Whether some of the tokens, and so of the cost, are an estimate, because the provider did not report them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub estimated: bool,
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
    /// The isolation of an agent's commands; `info` only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub isolation: Option<Isolation>,
    /// The network policy of an agent's commands, if one was chosen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<Network>,
    /// The files it works on, if they are known; `info` only.
    #[serde(default)]
    pub workspace: Option<crate::Workspace>,
    /// The state of a CLI agent: `dialect`, `lifecycle`, `activity`, `last_active`, `idle_kill_at` and `session_id`.
    pub agent: Option<serde_json::Value>,
    /// What a person has to do so that it continues.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// The limit of its own that has stopped it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reached_limit: Option<LimitKind>,
    /// The files that its instructions come from; `info` only.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub instructions: Vec<Instructions>,
    /// The call that needs an approval; `info` only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval: Option<PendingCall>,
    /// The question that the agent asks a person; `info` only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub question: Option<PendingQuestion>,
    /// Whether it has ended and nobody has seen that yet, so that it is in the inbox.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unseen: bool,
    /// The calls in doubt that wait for `resolve`; `info` only.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub in_doubt: Vec<PendingCall>,
    /// The usage of the process and its descendants, if it has any; `info` only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tree: Option<TreeUsage>,
    /// Who ended it or is ending it, in words: `you (SIGINT)`, `PID 4 (lead)`; `info` only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_by: Option<String>,
    /// Who paused it, in words; `info` only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused_by: Option<String>,
    /// Whether it was paused while it waits, for example for an answer: it is suspended once it has that.
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
    /// Says that the PID in the request continues as another one, or why the process is damaged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

impl Process {
    /// Returns whether a pause changes anything: the process runs, or its suspension ends without a resume, and then it would
    /// run.
    #[must_use]
    pub fn can_be_paused(&self) -> bool {
        let would_run = self.suspend_reason.is_some_and(SuspendReason::ends_without_resume) && !self.pause_kept;
        self.dead_at.is_none() && (!self.paused || would_run)
    }
}

/// A suspended process below another one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SuspendedBelow {
    pub pid: Pid,
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

/// A call that waits for an approval or a resolution.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PendingCall {
    /// Identifies the question in the answer.
    #[serde(default)]
    pub id: u64,
    /// The index of the call in its step.
    pub call: u32,
    pub tool: String,
    /// The complete arguments.
    pub args: serde_json::Value,
    /// When the call began, or the question was asked.
    pub at: Timestamp,
    /// What Relive found when it looked for the outcome of the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub looked: Option<String>,
}

/// A question of an agent that waits for a person's answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PendingQuestion {
    /// Identifies the question in the answer.
    pub id: u64,
    pub text: String,
    /// The answers that the agent proposes; any other answer is possible too.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub choices: Vec<String>,
    pub at: Timestamp,
}

/// The usage of a process and all its descendants, including those that have ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TreeUsage {
    pub processes: usize,
    pub tokens_in: u64,
    pub tokens_out: u64,
    pub cost_usd: Option<Usd>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub estimated: bool,
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
