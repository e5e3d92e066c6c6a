//! What is said about the files that processes work on.

pub use relive_types::WorkspaceKind;
use relive_types::{Timestamp, Uuid};
use serde::{Deserialize, Serialize};

/// The files of a process, as `info --json` has them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Workspace {
    /// Whether they are a copy.
    pub kind: WorkspaceKind,
    pub path: String,
    /// The grade of the last snapshot: `exact`, `partial` or `moving`.
    pub grade: Option<String>,
    /// The Git tree of the last snapshot.
    pub tree: Option<String>,
    /// The number of files that differ between its first snapshot and its last.
    pub changed: Option<u64>,
    /// Paths that the last snapshot could not keep: too large, unreadable, or no files. One that is `.` stands for all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub skipped: Vec<String>,
    /// The same paths, each with the reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_kept: Vec<NotKept>,
    /// Whether the files after some step are not known.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unknown_steps: bool,
    /// Whether that is so of the last step that may have changed files.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unknown_now: bool,
    /// Whether there are files, and the rules leave all of them out.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub all_ignored: bool,
}

/// A path that a snapshot could not keep.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotKept {
    pub path: String,
    /// `too_large`, `special` (a pipe, a socket or a device), `unreadable`, `other_file_system`, `too_deep`, `changing` or
    /// `rules_too_large`; absent in snapshots of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// The states of the files to compare; by default the first and the last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DiffQuery {
    /// The step whose changes are shown; with `to`, the step after which the comparison starts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<u32>,
    /// The state after this step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<u32>,
    /// With the unified diff.
    #[serde(default)]
    pub text: bool,
}

/// `diff --json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilesDiff {
    /// The step after which the files were as on the left side.
    pub from: u32,
    /// The step after which the files were as on the right side.
    pub to: u32,
    /// The Git trees of both, for `git --git-dir=STORE diff`.
    pub trees: Option<(String, String)>,
    pub files: Vec<FileChange>,
    /// The unified diff, where it was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub diff: Option<String>,
    /// Paths that the right side could not keep: too large, unreadable, or no files. What became of them is not known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub skipped: Vec<String>,
    /// The same paths, each with the reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_kept: Vec<NotKept>,
    /// One line for a person, if there is something to add.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileChange {
    /// Relative to the workspace; a name that is no plain text is quoted as Git does. A directory ends with `/`: it is
    /// listed if no file in it tells of the change.
    pub path: String,
    /// `added`, `modified`, `deleted`, `mode` or, if only its other names changed, `link`.
    pub change: String,
    /// Lines that are new; absent where it is no text.
    pub added: Option<u64>,
    /// Lines that are gone.
    pub removed: Option<u64>,
    /// Whether it is no text.
    pub binary: bool,
    /// Whether others changed it too, or alone, as far as that is recorded.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub foreign: bool,
}

/// Files that go back to how they were after a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "SentRewind")]
pub struct RewindRequest {
    /// The step; 0 with `undo`.
    pub to_step: u32,
    /// To how they were before the last rewind or restore, instead of a step.
    pub undo: bool,
    /// The model is not told.
    pub files_only: bool,
    /// Over changes of others, and to a state that is not exact.
    pub force: bool,
    /// Say what would be changed; change nothing.
    pub dry_run: bool,
}

/// A rewind as a client sends it. Without a goal it is refused: step 0 would remove files.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SentRewind {
    to_step: Option<u32>,
    #[serde(default)]
    undo: bool,
    #[serde(default)]
    files_only: bool,
    #[serde(default)]
    force: bool,
    #[serde(default)]
    dry_run: bool,
}

impl TryFrom<SentRewind> for RewindRequest {
    type Error = &'static str;

    fn try_from(sent: SentRewind) -> Result<Self, Self::Error> {
        let SentRewind { to_step, undo, files_only, force, dry_run } = sent;
        let to_step = match (to_step, undo) {
            // Clients send 0 with `undo`.
            (Some(0) | None, true) => 0,
            (Some(step), false) => step,
            (Some(_), true) => return Err("`to_step` and `undo` exclude each other"),
            (None, false) => return Err("`to_step` or `undo` is missing"),
        };
        Ok(Self { to_step, undo, files_only, force, dry_run })
    }
}

