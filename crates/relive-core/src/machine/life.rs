//! The life of a process. Each variant holds the data of its state, so that a process cannot be paused before it runs
//! or have an end before it ended.

use jiff::Timestamp;

use crate::process::Urgency;
use crate::signal::Signal;
use crate::status::{Cause, End, SuspendReason};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Life {
    Created,
    Running(Running),
    /// Boxed, because a suspended process must stay cheap.
    Zombie(Box<Zombie>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Running {
    pub(crate) started_at: Timestamp,
    pub(crate) pause: Pause,
    /// The strongest signal that asked the process to end.
    pub(crate) ending: Option<(Signal, Cause)>,
    /// How it ends, if it said so itself.
    pub(crate) own_end: Option<Box<End>>,
    /// The signal that asked it to end, once it is killed because its grace is over.
    pub(crate) outlasted: Option<Signal>,
}

impl Running {
    pub(super) fn since(now: Timestamp) -> Self {
        Self { started_at: now, pause: Pause::None, ending: None, own_end: None, outlasted: None }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pause {
    None,
    Pausing { asked_at: Timestamp, reason: SuspendReason, cause: Option<Cause>, urgency: Urgency },
    Suspended { asked_at: Timestamp, reason: SuspendReason, cause: Option<Cause> },
}

impl Pause {
    pub(crate) fn asked(self) -> Option<(Timestamp, SuspendReason)> {
        match self {
            Self::None => None,
            Self::Pausing { asked_at, reason, .. } | Self::Suspended { asked_at, reason, .. } => {
                Some((asked_at, reason))
            }
        }
    }

    /// Who asked for it; nobody if the runtime had a reason of its own.
    pub(crate) fn cause(self) -> Option<Cause> {
        match self {
            Self::None => None,
            Self::Pausing { cause, .. } | Self::Suspended { cause, .. } => cause,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Zombie {
    pub(crate) started_at: Timestamp,
    pub(crate) ended_at: Timestamp,
    pub(crate) end: End,
}
