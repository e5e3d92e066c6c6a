//! Refusals: what the model says no to, and the code a caller sees.
//!
//! Whatever returns a refusal has changed nothing. Unknown and forbidden are one refusal, so that asking tells
//! nothing about what one may not see.

use std::fmt;

pub use relive_types::ErrorCode;
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

/// A typed no. Nothing was changed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Refusal {
    /// Not one of the three legal transitions.
    #[error("process {pid} is {state}: {transition} is not legal there")]
    Illegal {
        /// Which process.
        pid: Pid,
        /// The state it is in, and stays in.
        state: State,
        /// What was attempted.
        transition: Transition,
    },
    /// A release event for a process that has not ended.
    #[error("process {pid} is {state}: nothing of it is being released")]
    NotEnded {
        /// Which process.
        pid: Pid,
        /// The state it is in.
        state: State,
    },
    /// A body says it was cancelled, and nobody had asked it to end.
    #[error("process {pid} says it was cancelled, and nobody had asked it to end")]
    NobodyAsked {
        /// Which process.
        pid: Pid,
    },
    /// A PID that was used before, or may have been.
    #[error("PID {pid} may have been used before: {last} is the last one used")]
    PidUsed {
        /// The PID that was asked for.
        pid: Pid,
        /// The highest one ever used.
        last: Pid,
    },
    /// A generation that is not above the one before it.
    #[error("{uuid} has been written by generation {last}: {generation} is not above it")]
    OldGeneration {
        /// Whose history.
        uuid: Uuid,
        /// The generation that was asked for.
        generation: Generation,
        /// The highest one known.
        last: Generation,
    },
    /// A draft that is not of the incarnation in the table, or that goes back behind it.
    #[error("the draft of process {} (generation {}) is stale", .of.pid, .of.generation)]
    StaleDraft {
        /// Whose draft.
        of: Incarnation,
    },
    /// No such process, or not the caller's to see.
    #[error("no process `{what}`")]
    NotFound {
        /// What was asked for.
        what: String,
        /// The closest name there is.
        suggestion: Option<String>,
    },
    /// More than one process could be meant.
    #[error("`{what}` could be any of: {}", .candidates.join(", "))]
    Ambiguous {
        /// What was asked for.
        what: String,
        /// Some of those it could be.
        candidates: Vec<String>,
    },
    /// The caller may see it, and not do that to it.
    #[error("process {pid} is not yours to control")]
    Forbidden {
        /// Which process.
        pid: Pid,
    },
    /// It has not been started.
    #[error("process {pid} has not been started")]
    NotStarted {
        /// Which process.
        pid: Pid,
    },
    /// It waits for an answer that a resume is not.
    #[error("process {pid} waits for a decision")]
    AwaitsAnswer {
        /// Which process.
        pid: Pid,
    },
    /// The parent is not running, so it has no children to come.
    #[error("process {pid} is {state}: it cannot be a parent")]
    ParentNotRunning {
        /// The parent.
        pid: Pid,
        /// What the parent does instead of running.
        state: State,
    },
    /// It does not run, so it can hold nothing.
    #[error("process {pid} is not running: it can hold no handle")]
    NotRunning {
        /// Which process.
        pid: Pid,
    },
    /// The history already has a writer.
    #[error("{uuid} is being run as process {pid}")]
    UuidInUse {
        /// Whose history.
        uuid: Uuid,
        /// Its living incarnation.
        pid: Pid,
    },
}

impl Refusal {
    pub(crate) fn unknown(what: impl fmt::Display) -> Self {
        Self::NotFound { what: what.to_string(), suggestion: None }
    }

    /// The code it is answered with.
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
            Self::AwaitsAnswer { .. }
            | Self::ParentNotRunning { .. }
            | Self::NotRunning { .. }
            | Self::UuidInUse { .. } => ErrorCode::Conflict,
        }
    }

    /// The way out, where there is one.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::NotFound { suggestion: Some(name), .. } => Some(format!("did you mean `{name}`?")),
            Self::NotFound { suggestion: None, .. } => Some("relive ps -a".into()),
            Self::Ambiguous { .. } => Some("use the PID, or more of the UUID".into()),
            Self::AwaitsAnswer { pid } => Some(format!("relive resolve {pid}")),
            Self::NotStarted { pid } => Some(format!("relive wait {pid}, or relive kill {pid}")),
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
