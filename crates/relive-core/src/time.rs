//! Moments, and how long a process has run.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// A moment, as both clocks tell it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment {
    /// The wall clock, which may jump: for people, and for moments that outlive a boot.
    pub at: Timestamp,
    /// Milliseconds since the machine's boot, which never go back within one boot: for durations.
    pub up_ms: u64,
}

/// Counts the time in which a process executes, by the clock of one boot.
///
/// The running view and the recovered view of a process have the same one: a machine starts and stops it when events
/// are applied, and a history when it takes in their records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Stopwatch {
    /// Before it was last started.
    ran_ms: u64,
    /// When it was last started; absent while it stands still.
    since_ms: Option<u64>,
}

impl Stopwatch {
    /// Returns one that stands still at this time.
    #[must_use]
    pub const fn stopped(ran_ms: u64) -> Self {
        Self { ran_ms, since_ms: None }
    }

    /// Returns one that stands at this time and runs from a moment on.
    #[must_use]
    pub const fn started(ran_ms: u64, up_ms: u64) -> Self {
        Self { ran_ms, since_ms: Some(up_ms) }
    }

    /// Lets it run from a moment on. Changes nothing if it runs.
    pub fn start(&mut self, up_ms: u64) {
        self.since_ms.get_or_insert(up_ms);
    }

    /// Stops it. Changes nothing if it stands still.
    pub fn stop(&mut self, up_ms: u64) {
        *self = Self::stopped(self.elapsed_ms(up_ms));
    }

    /// Returns the time it shows at a moment of the boot in which it was started.
    #[must_use]
    pub fn elapsed_ms(self, up_ms: u64) -> u64 {
        let running = self.since_ms.map_or(0, |since| up_ms.saturating_sub(since));
        self.ran_ms.saturating_add(running)
    }

    /// Tells whether it runs.
    #[must_use]
    pub fn is_running(self) -> bool {
        self.since_ms.is_some()
    }
}
