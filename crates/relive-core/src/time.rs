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
pub struct Stopwatch {
    /// Time counted before the last start.
    ran_ms: u64,
    /// When it was last started; absent while it is stopped.
    since_ms: Option<u64>,
    /// Whether it cannot be started: the process is a program that waits at its gate.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    held: bool,
}

impl Stopwatch {
    /// Returns a stopwatch that is stopped at `ran_ms`.
    #[must_use]
    pub const fn stopped(ran_ms: u64) -> Self {
        Self { ran_ms, since_ms: None, held: false }
    }

    /// Returns a stopwatch that runs from `up_ms` on, with `ran_ms` already counted.
    #[must_use]
    pub const fn started(ran_ms: u64, up_ms: u64) -> Self {
        Self { ran_ms, since_ms: Some(up_ms), held: false }
    }

    /// Returns the same stopwatch, stopped at `ran_ms`.
    #[must_use]
    pub const fn stopped_at(self, ran_ms: u64) -> Self {
        Self { ran_ms, since_ms: None, ..self }
    }

    /// Returns the same stopwatch, stopped until it is released.
    #[must_use]
    pub const fn held(self) -> Self {
        Self { since_ms: None, held: true, ..self }
    }

    /// Starts it. Changes nothing if it runs or is held.
    pub fn start(&mut self, up_ms: u64) {
        if !self.held {
            self.since_ms.get_or_insert(up_ms);
        }
    }

    /// Stops it. Changes nothing if it is stopped.
    pub fn stop(&mut self, up_ms: u64) {
        *self = self.stopped_at(self.elapsed_ms(up_ms));
    }

    /// Lets it be started again.
    pub fn release(&mut self) {
        self.held = false;
    }

    #[must_use]
    pub fn is_held(self) -> bool {
        self.held
    }

    /// Returns the counted time at a moment of the boot in which it was started.
    #[must_use]
    pub fn elapsed_ms(self, up_ms: u64) -> u64 {
        let running = self.since_ms.map_or(0, |since| up_ms.saturating_sub(since));
        self.ran_ms.saturating_add(running)
    }

    #[must_use]
    pub fn is_running(self) -> bool {
        self.since_ms.is_some()
    }
}
