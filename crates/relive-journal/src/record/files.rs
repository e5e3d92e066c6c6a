//! The records of the files a process works on. Both may be skipped: they decide nothing about what may run.

use relive_core::Timestamp;
use serde::{Deserialize, Serialize};

use super::{is_false, is_zero};
use crate::hash::Hash;

/// The most paths that a record lists.
pub const PATHS_MAX: usize = 200;
/// The most files that could not be kept that a record lists: the store has all of them.
pub const NOT_KEPT_MAX: usize = 5;

/// The state of the working directory, kept as a Git tree in the store of snapshots. It is recorded only where something
/// changed since the one before it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    /// The last step whose changes it has. The record itself may stand within the next step, because it is taken while
    /// the model thinks.
    pub after: u32,
    #[serde(flatten)]
    pub files: FilesId,
    /// The tree of the snapshot that it was compared with; absent from the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<Hash>,
    /// How many files differ from it.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub changed: u64,
    /// Lines that are new since then.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub added: u64,
    /// Lines that are gone since then.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub removed: u64,
    /// How many of the files that differ were not compared line by line: there were too many.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub uncounted: u64,
    /// The number of files that are not in it although no rule excludes them.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub skipped: u64,
    /// Some of the files that could not be kept, and why, at most [`NOT_KEPT_MAX`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_kept: Vec<NotKept>,
    /// Changed paths that are not known to be the work of this process, at most [`PATHS_MAX`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub foreign: Vec<String>,
    /// How many there are.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub foreign_count: u64,
    /// Whether it was taken before a verb changed the files, so that the verb can be undone: it is of no step.
    #[serde(default, skip_serializing_if = "is_false")]
    pub before_verb: bool,
    /// When it was taken: the record may be written much later, with the answer of the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub taken: Option<Timestamp>,
    /// The files before its own changes, if others changed files after `base`: up to here the changes are theirs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<FilesId>,
    /// Why nobody looked, if it says only that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// A file that could not be kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotKept {
    pub path: String,
    /// The reason, as `diff --json` names it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl Snapshot {
    /// Returns a snapshot that was compared with nothing.
    #[must_use]
    pub fn new(after: u32, files: FilesId) -> Self {
        Self {
            after,
            files,
            base: None,
            changed: 0,
            added: 0,
            removed: 0,
            uncounted: 0,
            skipped: 0,
            not_kept: Vec::new(),
            foreign: Vec::new(),
            foreign_count: 0,
            before_verb: false,
            taken: None,
            since: None,
            why: None,
        }
    }

    /// Says that the files were not seen after this step: they may be these no longer.
    #[must_use]
    pub fn unseen(after: u32, last: FilesId) -> Self {
        Self { base: Some(last.tree), ..Self::new(after, FilesId { grade: Grade::Moving, ..last }) }
    }

    /// Tells whether it says only that nobody looked.
    #[must_use]
    pub fn is_unseen(&self) -> bool {
        self.files.grade == Grade::Moving && self.base == Some(self.files.tree)
    }
}

/// The ids of a snapshot in the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilesId {
    pub tree: Hash,
    /// The parts that a tree cannot hold: permissions, empty directories, hard links.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extras: Option<Hash>,
    /// The grade of the snapshot.
    pub grade: Grade,
}

/// How reliable a snapshot is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Grade {
    /// Every file that the rules include, byte for byte.
    Exact,
    /// Some files could not be kept.
    Partial,
    /// Something was writing all the time.
    Moving,
}

/// A verb that changed files of a process's directory, or brought its changes to another one. It is recorded before the
/// first change and once more when it is done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rewound {
    pub verb: FilesVerb,
    #[serde(default, skip_serializing_if = "is_false")]
    pub done: bool,
    /// The step whose files were asked for; absent for a merge.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to_step: Option<u32>,
    /// The last whole step when it was recorded: the files of later steps begin with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<u32>,
    /// The state of the files afterwards; for a merge, the files that were merged in.
    #[serde(flatten)]
    pub files: FilesId,
    /// The directory that a merge went to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub into: Option<String>,
    /// The files of that directory after the merge.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub merged: Option<FilesId>,
    /// How many files were written or removed.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub changed: u64,
    /// The number of files that a forced merge left out: that version is only in the own workspace.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub left: u64,
    /// Some of these files, at most [`NOT_KEPT_MAX`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_paths: Vec<String>,
    /// Whether the model has still to be told, because the process had ended.
    #[serde(default, skip_serializing_if = "is_false")]
    pub untold: bool,
    /// Whether it undid the rewind or restore before it: the state is then of no step, or of `to_step` by chance.
    #[serde(default, skip_serializing_if = "is_false")]
    pub undo: bool,
    /// The id of the request that asked for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub req: Option<String>,
}

/// A verb that changes files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "each name says it")]
pub enum FilesVerb {
    Rewind,
    Restore,
    Merge,
}

/// A workspace of its own: the process works on a copy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnWorkspace {
    /// The directory whose files were copied; a merge goes there.
    pub from: String,
}
