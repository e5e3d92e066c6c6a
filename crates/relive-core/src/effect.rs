//! The actions that a machine and the table ask their driver to carry out.
//!
//! Effects are carried out in the order in which they are returned. Each names the incarnation it is for, so that a
//! late one is recognized as stale.

use crate::ids::{Incarnation, Pid};
use crate::process::Urgency;
use crate::signal::Signal;
use crate::status::SuspendReason;

/// Effects, in the order to carry them out.
pub type Effects = Vec<Effect>;

/// An action for the driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// Launches the body. A failed launch is reported by `Terminate`.
    Launch { of: Incarnation },
    /// Asks the body to end at its own pace. The driver answers with `Terminate`.
    AskToEnd {
        of: Incarnation,
        /// TERM or INT.
        signal: Signal,
    },
    /// Applies `GraceExpired` after `grace_ms`.
    ArmGrace { of: Incarnation, grace_ms: u64 },
    /// Ends the body and its whole operating system tree now.
    Kill { of: Incarnation },
    /// Runs the process's own handler.
    Handle { of: Incarnation, signal: Signal },
    /// Stops the body at its next boundary, or now; the driver then reports `BoundaryReached`.
    Stop { of: Incarnation, urgency: Urgency },
    /// Lets the body continue.
    Resume { of: Incarnation },
    /// Reports that the body has stopped at its boundary.
    Suspended { of: Incarnation },
    /// Tells an ancestor that one of its descendants was paused.
    SuspendedBelow {
        ancestor: Pid,
        /// The process that was paused.
        of: Pid,
        reason: SuspendReason,
    },
    /// Reports that the process made no progress for too long.
    Stalled { of: Incarnation },
    /// Reports that the end of the process is known: waiters get their answer.
    Ended { of: Incarnation },
    /// Hands the process to the reaper, which calls `reap`.
    Reap { of: Incarnation },
    /// Reports that the parent is gone and PID 0 is the parent now.
    Reparented {
        of: Incarnation,
        /// The former parent.
        from: Pid,
    },
    /// Release: cancels what is left of the process. Answered by `Cancelled`.
    Cancel { of: Incarnation },
    /// Release: joins the body, which closes its descriptors. Answered by `Joined`.
    Join { of: Incarnation },
    /// Release: withdraws the debug channel, so that nobody can find it any more.
    TakeDebugChannel { of: Incarnation },
    /// Release: closes the withdrawn debug channel. Answered by `Closed`.
    CloseDebugChannel { of: Incarnation },
    /// Release: frees the context. Answered by `Freed`.
    FreeContext { of: Incarnation },
    /// Reports that the process is released and dead.
    Dead { of: Incarnation },
    /// Reports that the process has left the table; its completion record answers for it.
    Left { of: Incarnation },
}
