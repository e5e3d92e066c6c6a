//! Differences between two snapshots.

mod lines;
mod text;
mod trees;

use std::collections::{BTreeSet, HashMap};

use serde::Serialize;

use crate::error::Result;
use crate::extras::Extras;
use crate::object::{EntryKind, ObjectId};
use crate::path::FilePath;
use crate::rules::{RecordedRules, Rules};
use crate::settings::Settings;
use crate::snapshot::{Grade, SkipReason, Snapshot};
use crate::store::Store;
pub use lines::changed_lines;
pub(crate) use lines::whole_change;
pub use text::{LineCounts, TextDiff, is_binary};
use trees::Trees;

const IGNORE_FILE: &[u8] = b".gitignore";

/// The state of a path in a snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FileState {
    /// File, executable, link or directory.
    pub kind: EntryKind,
    /// Permissions, the sticky bit and the set-id bits, which are shown and never given back to a file.
    pub mode: u32,
    /// The blob; a directory has none.
    pub id: Option<ObjectId>,
    /// The first path of the same file, if it has several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub same_as: Option<FilePath>,
}

impl FileState {
    /// Returns the permissions that Relive may give: a set-id bit of a file gives rights, so that is up to its owner.
    pub(crate) fn given_mode(&self) -> u32 {
        self.mode & if self.kind == EntryKind::Directory { 0o3777 } else { 0o1777 }
    }

    /// Returns whether it has a set-id bit that is not given back.
    pub(crate) fn has_set_id_bits(&self) -> bool {
        self.mode != self.given_mode()
    }
}

/// A path that differs between two snapshots.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Change {
    pub path: FilePath,
    /// `None` if it did not exist.
    pub before: Option<FileState>,
    /// `None` if it no longer exists.
    pub after: Option<FileState>,
}

impl Change {
    /// Returns whether this is a change of a directory, not of a file.
    #[must_use]
    pub fn is_directory(&self) -> bool {
        let is_directory = |state: &FileState| state.kind == EntryKind::Directory;
        [&self.before, &self.after].into_iter().flatten().all(is_directory)
    }

    /// Returns whether the bytes or the kind changed, not only the permissions.
    #[must_use]
    pub fn is_content(&self) -> bool {
        let content = |state: &FileState| (state.kind == EntryKind::Symlink, state.id);
        self.before.as_ref().map(content) != self.after.as_ref().map(content)
    }

    /// Returns whether this is a change of ignore rules.
    pub(crate) fn is_rules(&self) -> bool {
        self.path.split().is_some_and(|(_, name)| name == IGNORE_FILE)
    }
}

/// Returns the changes that people are shown: those of files, and those of a directory that no change below it tells of,
/// such as an empty one or other permissions. The changes have to be sorted.
#[must_use]
pub fn shown(changes: &[Change]) -> Vec<&Change> {
    let has_changes_below = |directory: &FilePath| {
        let start = directory.join(b"");
        let at = changes.partition_point(|change| change.path < start);
        changes.get(at).is_some_and(|next| next.path.is_within(directory))
    };
    let is_shown = |change: &&Change| {
        let is_of_directory_alone = || match (&change.before, &change.after) {
            (Some(before), Some(after)) => before != after,
            _ => !has_changes_below(&change.path),
        };
        !change.is_directory() || is_of_directory_alone()
    };
    changes.iter().filter(is_shown).collect()
}

impl Store {
    /// Returns the paths that could not be stored in a snapshot, sorted; the root if there were too many to list. If the
    /// Git index could not be read, that is [`crate::GIT_INDEX`]; a copy of such a snapshot has it too.
    pub fn skipped(&self, snapshot: &Snapshot) -> Result<Vec<FilePath>> {
        Ok(self.not_kept(snapshot)?.into_iter().map(|(path, _)| path).collect())
    }

