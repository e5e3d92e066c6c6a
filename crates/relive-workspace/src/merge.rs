//! Three-way merges, file by file: brings the changes of one workspace into another.

mod directories;
mod links;
mod text;

use serde::Serialize;

use crate::apply::{Applied, check_in_the_way};
use crate::control::Control;
use crate::diff::{Change, FileState, View, is_binary, keep_unseen};
use crate::error::{Error, Result};
use crate::object::{EntryKind, Kind, ObjectId};
use crate::path::FilePath;
use crate::plan::{Plan, PlanKind};
use crate::restore::Force;
use crate::rules::{RecordedRules, Rules};
use crate::snapshot::{Grade, Snapshot, Taken};
use crate::store::{Deflater, ObjectSink, Store};
use crate::workspace::Workspace;
use text::Text;

/// Larger texts are not merged line by line.
const TEXT_MAX: usize = 16 << 20;

/// A merge to carry out.
#[derive(Debug, Clone)]
pub struct MergeRequest<'a> {
    /// The common ancestor.
    pub base: &'a Snapshot,
    /// The side whose changes are merged.
    pub theirs: &'a Snapshot,
    /// Merges despite conflicts: conflicting lines get conflict markers, and all other conflicting files stay as they
    /// are. Also merges snapshots that are not exact.
    pub force: Force,
}

/// A file that both sides changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Conflict {
    pub path: FilePath,
    pub kind: ConflictKind,
}

/// The kind of a conflict.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ConflictKind {
    /// Both sides changed the same lines.
    Lines,
    /// Both sides changed a file that is not text.
    Binary,
    /// Both sides created the file, with different content.
    BothAdded,
    /// One side removed the file, the other changed it.
    RemovedAndChanged,
    /// A file on one side, a directory or link on the other.
    Type,
    /// Both sides changed the permissions differently.
    Mode,
}

impl ConflictKind {
    /// Returns whether a forced merge writes both sides, with conflict markers. Otherwise the file stays as it is.
    #[must_use]
    pub fn has_markers(self) -> bool {
        match self {
            Self::Lines | Self::BothAdded => true,
            Self::Binary | Self::RemovedAndChanged | Self::Type | Self::Mode => false,
        }
    }
}

/// The plan of a merge, and the snapshot that was taken before it.
#[derive(Debug)]
pub struct PreparedMerge {
    /// The current state of the workspace.
    pub before: Taken,
    pub plan: Plan,
    /// Empty unless the merge was forced.
    pub conflicts: Vec<Conflict>,
    /// Files of the workspace that `theirs` ignores and does not have: removed there, or only not seen. They stay.
    pub not_removed: Vec<FilePath>,
}

/// The result of a merge.
#[derive(Debug)]
pub struct Merged {
    /// The earlier state of the workspace. Restoring it undoes the merge.
    pub before: Taken,
    pub applied: Applied,
    /// Empty unless the merge was forced.
    pub conflicts: Vec<Conflict>,
}

