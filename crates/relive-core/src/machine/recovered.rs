//! The state of a process as an earlier daemon left it.

use jiff::Timestamp;

use crate::ids::Incarnation;
use crate::machine::signal::Sent;
use crate::machine::{Life, Machine, Pause, Running};
use crate::process::Urgency;
use crate::signal::{Signal, SignalSet};
use crate::status::{Cause, End, SuspendReason};
use crate::time::{Moment, Stopwatch};

/// A pause recorded by an earlier daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Suspension {
    /// When the pause was requested.
    pub asked_at: Timestamp,
    pub reason: SuspendReason,
    /// Who asked for it, if somebody did.
    pub cause: Option<Cause>,
}

/// The state, read from the journal, of a process that was living when an earlier daemon ended.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Recovered {
    /// Set for a process that was paused.
    pub suspension: Option<Suspension>,
    pub mask: SignalSet,
    /// The signals that the process handles itself.
    pub handlers: SignalSet,
    /// The blocked signals, in the order in which they were sent. A PAUSE takes effect at the boundary: its urgency is not
    /// recorded.
    pub pending: Vec<(Signal, Cause)>,
    /// The KILL, TERM or INT that asked the process to end. Other signals are ignored here.
    pub ending: Option<(Signal, Cause)>,
    /// How it wanted to end itself; only with `ending`.
    pub own_end: Option<End>,
    /// Whether its body waited for a place in which to execute.
    pub is_queued: bool,
}

impl Machine {
    /// Returns the machine of a recovered process. It is Running and suspended at its boundary if it was paused,
    /// Running if it was asked to end, and otherwise Created.
    ///
    /// Pending signals stay pending, blocked or not, because their effects must be recorded: they are delivered with
    /// the next `Start` or `SetMask`.
    #[must_use]
    pub fn recovered(incarnation: Incarnation, stopwatch: Stopwatch, recovered: Recovered, now: Moment) -> Self {
        let Recovered { suspension, mask, handlers, pending, ending, own_end, is_queued } = recovered;
        let pause = match suspension {
            Some(Suspension { asked_at, reason, cause }) => Pause::Suspended { asked_at, reason, cause },
            None => Pause::None,
        };
        let ending = ending.filter(|(signal, _)| match signal {
            Signal::Term | Signal::Int | Signal::Kill => true,
            Signal::Pause | Signal::Resume => false,
        });
        let life = if suspension.is_some() || ending.is_some() {
            let own_end = own_end.filter(|_| ending.is_some()).map(Box::new);
            Life::Running(Running { pause, ending, own_end, ..Running::since(now.at) })
        } else {
            Life::Created
        };
        let mut machine = Self { mask, handlers, life, is_queued, ..Self::new(incarnation, stopwatch) };
        if suspension.is_some() || is_queued {
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
