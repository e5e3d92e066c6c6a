//! The catalog of all processes: ended ones are found with an index, so that no look-up reads journals.
//!
//! The index is derived and belongs to one thread, which receives changes and answers questions. No acknowledgement
//! waits for it: a change is queued for the thread, in order. Any problem of the index (deleted, damaged, a full disk,
//! a killed daemon) is repaired in the background from the data directory; until then the catalog has no answer rather
//! than a wrong one.

mod fill;
mod worker;

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use relive_core::{ErrorCode, Pid, Timestamp, Uuid};
use relive_index::{Cursor, Dependent, Filter, Index, Order, Page, PidEntry, Row, UsageBy, UsageRow};
use relive_journal::{DataDirectory, History, ProcInfo};
use relive_types::short_id::ShownPart;
use tokio::sync::{oneshot, watch};

use crate::error::{Error, Result};
use crate::warnings::Warnings;

/// How many changes may wait. More are dropped, and found again by comparing with the data directory.
const CHANGES_MAX: usize = 16_384;
/// How many changes are one transaction.
pub(crate) const BATCH: usize = 256;
/// How many questions may wait.
const QUESTIONS_MAX: usize = 512;
/// How long a question may take.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
/// How long a caller waits for an index that is being filled.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long a stop waits for the last changes.
const CLOSE_WITHIN: Duration = Duration::from_secs(2);

/// A handle to the catalog, cheap to clone. Its threads end when the last one is dropped.
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

/// The state shared by the handles and the threads. The index is closed before the data directory is released.
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
    /// In order of arrival: a look-up sees every change before it.
    tasks: VecDeque<Task>,
    /// Listings take longer than look-ups, and let those go first.
    listings: VecDeque<Question>,
    questions: usize,
    /// How often a change was missed. A comparison that began before may not have found it.
    missed: u64,
    is_filling: bool,
    /// Whether all processes of an earlier daemon were recorded, or none will be.
    has_recovered: bool,
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
    /// All processes of an earlier daemon are in the table, and were written to the index.
    Recovered,
    Close(oneshot::Sender<()>),
}

enum Change {
    Upsert(Box<Row>),
    Collect(Uuid, Timestamp),
    Note(Vec<(Pid, Uuid)>),
}

