//! Directories of a merge: those that new files need, and conflicts with files of the same name.

use std::collections::BTreeSet;

use super::{ConflictKind, Merger};
use crate::diff::{Change, FileState, View};
use crate::error::Result;
use crate::object::EntryKind;
use crate::path::FilePath;

impl Merger<'_> {
    /// Creates directories that this side removed and the other side has new files in, and finds conflicts between a
    /// directory and a file. A conflict with a directory affects everything below it.
    pub(super) fn settle_directories(&mut self, theirs: &mut View<'_>) -> Result<()> {
        let removed: BTreeSet<FilePath> =
            self.changes.iter().filter(|change| change.after.is_none()).map(|change| change.path.clone()).collect();
        let mut found = BTreeSet::new();
        for change in self.changes.iter().filter(|change| replaces_directory(change)) {
            if self.ours.paths_below(&change.path)?.iter().any(|path| !removed.contains(path)) {
                found.insert(change.path.clone());
            }
        }
        let mut needed = BTreeSet::new();
        for change in self.changes.iter().filter(|change| change.after.is_some()) {
            for above in change.path.parents() {
                if self.changes.binary_search_by(|change| change.path.cmp(&above)).is_ok() {
                    continue;
                }
                match self.ours.state(&above)? {
                    Some(state) if state.kind == EntryKind::Directory => {}
                    Some(_) => drop(found.insert(above)),
                    None => drop(needed.insert(above)),
                }
            }
        }
        for path in needed {
            let after = theirs.state(&path)?;
            self.changes.push(Change { path, before: None, after });
        }
        self.changes.sort_by(|a, b| a.path.cmp(&b.path));
        for path in found {
            self.changes.retain(|change| change.path != path);
            if !self.conflicts.iter().any(|conflict| conflict.path == path) {
                self.conflict(&path, ConflictKind::Type);
            }
        }
        self.conflicts.sort_by(|a, b| a.path.cmp(&b.path));
        let mut changes = std::mem::take(&mut self.changes);
        changes.retain(|change| !self.is_below_conflict(&change.path));
        self.changes = changes;
        Ok(())
    }

    pub(super) fn is_below_conflict(&self, path: &FilePath) -> bool {
        self.conflicts.iter().any(|conflict| path.is_within(&conflict.path) && *path != conflict.path)
    }
}

/// Returns whether a file or a link takes the place of a directory.
fn replaces_directory(change: &Change) -> bool {
    let kind = |state: &Option<FileState>| state.as_ref().map(|state| state.kind);
    kind(&change.before) == Some(EntryKind::Directory)
        && kind(&change.after).is_some_and(|kind| kind != EntryKind::Directory)
}
