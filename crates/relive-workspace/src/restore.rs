//! Restores the files of a snapshot.

use std::collections::BTreeSet;

use crate::apply::{Applied, check_in_the_way};
use crate::control::Control;
use crate::diff::{Change, FileState, View, keep_unseen};
use crate::error::{Error, Result};
use crate::object::{EntryKind, ObjectId};
use crate::path::FilePath;
use crate::plan::{Plan, PlanKind};
use crate::rules::RecordedRules;
use crate::snapshot::{Grade, Snapshot, Taken};
use crate::store::Store;
use crate::workspace::Workspace;

/// Whether the operation is forced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Force {
    /// Refuses if changes may be lost or the result may be wrong.
    #[default]
    No,
    /// Goes ahead. Files that are in no snapshot are still never overwritten.
    Yes,
}

/// A restore to carry out.
#[derive(Debug, Clone)]
pub struct RestoreRequest<'a> {
    pub target: &'a Snapshot,
    /// The state that the caller knows. Files that changed since then were changed by somebody else.
    pub expected: Option<&'a Snapshot>,
    /// Only these paths and everything below them; all paths if empty.
    pub paths: &'a [FilePath],
    /// Allows a target that is not exact, and overwrites changes since `expected`.
    pub force: Force,
}

/// A plan, and the snapshot that was taken before it.
#[derive(Debug)]
pub struct Prepared {
    /// The current state of the workspace. Record it, because restoring it undoes the plan.
    pub before: Taken,
    /// The planned changes, not yet made.
    pub plan: Plan,
    /// Files that the target lacks because they could not be stored then, or its rules ignore them. They are not removed.
    pub spared: Vec<FilePath>,
    /// Files that are written without the set-id bits that they had.
    pub without_bits: Vec<FilePath>,
    pub older: OlderFiles,
}

/// Files that existed before the first snapshot that has them, under a name that is in none, such as an ignored one. So the
/// target lacks them, although they may have been there.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OlderFiles {
    /// Those that are not removed, because nobody forces it.
    pub kept: Vec<FilePath>,
    /// Those that are removed by force, or overwritten. Only the snapshot from before the restore has them.
    pub lost: Vec<FilePath>,
}

/// The result of a restore.
#[derive(Debug)]
pub struct Restored {
    /// The earlier state of the workspace. Restoring it undoes this restore.
    pub before: Taken,
    pub applied: Applied,
    /// Files that the target lacks because they could not be stored then, or its rules ignore them. They were not removed.
    pub spared: Vec<FilePath>,
    pub older: OlderFiles,
}

impl Workspace {
    /// Takes a snapshot and plans the changes from it to another one.
    pub fn plan_restore(&mut self, request: &RestoreRequest<'_>, control: &Control) -> Result<Prepared> {
        self.check_not_interrupted()?;
        if request.target.grade != Grade::Exact && request.force == Force::No {
            let now = self.snapshot(control)?.skipped.into_iter();
            let left_out = now.filter(|skipped| skipped.reason.leaves_out()).map(|skipped| skipped.path);
            let is_read = self.tracked.as_ref().is_none_or(|tracked| tracked.is_complete());
            let index = (!is_read).then(FilePath::git_index);
            let left_out = left_out.chain(index).collect();
            return Err(Error::NotExact { grade: request.target.grade, left_out });
        }
        let before = match request.force {
            Force::No => self.snapshot(control)?,
            Force::Yes => self.snapshot_of_any_size(control)?,
        };
        let store = self.store();
        let is_meant = |change: &Change| is_meant(change, request.paths);
        for path in request.paths {
            let snapshots = [&before.snapshot, request.target];
            let is_known = snapshots.into_iter().try_fold(false, |found, snapshot| {
                Ok::<_, Error>(found || path.is_root() || store.state(snapshot, path)?.is_some())
            });
            if !is_known? {
                return Err(Error::NoSuchPath { path: path.clone() });
            }
        }
        if let (Some(expected), Force::No) = (request.expected, request.force) {
            let changes = store.differing(expected, &before.snapshot)?;
            let paths: Vec<_> = changes.into_iter().filter(is_meant).map(|change| change.path).collect();
            if !paths.is_empty() {
                return Err(Error::ChangedSince { paths });
            }
        }
        let mut changes = store.differing(&before.snapshot, request.target)?;
        changes.retain(is_meant);
        separate_links(store, &mut changes, &before.snapshot)?;
        check_directories(store, &changes, &before.snapshot)?;
        let (spared, older) = self.spare(&mut changes, request)?;
        let has_bits = |change: &&Change| change.after.as_ref().is_some_and(FileState::has_set_id_bits);
        let mut without_bits: Vec<_> = changes.iter().filter(has_bits).map(|change| change.path.clone()).collect();
        let mut plan = Plan::new(PlanKind::Restore, changes);
        without_bits.retain(|path| plan.changes.binary_search_by(|change| change.path.cmp(path)).is_ok());
        plan.add_read_only_directories(&mut View::new(store, &before.snapshot)?)?;
        check_in_the_way(self, &plan)?;
        Ok(Prepared { before, plan, spared, without_bits, older })
    }

