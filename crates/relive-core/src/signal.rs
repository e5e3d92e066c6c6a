//! The one decision of what becomes of a signal that was sent.
//!
//! Blocked, handled or default is decided here and nowhere else, from the mask and the handlers alone.
//! What a default action does to a process is the table's business.

pub use relive_types::signal::{KillSignal, Signal, SignalSet};

/// What becomes of a signal that was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Disposition {
    /// It waits in the pending set until it is unblocked.
    Blocked,
    /// The process's own handler gets it.
    Handled,
    /// The default action.
    Default,
}

/// Decide it, in one place: blocked, else handled, else default. KILL is always default.
#[must_use]
pub fn disposition(signal: Signal, mask: SignalSet, handlers: SignalSet) -> Disposition {
    if mask.contains(signal) {
        Disposition::Blocked
    } else if handlers.contains(signal) {
        Disposition::Handled
    } else {
        Disposition::Default
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_disposition_of_every_signal() {
        let all: SignalSet = Signal::ALL.into_iter().collect();
        assert_eq!(disposition(Signal::Kill, all, all), Disposition::Default);
        for signal in Signal::LANDING_ORDER {
            assert_eq!(disposition(signal, all, all), Disposition::Blocked);
            assert_eq!(disposition(signal, all.without(signal), all), Disposition::Handled);
            assert_eq!(disposition(signal, SignalSet::EMPTY, all.without(signal)), Disposition::Default);
        }
    }
}
