//! The execution time of a process.
//!
//! Between two openings of the journal, which are within one boot, the differences of `up` are added while the process
//! runs: from its `opened`, `proceeded` or `resumed` to its `paused` or `ended`, but not while a `cli` record says that it
//! waits for a place in the pool. Time that no record covers, because a daemon was
//! killed or a program kept running without one, is in the next `opened`. The wall clock is not used.

use relive_core::{Stopwatch, Timestamp};

use super::History;
use crate::record::{Opened, Record};

impl History {
    /// Returns the execution time when the last record was written.
    #[must_use]
    pub fn ran_ms(&self) -> u64 {
        self.ran_until_ms(0)
    }

    /// Returns the stopwatch in its current state, for the holder of the open journal.
    #[must_use]
    pub fn stopwatch(&self) -> Stopwatch {
        self.stopwatch.unwrap_or_else(|| Stopwatch::stopped(self.ran_ms()))
    }

    /// Returns the execution time if the process ran until a moment of the boot of its last record.
    pub(crate) fn ran_until_ms(&self, up_ms: u64) -> u64 {
        match self.stopwatch {
            Some(stopwatch) => stopwatch.elapsed_ms(self.last_up.unwrap_or(0).max(up_ms)),
            None => self.ran_ms_by_wall_clock(),
        }
    }

    /// Returns whether its last record is by a daemon that started at this moment of the same boot, or later.
    pub(crate) fn is_since(&self, up_ms: u64) -> bool {
        self.last_up.is_some_and(|last| last >= up_ms)
    }

    /// Returns the time that was shown before records had `up`: it includes time without a daemon.
    fn ran_ms_by_wall_clock(&self) -> u64 {
        let Some(identity) = &self.identity else { return 0 };
        let stood_at = self.ended().map(|(at, _)| *at).or(self.paused.as_ref().map(|paused| paused.asked_at));
        let until = stood_at.or(self.last_at).unwrap_or(identity.created_at);
        ran_by_wall_clock(identity.created_at, until, self.paused_total_ms)
    }

    /// Notes when a record was written.
    pub(super) fn pass_time(&mut self, up: Option<u64>) {
        self.last_up = self.last_up.max(up);
    }

    /// Starts an incarnation, whose clock may be that of another boot.
    pub(super) fn begin_time(&mut self, record: &Record, opened: &Opened) {
        match record.up {
            Some(up) if self.executes() => self.stopwatch = Some(Stopwatch::started(opened.ran_ms, up)),
            Some(_) => self.stopwatch = Some(Stopwatch::stopped(opened.ran_ms)),
            // An older Relive writes from here on and does not count.
            None => self.stop_time(self.last_up),
        }
        if opened.held {
            self.stopwatch = self.stopwatch.map(Stopwatch::held);
        }
        self.last_up = record.up;
    }

    /// Resets the time: a fork has not run yet.
    pub(super) fn reset_time(&mut self, up: Option<u64>) {
        let is_held = self.is_at_gate();
        self.stopwatch = up.map(|up| Stopwatch::started(0, up));
        if is_held {
            self.stopwatch = self.stopwatch.map(Stopwatch::held);
        }
        self.last_up = up;
    }

    /// Returns whether the process is a program that has not passed its gate.
    fn is_at_gate(&self) -> bool {
        self.stopwatch.is_some_and(Stopwatch::is_held)
    }

    /// Returns whether the next incarnation begins at its gate: one that has ended begins again.
    pub(crate) fn begins_at_gate(&self) -> bool {
        match self.ended() {
            Some(_) => self.identity.as_ref().is_some_and(|identity| identity.spawned.begins_at_gate()),
            None => self.is_at_gate(),
        }
    }

    /// Counts the time from now on, unless there is another reason why the process does not execute.
    pub(super) fn release_time(&mut self, up: Option<u64>) {
        if let Some(stopwatch) = &mut self.stopwatch {
            stopwatch.release();
        }
        self.start_time(up);
    }

    /// Starts the time, unless there is another reason why the process does not execute.
    pub(super) fn start_time(&mut self, up: Option<u64>) {
        if !self.executes() {
            return;
        }
        if let (Some(stopwatch), Some(up)) = (&mut self.stopwatch, up) {
            stopwatch.start(up);
        }
    }

    fn executes(&self) -> bool {
        self.paused.is_none() && !self.is_queued()
    }

    /// Returns whether its body waits for a place in which to execute.
    #[must_use]
    pub fn is_queued(&self) -> bool {
        self.cli.as_ref().is_some_and(|cli| cli.is_queued)
    }

    pub(super) fn stop_time(&mut self, up: Option<u64>) {
        if let (Some(stopwatch), Some(up)) = (&mut self.stopwatch, up) {
            stopwatch.stop(up);
        }
    }
}

/// Returns the execution time by the wall clock, for journals without `up`.
pub(crate) fn ran_by_wall_clock(created_at: Timestamp, until: Timestamp, paused_total_ms: u64) -> u64 {
    let alive_ms = until.as_millisecond() - created_at.as_millisecond();
    u64::try_from(alive_ms).unwrap_or(0).saturating_sub(paused_total_ms)
}
