//! Faults for tests: a stop at the n-th change, and a stat cache that is broken on purpose.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The faults of a [`crate::Disk`].
#[derive(Debug)]
pub struct Faults {
    changes: AtomicU64,
    stop_at: AtomicU64,
    trust_equal_mtime: AtomicBool,
}

impl Default for Faults {
    fn default() -> Self {
        Self {
            changes: AtomicU64::new(0),
            stop_at: AtomicU64::new(u64::MAX),
            trust_equal_mtime: AtomicBool::new(false),
        }
    }
}

impl Faults {
    /// Allows `changes` more changes; every later one fails, as if the process had been killed.
    pub fn stop_after(&self, changes: u64) {
        self.changes.store(0, Ordering::SeqCst);
        self.stop_at.store(changes, Ordering::SeqCst);
    }

    /// Allows all changes again, like a new process.
    pub fn allow_all(&self) {
        self.stop_after(u64::MAX);
    }

    /// Returns how many changes were requested since [`Self::stop_after`] or [`Self::allow_all`].
    pub fn changes(&self) -> u64 {
        self.changes.load(Ordering::SeqCst)
    }

    /// Breaks the stat cache: it trusts a file with unchanged size and mtime.
    pub fn trust_equal_mtime(&self) {
        self.trust_equal_mtime.store(true, Ordering::SeqCst);
    }

    pub(crate) fn trusts_equal_mtime(&self) -> bool {
        self.trust_equal_mtime.load(Ordering::SeqCst)
    }

    pub(crate) fn step(&self) -> io::Result<()> {
        let before = self.changes.fetch_add(1, Ordering::SeqCst);
        if before >= self.stop_at.load(Ordering::SeqCst) {
            return Err(io::Error::other("stopped by the test"));
        }
        Ok(())
    }

    /// Returns whether the change that was just refused was the first one.
    pub(crate) fn just_stopped(&self) -> bool {
        self.changes() == self.stop_at.load(Ordering::SeqCst) + 1
    }
}
