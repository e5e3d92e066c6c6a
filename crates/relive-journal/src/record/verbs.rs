//! The records that acknowledge requests: synced before the caller is answered.

use relive_core::{Cause, End, Limits, Signal, SignalSet, SuspendReason, Timestamp, Uuid};
use serde::{Deserialize, Serialize};

use super::is_false;
use crate::signals;

/// A pause. A requested one is recorded at the request: records of the current step may follow until the body has
/// stopped.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Paused {
    pub reason: SuspendReason,
    /// When it was requested: the elapsed time stops here.
    pub asked_at: Timestamp,
    /// When it is resumed automatically, if it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resume_at: Option<Timestamp>,
    /// Who asked for it, if somebody did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<Cause>,
    /// The id of the request that asked for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub req: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resumed {
    pub by: ResumedBy,
    /// Who asked for it, if somebody did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<Cause>,
    /// The id of the request that asked for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub req: Option<String>,
}

/// The reason why a pause ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ResumedBy {
    /// A person or a process asked for it.
    User,
    /// A descendant was resumed.
    Descendant,
    /// The daemon started again.
    DaemonStart,
    /// The scheduled time arrived.
    Timer,
    /// Its question or request for permission is no longer open, and nobody answered it.
    Withdrawn,
}

/// New limits of a process, which replace the earlier ones.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct NewLimits {
    /// All limits: one that is absent here no longer applies.
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
    #[serde(flatten)]
    pub end: End,
    /// Whether a person has to be told of it, because nobody was there. Before Relive had this field, nobody was told.
    #[serde(default, skip_serializing_if = "is_false")]
    pub unseen: bool,
    /// The id of the request that asked for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub req: Option<String>,
}

impl From<End> for Ended {
    fn from(end: End) -> Self {
        Self { end, unseen: false, req: None }
    }
}

/// A person has seen how the process ended.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Acked {
    /// The id of the request that asked for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub req: Option<String>,
}

/// A signal that was acknowledged before it took effect. The next writer of the journal completes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Signalled {
    /// KILL, TERM or INT; with `pending` any signal except KILL.
    pub signal: Signal,
    pub cause: Cause,
    /// The end, if the process asked for it itself. Older readers take it for a kill.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<Box<End>>,
    /// Whether the signal is blocked and waits. A pending PAUSE and a pending RESUME cancel each other. How urgent a PAUSE is
    /// is not recorded: under the next daemon it takes effect at the boundary.
    #[serde(default, skip_serializing_if = "is_false")]
    pub pending: bool,
    /// The id of the request that asked for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub req: Option<String>,
}

/// The signals that a process blocks and handles, which replace the earlier ones.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct SignalMask {
    /// Signals that wait until they are unblocked.
    #[serde(with = "signals")]
    pub blocked: SignalSet,
    /// Signals that the process handles itself.
    #[serde(with = "signals")]
    pub handled: SignalSet,
    /// The command that the process runs from now on for one of them, until that is no longer handled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on: Option<SignalCommand>,
    /// The handled signal that the process gets with this record, which changes nothing then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delivered: Option<Signal>,
    /// The id of the request that asked for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub req: Option<String>,
}

/// A command that a program runs for a signal, instead of getting that of the operating system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SignalCommand {
    pub signal: Signal,
    /// Chosen by the part of the program that runs the command, so that it recognizes its own.
    pub id: Uuid,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Renamed {
    pub name: String,
    /// The id of the request that asked for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub req: Option<String>,
}

/// A new model, which replaces the one that the process was started with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewModel {
    /// `provider/model`.
    pub model: String,
    /// The id of the request that asked for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub req: Option<String>,
}

/// A program that may pass its gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Proceeded {}