/// Queries the index and passes the answer on.
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
        self.change_all([change]);
    }

    fn change_all(&self, changes: impl IntoIterator<Item = Change>) {
        let mut queue = self.shared.lock();
        if queue.closed {
            return;
        }
        for change in changes {
            if queue.tasks.len() >= CHANGES_MAX {
                self.shared.miss(&mut queue);
                break;
            }
            queue.tasks.push_back(Task::Change(change));
        }
        drop(queue);
        self.shared.wake.notify_all();
    }

    /// Records the state of a process from a journal that is on the disk.
    pub(crate) fn tell(&self, history: &History) {
        if let Some(row) = Row::of(history) {
            self.tell_row(row);
        }
    }

    /// Records the states of many processes, in as few transactions as possible: each one writes pages of its own.
    pub(crate) fn tell_rows(&self, rows: Vec<Row>) {
        self.change_all(rows.into_iter().map(|row| Change::Upsert(Box::new(row))));
    }

    /// Records the state of a process.
    pub(crate) fn tell_row(&self, row: Row) {
        self.change(Change::Upsert(Box::new(row)));
    }

    /// Records that a process was collected.
    pub(crate) fn tell_collected(&self, uuid: Uuid, at: Timestamp) {
        self.change(Change::Collect(uuid, at));
    }

    /// Records PIDs that are assigned to suspended processes and are in no journal.
    pub(crate) fn tell_pids(&self, pids: Vec<(Pid, Uuid)>) {
        if !pids.is_empty() {
            self.change(Change::Note(pids));
        }
    }

    /// Queues what comes after the changes of a recovery, which waited until now.
    fn push_last(&self, task: Task) {
        let mut queue = self.shared.lock();
        queue.tasks.push_back(task);
        queue.has_recovered = true;
        drop(queue);
        self.shared.wake.notify_all();
    }

    /// Notes that all processes of an earlier daemon were recorded. Missing ones are searched now.
    pub(crate) fn recovered(&self) {
        self.push_last(Task::Recovered);
    }

    /// Compares the index with the data directory, because it named a process that does not exist.
    pub(crate) fn doubt(&self) {
        let mut queue = self.shared.lock();
        self.shared.miss(&mut queue);
    }

    /// Marks the index as closed. The catalog has no answers any more.
    pub(crate) async fn close(&self) {
        let (done, is_done) = oneshot::channel();
        self.push_last(Task::Close(done));
        // The next start finds what is lost by not waiting longer.
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
                // The caller may be gone.
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

    /// Asks a question to which "nothing" is a valid answer only if the index knows every process.
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

    /// Returns the present or former owner of a PID.
    pub(crate) async fn by_pid(&self, pid: Pid) -> Result<Option<PidEntry>> {
        let ask = move |index: &Index| index.by_pid(pid);
        match self.ask(Lane::LookUp, ask).await {
            Ok(Some(found)) => Ok(Some(found)),
            Ok(None) | Err(_) => self.ask_complete(Lane::LookUp, ask).await,
        }
    }

    /// Returns the latest process with a name.
    pub(crate) async fn by_name(&self, name: &str) -> Result<Option<Uuid>> {
        let name = name.to_owned();
        self.ask_complete(Lane::LookUp, move |index| index.by_name(&name)).await
    }

    /// Returns processes whose UUID begins or ends like this, or whose shown id begins like this, up to `max` of each.
    pub(crate) async fn by_part(&self, part: &str, max: usize) -> Result<Vec<Uuid>> {
        let part = part.to_owned();
        self.ask_complete(Lane::LookUp, move |index| {
            let mut found = index.by_prefix(&part, max)?;
            found.extend(index.by_suffix(&part, max)?);
            if let Some(part) = ShownPart::of(&part) {
                found.extend(index.by_shown(&part, max)?);
            }
            Ok(found)
        })
        .await
    }

    /// Returns when a process was collected.
    pub(crate) async fn collected(&self, uuid: Uuid) -> Result<Option<Timestamp>> {
        let ask = move |index: &Index| index.collected(uuid);
        match self.ask(Lane::LookUp, ask).await {
            Ok(None) if !self.is_complete() => Err(rebuilding()),
            answer => answer,
        }
    }

    /// Returns the row of a process. It may be out of date, and a missing one may exist.
    pub(crate) async fn row(&self, uuid: Uuid) -> Result<Option<Row>> {
        self.ask(Lane::LookUp, move |index| index.row(uuid)).await
    }

    /// Returns one page of a listing.
    pub(crate) async fn page(&self, filter: Filter, order: Order, after: Option<Cursor>, limit: usize) -> Result<Page> {
        self.ask_complete(Lane::Listing, move |index| index.page(&filter, order, after, limit)).await
    }

    /// Returns up to `max` existing processes whose journals cannot be read.
    pub(crate) async fn unreadable(&self, max: usize) -> Result<Vec<Uuid>> {
        self.ask_complete(Lane::Listing, move |index| index.unreadable(max)).await
    }

    /// Returns processes that have ended and that nobody has seen since, and whether these are all of them.
    pub(crate) async fn unseen(&self, max: usize) -> Result<(Vec<ProcInfo>, bool)> {
        let rows = self.ask(Lane::LookUp, move |index| index.unseen(max)).await?;
        let is_all = rows.len() < max && self.is_complete();
        Ok((rows, is_all))
    }

    /// Returns every process that draws from the budget of this one, even if the index is incomplete.
    pub(crate) async fn dependents(&self, uuid: Uuid) -> Result<Vec<Dependent>> {
        self.ask(Lane::LookUp, move |index| index.dependents(uuid)).await
    }

    /// Returns what was spent, the latest day first.
    pub(crate) async fn usage(&self, since: Option<i64>, by: UsageBy) -> Result<Vec<UsageRow>> {
        self.ask_complete(Lane::Listing, move |index| index.usage(since, by)).await
    }

    /// Limits the size of the index, for tests.
    pub(crate) async fn limit_pages(&self, pages: u32) -> Result<()> {
        self.ask(Lane::LookUp, move |index| index.limit_pages(pages)).await
    }
}

fn unavailable(why: &str) -> Error {
    Error::new(ErrorCode::Unavailable, why).with_hint("try again in a moment")
}

fn rebuilding() -> Error {
    unavailable("the index of ended processes is being rebuilt, so this is not known yet")
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

    /// Closes the catalog, and records a change after that.
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

    /// A process that ends while the daemon stops may be recorded when the index is about to be closed.
    #[tokio::test]
    async fn changes_recorded_while_the_index_closes_are_known_to_the_next_daemon() {
        let temp = tempfile::tempdir().unwrap();
        let (uuid, at) = (Uuid::from_u128(7), Timestamp::UNIX_EPOCH);
        let catalog = open(temp.path()).unwrap();
        assert!(catalog.complete_within(Duration::from_secs(60)).await);
        close_and_tell(&catalog, || catalog.tell_collected(uuid, at)).await;
        drop(catalog);
        // The thread of the index releases the data directory asynchronously.
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
