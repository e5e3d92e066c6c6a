//! Tracks how much of a journal is on the disk, and runs a sync concurrently with the writer.
//!
//! A record on which nothing depends yet need not delay its process: [`PendingSync`] syncs on another thread while the
//! writer appends. **Invariant:** one `fdatasync` of a journal runs at a time. Linux reports a write-back error once
//! for each open file, so of two concurrent syncs the second could succeed although the first lost data.

use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::disk::{Disk, DiskFile};

/// How long the disk may lag behind before the next concurrent sync waits for the running one.
const LAG_MAX: Duration = Duration::from_millis(50);

/// A position between two records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Mark {
    /// The length of the journal up to this position.
    pub(crate) end: u64,
    /// The last record before it.
    pub(crate) seq: u64,
}

/// The state shared by a writer and the threads that sync for it.
#[derive(Debug, Default)]
pub(crate) struct SyncTracker {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// The length of the journal that is on the disk; absent before the first sync of a journal from an earlier writer,
    /// which may have left records unsynced.
    to: Option<u64>,
    /// The last record known to be on the disk.
    seq: u64,
    under_way: Option<UnderWay>,
    failed: Option<io::Error>,
    /// Called on a failure once there is no writer that would notice it.
    on_failure: Option<Poison>,
}

/// Marks a journal as not writable.
type Poison = Box<dyn FnOnce() + Send>;

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { to, seq, under_way, failed, on_failure: _ } = self;
        f.debug_struct("State")
            .field("to", to)
            .field("seq", seq)
            .field("under_way", under_way)
            .field("failed", failed)
            .finish_non_exhaustive()
    }
}

#[derive(Debug)]
struct UnderWay {
    since: Instant,
    /// The required position. It grows while the sync runs, and then another sync follows.
    wanted: Mark,
}