    /// Returns the same paths as [`Self::skipped`], each with the reason where it is known.
    pub fn not_kept(&self, snapshot: &Snapshot) -> Result<Vec<(FilePath, Option<SkipReason>)>> {
        let extras = self.extras(snapshot)?;
        // The grade is lowered by a path that was left out or by the index; earlier versions did so for set-id bits.
        let is_for_index = snapshot.grade == Grade::Partial && extras.skipped.is_empty() && !extras.has_set_id_bits();
        let index = is_for_index.then(|| (FilePath::git_index(), Some(SkipReason::Unreadable)));
        Ok(extras.skipped.into_iter().chain(index).collect())
    }

    /// Returns every path that differs, sorted. Directories are listed if they appear, disappear or change permissions. A
    /// file that is absent because it became ignored, or could not be stored, is not known to be removed, and is not
    /// listed.
    pub fn diff(&self, before: &Snapshot, after: &Snapshot) -> Result<Vec<Change>> {
        let mut changes = self.differing(before, after)?;
        let (mut old, mut new) = (View::new(self, before)?, View::new(self, after)?);
        let patterns = |view: &View<'_>| (view.extras.include.clone(), view.extras.exclude.clone());
        if changes.iter().any(Change::is_rules) || patterns(&old) != patterns(&new) {
            let rules = |view: &View<'_>| Rules::without_repository(&view.settings(&Settings::default()));
            let (old_rules, new_rules) = (rules(&old)?, rules(&new)?);
            let mut old_rules = RecordedRules::new(&old_rules, self);
            let mut new_rules = RecordedRules::new(&new_rules, self);
            // A file that was ignored before was tracked, and is still visible if it is there.
            keep_unseen(&mut changes, |path| {
                Ok(new.is_ignored_by(&mut new_rules, path)? && !old.is_ignored_by(&mut old_rules, path)?)
            })?;
        }
        if !new.extras.skipped.is_empty() {
            keep_unseen(&mut changes, |path| Ok(new.extras.has_skipped(path)))?;
        }
        Ok(changes)
    }

    /// Returns every path that differs, with those that became ignored.
    pub(crate) fn differing(&self, before: &Snapshot, after: &Snapshot) -> Result<Vec<Change>> {
        if before.is_same_files(after) {
            return Ok(Vec::new());
        }
        let mut old = View::new(self, before)?;
        let mut new = View::new(self, after)?;
        let mut paths = BTreeSet::new();
        if old.extras.usual == new.extras.usual {
            trees::differing(&mut old.trees, before.tree, after.tree, &mut paths)?;
        } else {
            // Any file or directory may have other permissions.
            paths = old.paths()?;
            paths.append(&mut new.paths()?);
        }
        old.extras.differing(&new.extras, &mut paths);
        let mut changes = Vec::new();
        for path in paths {
            let (before, after) = (old.state(&path)?, new.state(&path)?);
            if before != after {
                changes.push(Change { path, before, after });
            }
        }
        Ok(changes)
    }

    /// Returns the state of a path in a snapshot; `None` if it does not exist there.
    pub fn state(&self, snapshot: &Snapshot, path: &FilePath) -> Result<Option<FileState>> {
        View::new(self, snapshot)?.state(path)
    }
}

/// A snapshot, opened to look up paths.
#[derive(Debug)]
pub(crate) struct View<'a> {
    trees: Trees<'a>,
    root: ObjectId,
    pub(crate) extras: Extras,
    /// Empty directories and all their parents.
    directories: BTreeSet<FilePath>,
    /// For each further path of a file with several paths, the first one.
    same_as: HashMap<FilePath, FilePath>,
}

impl<'a> View<'a> {
    pub(crate) fn new(store: &'a Store, snapshot: &Snapshot) -> Result<Self> {
        let extras = store.extras(snapshot)?;
        let above = extras.empty.iter().flat_map(FilePath::parents);
        let directories = above.chain(extras.empty.iter().cloned()).collect();
        let mut same_as = HashMap::new();
        for group in &extras.links {
            let further = group.iter().skip(1).cloned();
            same_as.extend(further.zip(group.first().into_iter().cycle().cloned()));
        }
        Ok(Self { trees: Trees::new(store), root: snapshot.tree, extras, directories, same_as })
    }

