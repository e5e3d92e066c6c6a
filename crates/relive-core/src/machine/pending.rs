//! Blocked signals that wait.

use crate::machine::Machine;
use crate::machine::signal::Sent;
use crate::process::Urgency;
use crate::signal::Signal;
use crate::status::Cause;

/// The blocked signals that wait. It never contains both a PAUSE and a RESUME.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Pending {
    causes: [Option<Cause>; Signal::LANDING_ORDER.len()],
    /// The urgency of a pending PAUSE.
    urgency: Urgency,
}

impl Pending {
    fn cause_mut(&mut self, signal: Signal) -> Option<&mut Option<Cause>> {
        let at = Signal::LANDING_ORDER.iter().position(|candidate| *candidate == signal)?;
        self.causes.get_mut(at)
    }

    /// Adds a signal and returns whether anything changed. The first cause stays.
    fn add(&mut self, sent: Sent) -> bool {
        let Some(kept) = self.cause_mut(sent.signal) else { return false };
        let is_new = kept.is_none();
        kept.get_or_insert(sent.cause);
        let is_sooner = sent.signal == Signal::Pause && (is_new || sent.urgency > self.urgency);
        if is_sooner {
            self.urgency = sent.urgency;
        }
        is_new || is_sooner
    }

    fn is_empty(&self) -> bool {
        self.causes.iter().all(Option::is_none)
    }

    pub(super) fn urgency(&self) -> Urgency {
        self.urgency
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (Signal, Cause)> {
        Signal::LANDING_ORDER.into_iter().zip(self.causes).filter_map(|(signal, cause)| Some((signal, cause?)))
    }
}

impl Machine {
    /// Keeps a signal until it is unblocked, and returns whether anything changed.
    pub(super) fn keep(&mut self, sent: Sent) -> bool {
        self.pending.get_or_insert_default().add(sent)
    }

    pub(super) fn take_pending(&mut self, signal: Signal) -> Option<Sent> {
        let pending = self.pending.as_mut()?;
        let urgency = pending.urgency;
        let cause = pending.cause_mut(signal)?.take();
        if pending.is_empty() {
            self.pending = None;
        }
        Some(Sent { signal, cause: cause?, urgency })
    }
}
