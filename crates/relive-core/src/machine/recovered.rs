//! A process as an earlier daemon left it.

use jiff::Timestamp;

use crate::ids::Incarnation;
use crate::machine::signal::Sent;
use crate::machine::{Life, Machine, Pause, Running};
use crate::process::Urgency;
use crate::signal::{Signal, SignalSet};
use crate::status::{Cause, SuspendReason};
use crate::time::{Moment, Stopwatch};

/// A pause that an earlier daemon left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Suspension {
    /// When the pause was asked for.
    pub asked_at: Timestamp,
    /// Why it is paused.
    pub reason: SuspendReason,
}

/// What the journal knows of a process that an earlier daemon left unended.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Recovered {
    /// Set for a process that was paused.
    pub suspension: Option<Suspension>,
    /// The blocked signals.
    pub mask: SignalSet,
    /// The signals it handles itself.
    pub handlers: SignalSet,
    /// Signals that were sent while blocked, in the order in which they were sent.
    pub pending: Vec<(Signal, Cause)>,
    /// The KILL, TERM or INT by which it was told to end. Other signals are ignored here.
    pub ending: Option<(Signal, Cause)>,
}

impl Machine {
    /// Returns a process that an earlier daemon left. It is Running and suspended at its boundary if it was paused,
    /// Running if it was told to end, and otherwise Created.
    ///
    /// Pending signals stay pending, blocked or not, because what they do is to be recorded: they land with the next
    /// `Start` or `SetMask`.
    #[must_use]
    pub fn recovered(incarnation: Incarnation, stopwatch: Stopwatch, recovered: Recovered, now: Moment) -> Self {
        let Recovered { suspension, mask, handlers, pending, ending } = recovered;
        let pause = match suspension {
            Some(Suspension { asked_at, reason }) => Pause::Suspended { asked_at, reason },
            None => Pause::None,
        };
        let ending = ending.filter(|(signal, _)| match signal {
            Signal::Term | Signal::Int | Signal::Kill => true,
            Signal::Pause | Signal::Resume => false,
        });
        let life = if suspension.is_some() || ending.is_some() {
            Life::Running(Running { pause, ending, ..Running::since(now.at) })
        } else {
            Life::Created
        };
        let mut machine = Self { mask, handlers, life, ..Self::new(incarnation, stopwatch) };
        if suspension.is_some() {
            machine.stopwatch.stop(now.up_ms);
        }
        for (signal, cause) in pending {
            let cancelled = signal.opposite().and_then(|opposite| machine.take_pending(opposite));
            if cancelled.is_none() && signal != Signal::Kill {
                machine.keep(Sent { signal, cause, urgency: Urgency::Boundary });
            }
        }
        machine
    }
}
