//! Taking a snapshot, and telling what changed and whose work it is.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::PoisonError;

use relive_core::Uuid;
use relive_journal::record::{NOT_KEPT_MAX, NotKept, PATHS_MAX, Snapshot as Record};
use relive_workspace::{Change, Control, FilePath, Grade, SkipReason, Snapshot, Store, TextDiff, shown};

use super::activity::{Changer, Interval};
use super::{Workspaces, check_no_link, lock, to_record};
use crate::error::Result;
use crate::workspace_list::not_kept;

/// So many changed files are compared line by line; of the others only the number is told.
const COUNTED_MAX: usize = 500;

/// A snapshot that is asked for.
#[derive(Debug, Clone)]
pub(crate) struct Take {
    pub(crate) directory: PathBuf,
    /// Who asks: the root of a tree of processes, which share their work.
    pub(crate) by: Uuid,
    /// What it is compared with.
    pub(crate) base: Option<Snapshot>,
    pub(crate) whose: Whose,
    /// The best grade it can have: the copy of a state that is not exact lacks the same files for ever.
    pub(crate) at_best: Grade,
}

/// Whose the changes since the base are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Whose {
    /// Its own, but for those that others are known to have made.
    Own,
    /// Others'.
    Foreign,
}

/// A snapshot that was taken.
#[derive(Debug)]
pub(crate) struct Taken {
    pub(crate) snapshot: Snapshot,
    /// Files that are not in it although they have bytes and nothing ignores them.
    pub(crate) left_out: Vec<FilePath>,
    /// Pipes, sockets and devices. They have no bytes, and are in no snapshot.
    pub(crate) special: Vec<FilePath>,
    /// Whether all that is not in it is listed here.
    pub(crate) lists_all: bool,
    /// What to record, with `after` still to be said; absent where nothing changed since the base.
    pub(crate) record: Option<Box<Record>>,
}

impl Workspaces {
    /// Takes a snapshot. Everything it names is on the disk when this returns, and stays there until a journal can name it.
    pub(crate) fn take(&self, request: &Take) -> Result<Taken> {
        self.take_controlled(request, &Control::default())
    }

    /// Takes a snapshot that can be cancelled.
    pub(crate) fn take_controlled(&self, request: &Take, control: &Control) -> Result<Taken> {
        check_no_link(&request.directory)?;
        let shared = self.directory(&request.directory)?;
        let mut workspace = lock(&shared);
        if let Some(plan) = workspace.interrupted()? {
            // They are half of one state and half of another.
            let (path, kind) = (workspace.root().to_owned(), plan.kind);
            return Err(relive_workspace::Error::PlanPending { path, kind }.into());
        }
        let _counted = self.0.collecting.read().unwrap_or_else(PoisonError::into_inner);
        self.0.activities.look(workspace.root());
        let taken = workspace.snapshot(control)?;
        let snapshot = taken.snapshot.at_best(request.at_best);
        self.remember(snapshot);
        let intervals = self.0.activities.seen(workspace.root(), request.by, request.base, snapshot);
        let taken_at = self.0.options.clock.now();
        let store = workspace.store().clone();
        drop(workspace);
        let paths = |is_meant: fn(SkipReason) -> bool| {
            let meant = taken.skipped.iter().filter(|skipped| is_meant(skipped.reason));
            meant.map(|skipped| skipped.path.clone()).collect::<Vec<_>>()
        };
        let (left_out, special) = (paths(has_bytes), paths(|reason| reason == SkipReason::Special));
        let lists_all = taken.skipped_count == taken.skipped.len() as u64;
        if request.base.is_some_and(|base| base.is_same_files(&snapshot)) {
            return Ok(Taken { snapshot, left_out, special, lists_all, record: None });
        }
        let base = request.base.map(|base| to_record(&base).tree);
        let mut record = Record { base, skipped: taken.skipped_count, ..Record::new(0, to_record(&snapshot)) };
        record.taken = Some(taken_at);
        if snapshot.grade != Grade::Exact {
            let is_copy = request.directory.starts_with(self.own_root());
            let lacking = not_kept(&store, &snapshot, is_copy)?.into_iter().take(NOT_KEPT_MAX);
            let named = |relive_api::NotKept { path, reason }| NotKept { path, reason };
            record.not_kept = lacking.map(named).collect();
        }
        if let Some(base) = request.base {
            let changes = store.diff(&base, &snapshot)?;
            count(&store, &changes, &mut record)?;
            let Others { paths, since } = others(&store, request.whose, &changes, &intervals)?;
            record.foreign_count = paths.len() as u64;
            record.foreign = paths.into_iter().take(PATHS_MAX).map(ToString::to_string).collect();
            record.since = since.map(|since| to_record(&since));
        }
        Ok(Taken { snapshot, left_out, special, lists_all, record: Some(Box::new(record)) })
    }