    pub(crate) fn state(&mut self, path: &FilePath) -> Result<Option<FileState>> {
        let (kind, id) = match self.trees.find(self.root, path)? {
            Some((EntryKind::Directory, _)) => (EntryKind::Directory, None),
            Some((kind, id)) => (kind, Some(id)),
            None if self.directories.contains(path) => (EntryKind::Directory, None),
            None => return Ok(None),
        };
        let (mode, same_as) = (self.extras.mode(path, kind), self.same_as.get(path).cloned());
        Ok(Some(FileState { kind, mode, id, same_as }))
    }

    /// Returns the settings with the patterns that decided what is in the snapshot.
    pub(crate) fn settings(&self, others: &Settings) -> Settings {
        let Extras { include, exclude, .. } = &self.extras;
        Settings { include: include.clone(), exclude: exclude.clone(), ..others.clone() }
    }

    /// Returns whether a file would not be in the snapshot by the ignore files of the snapshot and these rules.
    pub(crate) fn is_ignored_by(&mut self, rules: &mut RecordedRules<'_>, file: &FilePath) -> Result<bool> {
        rules.ignore(file, |directory| Ok(self.state(&directory.join(IGNORE_FILE))?.and_then(|state| state.id)))
    }

    /// Returns every path below a directory of the snapshot, including directories.
    pub(crate) fn paths_below(&mut self, directory: &FilePath) -> Result<BTreeSet<FilePath>> {
        let is_below = |path: &&FilePath| path.is_within(directory) && *path != directory;
        let mut paths: BTreeSet<FilePath> = self.directories.iter().filter(is_below).cloned().collect();
        if let Some((EntryKind::Directory, id)) = self.trees.find(self.root, directory)? {
            let mut below = BTreeSet::new();
            self.trees.all(id, &mut below)?;
            paths.extend(below.iter().map(|below| directory.join(below.as_bytes())));
        }
        Ok(paths)
    }

    /// Returns every path of the snapshot, including directories.
    pub(crate) fn paths(&mut self) -> Result<BTreeSet<FilePath>> {
        let mut paths = self.directories.clone();
        self.trees.all(self.root, &mut paths)?;
        Ok(paths)
    }
}

/// Drops the removal of the files for which `is_unseen` says that they may still be there, and of the directories they
/// are in. Returns these files.
pub(crate) fn keep_unseen(
    changes: &mut Vec<Change>,
    mut is_unseen: impl FnMut(&FilePath) -> Result<bool>,
) -> Result<Vec<FilePath>> {
    let mut kept = BTreeSet::new();
    for change in changes.iter().filter(|change| change.after.is_none() && !change.is_directory()) {
        if is_unseen(&change.path)? {
            kept.insert(change.path.clone());
        }
    }
    let needed: BTreeSet<FilePath> = kept.iter().flat_map(FilePath::parents).collect();
    changes.retain(|change| change.after.is_some() || !(kept.contains(&change.path) || needed.contains(&change.path)));
    Ok(kept.into_iter().collect())
}

impl Extras {
    /// Adds paths that may differ although their tree entries do not.
    fn differing(&self, other: &Self, paths: &mut BTreeSet<FilePath>) {
        for (one, two) in [(self, other), (other, self)] {
            paths.extend(
                one.modes.iter().filter(|(path, mode)| two.modes.get(path) != Some(mode)).map(|(path, _)| path.clone()),
            );
            for path in one.empty.difference(&two.empty) {
                paths.insert(path.clone());
                paths.extend(path.parents());
            }
            let groups = one.links.iter().filter(|group| two.links.binary_search(group).is_err());
            paths.extend(groups.flatten().cloned());
        }
    }
}
