//! Signals that were acknowledged: the one that ends the process, and those that are kept while they are blocked.
//!
//! The rules are those of `relive-core`'s table, so that a recovered process stands where the table had it.

use relive_core::{Cause, Signal, SignalSet, SuspendReason};

use super::History;
use crate::record::{Paused, Resumed, ResumedBy, SignalMask, Signalled};

impl History {
    pub(super) fn signal(&mut self, signalled: &Signalled) {
        let Signalled { signal, cause, pending, req: _ } = signalled;
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
        // Those that are not blocked any more have landed: what followed from them is recorded before the mask.
        self.pending.retain(|(kept, _)| mask.blocked.contains(*kept));
    }

    /// The user's pause is a PAUSE that landed; one for another reason is no signal.
    pub(super) fn land_pause(&mut self, paused: &Paused) {
        if paused.reason == SuspendReason::User {
            self.drop_pending(&[Signal::Pause, Signal::Resume]);
        }
    }

    /// A resume that somebody asked for is a RESUME that landed; the daemon's own is no signal.
    pub(super) fn land_resume(&mut self, resumed: &Resumed) {
        match resumed.by {
            ResumedBy::User | ResumedBy::Descendant => self.drop_pending(&[Signal::Pause, Signal::Resume]),
            ResumedBy::DaemonStart | ResumedBy::Timer => {}
        }
    }

    /// An incarnation that has ended has no signals any more; the next one starts with none.
    pub(super) fn forget_signals(&mut self) {
        self.ending = None;
        self.pending.clear();
        (self.mask, self.handlers) = (SignalSet::EMPTY, SignalSet::EMPTY);
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

/// Being told to end again, and no more strongly, is nothing new; 0 for a signal that ends nothing.
fn strength(signal: Signal) -> u8 {
    match signal {
        Signal::Kill => 3,
        Signal::Term => 2,
        Signal::Int => 1,
        Signal::Pause | Signal::Resume => 0,
    }
}
