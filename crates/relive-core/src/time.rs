//! Moments and elapsed time.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// A moment on both clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment {
    /// Wall clock time, which may jump: for people, and for moments that outlive a boot.
    pub at: Timestamp,
    /// Milliseconds since boot, which never decrease within one boot: for durations.
    pub up_ms: u64,
}

/// Counts the time in which a process executes, on the clock of one boot.
///
/// Both the running and the recovered view of a process use it: a machine starts and stops it when events are applied,
/// and a journal replay when it reads their records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(from = "Stored", into = "Stored")]
pub struct Stopwatch {
    /// Time counted before the last start.
    ran_ms: u64,
    hand: Hand,
}

/// What a stopwatch does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Hand {
    #[default]
    Stopped,
    Running {
        since_ms: u64,
    },
    /// It cannot be started: the process is a program that waits at its gate.
    Held,
}

/// A stopwatch as it is written.
#[derive(Serialize, Deserialize)]
struct Stored {
    ran_ms: u64,
    since_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    held: bool,
}

impl From<Stored> for Stopwatch {
    fn from(stored: Stored) -> Self {
        let hand = match (stored.held, stored.since_ms) {
            (true, _) => Hand::Held,
            (false, Some(since_ms)) => Hand::Running { since_ms },
            (false, None) => Hand::Stopped,
        };
        Self { ran_ms: stored.ran_ms, hand }
    }
}

impl From<Stopwatch> for Stored {
    fn from(stopwatch: Stopwatch) -> Self {
        let since_ms = match stopwatch.hand {
            Hand::Running { since_ms } => Some(since_ms),
            Hand::Stopped | Hand::Held => None,
        };
        Self { ran_ms: stopwatch.ran_ms, since_ms, held: stopwatch.is_held() }
    }
}

impl Stopwatch {
    /// Returns a stopwatch that is stopped at `ran_ms`.
    #[must_use]
    pub const fn stopped(ran_ms: u64) -> Self {
        Self { ran_ms, hand: Hand::Stopped }
    }

    /// Returns a stopwatch that runs from `up_ms` on, with `ran_ms` already counted.
    #[must_use]
    pub const fn started(ran_ms: u64, up_ms: u64) -> Self {
        Self { ran_ms, hand: Hand::Running { since_ms: up_ms } }
    }

    /// Returns the same stopwatch, stopped at `ran_ms`.
    #[must_use]
    pub const fn stopped_at(self, ran_ms: u64) -> Self {
        let hand = match self.hand {
            Hand::Held => Hand::Held,
            Hand::Running { .. } | Hand::Stopped => Hand::Stopped,
        };
        Self { ran_ms, hand }
    }

    /// Returns the same stopwatch, stopped until it is released.
    #[must_use]
    pub const fn held(self) -> Self {
        Self { hand: Hand::Held, ..self }
    }

    /// Starts it. Changes nothing if it runs or is held.
    pub fn start(&mut self, up_ms: u64) {
        if self.hand == Hand::Stopped {
            self.hand = Hand::Running { since_ms: up_ms };
        }
    }

    /// Stops it. Changes nothing if it is stopped.
    pub fn stop(&mut self, up_ms: u64) {
        *self = self.stopped_at(self.elapsed_ms(up_ms));
    }

    /// Lets it be started again.
    pub fn release(&mut self) {
        if self.hand == Hand::Held {
            self.hand = Hand::Stopped;
        }
    }

    #[must_use]
    pub fn is_held(self) -> bool {
        self.hand == Hand::Held
    }

    /// Returns the counted time at a moment of the boot in which it was started.
    #[must_use]
    pub fn elapsed_ms(self, up_ms: u64) -> u64 {
        let running = match self.hand {
            Hand::Running { since_ms } => up_ms.saturating_sub(since_ms),
            Hand::Stopped | Hand::Held => 0,
        };
        self.ran_ms.saturating_add(running)
    }

    #[must_use]
    pub fn is_running(self) -> bool {
        matches!(self.hand, Hand::Running { .. })
    }
}