    /// Takes a snapshot, then restores the files of another one.
    pub fn restore(&mut self, request: &RestoreRequest<'_>, control: &Control) -> Result<Restored> {
        let Prepared { before, plan, spared, older, .. } = self.plan_restore(request, control)?;
        let applied = self.apply(&plan, control)?;
        Ok(Restored { before, applied, spared, older })
    }

    /// Drops the removal of files that may have existed then, only not in the snapshot: those that could not be stored,
    /// and those that the rules of that time ignore. The rules from outside of the directory are those that the snapshot
    /// recorded, and those of now, because a snapshot of an earlier version recorded none. The Git index does not count:
    /// whether it listed a file then is not known, and such a file may be the user's. A file that was there then under
    /// another name, which is in no snapshot, is removed only by force.
    fn spare(&self, changes: &mut Vec<Change>, request: &RestoreRequest<'_>) -> Result<(Vec<FilePath>, OlderFiles)> {
        let mut view = View::new(self.store(), request.target)?;
        let settings = view.settings(self.settings());
        let now = self.rules(&settings)?.without_index();
        let then = self.rules(&settings)?.without_index().with_outer(&view.extras.outer);
        let mut all = vec![RecordedRules::new(&now, self.store())];
        if !view.extras.outer.is_empty() {
            all.push(RecordedRules::new(&then, self.store()));
        }
        let older = self.older_files(changes);
        let mut spared = BTreeSet::new();
        let unseen = keep_unseen(changes, |path| {
            let mut is_unseen = view.extras.has_skipped(path);
            for rules in &mut all {
                is_unseen = is_unseen || view.is_ignored_by(rules, path)?;
            }
            if is_unseen {
                spared.insert(path.clone());
            }
            Ok(is_unseen || request.force == Force::No && older.contains(path))
        })?;
        let kept: Vec<FilePath> = unseen.into_iter().filter(|path| !spared.contains(path)).collect();
        let lost = older.into_iter().filter(|path| !spared.contains(path) && !kept.contains(path)).collect();
        Ok((spared.into_iter().collect(), OlderFiles { kept, lost }))
    }

    /// Returns the files that would be removed or overwritten although they are older than the first snapshot that has
    /// them, unless the same bytes are put back under another name.
    fn older_files(&self, changes: &[Change]) -> BTreeSet<FilePath> {
        let id = |state: &Option<FileState>| state.as_ref().and_then(|state| state.id);
        let put_back: BTreeSet<ObjectId> = changes.iter().filter_map(|change| id(&change.after)).collect();
        let is_older = |change: &&Change| {
            let is_copy_put_back = || id(&change.before).is_some_and(|id| put_back.contains(&id));
            change.is_content() && self.cache.was_elsewhere(&change.path) && !is_copy_put_back()
        };
        changes.iter().filter(is_older).map(|change| change.path.clone()).collect()
    }
}

/// Makes a path a file of its own if it was another name of a file that nobody asked to restore and that differs now.
fn separate_links(store: &Store, changes: &mut [Change], now: &Snapshot) -> Result<()> {
    let mut now = View::new(store, now)?;
    for at in 0..changes.len() {
        let Some(after) = &changes[at].after else { continue };
        let Some(first) = after.same_as.clone() else { continue };
        if changes.binary_search_by(|change| change.path.cmp(&first)).is_ok() {
            continue;
        }
        let is_same = now.state(&first)?.is_some_and(|first| {
            (first.kind, first.id, first.given_mode()) == (after.kind, after.id, after.given_mode())
        });
        if let Some(after) = changes[at].after.as_mut().filter(|_| !is_same) {
            after.same_as = None;
        }
    }
    Ok(())
}

/// Refuses to create a file in a directory that is a file or a link now, and that nobody asked to replace.
fn check_directories(store: &Store, changes: &[Change], now: &Snapshot) -> Result<()> {
    let mut now = View::new(store, now)?;
    let mut seen = BTreeSet::new();
    for change in changes.iter().filter(|change| change.after.is_some()) {
        for above in change.path.parents() {
            let is_replaced = || changes.binary_search_by(|change| change.path.cmp(&above)).is_ok();
            if !seen.insert(above.clone()) || is_replaced() {
                continue;
            }
            if now.state(&above)?.is_some_and(|state| state.kind != EntryKind::Directory) {
                return Err(Error::NotADirectory { path: change.path.clone(), above });
            }
        }
    }
    Ok(())
}

/// Returns whether a change is about one of the paths, or creates a directory that one of them needs.
fn is_meant(change: &Change, paths: &[FilePath]) -> bool {
    let is_needed = |path: &FilePath| path.is_within(&change.path) && change.before.is_none();
    paths.is_empty() || paths.iter().any(|path| change.path.is_within(path) || is_needed(path))
}
