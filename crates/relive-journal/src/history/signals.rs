//! Acknowledged signals: the one that ends the process, and the blocked ones that wait.
//!
//! The rules are those of `relive-core`, so that a recovered process is in the state that the table had.

use relive_core::{Cause, Signal, SignalSet, SuspendReason};

use super::History;
use crate::record::{Paused, Resumed, ResumedBy, SignalMask, Signalled};

impl History {
    pub(super) fn signal(&mut self, signalled: &Signalled) {
        let Signalled { signal, cause, end: _, pending, req: _ } = signalled;
        if *pending {
            self.keep_signal(*signal, *cause);
            return;
        }
        self.drop_pending(&[*signal]);
        let told = self.ending.as_ref().map_or(0, |ending| strength(ending.signal));
        if strength(*signal) > told {
            self.ending = Some(signalled.clone());
        }
    }

    pub(super) fn set_mask(&mut self, mask: &SignalMask) {
        (self.mask, self.handlers) = (mask.blocked, mask.handled);
        let added = mask.on.map(|command| command.signal);
        let has_command = |signal: &Signal| self.commands.contains(*signal) || added == Some(*signal);
        self.commands =
            Signal::LANDING_ORDER.into_iter().filter(|it| mask.handled.contains(*it) && has_command(it)).collect();
        // Signals that are no longer blocked were delivered: their effects are recorded before the mask.
        self.pending.retain(|(kept, _)| mask.blocked.contains(*kept));
    }

    /// Removes a pending PAUSE when the user's pause is recorded; a pause for another reason is not a signal.
    pub(super) fn land_pause(&mut self, paused: &Paused) {
        if paused.reason == SuspendReason::User {
            self.drop_pending(&[Signal::Pause, Signal::Resume]);
        }
    }

    /// Removes a pending RESUME when a requested resume is recorded; one by the daemon is not a signal.
    pub(super) fn land_resume(&mut self, resumed: &Resumed) {
        match resumed.by {
            ResumedBy::User | ResumedBy::Descendant => self.drop_pending(&[Signal::Pause, Signal::Resume]),
            ResumedBy::DaemonStart | ResumedBy::Timer | ResumedBy::Withdrawn => {}
        }
    }

    /// Forgets all signals when an incarnation ends; the next one starts with none.
    pub(super) fn forget_signals(&mut self) {
        self.ending = None;
        self.pending.clear();
        (self.mask, self.handlers, self.commands) = (SignalSet::EMPTY, SignalSet::EMPTY, SignalSet::EMPTY);
    }

    /// Keeps a signal once, with its first cause.
    fn keep_signal(&mut self, signal: Signal, cause: Cause) {
        let is_pending = |history: &Self, signal| history.pending.iter().any(|(kept, _)| *kept == signal);
        match signal.opposite() {
            Some(opposite) if is_pending(self, opposite) => self.drop_pending(&[opposite]),
            _ if signal == Signal::Kill || is_pending(self, signal) => {}
            _ => self.pending.push((signal, cause)),
        }
    }

    fn drop_pending(&mut self, landed: &[Signal]) {
        self.pending.retain(|(kept, _)| !landed.contains(kept));
    }
}

/// Returns the strength of a request to end; 0 for a signal that does not end a process. A repeated request that is not
/// stronger changes nothing.
fn strength(signal: Signal) -> u8 {
    match signal {
        Signal::Kill => 3,
        Signal::Term => 2,
        Signal::Int => 1,
        Signal::Pause | Signal::Resume => 0,
    }
}
