//! The catalog of all processes: those that ended are found by an index, so that no look-up reads history.
//!
//! The index is derived and belongs to one thread, which is told what happens and asked what there is. Nothing waits for
//! it that a client is promised: a change is left with the thread, in order. Whatever is wrong with the index (deleted,
//! damaged, a full disk, a daemon that was killed) is made good in the background from the data directory; until then
//! the catalog has no answer rather than a wrong one.

mod fill;
mod worker;

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use relive_core::{ErrorCode, Pid, Timestamp, Uuid};
use relive_index::{Cursor, Dependent, Filter, Index, Order, Page, PidEntry, Row};
use relive_journal::{DataDirectory, History};
use tokio::sync::{oneshot, watch};

use crate::error::{Error, Result};
use crate::warnings::Warnings;

/// How many changes may wait. More are dropped, and found again by comparing with the data directory.
const CHANGES_MAX: usize = 16_384;
/// How many questions may wait.
const QUESTIONS_MAX: usize = 512;
/// How long a question may take.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
/// How long whoever asks waits for an index that is being filled.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long a stop waits for the last changes.
const CLOSE_WITHIN: Duration = Duration::from_secs(2);

/// A handle to the catalog, cheap to clone. When the last one goes, its threads end.
#[derive(Debug, Clone)]
pub(crate) struct Catalog {
    shared: Arc<Shared>,
    _open: Arc<Open>,
}

/// Whether the index knows every process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    Incomplete,
    Complete,
}

/// What the handles and the threads share. The index is closed before the data directory is let go of.
#[derive(Debug)]
struct Shared {
    queue: Mutex<Queue>,
    wake: Condvar,
    standing: watch::Sender<Standing>,
    index: Mutex<Option<Arc<Index>>>,
    warnings: Warnings,
    data: Arc<DataDirectory>,
}

#[derive(Default)]
struct Queue {
    /// In the order in which they came: a look-up sees every change before it.
    tasks: VecDeque<Task>,
    /// Listings take longer than look-ups, and let those go first.
    listings: VecDeque<Question>,
    questions: usize,
    /// How often something was missed. A comparison that began before may not have found it.
    missed: u64,
    is_filling: bool,
    closed: bool,
}

impl std::fmt::Debug for Queue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Queue").field("tasks", &self.tasks.len()).field("missed", &self.missed).finish_non_exhaustive()
    }
}

enum Task {
    Change(Change),
    Ask(Question),
    /// Everything that an earlier daemon left is in the table, and was told.
    Recovered,
    Close(oneshot::Sender<()>),
}

enum Change {
    Upsert(Box<Row>),
    Collect(Uuid, Timestamp),
    Note(Vec<(Pid, Uuid)>),
}

/// Asks the index and passes the answer on.
type Question = Box<dyn FnOnce(&Index) -> relive_index::Result<()> + Send>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lane {
    LookUp,
    Listing,
}

