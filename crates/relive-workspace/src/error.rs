//! Errors of this crate.

use std::io;
use std::path::{Path, PathBuf};

use crate::object::ObjectId;
use crate::path::FilePath;

/// A result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The reason why an operation failed. Unless a variant says otherwise, no file of the workspace was changed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The operating system refused.
    #[error("cannot {action} {path}: {source}", path = path.display())]
    Io {
        /// An infinitive: `read`, `create`.
        action: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    /// The directory cannot be a workspace.
    #[error("cannot use {path} as a workspace: {why}", path = path.display())]
    RefusedRoot { path: PathBuf, why: RefusedRoot },
    /// The directory has more than the configured limits allow.
    #[error("{path} has more than {most} {unit}", path = path.display(), unit = limit.unit())]
    TooLarge {
        path: PathBuf,
        limit: Limit,
        /// The value of the limit.
        most: u64,
    },
    /// The time limit was reached.
    #[error("the snapshot of {path} took longer than {limit_ms} ms", path = path.display())]
    TimedOut { path: PathBuf, limit_ms: u64 },
    /// The caller set the cancel flag.
    #[error("cancelled")]
    Cancelled,
    /// The store's disk has too little space.
    #[error("{path} has {free_bytes} bytes free, and {floor_bytes} are kept free", path = path.display())]
    NoSpace {
        path: PathBuf,
        free_bytes: u64,
        /// The space that has to stay free.
        floor_bytes: u64,
    },
    /// The store has no such object, for example because it was garbage collected.
    #[error("object {0} is not in the store")]
    Missing(ObjectId),
    /// The object in the store does not match its id.
    #[error("object {id} in {path} is damaged", path = path.display())]
    DamagedObject { id: ObjectId, path: PathBuf },
    /// A file of the store is damaged.
    #[error("{path} is damaged: {what}", path = path.display())]
    DamagedFile { path: PathBuf, what: &'static str },
    /// Another user of the store or the workspace excludes this operation.
    #[error("{path} is in use", path = path.display())]
    Busy {
        /// The store, or the state directory of the workspace.
        path: PathBuf,
    },
    /// A restore or merge was interrupted; finish it or roll it back first.
    #[error("an interrupted {kind} of {path} has to be finished or rolled back first", path = path.display(), kind = kind.name())]
    PlanPending { path: PathBuf, kind: crate::plan::PlanKind },
    /// The interrupted restore or merge is of another directory, which was at this path then.
    #[error(
        "an interrupted {kind} belongs to a directory that is no longer at {path}: put it back, or remove {plan_file} to give up its files",
        path = path.display(), kind = kind.name(), plan_file = plan_file.display()
    )]
    OtherDirectory { path: PathBuf, kind: crate::plan::PlanKind, plan_file: PathBuf },
    /// A restore or merge failed, and so did rolling it back: the files are half changed, and the plan is still there.
    #[error("{source}; what was changed already could not be rolled back: {rollback}")]
    HalfApplied { source: Box<Error>, rollback: Box<Error> },
    /// There is no interrupted restore or merge.
    #[error("no restore or merge of {path} was interrupted", path = path.display())]
    NoPlan { path: PathBuf },
    /// Files were changed since the snapshot that the caller expected.
    #[error("{} files were changed since, first {}", paths.len(), first(paths))]
    ChangedSince { paths: Vec<FilePath> },
    /// A file that is in no snapshot is in the way, for example an ignored file where a file has to be restored.
    #[error("{} paths are in the way and in no snapshot, first {}", paths.len(), first(paths))]
    InTheWay { paths: Vec<FilePath> },
    /// The snapshot lacks files, and the caller did not force the operation.
    #[error("the snapshot is {}, not exact", grade.name())]
    NotExact {
        grade: crate::snapshot::Grade,
        /// Files of the directory that cannot be kept now, so that the snapshot probably lacks them; not all of many.
        left_out: Vec<FilePath>,
    },
    /// Both sides changed the same lines, and the caller did not force the operation.
    #[error("{} files conflict, first {}", conflicts.len(), conflicts.first().map_or_else(String::new, |conflict| conflict.path.to_string()))]
    Conflicts { conflicts: Vec<crate::merge::Conflict> },
    /// A directory that was to be removed contains a mount point.
    #[error("something is mounted on {path}, so nothing was removed", path = path.display())]
    Mounted { path: PathBuf },
    /// A pattern of `include` or `exclude` is malformed.
    #[error("not a pattern: {pattern}")]
    InvalidPattern { pattern: String },
    /// The path was in a directory that is a file or a link now.
    #[error("cannot restore {path} alone: {above} was a directory and is not one now")]
    NotADirectory { path: FilePath, above: FilePath },
    /// The file has no lines.
    #[error("{path} is not a text: it has no lines")]
    NotText { path: FilePath },
    /// The path is not in the snapshot.
    #[error("{path} is not in the snapshot")]
    NoSuchPath { path: FilePath },
}

/// The limit that was reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// `max_files`.
    Files,
    /// `max_total_bytes`.
    TotalBytes,
}

impl Limit {
    fn unit(self) -> &'static str {
        match self {
            Self::Files => "files",
            Self::TotalBytes => "bytes",
        }
    }
}

/// The reason why a directory cannot be a workspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RefusedRoot {
    /// It is `/`.
    #[error("it is the root of the file system")]
    FileSystemRoot,
    /// It is the home directory, or above it.
    #[error("it is the home directory or above it")]
    Home,
    /// It is inside Relive's store.
    #[error("it is inside Relive's own store")]
    Store,
    /// It is one of the private directories.
    #[error("it belongs to Relive itself")]
    Private,
    /// It is not a directory.
    #[error("it is not a directory")]
    NotADirectory,
}

fn first(paths: &[FilePath]) -> String {
    paths.first().map_or_else(String::new, ToString::to_string)
}

/// Adds the attempted action and the file to a system error.
pub(crate) trait Context<T> {
    fn context(self, action: &'static str, path: &Path) -> Result<T>;
}

impl<T, E: Into<io::Error>> Context<T> for Result<T, E> {
    fn context(self, action: &'static str, path: &Path) -> Result<T> {
        self.map_err(|source| Error::Io { action, path: path.to_owned(), source: source.into() })
    }
}
