//! Faults for tests: a stop at the n-th change, another program that acts between two changes, a file system that can
//! only rename, and a stat cache that is broken on purpose.

use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// The faults of a [`crate::Disk`].
#[derive(Debug)]
pub struct Faults {
    changes: AtomicU64,
    stop_at: AtomicU64,
    trust_equal_mtime: AtomicBool,
    no_rename_flags: AtomicBool,
    other: Mutex<Option<OtherProgram>>,
}

/// Acts before each change; the argument is its number.
struct OtherProgram(Box<dyn FnMut(u64) + Send>);

impl fmt::Debug for OtherProgram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OtherProgram")
    }
}

impl Default for Faults {
    fn default() -> Self {
        Self {
            changes: AtomicU64::new(0),
            stop_at: AtomicU64::new(u64::MAX),
            trust_equal_mtime: AtomicBool::new(false),
            no_rename_flags: AtomicBool::new(false),
            other: Mutex::new(None),
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

    /// Lets another program act before each change, from now on; the argument is the number of the change.
    pub fn before_each_change(&self, act: impl FnMut(u64) + Send + 'static) {
        self.allow_all();
        *self.other.lock().unwrap_or_else(PoisonError::into_inner) = Some(OtherProgram(Box::new(act)));
    }

    /// Treats the file system like one that can only rename: it neither swaps two names nor refuses one that exists.
    pub fn without_rename_flags(&self) {
        self.no_rename_flags.store(true, Ordering::SeqCst);
    }

    pub(crate) fn has_no_rename_flags(&self) -> bool {
        self.no_rename_flags.load(Ordering::SeqCst)
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
        if let Some(OtherProgram(act)) = &mut *self.other.lock().unwrap_or_else(PoisonError::into_inner) {
            act(before);
        }
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