#[derive(Debug)]
struct Open(Arc<Shared>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.lock().closed = true;
        self.0.wake.notify_all();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn index(&self) -> Option<Arc<Index>> {
        self.index.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Catalog {
    pub(crate) fn new(data: Arc<DataDirectory>, warnings: Warnings) -> Self {
        let shared = Arc::new(Shared {
            queue: Mutex::default(),
            wake: Condvar::new(),
            standing: watch::Sender::new(Standing::Incomplete),
            index: Mutex::default(),
            warnings,
            data,
        });
        worker::start(&shared);
        Self { _open: Arc::new(Open(Arc::clone(&shared))), shared }
    }

    fn change(&self, change: Change) {
        let mut queue = self.shared.lock();
        if queue.closed {
            return;
        }
        if queue.tasks.len() >= CHANGES_MAX {
            self.shared.miss(&mut queue);
            return;
        }
        queue.tasks.push_back(Task::Change(change));
        drop(queue);
        self.shared.wake.notify_all();
    }

    /// Takes in how a process stands, by a journal that is on the disk.
    pub(crate) fn tell(&self, history: &History) {
        if let Some(row) = Row::of(history) {
            self.tell_row(row);
        }
    }

    /// Takes in how a process stands.
    pub(crate) fn tell_row(&self, row: Row) {
        self.change(Change::Upsert(Box::new(row)));
    }

    /// Takes in that a process was collected.
    pub(crate) fn tell_collected(&self, uuid: Uuid, at: Timestamp) {
        self.change(Change::Collect(uuid, at));
    }

    /// Takes in PIDs that stand for suspended processes and are in no journal.
    pub(crate) fn tell_pids(&self, pids: Vec<(Pid, Uuid)>) {
        if !pids.is_empty() {
            self.change(Change::Note(pids));
        }
    }

    /// Says that everything an earlier daemon left was told. What it did not tell is looked for now.
    pub(crate) fn recovered(&self) {
        self.shared.lock().tasks.push_back(Task::Recovered);
        self.shared.wake.notify_all();
    }

    /// Has the index compared with the data directory: it named something that is not there.
    pub(crate) fn doubt(&self) {
        let mut queue = self.shared.lock();
        self.shared.miss(&mut queue);
    }

    /// Says that everything was told. The catalog has no answers any more.
    pub(crate) async fn close(&self) {
        let (done, is_done) = oneshot::channel();
        self.shared.lock().tasks.push_back(Task::Close(done));
        self.shared.wake.notify_all();
        // What is lost by not waiting longer the next start finds.
        let _ = tokio::time::timeout(CLOSE_WITHIN, is_done).await;
    }

    pub(crate) fn is_complete(&self) -> bool {
        *self.shared.standing.borrow() == Standing::Complete
    }

    /// Waits until the index knows every process; `false` if that takes too long.
    pub(crate) async fn complete_within(&self, patience: Duration) -> bool {
        let mut standing = self.shared.standing.subscribe();
        let complete = standing.wait_for(|standing| *standing == Standing::Complete);
        matches!(tokio::time::timeout(patience, complete).await, Ok(Ok(_)))
    }

    async fn ask<T: Send + 'static>(
        &self,
        lane: Lane,
        ask: impl FnOnce(&Index) -> relive_index::Result<T> + Send + 'static,
    ) -> Result<T> {
        let (reply, answer) = oneshot::channel();
        let question: Question = Box::new(move |index| {
            if !reply.is_closed() {
                // Whoever asked may go meanwhile.
                let _ = reply.send(ask(index)?);
            }
            Ok(())
        });
        {
            let mut queue = self.shared.lock();
            if queue.closed || queue.questions >= QUESTIONS_MAX {
                return Err(unavailable("too many look-ups wait"));
            }
            queue.questions += 1;
            match lane {
                Lane::LookUp => queue.tasks.push_back(Task::Ask(question)),
                Lane::Listing => queue.listings.push_back(question),
            }
        }
        self.shared.wake.notify_all();
        match tokio::time::timeout(ANSWER_WITHIN, answer).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(_)) | Err(_) => Err(rebuilding()),
        }
    }

    /// Asks something to which "nothing" is an answer only if the index knows every process.
    async fn ask_complete<T: Send + 'static>(
        &self,
        lane: Lane,
        ask: impl FnOnce(&Index) -> relive_index::Result<T> + Send + 'static,
    ) -> Result<T> {
        if !self.complete_within(PATIENCE).await {
            return Err(rebuilding());
        }
        let answer = self.ask(lane, ask).await?;
        if self.is_complete() { Ok(answer) } else { Err(rebuilding()) }
    }

    /// Returns whose a PID is or was.
    pub(crate) async fn by_pid(&self, pid: Pid) -> Result<Option<PidEntry>> {
        let ask = move |index: &Index| index.by_pid(pid);
        match self.ask(Lane::LookUp, ask).await {
            Ok(Some(found)) => Ok(Some(found)),
            Ok(None) | Err(_) => self.ask_complete(Lane::LookUp, ask).await,
        }
    }

    /// Returns the process that had a name last.
    pub(crate) async fn by_name(&self, name: &str) -> Result<Option<Uuid>> {
        let name = name.to_owned();
        self.ask_complete(Lane::LookUp, move |index| index.by_name(&name)).await
    }

    /// Returns up to `max` processes whose UUID begins like this.
    pub(crate) async fn by_prefix(&self, prefix: &str, max: usize) -> Result<Vec<Uuid>> {
        let prefix = prefix.to_owned();
        self.ask_complete(Lane::LookUp, move |index| index.by_prefix(&prefix, max)).await
    }

    /// Returns when a process was collected.
    pub(crate) async fn collected(&self, uuid: Uuid) -> Result<Option<Timestamp>> {
        let ask = move |index: &Index| index.collected(uuid);
        match self.ask(Lane::LookUp, ask).await {
            Ok(None) if !self.is_complete() => Err(rebuilding()),
            answer => answer,
        }
    }

    /// Returns what is known of a process. It may be out of date, and may be unknown here and exist.
    pub(crate) async fn row(&self, uuid: Uuid) -> Result<Option<Row>> {
        self.ask(Lane::LookUp, move |index| index.row(uuid)).await
    }

    /// Returns one page of a listing.
    pub(crate) async fn page(&self, filter: Filter, order: Order, after: Option<Cursor>, limit: usize) -> Result<Page> {
        self.ask_complete(Lane::Listing, move |index| index.page(&filter, order, after, limit)).await
    }

    /// Returns up to `max` processes that are here and whose journals cannot be read.
    pub(crate) async fn unreadable(&self, max: usize) -> Result<Vec<Uuid>> {
        self.ask_complete(Lane::Listing, move |index| index.unreadable(max)).await
    }

    /// Returns every process that draws from the budget of this one, whether or not the index knows all.
    pub(crate) async fn dependents(&self, uuid: Uuid) -> Result<Vec<Dependent>> {
        self.ask(Lane::LookUp, move |index| index.dependents(uuid)).await
    }

    /// Leaves the index no more room than this, for tests.
    pub(crate) async fn limit_pages(&self, pages: u32) -> Result<()> {
        self.ask(Lane::LookUp, move |index| index.limit_pages(pages)).await
    }
}

