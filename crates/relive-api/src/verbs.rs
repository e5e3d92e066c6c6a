//! Requests to pause, resume, message and answer processes, and their answers.

use relive_types::{CommandRule, Limits, Pid, SuspendReason, Uuid};
use serde::{Deserialize, Serialize};

use crate::environment::Environment;
use crate::files::{Workspace, WorkspaceKind};

/// The scope of a pause, and how soon it takes effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct PauseRequest {
    /// Includes all descendants.
    #[serde(default)]
    pub subtree: bool,
    /// Whether the current model call is cancelled instead of waited for.
    #[serde(default)]
    pub now: bool,
}

/// A request to open or to close a gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct GateRequest {
    /// Whether an earlier attempt got no answer, and may have taken effect.
    #[serde(default)]
    pub repeated: bool,
}

/// The processes that a verb changed.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Affected {
    pub affected: usize,
    pub pids: Vec<Pid>,
    /// The processes that a pause has not stopped yet: each stops at its next boundary.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pausing: Vec<Pid>,
    /// The processes of a subtree that could not be changed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failed: Vec<Failed>,
    /// The processes that block the signal, so that it is pending.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pending: Vec<Pid>,
    /// The processes that wait for something else, such as an answer: each is paused once it has that.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kept: Vec<KeptPause>,
    /// The processes that are paused and got an answer: they continue with it when they are resumed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paused: Vec<Pid>,
    /// The processes that handle the signal themselves: nothing else happens to them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub handled: Vec<Pid>,
    /// Whether it stays frozen with the process whose session it entered, which is paused.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub frozen: bool,
    /// One line for a person, if there is something to add, such as that the process had already ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// A pause of a process that waits for something else first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptPause {
    pub pid: Pid,
    /// The reason of the suspension that ends first.
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
    /// The UUID of the fork, chosen by the client; absent for a resume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fork: Option<Uuid>,
    /// The last step that the fork copies; only with `fork`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_step: Option<u32>,
    /// Includes all descendants; not with `fork`.
    #[serde(default)]
    pub subtree: bool,
    /// A message to the process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<String>,
    /// A name for the fork.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The new `provider/model`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// New limits; an absent limit stays as it is.
    #[serde(default)]
    pub limits: Limits,
    /// Whether a fork works where its original does or on a copy of the files of its step; on a copy if absent and these
    /// are known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<WorkspaceKind>,
    /// The environment of the client. A process that has an environment keeps it, unless it lacks credentials.
    #[serde(default, skip_serializing_if = "Environment::is_empty")]
    pub env: Environment,
}

/// The answer to a resume or a fork: `resume --json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resumed {
    /// The PID of the process that continues.
    pub pid: Pid,
    /// The UUID of that process, which stays the same.
    pub uuid: Uuid,
    /// The origin of a fork.
    pub origin_uuid: Option<Uuid>,
    /// The last completed step.
    pub resumed_from_step: u32,
    pub max_steps: Option<u32>,
    pub model: Option<String>,
    /// Whether anything changed: a resume of a running process changes nothing.
    pub changed: bool,
    /// The number of processes that changed, including ancestors and, with `subtree`, descendants.
    pub affected: usize,
    pub pids: Vec<Pid>,
    /// The processes that block the signal: they are resumed when they unblock it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pending: Vec<Pid>,
    /// The processes that had not stopped yet: their pause is cancelled.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cancelled: Vec<Pid>,
    /// The processes that still wait for something else, such as an answer: they run once they have that.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kept: Vec<KeptPause>,
    /// One line for a person about the fork.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// The workspace of a fork.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<Workspace>,
    /// The number of nodes of an ended run, or of children of a supervisor, that start again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nodes: Option<usize>,
}

/// A message to an agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InputRequest {
    /// Chosen by the client, so that a repeated message is recognized.
    pub id: String,
    #[serde(default)]
    pub text: String,
    /// Whether the input of a program is closed, after all earlier messages.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub eof: bool,
}

/// The answer to a message that is in the journal and synced.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Accepted {
    /// `false` if it was received before.
    pub accepted: bool,
    /// Says that the PID in the request continues as another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// The outcome of a call in doubt, or the answer to an approval or a question.
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

/// The longest answer to a question, in bytes: as much as a person can type.
pub const ANSWER_MAX: usize = 64 << 10;

/// The resolution of a call in doubt, the answer to a call that needs an approval, or to a question of the agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResolveRequest {
    pub outcome: Resolution,
    /// Whether the answer applies to every later call of the tool; with `allow` and `deny`.
    #[serde(default)]
    pub always: bool,
    /// The reason, for the model; with `allow` and `deny`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The text of the answer; with `answer`.
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
