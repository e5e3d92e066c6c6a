//! Signals to an incarnation that has ended.

use relive_api::Affected;
use relive_core::{ErrorCode, OsSignal, Signal, Uuid};

use crate::error::{Error, Result};
use crate::runtime::Runtime;

const NO_SIGNAL: &str = "got no signal";

/// The command that sends the same to another process, and what did not happen to that one.
pub(crate) struct Resend {
    command: String,
    not_done: &'static str,
}

impl Resend {
    pub(crate) fn of(signal: Signal, subtree: bool) -> Self {
        let (command, not_done) = match signal {
            Signal::Term => ("relive kill", NO_SIGNAL),
            Signal::Kill => ("relive kill -9", NO_SIGNAL),
            Signal::Int => ("relive kill -s INT", NO_SIGNAL),
            Signal::Pause => ("relive pause", "was not paused"),
            Signal::Resume => ("relive resume", "was not resumed"),
        };
        Self { command: format!("{command}{}", if subtree { " --subtree" } else { "" }), not_done }
    }

    pub(crate) fn of_program(signal: OsSignal) -> Self {
        Self { command: format!("relive kill -s {}", signal.name().trim_start_matches("SIG")), not_done: NO_SIGNAL }
    }
}

impl Runtime {
    /// Answers a signal to an incarnation that has ended. The process may have been resumed since: that one gets nothing, and
    /// whoever typed the earlier PID is refused, because the process that was meant runs on.
    pub(crate) fn ended_earlier(&self, id: &str, uuid: Uuid, resend: &Resend) -> Result<Affected> {
        let Some(now) = self.living(uuid).map(|now| now.of.pid) else { return Ok(ended_already(id)) };
        let resumed = format!("has ended and was resumed as PID {now}, which {}", resend.not_done);
        if id.bytes().all(|byte| byte.is_ascii_digit()) {
            let error = Error::new(ErrorCode::Conflict, format!("PID {id} {resumed}"));
            return Err(error.with_hint(format!("{} {now}", resend.command)));
        }
        Ok(Affected { note: Some(format!("`{id}` {resumed}")), ..Affected::default() })
    }
}

/// Answers a signal to a process that has ended.
pub(crate) fn ended_already(id: &str) -> Affected {
    Affected { note: Some(format!("`{id}` has ended already: nothing to do")), ..Affected::default() }
}