    /// Takes a snapshot of a copy. Repositories that were made in it count as left out too: they are lost with the copy.
    pub(crate) fn take_copy(&self, request: &Take) -> Result<Taken> {
        let mut taken = self.take(request)?;
        taken.left_out.extend(lock(&*self.directory(&request.directory)?).repositories());
        Ok(taken)
    }

    /// Returns the last snapshot of a directory, unless this process may have changed files since.
    pub(crate) fn last_seen(&self, directory: &Path, by: Uuid) -> Option<Snapshot> {
        self.0.activities.last_seen(&directory.canonicalize().ok()?, by)
    }

    /// Says that somebody who is no process changes files of a directory.
    pub(crate) fn touch(&self, directory: &Path) {
        self.0.activities.begin(directory, Uuid::nil());
        self.0.activities.end(directory, Uuid::nil());
    }

    pub(crate) fn begin_change(&self, directory: &Path, by: Uuid) {
        self.0.activities.begin(directory, by);
    }

    pub(crate) fn end_change(&self, directory: &Path, by: Uuid) {
        self.0.activities.end(directory, by);
    }
}

/// Tells whether a file that was left out for this reason has bytes that would be lost with it.
fn has_bytes(reason: SkipReason) -> bool {
    match reason {
        SkipReason::TooLarge
        | SkipReason::Unreadable
        | SkipReason::OtherFileSystem
        | SkipReason::TooDeep
        | SkipReason::Changing
        | SkipReason::Secret => true,
        SkipReason::Special | SkipReason::Temporary | SkipReason::RulesTooLarge | SkipReason::SetIdBits => false,
    }
}

fn count(store: &Store, changes: &[Change], record: &mut Record) -> Result<()> {
    let files = shown(changes);
    record.changed = files.len() as u64;
    let mut compared = files.into_iter().filter(|change| change.is_content());
    for change in compared.by_ref().take(COUNTED_MAX) {
        if let TextDiff::Text { lines, .. } = store.text_diff(change)? {
            record.added += lines.added;
            record.removed += lines.removed;
        }
    }
    record.uncounted = compared.count() as u64;
    Ok(())
}

/// The work of others.
#[derive(Debug, Default)]
struct Others<'a> {
    /// Changed paths that are not known to be the work of the process alone.
    paths: Vec<&'a FilePath>,
    /// The files after their work and before its own, where both are known.
    since: Option<Snapshot>,
}

/// Tells the work of others from that of the process.
fn others<'a>(store: &Store, whose: Whose, changes: &'a [Change], intervals: &[Interval]) -> Result<Others<'a>> {
    let files = shown(changes).into_iter().map(|change| &change.path);
    if whose == Whose::Foreign {
        return Ok(Others { paths: files.collect(), since: None });
    }
    let mut theirs: HashSet<FilePath> = HashSet::new();
    for Interval { from, to, .. } in intervals.iter().filter(|interval| interval.by == Changer::Others) {
        theirs.extend(store.diff(from, to)?.into_iter().map(|change| change.path));
    }
    let since = intervals.iter().rfind(|interval| interval.by == Changer::Others);
    let is_last_own = intervals.last().is_some_and(|interval| interval.by == Changer::Itself);
    let since = since.filter(|_| is_last_own).map(|interval| interval.to);
    Ok(Others { paths: files.filter(|path| theirs.contains(path)).collect(), since })
}
