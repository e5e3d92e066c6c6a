//! The recovery plan: from any journal, what is to be done next.

use crate::history::{CallState, History, OpenCall, Phase};
use crate::recovery::OnInDoubt;

/// After this many resumes by the daemon without a new record a process is left suspended.
pub const CRASH_LOOP_MAX: u32 = 3;

/// What a new writer of a journal has to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// The last step that was carried out to its end.
    pub last_step: u32,
    /// Where to begin.
    pub next: Next,
    /// Intents without an outcome, each to be settled by its own action before anything else is done.
    pub open: Vec<OpenCall>,
    /// What to do with those that looking does not settle.
    pub on_in_doubt: OnInDoubt,
    /// Whether recovering it has failed too often to be tried again unasked.
    pub crash_loop: bool,
}

/// Where a process continues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Nothing was ever asked of it, or the model has said its last word: it needs an input.
    Input,
    /// Ask the model.
    Ask {
        /// For this step.
        step: u32,
        /// Whether it was asked before and the answer was lost: it is asked, and billed, again.
        again: bool,
    },
    /// Settle what is open, and then run the calls of this step that were not begun.
    Calls {
        /// The step.
        step: u32,
        /// The first call without an outcome.
        call: u32,
    },
}

impl History {
    /// What a new writer has to do.
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