/// `rewind --json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rewound {
    pub uuid: Uuid,
    pub to_step: u32,
    /// The number of files that were, or would be, written or removed.
    pub restored: u64,
    /// Whether each was read again and is as it was; never with `dry_run`.
    pub verified: bool,
    /// The command that takes it back.
    pub undo: Option<String>,
    /// The files that were, or would be, changed.
    pub files: Vec<FileChange>,
    /// Whether nothing was changed, because only a plan was asked for.
    #[serde(default)]
    pub dry_run: bool,
    /// Whether the process was paused for it.
    #[serde(default)]
    pub paused: bool,
    /// One line for a person, if there is something to add.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// Some files that go back to how they were after a step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RestoreRequest {
    pub step: u32,
    /// Files or directories: absolute, or relative to `cwd` where that is in the workspace, else to the workspace.
    pub paths: Vec<String>,
    /// The directory of the one who asks.
    pub cwd: String,
    /// Over changes of others, and to a state that is not exact.
    #[serde(default)]
    pub force: bool,
    /// Say what would be changed; change nothing.
    #[serde(default)]
    pub dry_run: bool,
}

/// The changes of an own workspace that are brought back.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct MergeRequest {
    /// Where to; the directory that was copied if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub into: Option<String>,
    /// With conflict markers where both sides changed the same lines.
    #[serde(default)]
    pub force: bool,
    /// Say what would be changed; change nothing.
    #[serde(default)]
    pub dry_run: bool,
}

/// `restore --json` and `merge --json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilesChanged {
    /// The number of files that were, or would be, written or removed.
    pub written: u64,
    /// Files that both sides changed; written with markers only with `force`.
    pub conflicts: Vec<FileConflict>,
    /// Whether each was read again and is as planned; never with `dry_run`.
    pub verified: bool,
    pub path: String,
    /// The files that were, or would be, changed.
    pub files: Vec<FileChange>,
    /// Whether nothing was changed, because only a plan was asked for.
    #[serde(default)]
    pub dry_run: bool,
    /// One line for a person, if there is something to add.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// A file that both sides changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileConflict {
    pub path: String,
    /// `lines`, `binary`, `both_added`, `removed_and_changed`, `type` or `mode`.
    pub kind: String,
}

/// A file whose lines are asked about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlameRequest {
    /// Absolute.
    pub path: String,
    /// The number of one line, from 1; all lines if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u64>,
}

/// `blame --json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "said above")]
pub struct Blame {
    pub lines: Vec<BlamedLine>,
    /// Whether the file was changed since the last snapshot, so that lines may have moved.
    pub changed_since: bool,
}

/// A line of a file, and the process and step that wrote it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlamedLine {
    /// From 1.
    pub line: u64,
    /// The process; absent where it was there before, or somebody else's work.
    pub uuid: Option<Uuid>,
    pub step: Option<u32>,
    /// The first and the last of several steps, one of which wrote the line: no snapshot was taken between them. Then there
    /// is no `step`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub steps: Option<(u32, u32)>,
    pub at: Option<Timestamp>,
    /// The intent of the process.
    pub intent: Option<String>,
    pub text: String,
}

/// `workspace list --json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "said above")]
pub struct OwnWorkspaces {
    pub workspaces: Vec<OwnWorkspace>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnWorkspace {
    /// The process it was made for.
    pub uuid: Uuid,
    pub path: String,
    /// Always a copy.
    pub kind: WorkspaceKind,
    /// Bytes of its files.
    pub bytes: u64,
    /// Whether it has changes that were not merged; absent where nobody can tell.
    pub dirty: Option<bool>,
    /// Whether the process is known: it may have been collected.
    pub known: bool,
}

/// An own workspace that is not needed any more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemoveWorkspaceRequest {
    pub id: String,
    /// Also with changes that were not merged.
    #[serde(default)]
    pub force: bool,
    /// Say what would be removed; change nothing.
    #[serde(default)]
    pub dry_run: bool,
}

/// The size of the store of snapshots, and how much garbage collection frees.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct GcSnapshots {
    /// Bytes of the store before.
    pub bytes: u64,
    /// Bytes that were, or would be, given back.
    pub freed_bytes: u64,
}