impl SyncTracker {
    pub(crate) fn new(to: Option<u64>, seq: u64) -> Arc<Self> {
        Arc::new(Self { state: Mutex::new(State { to, seq, ..State::default() }), changed: Condvar::new() })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn to(&self) -> Option<u64> {
        self.lock().to
    }

    pub(crate) fn seq(&self) -> u64 {
        self.lock().seq
    }

    /// Notes that everything up to `mark` is on the disk.
    pub(crate) fn reached(&self, mark: Mark) {
        let mut state = self.lock();
        (state.to, state.seq) = (Some(mark.end), mark.seq);
    }

    /// Waits until no sync is running.
    pub(crate) fn wait(&self) {
        let mut state = self.lock();
        while state.under_way.is_some() {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Takes the error of a failed concurrent sync.
    pub(crate) fn take_failure(&self) -> Option<io::Error> {
        self.lock().failed.take()
    }

    /// Ends the writer. `poison` is called if a running sync fails, or an earlier failure was not noticed: the next
    /// writer could not detect it.
    pub(crate) fn leave(&self, poison: impl FnOnce() + Send + 'static) {
        let mut state = self.lock();
        if state.failed.is_some() {
            drop(state);
            poison();
        } else if state.under_way.is_some() {
            state.on_failure = Some(Box::new(poison));
        }
    }

    /// Requests a sync up to `mark`. Returns it unless a running one can cover it too.
    pub(crate) fn begin(self: &Arc<Self>, mark: Mark, disk: &Disk, file: &Arc<DiskFile>) -> Option<PendingSync> {
        let mut state = self.lock();
        while let Some(under_way) = &mut state.under_way {
            if under_way.since.elapsed() < LAG_MAX {
                under_way.wanted = mark;
                return None;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if state.failed.is_some() {
            return None;
        }
        state.under_way = Some(UnderWay { since: Instant::now(), wanted: mark });
        Some(PendingSync { disk: disk.clone(), file: Arc::clone(file), synced: Arc::clone(self), over: false })
    }
}

/// Reports how much of a journal is on the disk, even while its writer is busy.
#[derive(Debug, Clone)]
pub struct SyncedEnd(pub(crate) Arc<SyncTracker>);

impl SyncedEnd {
    /// Returns the end of the records that are on the disk; 0 if it is not known yet.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.to().unwrap_or(0)
    }
}

/// A sync to run concurrently with its writer. Dropping it without running it counts as a failure.
#[derive(Debug)]
#[must_use = "the journal waits for it"]
pub struct PendingSync {
    disk: Disk,
    file: Arc<DiskFile>,
    synced: Arc<SyncTracker>,
    over: bool,
}

impl PendingSync {
    /// Syncs until everything requested in the meantime is on the disk. Blocks.
    pub fn run(mut self) {
        while let Some(mark) = self.wanted() {
            let outcome = self.disk.sync(&self.file);
            if self.report(mark, outcome) {
                break;
            }
        }
        self.over = true;
    }

    fn wanted(&self) -> Option<Mark> {
        self.synced.lock().under_way.as_ref().map(|under_way| under_way.wanted)
    }

    /// Records the outcome of one sync; returns `true` if no other is needed.
    fn report(&self, mark: Mark, outcome: io::Result<()>) -> bool {
        let mut state = self.synced.lock();
        let mut poison = None;
        let more = match outcome {
            Ok(()) => {
                (state.to, state.seq) = (Some(mark.end), mark.seq);
                state.under_way.as_ref().is_some_and(|under_way| under_way.wanted != mark)
            }
            Err(error) => {
                state.failed = Some(error);
                poison = state.on_failure.take();
                false
            }
        };
        match &mut state.under_way {
            Some(under_way) if more => under_way.since = Instant::now(),
            Some(_) | None => state.under_way = None,
        }
        drop(state);
        // Done before the journal can be opened again: this sync holds its lock until it is dropped.
        if let Some(poison) = poison {
            poison();
        }
        self.synced.changed.notify_all();
        !more
    }
}

impl Drop for PendingSync {
    fn drop(&mut self) {
        if !self.over {
            self.report(Mark::default(), Err(io::Error::other("a sync was abandoned")));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file() -> (Disk, Arc<DiskFile>, tempfile::TempDir) {
        let (disk, directory) = (Disk::new(), tempfile::tempdir().unwrap());
        let file = disk.create(&directory.path().join("file")).unwrap();
        (disk, Arc::new(file), directory)
    }

    #[test]
    fn a_sync_requested_during_another_runs_on_the_same_thread() {
        let (disk, file, _directory) = file();
        let synced = SyncTracker::new(Some(0), 0);
        let (first, second) = (Mark { end: 10, seq: 1 }, Mark { end: 20, seq: 2 });
        let pending = synced.begin(first, &disk, &file).unwrap();
        assert!(synced.begin(second, &disk, &file).is_none(), "one at a time");
        assert!(!pending.report(first, Ok(())), "the first is there, and the second still wanted");
        assert_eq!((synced.to(), synced.seq()), (Some(10), 1));
        pending.run();
        assert_eq!((synced.to(), synced.seq()), (Some(20), 2));
        synced.wait();
        assert!(synced.begin(second, &disk, &file).is_some(), "the next one begins anew");
    }

    #[test]
    fn the_next_sync_waits_for_one_that_lags_behind() {
        let (disk, file, _directory) = file();
        let synced = SyncTracker::new(Some(0), 0);
        let pending = synced.begin(Mark { end: 10, seq: 1 }, &disk, &file).unwrap();
        synced.lock().under_way.as_mut().unwrap().since = Instant::now().checked_sub(LAG_MAX).unwrap();
        let waiter = {
            let (synced, disk, file) = (Arc::clone(&synced), disk.clone(), Arc::clone(&file));
            std::thread::spawn(move || synced.begin(Mark { end: 20, seq: 2 }, &disk, &file).map(PendingSync::run))
        };
        pending.run();
        assert!(waiter.join().unwrap().is_some(), "it has a sync of its own");
        assert_eq!(synced.to(), Some(20));
    }

    #[test]
    fn an_abandoned_sync_counts_as_failed() {
        let (disk, file, _directory) = file();
        let synced = SyncTracker::new(Some(0), 0);
        drop(synced.begin(Mark { end: 10, seq: 1 }, &disk, &file).unwrap());
        synced.wait();
        assert!(synced.begin(Mark { end: 10, seq: 1 }, &disk, &file).is_none(), "nothing is synced after a failure");
        assert!(synced.take_failure().is_some());
        assert_eq!(synced.to(), Some(0));
    }
}