impl Workspace {
    /// Takes a snapshot and plans the merge of the changes from `base` to `theirs`.
    pub fn plan_merge(&mut self, request: &MergeRequest<'_>, control: &Control) -> Result<PreparedMerge> {
        self.check_not_interrupted()?;
        // A file that could not be stored would look as if it had been removed.
        let inexact = [request.base, request.theirs].into_iter().find(|snapshot| snapshot.grade != Grade::Exact);
        if let (Some(inexact), Force::No) = (inexact, request.force) {
            return Err(Error::NotExact { grade: inexact.grade, left_out: Vec::new() });
        }
        let store = self.store().clone();
        // A pattern that the copy did not exclude would hide the same files here.
        let excluded = self.replace_excluded(store.extras(request.theirs)?.exclude);
        let before = self.snapshot(control);
        self.replace_excluded(excluded);
        let before = before?;
        let (theirs, unseen) = self.changes_of(request)?;
        let mut ours = View::new(&store, &before.snapshot)?;
        let mut not_removed = Vec::new();
        for path in unseen {
            if ours.state(&path)?.is_some() {
                not_removed.push(path);
            }
        }
        let sink = ObjectSink::new(&store);
        let mut merger = Merger { store: &store, ours, sink: &sink, changes: Vec::new(), conflicts: Vec::new() };
        let merged = theirs.iter().try_for_each(|change| control.check().and_then(|()| merger.add(change)));
        let merged = merged.and_then(|()| {
            let (base, mut theirs) = (View::new(&store, request.base)?, View::new(&store, request.theirs)?);
            merger.settle_directories(&mut theirs)?;
            merger.merge_links(&base, &theirs)
        });
        let Merger { changes, conflicts, .. } = merger;
        if let Err(error) = merged {
            sink.discard();
            return Err(error);
        }
        if !conflicts.is_empty() && request.force == Force::No {
            sink.discard();
            return Err(Error::Conflicts { conflicts });
        }
        sink.finish()?;
        let mut plan = Plan::new(PlanKind::Merge, changes);
        plan.add_read_only_directories(&mut View::new(&store, &before.snapshot)?)?;
        check_in_the_way(self, &plan)?;
        Ok(PreparedMerge { before, plan, conflicts, not_removed })
    }

    /// Returns the changes from `base` to `theirs`, and the files that are not known to be removed. A file that could not
    /// be stored was not removed, nor is it known to be removed if it is ignored there: the copy may still have it. A copy
    /// has no Git index, so its rules ignore tracked files too.
    fn changes_of(&self, request: &MergeRequest<'_>) -> Result<(Vec<Change>, Vec<FilePath>)> {
        let mut changes = self.store().differing(request.base, request.theirs)?;
        let mut theirs = View::new(self.store(), request.theirs)?;
        let rules = Rules::without_repository(&theirs.settings(self.settings()))?;
        // The caller names those that could not be stored.
        keep_unseen(&mut changes, |path| Ok(theirs.extras.has_skipped(path)))?;
        let mut rules = RecordedRules::new(&rules, self.store());
        let ignored = keep_unseen(&mut changes, |path| theirs.is_ignored_by(&mut rules, path))?;
        Ok((changes, ignored))
    }

    /// Takes a snapshot, then merges the changes from `base` to `theirs`. With conflicts nothing is written, unless the
    /// merge is forced.
    pub fn merge(&mut self, request: &MergeRequest<'_>, control: &Control) -> Result<Merged> {
        let PreparedMerge { before, plan, conflicts, .. } = self.plan_merge(request, control)?;
        let applied = self.apply(&plan, control)?;
        Ok(Merged { before, applied, conflicts })
    }
}

struct Merger<'a> {
    store: &'a Store,
    ours: View<'a>,
    sink: &'a ObjectSink,
    changes: Vec<Change>,
    conflicts: Vec<Conflict>,
}

