//! What can go wrong.

use std::io;
use std::path::{Path, PathBuf};

use crate::object::ObjectId;
use crate::path::FilePath;

/// A result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why something was not done. Unless a variant says otherwise, no file of the workspace was changed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The operating system refused.
    #[error("cannot {action} {path}: {source}", path = path.display())]
    Io {
        /// An infinitive: `read`, `create`.
        action: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// The directory cannot be a workspace.
    #[error("cannot use {path} as a workspace: {why}", path = path.display())]
    RefusedRoot {
        /// The directory.
        path: PathBuf,
        /// Why not.
        why: RefusedRoot,
    },
    /// The directory has more than the configured limits allow.
    #[error("{path} has more than {most} {unit}", path = path.display(), unit = limit.unit())]
    TooLarge {
        /// The directory.
        path: PathBuf,
        /// Which limit.
        limit: Limit,
        /// Its value.
        most: u64,
    },
    /// The time limit was reached.
    #[error("the snapshot of {path} took longer than {limit_ms} ms", path = path.display())]
    TimedOut {
        /// The directory.
        path: PathBuf,
        /// The limit.
        limit_ms: u64,
    },
    /// The caller raised the flag.
    #[error("cancelled")]
    Cancelled,
    /// The store's disk has too little space.
    #[error("{path} has {free_bytes} bytes free, and {floor_bytes} are kept free", path = path.display())]
    NoSpace {
        /// The store.
        path: PathBuf,
        /// What is free.
        free_bytes: u64,
        /// What has to stay free.
        floor_bytes: u64,
    },
    /// The store has no such object, for example because it was garbage collected.
    #[error("object {0} is not in the store")]
    Missing(ObjectId),
    /// The store has the object, and it is not what its name says.
    #[error("object {id} in {path} is damaged", path = path.display())]
    DamagedObject {
        /// The object.
        id: ObjectId,
        /// The pack.
        path: PathBuf,
    },
    /// A file of the store is not what it should be.
    #[error("{path} is damaged: {what}", path = path.display())]
    DamagedFile {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        what: &'static str,
    },
    /// Somebody else uses the store or the workspace in a way that excludes this.
    #[error("{path} is in use", path = path.display())]
    Busy {
        /// The store or the workspace's directory of state.
        path: PathBuf,
    },
    /// A restore or merge was interrupted; finish it or roll it back first.
    #[error("an interrupted {kind} of {path} has to be finished or rolled back first", path = path.display(), kind = kind.name())]
    PlanPending {
        /// The workspace.
        path: PathBuf,
        /// What was interrupted.
        kind: crate::plan::PlanKind,
    },
    /// There is no interrupted restore or merge.
    #[error("no restore or merge of {path} was interrupted", path = path.display())]
    NoPlan {
        /// The workspace.
        path: PathBuf,
    },
    /// Files were changed since the snapshot that the caller expected.
    #[error("{} files were changed since, first {}", paths.len(), first(paths))]
    ChangedSince {
        /// All of them.
        paths: Vec<FilePath>,
    },
    /// Something that no snapshot has is in the way, for example an ignored file where a file has to be restored.
    #[error("{} paths are in the way and in no snapshot, first {}", paths.len(), first(paths))]
    InTheWay {
        /// All of them.
        paths: Vec<FilePath>,
    },
    /// The snapshot lacks files, and the caller did not insist.
    #[error("the snapshot is {}, not exact", grade.name())]
    NotExact {
        /// Its grade.
        grade: crate::snapshot::Grade,
    },
    /// Both sides changed the same lines, and the caller did not insist.
    #[error("{} files conflict, first {}", conflicts.len(), conflicts.first().map_or_else(String::new, |conflict| conflict.path.to_string()))]
    Conflicts {
        /// All of them.
        conflicts: Vec<crate::merge::Conflict>,
    },
    /// A pattern of `include` or `exclude` is malformed.
    #[error("not a pattern: {pattern}")]
    InvalidPattern {
        /// The pattern.
        pattern: String,
    },
    /// The path is not in the snapshot.
    #[error("{path} is not in the snapshot")]
    NoSuchPath {
        /// The path.
        path: FilePath,
    },
}

/// Which limit was reached.
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

/// Why a directory cannot be a workspace.
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
    /// It is not a directory.
    #[error("it is not a directory")]
    NotADirectory,
}

fn first(paths: &[FilePath]) -> String {
    paths.first().map_or_else(String::new, ToString::to_string)
}

/// Adds what was tried, and on which file, to an error of the system.
pub(crate) trait Context<T> {
    fn context(self, action: &'static str, path: &Path) -> Result<T>;
}

impl<T, E: Into<io::Error>> Context<T> for Result<T, E> {
    fn context(self, action: &'static str, path: &Path) -> Result<T> {
        self.map_err(|source| Error::Io { action, path: path.to_owned(), source: source.into() })
    }
}
