//! Ends blocking work that is no longer needed, or that takes too long.
//!
//! A job on a thread cannot be stopped from outside. So it checks a [`Leash`] every [`CHUNK`] bytes and before every
//! file, and the future that waits for it holds a [`Holder`]: dropping that future, which is how the loop follows an
//! order, ends the job at its next check.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::beneath::Refused;
use crate::plain_file;

/// How long a job that only reads may take.
pub(super) const READ_WITHIN: Duration = Duration::from_secs(30);
/// How long it may block other jobs. After that it is restarted among the slow jobs.
pub(super) const QUICK_WITHIN: Duration = Duration::from_millis(200);
/// How much is read between two checks.
const CHUNK: usize = 64 * 1024;

/// The end of a leash that a job checks. Cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct Leash {
    dropped: Arc<AtomicBool>,
    deadline: Option<Instant>,
}

/// Ends the job when it is dropped.
#[derive(Debug)]
pub(super) struct Holder(Arc<AtomicBool>);

impl Drop for Holder {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Returns the two ends of a leash, without a time limit.
pub(super) fn leash() -> (Holder, Leash) {
    let dropped = Arc::new(AtomicBool::new(false));
    (Holder(Arc::clone(&dropped)), Leash { dropped, deadline: None })
}

/// The reason why a job ended early.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
enum Ended {
    #[error("it was cancelled")]
    Dropped,
    #[error("it took longer than {} s and was given up", READ_WITHIN.as_secs())]
    TooSlow,
}

impl Leash {
    /// Limits the time of a job, from now on.
    pub(super) fn within(self, limit: Duration) -> Self {
        Self { deadline: Instant::now().checked_add(limit), ..self }
    }

    /// Returns whether the job has used up its time.
    pub(super) fn is_too_slow(&self) -> bool {
        self.look() == Err(Ended::TooSlow)
    }

    /// Returns an error if the job has to end.
    pub(super) fn check(&self) -> Result<(), Refused> {
        self.look().map_err(|ended| Refused::Said(ended.to_string()))
    }

    fn look(&self) -> Result<(), Ended> {
        if self.dropped.load(Ordering::Relaxed) {
            return Err(Ended::Dropped);
        }
        if self.deadline.is_some_and(|deadline| deadline <= Instant::now()) {
            return Err(Ended::TooSlow);
        }
        Ok(())
    }

    /// Reads a file, checking the leash before every chunk.
    pub(super) fn reader(&self, file: File) -> BufReader<Leashed> {
        BufReader::with_capacity(CHUNK, Leashed { file, leash: self.clone() })
    }

    /// Reads a file to its end, or up to `max` bytes.
    pub(super) fn read_all(&self, file: File, max: u64) -> io::Result<Vec<u8>> {
        let room = file.metadata()?.len().min(max).min(plain_file::ROOM_MAX);
        let mut bytes = Vec::with_capacity(usize::try_from(room).unwrap_or(0) + 1);
        Leashed { file, leash: self.clone() }.take(max).read_to_end(&mut bytes)?;
        Ok(bytes)
    }
}

/// A file that is read in chunks.
#[derive(Debug)]
pub(super) struct Leashed {
    file: File,
    leash: Leash,
}

impl Read for Leashed {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.leash.look().map_err(io::Error::other)?;
        let len = buffer.len().min(CHUNK);
        self.file.read(&mut buffer[..len])
    }
}