impl Merger<'_> {
    fn add(&mut self, theirs: &Change) -> Result<()> {
        let ours = self.ours.state(&theirs.path)?;
        if is_same(ours.as_ref(), theirs.after.as_ref()) {
            return Ok(());
        }
        let after = if is_same(ours.as_ref(), theirs.before.as_ref()) {
            theirs.after.clone()
        } else {
            self.merge(&theirs.path, theirs.before.as_ref(), ours.as_ref(), theirs.after.as_ref())?
        };
        // Which names are one file is merged when all files are.
        let after = after.map(|state| FileState { same_as: None, ..state });
        if !is_same(ours.as_ref(), after.as_ref()) {
            self.changes.push(Change { path: theirs.path.clone(), before: ours, after });
        }
        Ok(())
    }

    fn conflict(&mut self, path: &FilePath, kind: ConflictKind) {
        self.conflicts.push(Conflict { path: path.clone(), kind });
    }

    /// Merges a path that both sides changed. In a conflict it returns the result of a forced merge.
    fn merge(
        &mut self,
        path: &FilePath,
        base: Option<&FileState>,
        ours: Option<&FileState>,
        theirs: Option<&FileState>,
    ) -> Result<Option<FileState>> {
        let (Some(ours), Some(theirs)) = (ours, theirs) else {
            // A directory that is gone here, and empty or gone there, is not a conflict.
            let is_directory = |state: Option<&FileState>| state.is_none_or(|state| state.kind == EntryKind::Directory);
            if !(is_directory(ours) && is_directory(theirs)) {
                self.conflict(path, ConflictKind::RemovedAndChanged);
                return Ok(ours.cloned());
            }
            return Ok(if theirs.is_some() { theirs.cloned() } else { ours.cloned() });
        };
        let kind = |state: &FileState| if state.kind.is_regular() { EntryKind::File } else { state.kind };
        if kind(ours) != kind(theirs) {
            self.conflict(path, ConflictKind::Type);
            return Ok(Some(ours.clone()));
        }
        let mode = self.merge_mode(path, base, ours, theirs);
        let base_id = base.filter(|base| kind(base) == kind(ours)).and_then(|base| base.id);
        let id = match (ours.id, theirs.id) {
            (ours, theirs) if ours == theirs || theirs == base_id => ours,
            (ours, theirs) if ours == base_id => theirs,
            (Some(ours_id), Some(theirs_id)) if ours.kind.is_regular() => {
                Some(self.merge_bytes(path, base_id, ours_id, theirs_id)?)
            }
            (ours, _) => {
                self.conflict(path, ConflictKind::Type);
                ours
            }
        };
        let kind = match ours.kind {
            EntryKind::File | EntryKind::Executable if mode & 0o100 == 0 => EntryKind::File,
            EntryKind::File | EntryKind::Executable => EntryKind::Executable,
            other @ (EntryKind::Symlink | EntryKind::Directory) => other,
        };
        Ok(Some(FileState { kind, mode, id, same_as: None }))
    }

    fn merge_mode(&mut self, path: &FilePath, base: Option<&FileState>, ours: &FileState, theirs: &FileState) -> u32 {
        match base.map(FileState::given_mode) {
            _ if ours.given_mode() == theirs.given_mode() => ours.mode,
            Some(base) if base == ours.given_mode() => theirs.mode,
            Some(base) if base == theirs.given_mode() => ours.mode,
            _ => {
                self.conflict(path, ConflictKind::Mode);
                ours.mode
            }
        }
    }

    fn merge_bytes(
        &mut self,
        path: &FilePath,
        base: Option<ObjectId>,
        ours: ObjectId,
        theirs: ObjectId,
    ) -> Result<ObjectId> {
        let was_there = base.is_some();
        let base = base.map_or_else(|| Ok(Vec::new()), |id| self.store.blob(id))?;
        let (our_bytes, their_bytes) = (self.store.blob(ours)?, self.store.blob(theirs)?);
        let sides = [&base, &our_bytes, &their_bytes];
        if sides.iter().any(|bytes| is_binary(bytes) || bytes.contains(&0) || bytes.len() > TEXT_MAX) {
            self.conflict(path, ConflictKind::Binary);
            return Ok(ours);
        }
        let merged = match text::merge(&base, &our_bytes, &their_bytes) {
            Text::Merged(merged) => merged,
            Text::Conflicting(marked) => {
                self.conflict(path, if was_there { ConflictKind::Lines } else { ConflictKind::BothAdded });
                marked
            }
        };
        self.sink.add(Kind::Blob, &merged, &mut Deflater::default())
    }
}

/// Returns whether two states have the same kind, bytes and permissions. A copy never has the set-id bits of its original, so
/// these are no difference.
fn is_same(one: Option<&FileState>, two: Option<&FileState>) -> bool {
    let key = |state: &FileState| (state.kind, state.id, state.given_mode());
    one.map(key) == two.map(key)
}
