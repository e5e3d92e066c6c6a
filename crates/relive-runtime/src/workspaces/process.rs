//! The snapshots of one run of one process.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use relive_agent::snapshots::{Change, Occasion, Seen, Snapshots};
use relive_core::Uuid;
use relive_journal::history::Files;
use relive_journal::record::Snapshot as Record;
use relive_workspace::{Grade, Snapshot};

use super::looks::Looks;
use super::{Take, Whose, Workspaces, from_record, lock, to_record};
use crate::error::Error;
use crate::warnings::Warnings;

/// Takes the snapshots of one run of a process.
#[derive(Debug)]
pub(crate) struct ProcessFiles {
    workspaces: Workspaces,
    warnings: Warnings,
    directory: PathBuf,
    by: Uuid,
    at_best: Grade,
    state: Arc<Mutex<State>>,
    uuid: Uuid,
    looks: Arc<Looks>,
}

/// What a running process knows of its files.
#[derive(Debug)]
pub(super) struct State {
    /// The last snapshot. The first one of a process is in no journal until the process changes something.
    pub(super) last: Option<Snapshot>,
    /// Whether a change since the last snapshot may be this process's own, from before it stopped.
    has_unseen_effect: bool,
    /// Why there are no snapshots here, once that was said.
    off: Option<String>,
    /// Whether the journal says that nobody looks any more.
    is_end_recorded: bool,
    calls: u32,
}

impl ProcessFiles {
    /// `by` is the root of the process's tree.
    pub(crate) fn new(
        workspaces: Workspaces,
        warnings: Warnings,
        directory: PathBuf,
        (uuid, by): (Uuid, Uuid),
        files: &Files,
    ) -> Self {
        // Snapshots are of the directory itself, whatever it is called.
        let directory = directory.canonicalize().unwrap_or(directory);
        let state = State {
            last: files.last.map(from_record),
            has_unseen_effect: files.has_unseen_effect,
            off: None,
            is_end_recorded: false,
            calls: 0,
        };
        let at_best = workspaces.best_grade_in(&directory, files);
        let state = Arc::new(Mutex::new(state));
        let mut running = lock(&workspaces.0.running);
        if running.len() == running.capacity() {
            // Before it grows, not for each: thousands may start at once.
            running.retain(|state| state.strong_count() > 0);
        }
        running.push(Arc::downgrade(&state));
        drop(running);
        let looks = workspaces.begin_looks(uuid);
        Self { workspaces, warnings, directory, by, at_best, state, uuid, looks }
    }
}

impl Snapshots for ProcessFiles {
    fn take(&self, occasion: Occasion, after: u32) -> BoxFuture<'static, Seen> {
        let (looks, state, seen) = (Arc::clone(&self.looks), Arc::clone(&self.state), self.look(occasion));
        if occasion == Occasion::Start {
            return seen;
        }
        async move {
            let seen = seen.await;
            let is_off = lock(&state).off.is_some();
            looks.publish(after, &seen, is_off);
            seen
        }
        .boxed()
    }

    fn unseen(&self) -> Option<Box<Record>> {
        unseen(&self.state, "no snapshot was taken in time")
    }

    fn mark(&self, change: Change) {
        let mut state = lock(&self.state);
        match change {
            Change::Begins => {
                state.calls += 1;
                self.workspaces.begin_change(&self.directory, self.by);
            }
            Change::Ended => {
                state.calls = state.calls.saturating_sub(1);
                self.workspaces.end_change(&self.directory, self.by);
                self.looks.expect_one();
            }
        }
    }
}

impl ProcessFiles {
    fn look(&self, occasion: Occasion) -> BoxFuture<'static, Seen> {
        let (workspaces, warnings, state) = (self.workspaces.clone(), self.warnings.clone(), Arc::clone(&self.state));
        let (directory, by, at_best) = (self.directory.clone(), self.by, self.at_best);
        async move {
            let off = lock(&state).off.clone();
            if let Some(why) = off {
                return Seen { record: unseen_at(&state, occasion, &why), ..Seen::default() };
            }
            if occasion == Occasion::Start {
                workspaces.await_recovered().await;
            }
            let (pool, held) = (workspaces.pool().clone(), Arc::clone(&state));
            let taken = pool.run(move || {
                let (base, whose) = {
                    let state = lock(&state);
                    let is_own = occasion == Occasion::Step || state.has_unseen_effect;
                    (state.last, if is_own { Whose::Own } else { Whose::Foreign })
                };
                let request = Take { directory, by, base, whose, at_best };
                if let Some(notice) = workspaces.is_refused(&request.directory) {
                    let was_off = lock(&state).off.replace(notice.clone()).is_some();
                    let record = unseen_at(&state, occasion, &notice);
                    return Seen { record, notice: Some(notice).filter(|_| !was_off), missing: None };
                }
                match workspaces.take(&request) {
                    Ok(taken) => {
                        let mut state = lock(&state);
                        (state.last, state.has_unseen_effect) = (Some(taken.snapshot), false);
                        Seen { record: taken.record, ..Seen::default() }
                    }
                    Err(error) => {
                        let notice = workspaces.refuse(&request.directory, &error);
                        lock(&state).off.clone_from(&notice);
                        let text = format!("no snapshot of {}: {error}", request.directory.display());
                        let record = unseen_at(&state, occasion, notice.as_ref().unwrap_or(&text));
                        let missing = Some(text).filter(|_| notice.is_none());
                        missing.iter().for_each(|text| warnings.warn_once(text.clone()));
                        Seen { record, notice, missing }
                    }
                }
            });
            taken.await.unwrap_or_else(|error| {
                let why = format!("no snapshot was taken: {error}");
                Seen { record: unseen_at(&held, occasion, &why), notice: None, missing: Some(why) }
            })
        }
        .boxed()
    }
}

