//! The records by which verbs are acknowledged: synced before whoever asked is answered.

use relive_core::{Cause, End, Limits, Signal, SignalSet, SuspendReason, Timestamp};
use serde::{Deserialize, Serialize};

use super::is_false;
use crate::signals;

/// A suspension. One that somebody asked for is recorded when it is asked for: records of the step under way may follow
/// until the body has stopped.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Paused {
    /// Why.
    pub reason: SuspendReason,
    /// When it was asked for: elapsed time stands still from here.
    pub asked_at: Timestamp,
    /// When it is resumed without being asked, if it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resume_at: Option<Timestamp>,
    /// The id of the request that asked for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub req: Option<String>,
}

/// The end of a suspension.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resumed {
    /// What ended it.
    pub by: ResumedBy,
    /// The id of the request that asked for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub req: Option<String>,
}

/// What ends a suspension.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ResumedBy {
    /// Somebody asked for it.
    User,
    /// A process below was resumed.
    Descendant,
    /// The daemon is back.
    DaemonStart,
    /// Its time came.
    Timer,
}

/// The limits of a process, in place of those before.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct NewLimits {
    /// All of them: a limit that is absent here does not hold any more.
    #[serde(flatten)]
    pub limits: Limits,
    /// The id of the request that asked for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub req: Option<String>,
}

impl From<Limits> for NewLimits {
    fn from(limits: Limits) -> Self {
        Self { limits, req: None }
    }
}

/// The end of an incarnation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    /// The typed status, and by whom.
    #[serde(flatten)]
    pub end: End,
    /// The id of the request that asked for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub req: Option<String>,
}

impl From<End> for Ended {
    fn from(end: End) -> Self {
        Self { end, req: None }
    }
}

/// A signal that was acknowledged before it took effect. Whoever opens the journal next completes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Signalled {
    /// KILL, TERM or INT; with `pending` any signal but KILL.
    pub signal: Signal,
    /// Who sent it, and why.
    pub cause: Cause,
    /// Whether the signal is blocked and kept until it is not. A PAUSE and a RESUME that are kept cancel each other.
    #[serde(default, skip_serializing_if = "is_false")]
    pub pending: bool,
    /// The id of the request that asked for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub req: Option<String>,
}

/// The signals a process blocks and handles, in place of those before.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct SignalMask {
    /// Kept when they are sent, until they are not blocked any more.
    #[serde(with = "signals")]
    pub blocked: SignalSet,
    /// Passed to the process itself.
    #[serde(with = "signals")]
    pub handled: SignalSet,
    /// The id of the request that asked for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub req: Option<String>,
}
