//! How much of a journal is on the disk, and a sync that runs beside its writer.
//!
//! A record on which nothing depends yet need not hold up its process: [`PendingSync`] syncs on another thread while the
//! writer appends. **Invariant:** one `fdatasync` of a journal runs at a time. Linux reports a write-back error once for
//! each open file, so of two at once the second could succeed over the first one's loss.

use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::disk::{Disk, DiskFile};

/// How long the disk may lag behind before the next sync beside the writer waits for the one under way.
const LAG_MAX: Duration = Duration::from_millis(50);

/// A place between two records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Mark {
    /// How many bytes the journal has up to there.
    pub(crate) end: u64,
    /// The last record before it.
    pub(crate) seq: u64,
}

/// What a writer and the threads that sync for it share.
#[derive(Debug, Default)]
pub(crate) struct SyncTracker {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Up to where the journal is on the disk; absent before the first sync of a journal that an earlier writer wrote,
    /// because that one may have left records unsynced.
    to: Option<u64>,
    /// The last record known to be on the disk.
    seq: u64,
    under_way: Option<UnderWay>,
    failed: Option<io::Error>,
    /// What is to be told of a failure, once there is no writer that would find it.
    left_to: Option<Poison>,
}

/// Says that nothing more may be written to a journal.
type Poison = Box<dyn FnOnce() + Send>;

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { to, seq, under_way, failed, left_to: _ } = self;
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
    /// How far it has to get. It grows while the sync runs, and then another one follows.
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

    /// Everything up to `mark` is on the disk.
    pub(crate) fn reached(&self, mark: Mark) {
        let mut state = self.lock();
        (state.to, state.seq) = (Some(mark.end), mark.seq);
    }

    /// Waits until no sync is under way.
    pub(crate) fn wait(&self) {
        let mut state = self.lock();
        while state.under_way.is_some() {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Takes the error of a sync beside the writer, if one failed.
    pub(crate) fn take_failure(&self) -> Option<io::Error> {
        self.lock().failed.take()
    }

    /// The writer goes. If a sync fails that runs on, or has failed unnoticed, `poison` is called: the next writer could not
    /// find that out.
    pub(crate) fn leave(&self, poison: impl FnOnce() + Send + 'static) {
        let mut state = self.lock();
        if state.failed.is_some() {
            drop(state);
            poison();
        } else if state.under_way.is_some() {
            state.left_to = Some(Box::new(poison));
        }
    }

    /// Asks for a sync up to `mark`. Returns it if none is under way that could do it as well.
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

/// Tells how much of a journal is on the disk, also while its writer is busy.
#[derive(Debug, Clone)]
pub struct SyncedEnd(pub(crate) Arc<SyncTracker>);

impl SyncedEnd {
    /// Returns the end of the records that are on the disk; 0 if that is not known yet.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.to().unwrap_or(0)
    }
}

/// A sync that is to run beside its writer. Dropped without being run, it has failed.
#[derive(Debug)]
#[must_use = "the journal waits for it"]
pub struct PendingSync {
    disk: Disk,
    file: Arc<DiskFile>,
    synced: Arc<SyncTracker>,
    over: bool,
}

impl PendingSync {
    /// Syncs until everything that was asked for meanwhile is on the disk. It blocks.
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

    /// Records the outcome of one sync; `true` if no other is needed.
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
                poison = state.left_to.take();
                false
            }
        };
        match &mut state.under_way {
            Some(under_way) if more => under_way.since = Instant::now(),
            Some(_) | None => state.under_way = None,
        }
        drop(state);
        // Before anybody opens the journal anew: this sync holds its lock until it is dropped.
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
            self.report(Mark::default(), Err(io::Error::other("a sync was given up")));
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
    fn what_is_asked_for_meanwhile_is_synced_by_the_same_thread() {
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
    fn a_sync_that_lags_is_waited_for() {
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
    fn a_sync_that_is_given_up_has_failed() {
        let (disk, file, _directory) = file();
        let synced = SyncTracker::new(Some(0), 0);
        drop(synced.begin(Mark { end: 10, seq: 1 }, &disk, &file).unwrap());
        synced.wait();
        assert!(synced.begin(Mark { end: 10, seq: 1 }, &disk, &file).is_none(), "nothing is synced after a failure");
        assert!(synced.take_failure().is_some());
        assert_eq!(synced.to(), Some(0));
    }
}
