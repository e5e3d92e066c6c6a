//! The thread that owns the index.

use std::collections::VecDeque;
use std::sync::{Arc, PoisonError};
use std::thread;

use relive_index::{Error, Index, Row};
use relive_journal::data::SetAside;

use super::{BATCH, CHANGES_MAX, Change, Question, Queue, Shared, Standing, Task, fill};

/// How often an index is recreated on the disk. After that it stays in memory, because the problem persists.
const RENEWALS_MAX: u32 = 3;
/// How often closing starts over because of a new change.
const CLOSINGS_MAX: u32 = 64;

/// Starts the thread. Without it the catalog has no answers, but nothing else is lost.
pub(super) fn start(shared: &Arc<Shared>) {
    let worker = Worker { shared: Arc::clone(shared), renewals: 0, knows_all: false };
    let started = thread::Builder::new().name("relive-index".into()).spawn(move || worker.work());
    if let Err(error) = started {
        shared.warnings.warn(format!("earlier processes cannot be looked up: {error}"));
        shared.lock().closed = true;
    }
}

enum Work {
    Changes(Vec<Change>),
    Ask(Question),
    Recovered,
    Close(tokio::sync::oneshot::Sender<()>),
}

struct Worker {
    shared: Arc<Shared>,
    renewals: u32,
    /// Whether the previous daemon left a complete index.
    knows_all: bool,
}

impl Worker {
    fn work(mut self) {
        self.open();
        while let Some(work) = self.shared.next() {
            let Some(index) = self.shared.index() else { continue };
            // Questions from while the index was gone have no answer; changes are found by comparing.
            let done = index.check_place().and_then(|()| self.carry_out(&index, work));
            drop(index);
            self.shared.tell_set_aside();
            match done {
                Ok(true) => {}
                Ok(false) => return,
                Err(error) => self.renew(&error),
            }
        }
    }

    fn open(&mut self) {
        let opened = Index::open(self.shared.data.root()).and_then(|index| {
            self.knows_all = index.begin(&self.shared.data)?;
            Ok(index)
        });
        match opened {
            Ok(index) => self.shared.set_index(index),
            Err(error) => self.renew(&error),
        }
    }

