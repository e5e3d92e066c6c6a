//! What the daemon and its clients say to each other, and where they meet.
//!
//! HTTP with JSON bodies on a unix socket, below `/v1`. Streams are server-sent events whose ids are `epoch.seq`. The
//! types here are the wire: fields are only ever added. There is no behaviour here beyond finding the
//! socket and encoding headers.
//!
//! | request | body | answer |
//! |---|---|---|
//! | `GET /v1/daemon` | | [`DaemonStatus`] |
//! | `POST /v1/daemon/stop` | | [`Stopping`], then the daemon is gone |
//! | `GET /v1/processes?all=BOOL` and the rest of [`ListQuery`] | | [`ProcessList`] |
//! | `POST /v1/processes` | [`RunRequest`] | [`Created`] |
//! | `POST /v1/programs` | [`ExecRequest`] | [`ExecStarted`] |
//! | `GET /v1/processes/ID` | | [`Process`] |
//! | `POST /v1/processes/ID/wait` | [`WaitRequest`] | [`WaitAnswer`] |
//! | `POST /v1/processes/ID/pause` | [`PauseRequest`] | [`Affected`] |
//! | `POST /v1/processes/ID/resume` | [`ResumeRequest`] | [`Resumed`] |
//! | `POST /v1/processes/ID/signal` | [`SignalRequest`] | [`Affected`] |
//! | `POST /v1/processes/ID/proceed` | | [`Affected`] |
//! | `POST /v1/processes/ID/abort` | | [`Affected`] |
//! | `POST /v1/processes/ID/input` | [`InputRequest`] | [`Accepted`] |
//! | `POST /v1/processes/ID/resolve` | [`ResolveRequest`] | [`Affected`] |
//! | `GET /v1/processes/ID/journal?follow=BOOL&after=EPOCH.SEQ` | | server-sent events, the lines of `steps.jsonl` |
//! | `GET /v1/processes/ID/events?follow=BOOL&after=EPOCH.SEQ` | | server-sent events, the lines of `events.jsonl` |
//! | `GET /v1/processes/ID/lineage` | | [`Lineage`] |
//! | `GET /v1/resumable?limit=N&cursor=TEXT` | | [`ResumableList`] |
//! | `POST /v1/gc` | [`GcRequest`] | [`GcAnswer`] |
//!
//! `ID` is a PID, a name, a UUID or a unique beginning of one, percent-encoded. A request that changes something may
//! carry the header `relive-request-id`: the same id again gets the same answer and changes nothing. A request may carry
//! `relive-data-dir`: a daemon of another data directory refuses it. Every answer carries `relive-version` and
//! `relive-api`. Errors are [`ErrorBody`] with the HTTP status of [`http_status`].

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod environment;
mod paths;
pub mod percent;
mod process;
mod program;

use std::collections::BTreeMap;

use relive_types::{ErrorCode, Limits, Pid, ProcessStatus, SuspendReason, Timestamp, Uuid, Why};
use serde::{Deserialize, Serialize};

pub use environment::Environment;
pub use paths::{Paths, PathsError};
pub use process::{Exit, Instructions, PendingCall, Process, TreeUsage};
pub use program::{ExecRequest, ExecStarted, Inherited, Namespace, ResourceLimit, Session, Stdio};

/// The version of the wire. A daemon and a client with different ones do not talk.
pub const API_VERSION: u32 = 1;
/// The largest body a request may have.
pub const BODY_MAX: usize = 8 << 20;
/// Names the request for the daemon's memory of answers.
pub const REQUEST_ID_HEADER: &str = "relive-request-id";
/// Names the data directory that the client means, [percent-encoded](percent::encode).
pub const DATA_DIR_HEADER: &str = "relive-data-dir";
/// Names the version of the wire of who answers.
pub const API_HEADER: &str = "relive-api";
/// Names the version of who answers.
pub const VERSION_HEADER: &str = "relive-version";

/// The daemon at a glance.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "each name says it")]
pub struct DaemonStatus {
    pub api: u32,
    pub version: String,
    pub os_pid: u32,
    pub data_dir: String,
    pub socket: String,
    pub started_at: Timestamp,
    pub running: usize,
    pub suspended: usize,
    pub free_bytes: u64,
    /// Things a person should know: damaged histories, a full disk, a config that could not be read.
    pub warnings: Vec<String>,
}

/// The daemon will stop; so many agents are being paused first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "said above")]
pub struct Stopping {
    pub os_pid: u32,
    pub pausing: usize,
}

