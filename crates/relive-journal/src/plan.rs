//! The recovery plan: derives the next action from a journal.

use crate::history::{CallState, History, OpenCall, Phase};
use crate::recovery::OnInDoubt;

/// After this many recoveries by the daemon without a new record a process is left suspended.
pub const CRASH_LOOP_MAX: u32 = 3;

/// The next actions of a new writer of a journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// The last completed step.
    pub last_step: u32,
    pub next: Next,
    /// Calls without an outcome, each to be settled by its own action before anything else.
    pub open: Vec<OpenCall>,
    /// What to do with calls whose outcome cannot be found out.
    pub on_in_doubt: OnInDoubt,
    /// Whether recovery has failed too often to be tried again automatically.
    pub crash_loop: bool,
}

/// The point where a process continues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// There was no message yet, or the model has given its final answer: the process needs an input.
    Input,
    /// Ask the model.
    Ask {
        step: u32,
        /// Whether it was asked before and the answer was lost: it is asked, and billed, again.
        again: bool,
    },
    /// Settle the open calls, then run the remaining calls of this step.
    Calls {
        step: u32,
        /// The first call without an outcome.
        call: u32,
    },
}

impl History {
    #[must_use]
    pub fn plan(&self) -> Plan {
        let next = match &self.phase {
            Phase::Boundary if self.answered || self.conversation.is_empty() => Next::Input,
            Phase::Boundary => Next::Ask { step: self.next_step(), again: false },
            Phase::Asking { .. } => Next::Ask { step: self.next_step(), again: true },
            Phase::Calling { calls } => {
                let unsettled = calls.iter().position(|state| *state != CallState::Settled).unwrap_or(0);
                Next::Calls { step: self.step, call: u32::try_from(unsettled).unwrap_or(u32::MAX) }
            }
        };
        Plan {
            last_step: self.completed_step,
            next,
            open: self.open_calls().cloned().collect(),
            on_in_doubt: self.on_in_doubt(),
            crash_loop: self.recoveries >= CRASH_LOOP_MAX,
        }
    }
}