/// What is recorded where the files could not be seen.
fn unseen(state: &Mutex<State>, why: &str) -> Option<Box<Record>> {
    let last = lock(state).last?;
    Some(Box::new(Record { why: Some(why.to_owned()), ..Record::unseen(0, to_record(&last)) }))
}

/// The same for an occasion. What a process begins with are still the files of its last step as they were seen then; and
/// where snapshots are off, one record says it for all steps.
fn unseen_at(state: &Mutex<State>, occasion: Occasion, why: &str) -> Option<Box<Record>> {
    if occasion == Occasion::Start {
        return None;
    }
    let is_new = {
        let mut state = lock(state);
        let is_off = state.off.is_some();
        !std::mem::replace(&mut state.is_end_recorded, is_off)
    };
    unseen(state, why).filter(|_| is_new)
}

impl Drop for ProcessFiles {
    fn drop(&mut self) {
        self.workspaces.end_looks(self.uuid, &self.looks);
        // A call that was left open, because its session stands still, changes nothing now.
        for _ in 0..lock(&self.state).calls {
            self.workspaces.end_change(&self.directory, self.by);
        }
    }
}

impl Workspaces {
    /// The best grade of a snapshot of a directory. A copy is never better than what was copied.
    pub(crate) fn best_grade_in(&self, directory: &std::path::Path, files: &Files) -> Grade {
        let first = files.first.filter(|_| directory.starts_with(self.own_root()));
        first.map_or(Grade::Exact, |first| from_record(first).grade)
    }

    /// Tells why a directory gets no snapshots, if that is known.
    fn is_refused(&self, directory: &std::path::Path) -> Option<String> {
        if !self.are_wanted() {
            return Some("no snapshots: the configuration turns them off (`workspace: snapshots`)".to_owned());
        }
        lock(&self.0.refused).get(directory).cloned()
    }

    /// Turns snapshots of a directory off for the life of the daemon where the reason is the directory itself.
    fn refuse(&self, directory: &std::path::Path, error: &Error) -> Option<String> {
        let why = super::errors::lasting(error)?;
        let notice = format!("no snapshots: {why}");
        let mut refused = lock(&self.0.refused);
        if refused.len() < super::activity::DIRECTORIES_MAX {
            refused.insert(directory.to_owned(), notice.clone());
        }
        Some(notice)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use relive_journal::Pool;
    use relive_workspace::Removal;

    use super::*;
    use crate::clock::Clock;
    use crate::workspaces::Options;

    fn workspaces(root: &std::path::Path) -> Workspaces {
        let workspaces = Workspaces::new(Options {
            store: root.join("snapshots"),
            own: root.join("own"),
            private: Vec::new(),
            config: relive_config::Workspace::default(),
            hidden: Vec::new(),
            home: None,
            free_floor_bytes: 0,
            pool: Pool::new("test", 1, 8),
            clock: Clock::new().unwrap(),
        });
        workspaces.recovered();
        workspaces
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a test's own files")]
    fn a_dry_run_gives_way_to_a_removal() {
        let root = tempfile::tempdir().unwrap();
        let work = root.path().join("work");
        std::fs::create_dir(&work).unwrap();
        std::fs::write(work.join("f"), "1").unwrap();
        let workspaces = workspaces(root.path());
        let (by, whose, at_best) = (Uuid::from_u128(1), Whose::Own, Grade::Exact);
        workspaces.take(&Take { directory: work, by, base: None, whose, at_best }).unwrap();
        let collect = |removal| workspaces.collect([], Instant::now(), removal).unwrap().map(|found| found.garbage);
        assert_eq!(collect(Removal::DryRun), Some(0));
        workspaces.0.removal_waits.store(true, std::sync::atomic::Ordering::Relaxed);
        assert_eq!(collect(Removal::DryRun), None);
        assert_eq!(collect(Removal::Remove), Some(0));
        assert_eq!(collect(Removal::DryRun), Some(0), "nothing is in its way any more");
        workspaces.stop();
        let stopped = workspaces.collect([], Instant::now(), Removal::Remove).unwrap_err();
        assert_eq!(stopped.code(), relive_core::ErrorCode::Unavailable);
    }

    #[tokio::test]
    #[expect(clippy::disallowed_methods, reason = "a test's own files")]
    async fn the_first_snapshot_of_a_process_that_only_reads_is_kept() {
        let root = tempfile::tempdir().unwrap();
        let work = root.path().join("work");
        std::fs::create_dir(&work).unwrap();
        std::fs::write(work.join("f"), "1").unwrap();
        let workspaces = workspaces(root.path());
        let by = Uuid::from_u128(1);
        let process =
            ProcessFiles::new(workspaces.clone(), Warnings::default(), work.clone(), (by, by), &Files::default());
        let first = process.take(Occasion::Start, 0).await.record.unwrap().files;
        // A quarter of an hour later.
        lock(&workspaces.0.recent).clear();
        workspaces.collect([], Instant::now(), Removal::Remove).unwrap();
        std::fs::write(work.join("f"), "2").unwrap();
        let seen = process.take(Occasion::Step, 1).await;
        assert_eq!((seen.missing, seen.record.unwrap().base), (None, Some(first.tree)));
        drop(process);
        lock(&workspaces.0.recent).clear();
        let collected = workspaces.collect([], Instant::now(), Removal::Remove).unwrap().unwrap();
        assert_eq!(collected.objects, collected.garbage, "nothing of a process that is gone is kept");
    }
}