fn unavailable(why: &str) -> Error {
    Error::new(ErrorCode::Unavailable, why).with_hint("ask again in a moment")
}

fn rebuilding() -> Error {
    unavailable("the list of earlier processes is being rebuilt, so it cannot be said yet")
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use relive_journal::Io;
    use relive_journal::data::SpaceRules;

    use super::*;

    fn open(root: &std::path::Path) -> Option<Catalog> {
        let rules = SpaceRules { reserve_bytes: 0, floor_bytes: 0 };
        let data = DataDirectory::open(root, Io::default(), rules).ok()?;
        let catalog = Catalog::new(Arc::new(data), Warnings::default());
        catalog.recovered();
        Some(catalog)
    }

    /// Closes the catalog, and tells it something behind that.
    async fn close_and_tell(catalog: &Catalog, tell: impl FnOnce()) {
        let (release, held) = mpsc::channel::<()>();
        let mut holding = std::pin::pin!(catalog.ask(Lane::LookUp, move |_| {
            let _ = held.recv();
            Ok(())
        }));
        let mut closing = std::pin::pin!(catalog.close());
        assert!(futures_util::poll!(&mut holding).is_pending() && futures_util::poll!(&mut closing).is_pending());
        tell();
        drop(release);
        closing.await;
    }

    /// A process that ends while the daemon stops may be told when the index is about to be closed.
    #[tokio::test]
    async fn what_is_told_while_the_index_is_closed_is_known_to_the_next_daemon() {
        let temp = tempfile::tempdir().unwrap();
        let (uuid, at) = (Uuid::from_u128(7), Timestamp::UNIX_EPOCH);
        let catalog = open(temp.path()).unwrap();
        assert!(catalog.complete_within(Duration::from_secs(60)).await);
        close_and_tell(&catalog, || catalog.tell_collected(uuid, at)).await;
        drop(catalog);
        // The thread of the index lets go of the data directory in its own time.
        let again = tokio::time::timeout(Duration::from_secs(60), async {
            loop {
                match open(temp.path()) {
                    Some(catalog) => return catalog,
                    None => tokio::task::yield_now().await,
                }
            }
        });
        let catalog = again.await.unwrap();
        assert!(catalog.complete_within(Duration::from_secs(60)).await);
        assert_eq!(catalog.collected(uuid).await.unwrap(), Some(at));
    }
}
