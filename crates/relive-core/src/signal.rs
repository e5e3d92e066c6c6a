//! The disposition of a signal: blocked, handled or default.
//!
//! It is decided here and nowhere else, from the mask and the handlers alone. The machine carries out the default
//! action.

pub use relive_types::signal::{KillSignal, Signal, SignalSet};

/// The disposition of a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Disposition {
    /// The signal stays pending until it is unblocked.
    Blocked,
    /// The process's own handler receives it.
    Handled,
    Default,
}

/// Returns blocked, else handled, else default. KILL is always default.
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
    fn every_signal_is_blocked_handled_or_default_and_kill_always_default() {
        let all: SignalSet = Signal::ALL.into_iter().collect();
        assert_eq!(disposition(Signal::Kill, all, all), Disposition::Default);
        for signal in Signal::LANDING_ORDER {
            assert_eq!(disposition(signal, all, all), Disposition::Blocked);
            assert_eq!(disposition(signal, all.without(signal), all), Disposition::Handled);
            assert_eq!(disposition(signal, SignalSet::EMPTY, all.without(signal)), Disposition::Default);
        }
    }
}
