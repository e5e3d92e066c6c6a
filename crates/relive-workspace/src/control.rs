//! Cancellation, progress and clocks of an operation.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use crate::error::{Error, Result};

/// The source of time.
pub trait Clock: Send + Sync {
    /// Returns the wall clock time, with which file systems stamp files.
    fn now(&self) -> SystemTime;
    /// Returns the time of a clock that never jumps, for limits.
    fn monotonic(&self) -> Duration;
}

/// The machine's clocks.
#[derive(Debug)]
pub struct SystemClock(Instant);

impl Default for SystemClock {
    fn default() -> Self {
        Self(Instant::now())
    }
}

impl Clock for SystemClock {
    fn now(&self) -> SystemTime {
        SystemTime::now()
    }

    fn monotonic(&self) -> Duration {
        self.0.elapsed()
    }
}

/// The progress of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// Examined this many files, and read this many bytes of the changed ones.
    Scanned { files: u64, bytes: u64 },
    /// Wrote this many of all files.
    Written {
        files: u64,
        /// The number of all files.
        of: u64,
    },
}

type Report = dyn Fn(Progress) + Send + Sync;

/// A caller's control of an operation: cancellation, progress and the clock. Clones share the flag.
#[derive(Clone)]
pub struct Control {
    cancel: Arc<AtomicBool>,
    report: Option<Arc<Report>>,
    clock: Arc<dyn Clock>,
}

impl Default for Control {
    fn default() -> Self {
        Self { cancel: Arc::default(), report: None, clock: Arc::new(SystemClock::default()) }
    }
}

impl fmt::Debug for Control {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Control").field("cancel", &self.cancel).finish_non_exhaustive()
    }
}

impl Control {
    /// Stops the operation with [`Error::Cancelled`] once the flag is set. A restore or merge that already writes is
    /// not stopped: it takes milliseconds, and half a restore is useless.
    #[must_use]
    pub fn with_cancel(self, cancel: Arc<AtomicBool>) -> Self {
        Self { cancel, ..self }
    }

    /// Calls `report` from time to time, from any thread.
    #[must_use]
    pub fn with_progress(self, report: impl Fn(Progress) + Send + Sync + 'static) -> Self {
        Self { report: Some(Arc::new(report)), ..self }
    }

    /// Uses another clock than the machine's.
    #[must_use]
    pub fn with_clock(self, clock: Arc<dyn Clock>) -> Self {
        Self { clock, ..self }
    }

    pub(crate) fn clock(&self) -> &dyn Clock {
        &*self.clock
    }

    pub(crate) fn report(&self, progress: Progress) {
        if let Some(report) = &self.report {
            report(progress);
        }
    }

    pub(crate) fn check(&self) -> Result<()> {
        if self.cancel.load(Ordering::Relaxed) { Err(Error::Cancelled) } else { Ok(()) }
    }
}
