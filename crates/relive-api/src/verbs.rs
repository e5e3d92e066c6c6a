//! Requests to pause, resume, message and answer processes, and their answers.

use relive_types::{CommandRule, Limits, Pid, SuspendReason, Uuid};
use serde::{Deserialize, Serialize};

use crate::environment::Environment;
use crate::files::{Workspace, WorkspaceKind};

/// Whom a pause reaches, and how soon.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct PauseRequest {
    /// Includes all descendants.
    #[serde(default)]
    pub subtree: bool,
    /// Do not wait for the model call that is under way.
    #[serde(default)]
    pub now: bool,
}

/// A request to open or to close a gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct GateRequest {
    /// An earlier attempt was not answered, and may have taken effect.
    #[serde(default)]
    pub repeated: bool,
}

/// The processes that a verb changed.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Affected {
    pub affected: usize,
    /// The PIDs of those that changed.
    pub pids: Vec<Pid>,
    /// Those of a pause that have not stopped yet: each does at its next boundary.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pausing: Vec<Pid>,
    /// Those of a subtree that could not be changed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failed: Vec<Failed>,
    /// Those of the PIDs for which the signal only waits, because they block it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pending: Vec<Pid>,
    /// Those of a pause that wait for something else, such as an answer: each is paused once it has that.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kept: Vec<KeptPause>,
    /// Those of an answer that are paused: they have it, and do what follows when they are resumed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paused: Vec<Pid>,
    /// Those of the PIDs that handle the signal themselves: nothing else happens to them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub handled: Vec<Pid>,
    /// One line for a person where there is something to say, such as that it had ended already.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// A pause of a process that waits for something else first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptPause {
    pub pid: Pid,
    /// What it waits for.
    pub reason: SuspendReason,
}

/// A process that could not be changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failed {
    pub pid: Pid,
    pub message: String,
}

/// A request to resume or to fork a process.
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
    /// A message to the process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<String>,
    /// A name for the fork.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Provider and model, in place of the one it has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// New limits; those absent stay as they are.
    #[serde(default)]
    pub limits: Limits,
    /// Whether a fork works where its original does or on a copy of the files of its step; on a copy if absent and these
    /// are known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<WorkspaceKind>,
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
    pub max_steps: Option<u32>,
    pub model: Option<String>,
    /// Whether anything changed: resuming what runs changes nothing.
    pub changed: bool,
    /// How many changed, ancestors and, with `subtree`, descendants included.
    pub affected: usize,
    /// The PIDs of those that changed.
    pub pids: Vec<Pid>,
    /// Those of the PIDs that block the signal: they are resumed when they unblock it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pending: Vec<Pid>,
    /// Those of the PIDs that had not paused yet: their pause is cancelled.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cancelled: Vec<Pid>,
    /// Those of the PIDs that still wait for something else, such as an answer: they run once they have that.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kept: Vec<KeptPause>,
    /// One line for a person about the fork.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// Where a fork works.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<Workspace>,
    /// How many nodes start again of a run that had ended, or how many children of a supervisor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nodes: Option<usize>,
}

/// A message to an agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InputRequest {
    /// Chosen by the client, so that a repeated message is known.
    pub id: String,
    #[serde(default)]
    pub text: String,
    /// No message: the end of a program's input, after the messages before it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub eof: bool,
}

/// Something is in the journal, synced.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Accepted {
    /// `false` if it was received before.
    pub accepted: bool,
    /// That the PID which was asked for continues as another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// What a person found out about the call that is in doubt, or says to one that was put to them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Resolution {
    Done,
    NotDone,
    Retry,
    Allow,
    Deny,
    /// The answer to a question of the agent, which is in [`ResolveRequest::answer`].
    Answer,
}

impl ResolveRequest {
    /// Creates a request with nothing but its outcome.
    #[must_use]
    pub fn new(outcome: Resolution) -> Self {
        Self { outcome, always: false, reason: None, answer: None, id: None, rule: None }
    }

    /// Creates the answer to a question.
    #[must_use]
    pub fn answer(answer: String, id: Option<u64>) -> Self {
        Self { answer: Some(answer), id, ..Self::new(Resolution::Answer) }
    }
}

/// The longest answer to a question, in bytes.
pub const ANSWER_MAX: usize = 16 << 10;

/// The resolution of a call in doubt, the answer to a call that needs an approval, or to a question of the agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResolveRequest {
    pub outcome: Resolution,
    /// Whether it holds for every later call of the tool; with `allow` and `deny`.
    #[serde(default)]
    pub always: bool,
    /// Why, for the model; with `allow` and `deny`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What the person answers; with `answer`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<String>,
    /// The question that is answered, as `info` names it: an answer to another one is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<u64>,
    /// With `allow` and `always`: the commands that the answer holds for, such as `shell:git status*`; without it, every
    /// later call of the tool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<CommandRule>,
}
