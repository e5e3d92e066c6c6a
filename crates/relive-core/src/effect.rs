//! What a machine and the table ask their driver to do.
//!
//! Effects are carried out in the order in which they are returned. Each names the incarnation it is for, so that
//! one that is late can be told from one that is not.

use crate::ids::{Incarnation, Pid};
use crate::process::Urgency;
use crate::signal::Signal;
use crate::status::SuspendReason;

/// Effects, in the order to carry them out.
pub type Effects = Vec<Effect>;

/// One thing to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// Launch the body. A launch that fails is reported by `Terminate`.
    Launch {
        /// Whose body.
        of: Incarnation,
    },
    /// Tell the body to end, in its own time. It answers by `Terminate`.
    AskToEnd {
        /// Whose body.
        of: Incarnation,
        /// TERM or INT.
        signal: Signal,
    },
    /// Apply `GraceExpired` after this time.
    ArmGrace {
        /// For whom.
        of: Incarnation,
        /// How long it has.
        grace_ms: u64,
    },
    /// End the body and its whole operating system tree now.
    Kill {
        /// Whose body.
        of: Incarnation,
    },
    /// Run the process's own handler.
    Handle {
        /// Whose handler.
        of: Incarnation,
        /// For this signal.
        signal: Signal,
    },
    /// Stop the body at its next boundary, or now; then report `BoundaryReached`.
    Stop {
        /// Whose body.
        of: Incarnation,
        /// At the boundary, or now.
        urgency: Urgency,
    },
    /// Let the body go on.
    Resume {
        /// Whose body.
        of: Incarnation,
    },
    /// It stands still at its boundary.
    Suspended {
        /// Which process.
        of: Incarnation,
    },
    /// Tell an ancestor that runs that a process below it was paused.
    SuspendedBelow {
        /// The ancestor.
        ancestor: Pid,
        /// The process that was paused.
        of: Pid,
        /// Why.
        reason: SuspendReason,
    },
    /// No progress for too long.
    Stalled {
        /// Which process.
        of: Incarnation,
    },
    /// Its end is known: wake those who wait for it.
    Ended {
        /// Which process.
        of: Incarnation,
    },
    /// Hand it to the reaper, which calls `reap`.
    Reap {
        /// Which process.
        of: Incarnation,
    },
    /// Its parent is gone; PID 0 is its parent now.
    Reparented {
        /// The orphan.
        of: Incarnation,
        /// The parent it had.
        from: Pid,
    },
    /// Release: cancel whatever is left of it. Answered by `Cancelled`.
    Cancel {
        /// Which process.
        of: Incarnation,
    },
    /// Release: join the body, which closes its descriptors. Answered by `Joined`.
    Join {
        /// Which process.
        of: Incarnation,
    },
    /// Release: take the debug channel away, so that nobody finds it any more.
    TakeDebugChannel {
        /// Which process.
        of: Incarnation,
    },
    /// Release: close the debug channel that was taken away. Answered by `Closed`.
    CloseDebugChannel {
        /// Which process.
        of: Incarnation,
    },
    /// Release: free the context. Answered by `Freed`.
    FreeContext {
        /// Which process.
        of: Incarnation,
    },
    /// Released: it is dead.
    Dead {
        /// Which process.
        of: Incarnation,
    },
    /// It has left the table; its completion record answers for it.
    Left {
        /// Which process.
        of: Incarnation,
    },
}