    /// Returns whether there is more to come.
    fn carry_out(&mut self, index: &Index, work: Work) -> relive_index::Result<bool> {
        match work {
            Work::Changes(changes) => write(index, changes)?,
            Work::Ask(question) => question(index)?,
            Work::Recovered => {
                let mut queue = self.shared.lock();
                if self.knows_all && queue.missed == 0 {
                    self.shared.standing.send_replace(Standing::Complete);
                } else {
                    self.shared.miss(&mut queue);
                }
            }
            Work::Close(done) => {
                let closed = self.close(index);
                self.shared.lock().closed = true;
                self.shared.wake.notify_all();
                self.shared.index.lock().unwrap_or_else(PoisonError::into_inner).take();
                let _ = done.send(());
                closed?;
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Marks the index as complete, if it is. Changes that arrive during the close are written first: the stop does not
    /// wait for the end of a program, or of a process without a body.
    fn close(&self, index: &Index) -> relive_index::Result<()> {
        for _ in 0..CLOSINGS_MAX {
            if *self.shared.standing.borrow() != Standing::Complete {
                return Ok(());
            }
            let told = self.shared.lock().take_changes();
            write(index, told)?;
            // A later change modifies the list of journals after this check, and so invalidates the mark.
            index.close(&self.shared.data)?;
            let mut queue = self.shared.lock();
            if !queue.has_changes() {
                queue.closed = true;
                return Ok(());
            }
        }
        // The next start finds what was not written.
        index.mark_incomplete()
    }

    /// Replaces a failed index with an empty one, and starts to fill it.
    fn renew(&mut self, error: &Error) {
        self.knows_all = false;
        self.renewals += 1;
        self.shared.renew(error, self.renewals > RENEWALS_MAX);
        let mut queue = self.shared.lock();
        self.shared.miss(&mut queue);
    }
}

fn write(index: &Index, changes: Vec<Change>) -> relive_index::Result<()> {
    let mut rows: Vec<Row> = Vec::new();
    for change in changes {
        if let Change::Upsert(row) = change {
            rows.push(*row);
            continue;
        }
        index.upsert_all(&rows)?;
        rows.clear();
        match change {
            Change::Upsert(_) => {}
            Change::Collect(uuid, at) => index.remove(uuid, at)?,
            Change::Note(pids) => index.note_pids(pids)?,
        }
    }
    index.upsert_all(&rows)
}

impl Shared {
    pub(super) fn set_index(&self, index: Index) {
        *self.index.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(index));
    }

    /// Reports what was in the place of the tombstones.
    pub(super) fn tell_set_aside(&self) {
        if let Some(SetAside { path, to, problem }) = self.data.take_set_aside() {
            let (path, to) = (path.display(), to.display());
            let lost = "processes collected earlier are no longer known";
            self.warnings.warn(format!("{path} cannot be used ({problem}) and is now {to}: {lost}"));
        }
    }

    /// Notes that a change was missed, and starts a comparison.
    pub(super) fn miss(self: &Arc<Self>, queue: &mut Queue) {
        queue.missed += 1;
        self.standing.send_replace(Standing::Incomplete);
        if !queue.is_filling && !queue.closed {
            queue.is_filling = fill::start(self);
        }
    }

    /// Replaces a failed index: with an empty one on the disk if that may help, else with one in memory.
    pub(super) fn renew(&self, error: &Error, gives_up: bool) {
        self.standing.send_replace(Standing::Incomplete);
        let again = match error {
            Error::Corrupt { .. } | Error::Removed { .. } => !gives_up,
            Error::Database { .. } | Error::Io { .. } | Error::Data(_) | Error::Stopped => false,
        };
        let root = self.data.root();
        if again {
            self.warnings.warn_once(format!("{error}, in the background"));
        } else {
            let until = "earlier processes are listed from memory until the next start";
            self.warnings.warn_once(format!("the index cannot be used: {error}; {until}"));
        }
        // An outdated index would answer "not found" for processes that it has missed.
        let _ = Index::delete(root);
        let index = if again { Index::open(root) } else { Index::in_memory() };
        match index.or_else(|_| Index::in_memory()) {
            Ok(index) => self.set_index(index),
            Err(error) => self.warnings.warn_once(format!("earlier processes cannot be looked up: {error}")),
        }
    }

    /// Waits for the next work; `None` when the catalog is closed.
    fn next(&self) -> Option<Work> {
        let mut queue = self.lock();
        loop {
            if queue.closed {
                return None;
            }
            if let Some(work) = queue.next() {
                return Some(work);
            }
            queue = self.wake.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Queue {
    fn next(&mut self) -> Option<Work> {
        // Recovery needs the processors more than the index does, unless somebody asks.
        if !self.has_recovered && self.questions == 0 && self.tasks.len() < CHANGES_MAX / 2 {
            return None;
        }
        let is_change = |task: &&Task| matches!(task, Task::Change(_));
        let count = self.tasks.iter().take(BATCH).take_while(is_change).count();
        if count > 0 {
            let changes = self.tasks.drain(..count).filter_map(|task| match task {
                Task::Change(change) => Some(change),
                Task::Ask(_) | Task::Recovered | Task::Close(_) => None,
            });
            return Some(Work::Changes(changes.collect()));
        }
        match self.tasks.pop_front() {
            Some(Task::Change(change)) => Some(Work::Changes(vec![change])),
            Some(Task::Ask(question)) => Some(self.asked(question)),
            Some(Task::Recovered) => Some(Work::Recovered),
            Some(Task::Close(done)) => Some(Work::Close(done)),
            None => self.listings.pop_front().map(|listing| self.asked(listing)),
        }
    }

    fn has_changes(&self) -> bool {
        self.tasks.iter().any(|task| matches!(task, Task::Change(_)))
    }

    /// Takes all changes out of the queue, including those behind other work.
    fn take_changes(&mut self) -> Vec<Change> {
        let (mut changes, mut others) = (Vec::new(), VecDeque::new());
        for task in self.tasks.drain(..) {
            match task {
                Task::Change(change) => changes.push(change),
                other @ (Task::Ask(_) | Task::Recovered | Task::Close(_)) => others.push_back(other),
            }
        }
        self.tasks = others;
        changes
    }

    fn asked(&mut self, question: Question) -> Work {
        self.questions -= 1;
        Work::Ask(question)
    }
}