/// `ps --json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "said above")]
pub struct ProcessList {
    pub processes: Vec<Process>,
    /// The `cursor` of the next page; absent on the last one, and where no `limit` was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// Which processes are listed, in which order, and from where. Every part that is present has to hold.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListQuery {
    /// Those that have ended too.
    #[serde(default)]
    pub all: bool,
    /// What `ps` shows as the state: `running`, `suspended`, `dead` and so on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// A pattern for the name: `*` is any text, `?` any one character. A process without a name never matches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// An absolute directory: processes that were begun in it or below it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// Only those that ended with an exit code other than 0.
    #[serde(default)]
    pub failed: bool,
    /// Only those that live, or ended at this moment or later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// The highest PID first.
    #[serde(default)]
    pub newest: bool,
    /// One page of at most so many. Without it everything is listed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
    /// Where the page begins: `next` of the one before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}

/// An agent to be run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunRequest {
    /// Chosen by the client, so that asking again starts nothing twice.
    pub uuid: Uuid,
    /// A name of the user's choice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// What it is to do.
    pub intent: String,
    /// Provider and model; the daemon's default if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The name of a file in `agents/`, which says what is not said here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// The system prompt; the agent file's, else the daemon's default, if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system_prompt: Option<String>,
    /// The folder of the one who asks.
    pub cwd: String,
    /// The environment of the one who asks.
    #[serde(default, skip_serializing_if = "Environment::is_empty")]
    pub env: Environment,
    /// What it may spend.
    #[serde(default)]
    pub limits: Limits,
    /// `tell_model`, `park` or `retry`; the daemon's default if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_in_doubt: Option<String>,
    /// `end` or `suspend`; `end` if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_budget: Option<String>,
    /// By tool, or `*`: `allow`, `ask` or `deny`; laid over the daemon's configuration.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub policy: BTreeMap<String, String>,
    /// Whatever would be asked is allowed.
    #[serde(default)]
    pub yes: bool,
}

/// A process that was begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "each name says it")]
pub struct Created {
    pub pid: Pid,
    pub uuid: Uuid,
}

/// How long to wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct WaitRequest {
    /// For ever if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
}

/// `wait --json`, and what the command exits with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the names of `wait --json`")]
pub struct WaitAnswer {
    pub pid: Pid,
    pub uuid: Uuid,
    pub status: Option<ProcessStatus>,
    pub why: Option<Why>,
    pub exit: Option<Exit>,
    pub timed_out: bool,
    /// What `wait` exits with; 124 if it timed out.
    pub exit_code: u8,
    /// That the PID which was asked for continues as another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// Whom a pause reaches, and how soon.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct PauseRequest {
    /// Everything below as well.
    #[serde(default)]
    pub subtree: bool,
    /// Do not wait for the model call that is under way.
    #[serde(default)]
    pub now: bool,
}

/// Who changed.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Affected {
    /// How many processes changed.
    pub affected: usize,
    /// The PIDs of those that changed.
    pub pids: Vec<Pid>,
    /// Those of a subtree that could not be changed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failed: Vec<Failed>,
    /// One line for a person where there is something to say, such as that it had ended already.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// A process that could not be changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failed {
    /// Its PID.
    pub pid: Pid,
    /// Why.
    pub message: String,
}

/// How to resume.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ResumeRequest {
    /// As a new process with this UUID, chosen by the client.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fork: Option<Uuid>,
    /// From the end of this step; only with `fork`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_step: Option<u32>,
    /// Everything below as well; not with `fork`.
    #[serde(default)]
    pub subtree: bool,
    /// What to say to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<String>,
    /// A name for the fork.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// New limits; those absent stay as they are.
    #[serde(default)]
    pub limits: Limits,
    /// The environment of the one who asks. A process that has one keeps it, unless it lacks credentials.
    #[serde(default, skip_serializing_if = "Environment::is_empty")]
    pub env: Environment,
}

/// `resume --json`, and what a person is told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resumed {
    /// The PID of the process that continues.
    pub pid: Pid,
    /// The UUID of that process, which stays the same.
    pub uuid: Uuid,
    /// What it is a fork of.
    pub origin_uuid: Option<Uuid>,
    /// The last step that is behind it.
    pub resumed_from_step: u32,
    /// Its limit of steps.
    pub max_steps: Option<u32>,
    /// What it runs on.
    pub model: Option<String>,
    /// Whether anything changed: resuming what runs changes nothing.
    pub changed: bool,
    /// How many changed, ancestors and, with `subtree`, descendants included.
    pub affected: usize,
    /// The PIDs of those that changed.
    pub pids: Vec<Pid>,
    /// What there is to know about a fork beside it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// A signal, by its name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SignalRequest {
    /// `SIGTERM` and so on; `SIG` may be left out. Programs also know the operating system's signals, such as `SIGHUP`.
    pub signal: String,
    /// Everything below as well.
    #[serde(default)]
    pub subtree: bool,
}

