//! Refusals of the process model, and the error codes that callers see.
//!
//! An operation that returns a refusal has changed nothing. Unknown and forbidden processes get the same refusal, so
//! that asking reveals nothing about processes that the caller may not see.

use std::fmt;

pub use relive_types::ErrorCode;
use relive_types::short_id::shortened;
use thiserror::Error;

use crate::ids::{Generation, Incarnation, Pid, Uuid};
use crate::process::State;

/// One of the three transitions of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Transition {
    /// Created to Running.
    Start,
    /// Running to Zombie.
    Terminate,
    /// Zombie to Dead.
    Reap,
}

impl fmt::Display for Transition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Start => "start",
            Self::Terminate => "terminate",
            Self::Reap => "reap",
        })
    }
}

/// A typed refusal. Nothing was changed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Refusal {
    /// The transition is not legal in this state.
    #[error("PID {pid} is {state}: {transition} is not legal there")]
    Illegal { pid: Pid, state: State, transition: Transition },
    /// A release event arrived for a process that has not ended.
    #[error("PID {pid} is {state}: nothing of it is being released")]
    NotEnded { pid: Pid, state: State },
    /// A body reported that it was cancelled, but nobody had asked it to end.
    #[error("PID {pid} says it was cancelled, and nobody had asked it to end")]
    NobodyAsked { pid: Pid },
    /// The PID was used before, or may have been.
    #[error("PID {pid} may have been used before: {last} is the last one used")]
    PidUsed {
        pid: Pid,
        /// The highest PID ever used.
        last: Pid,
    },
    /// The generation is not higher than the one before it.
    #[error("{uuid} has been written by generation {last}: {generation} is not above it")]
    OldGeneration {
        uuid: Uuid,
        generation: Generation,
        /// The highest generation known.
        last: Generation,
    },
    /// The draft belongs to another incarnation than the one in the table, or undoes a published change.
    #[error("the draft of process {} (generation {}) is stale", .of.pid, .of.generation)]
    StaleDraft { of: Incarnation },
    /// There is no such process, or the caller may not see it.
    #[error("no process `{}`", shortened(what))]
    NotFound {
        what: String,
        /// The most similar name.
        suggestion: Option<String>,
    },
    /// Several processes match.
    #[error("`{}` is ambiguous, it could be: {}", shortened(what), .candidates.join(", "))]
    Ambiguous {
        what: String,
        /// Some of the matches.
        candidates: Vec<String>,
    },
    /// The caller may see the process but not control it.
    #[error("your handle to PID {pid} does not allow this")]
    Forbidden { pid: Pid },
    #[error("PID {pid} has not been started")]
    NotStarted { pid: Pid },
    /// The process waits for an answer; a RESUME is not one.
    #[error("PID {pid} waits for an answer")]
    AwaitsAnswer { pid: Pid },
    /// The parent is not running, so it cannot get children.
    #[error("PID {pid} is {state}: it cannot be a parent")]
    ParentNotRunning { pid: Pid, state: State },
    /// The process is not running, so it can hold no handle.
    #[error("PID {pid} is not running: it can hold no handle")]
    NotRunning { pid: Pid },
    /// The process holds as many handles as a process may.
    #[error("PID {pid} has {max} handles, the limit")]
    TooManyHandles { pid: Pid, max: usize },
    /// Another incarnation of this UUID is living.
    #[error("{uuid} is being run as PID {pid}")]
    UuidInUse {
        uuid: Uuid,
        /// The living incarnation.
        pid: Pid,
    },
}

impl Refusal {
    pub(crate) fn unknown(what: impl fmt::Display) -> Self {
        Self::NotFound { what: what.to_string(), suggestion: None }
    }

    #[must_use]
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::Illegal { .. }
            | Self::NotEnded { .. }
            | Self::NobodyAsked { .. }
            | Self::PidUsed { .. }
            | Self::OldGeneration { .. }
            | Self::StaleDraft { .. } => ErrorCode::Internal,
            Self::NotFound { .. } => ErrorCode::NotFound,
            Self::Ambiguous { .. } | Self::NotStarted { .. } => ErrorCode::Invalid,
            Self::Forbidden { .. } => ErrorCode::Permission,
            Self::TooManyHandles { .. } => ErrorCode::Exhausted,
            Self::AwaitsAnswer { .. }
            | Self::ParentNotRunning { .. }
            | Self::NotRunning { .. }
            | Self::UuidInUse { .. } => ErrorCode::Conflict,
        }
    }

    /// Returns a command or a sentence that helps, if there is one.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::NotFound { suggestion: Some(name), .. } => Some(format!("did you mean `{name}`?")),
            Self::NotFound { suggestion: None, .. } => Some("relive ps -a".into()),
            Self::Ambiguous { .. } => Some("use the PID, or more of the UUID".into()),
            Self::AwaitsAnswer { pid } => Some(format!("relive resolve {pid}")),
            Self::NotStarted { pid } => Some(format!("relive wait {pid}, or relive kill {pid}")),
            Self::TooManyHandles { pid, .. } => {
                Some(format!("relive handle list; relive handle release ID --of {pid}"))
            }
            Self::UuidInUse { pid, .. } => Some(format!("relive info {pid}")),
            Self::Illegal { .. }
            | Self::NotEnded { .. }
            | Self::NobodyAsked { .. }
            | Self::PidUsed { .. }
            | Self::OldGeneration { .. }
            | Self::StaleDraft { .. }
            | Self::Forbidden { .. }
            | Self::NotRunning { .. }
            | Self::ParentNotRunning { .. } => None,
        }
    }
}
