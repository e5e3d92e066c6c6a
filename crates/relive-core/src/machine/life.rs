//! Where in its life a process is. The data of a state is inside the variant of that state, so that nothing can be
//! paused before it runs or have an end before it ended.

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
    /// The strongest signal by which it was told to end.
    pub(crate) ending: Option<(Signal, Cause)>,
}

impl Running {
    pub(super) fn since(now: Timestamp) -> Self {
        Self { started_at: now, pause: Pause::None, ending: None }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pause {
    None,
    Pausing { asked_at: Timestamp, reason: SuspendReason, urgency: Urgency },
    Suspended { asked_at: Timestamp, reason: SuspendReason },
}

impl Pause {
    pub(crate) fn asked(self) -> Option<(Timestamp, SuspendReason)> {
        match self {
            Self::None => None,
            Self::Pausing { asked_at, reason, urgency: _ } | Self::Suspended { asked_at, reason } => {
                Some((asked_at, reason))
            }
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Zombie {
    pub(crate) started_at: Timestamp,
    pub(crate) ended_at: Timestamp,
    pub(crate) end: End,
}