/// A message to an agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InputRequest {
    /// Chosen by the client, so that a repeated message is known.
    pub id: String,
    /// What it says.
    pub text: String,
}

/// Something is in the journal, synced.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Accepted {
    /// Whether it was new.
    pub accepted: bool,
    /// That the PID which was asked for continues as another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// Which signals a process blocks, and which it handles itself. What is left out stays as it is.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct SignalMaskRequest {
    /// The signals to block, and no others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocked: Option<Vec<String>>,
    /// The signals it handles itself, and no others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handled: Option<Vec<String>>,
}

/// What a process does with signals.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SignalState {
    /// Its PID.
    pub pid: Pid,
    /// The signals it blocks.
    pub blocked: Vec<String>,
    /// The signals it handles itself.
    pub handled: Vec<String>,
    /// The signals that wait to be unblocked, in the order in which they land.
    pub pending: Vec<String>,
    /// That the PID which was asked for continues as another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// What a person found out about the call that is in doubt, or says to one that was put to them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "each name says it")]
pub enum Resolution {
    Done,
    NotDone,
    Retry,
    Allow,
    Deny,
}

/// A decision about what is in doubt, or about a call that may not be made unasked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResolveRequest {
    /// What was decided.
    pub outcome: Resolution,
    /// Whether it holds for every later call of the tool; with `allow` and `deny`.
    #[serde(default)]
    pub always: bool,
    /// Why, for the model; with `allow` and `deny`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The question that is answered, as `info` names it: an answer to another one is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<u64>,
}

/// Where a fork comes from, nearest first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "each name says it")]
pub struct Lineage {
    pub uuid: Uuid,
    pub ancestors: Vec<Ancestor>,
    /// That the PID which was asked for continues as another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// One ancestor of a fork.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "each name says it")]
pub struct Ancestor {
    pub uuid: Uuid,
    pub step: u32,
    pub gone: bool,
}

/// `list-resumable --json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "said above")]
pub struct ResumableList {
    pub processes: Vec<Resumable>,
    /// The `cursor` of the next page; absent on the last one, and where no `limit` was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// A process that `resume` can take up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the names of `list-resumable --json`")]
pub struct Resumable {
    pub uuid: Uuid,
    pub pid: Pid,
    pub name: Option<String>,
    pub intent: String,
    pub display: String,
    pub step: u32,
    pub last_active: Timestamp,
    pub reason: Option<String>,
}

/// Collect, or say what would be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct GcRequest {
    /// Change nothing.
    pub dry_run: bool,
    /// Collect only if there are at most so many; else say what there is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_most: Option<usize>,
}

/// What was, or would be, collected.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GcAnswer {
    /// Whether anything was removed.
    pub collected: bool,
    /// What there was to collect.
    pub candidates: Vec<GcCandidate>,
    /// What is gone.
    pub removed: Vec<Uuid>,
    /// What that gave back.
    pub freed_bytes: u64,
    /// What was passed over, and why.
    pub warnings: Vec<String>,
    /// What could not be removed, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failures: Vec<String>,
    /// How many are left for the next request, where there were more than one takes.
    #[serde(default)]
    pub left: usize,
}

/// A history that may go.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the names of `gc --dry-run --json`")]
pub struct GcCandidate {
    pub uuid: Uuid,
    pub dead_at: Timestamp,
    pub bytes: u64,
    pub reason: String,
}

/// An error, as the wire and `--json` show it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "said above")]
pub struct ErrorBody {
    pub error: ErrorDetail,
}

/// What went wrong, and the way out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorDetail {
    /// Which kind.
    pub code: ErrorCode,
    /// What, with the id.
    pub message: String,
    /// The command to run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

/// The HTTP status that goes with an error.
#[must_use]
pub fn http_status(code: ErrorCode) -> u16 {
    match code {
        ErrorCode::Invalid => 400,
        ErrorCode::Permission => 403,
        ErrorCode::NotFound => 404,
        ErrorCode::Timeout => 408,
        ErrorCode::Conflict => 409,
        ErrorCode::Exhausted => 429,
        ErrorCode::Internal => 500,
        ErrorCode::Unavailable => 503,
    }
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
        SuspendReason::Quota => "quota",
        SuspendReason::NeedsCredentials => "needs_credentials",
        SuspendReason::DaemonStop => "daemon_stop",
        SuspendReason::Stalled => "stalled",
    }
}
