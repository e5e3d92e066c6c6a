//! Hard links of a merge: which names are one file.

use std::collections::{BTreeMap, BTreeSet};

use super::{Merger, is_same};
use crate::diff::{Change, FileState, View};
use crate::error::Result;
use crate::path::FilePath;

/// The group of names that each name belongs to.
type Groups<'a> = BTreeMap<&'a FilePath, &'a [FilePath]>;

fn groups(links: &[Vec<FilePath>]) -> Groups<'_> {
    links.iter().flat_map(|group| group.iter().map(|path| (path, group.as_slice()))).collect()
}

impl Merger<'_> {
    /// Merges which names are one file, like any other property: the side that changed it wins, and this side if both
    /// did. Names whose files differ after the merge are separated.
    pub(super) fn merge_links(&mut self, base: &View<'_>, theirs: &View<'_>) -> Result<()> {
        let our_links = self.ours.extras.links.clone();
        let (base, ours, theirs) = (groups(&base.extras.links), groups(&our_links), groups(&theirs.extras.links));
        let all: BTreeSet<&FilePath> =
            [&base, &ours, &theirs].into_iter().flat_map(|groups| groups.keys().copied()).collect();
        let (mut with_bits, mut names) = (Vec::new(), Vec::new());
        for path in all {
            if self.is_below_conflict(path) {
                continue;
            }
            // Only the file that has set-id bits here keeps them, so it is the one that gets other names.
            let has_bits = self.ours.state(path)?.is_some_and(|state| state.has_set_id_bits());
            if has_bits { &mut with_bits } else { &mut names }.push(path);
        }
        let names = with_bits.into_iter().chain(names);
        let mut changes: BTreeMap<FilePath, Change> =
            std::mem::take(&mut self.changes).into_iter().map(|change| (change.path.clone(), change)).collect();
        // By group, the first name of each file that differs from the others.
        let mut firsts: BTreeMap<&[FilePath], Vec<(FilePath, FileState)>> = BTreeMap::new();
        for path in names {
            let before = self.ours.state(path)?;
            let result = changes.remove(path).map_or_else(|| before.clone(), |change| change.after);
            let is_kept = theirs.get(path) == base.get(path) || ours.get(path) != base.get(path);
            let group = if is_kept { ours.get(path) } else { theirs.get(path) };
            let after = result.map(|state| match group.filter(|_| state.kind.is_regular()) {
                Some(group) => joined(path, state, firsts.entry(group).or_default()),
                None => FileState { same_as: None, ..state },
            });
            if before != after {
                changes.insert(path.clone(), Change { path: path.clone(), before, after });
            }
        }
        self.changes = changes.into_values().collect();
        Ok(())
    }
}

/// Returns the state with the first name of the same file, or notes that it is the first. A copy never has the set-id bits
/// of its original, so a new name of a file gets the bits of the file.
fn joined(path: &FilePath, state: FileState, firsts: &mut Vec<(FilePath, FileState)>) -> FileState {
    match firsts.iter().find(|(_, first)| is_same(Some(first), Some(&state))) {
        Some((name, first)) => FileState { mode: first.mode, same_as: Some(name.clone()), ..state },
        None => {
            firsts.push((path.clone(), state.clone()));
            FileState { same_as: None, ..state }
        }
    }
}
