//! Errors of the runtime: typed, with a code for programs, a text for people, and a hint.

use std::io::ErrorKind;

use relive_core::{ErrorCode, Refusal};
use relive_journal::data::{CollectError, ForkError, LineageError, SpawnError};
use relive_journal::{JobLost, JournalError, WriteError};
use relive_types::short_id::short;

const SPACE_HINT: &str = "free some space; `relive gc` removes old processes";

/// The reason why a verb was refused or failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The process model refuses it.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The journal cannot be opened or written.
    #[error(transparent)]
    Journal(#[from] WriteError),
    /// The conversation cannot be read from the journal.
    #[error("{0}")]
    Conversation(String),
    /// The process cannot be created.
    #[error(transparent)]
    Spawn(#[from] SpawnError),
    /// The process cannot be forked.
    #[error(transparent)]
    Fork(#[from] ForkError),
    /// The origin of a fork cannot be found.
    #[error(transparent)]
    Lineage(#[from] LineageError),
    /// Nothing can be collected.
    #[error(transparent)]
    Collect(#[from] CollectError),
    /// The operating system refuses a read or a write.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// A thread for blocking work was lost.
    #[error(transparent)]
    Lost(#[from] JobLost),
    /// A restore or merge of the same directory was interrupted, and has to be rolled back first.
    #[error("{0}")]
    Interrupted(String),
    /// A directory has outgrown the limits of snapshots. A forced restore works all the same.
    #[error("{0}")]
    Outgrown(String),
    /// A restore or merge failed in the middle, and so did rolling it back.
    #[error("{message}")]
    HalfApplied {
        /// Of the failure.
        code: ErrorCode,
        /// For people.
        message: String,
    },
    /// A name is in use. The PID of the process that has it is not for a caller that may not see it.
    #[error("the name `{name}` is taken by another process")]
    NameTaken {
        /// The name that was asked for.
        name: String,
    },
    /// It would be too far below the process that a person started. That stays so, however long one waits.
    #[error("{message}")]
    TooDeep {
        /// For people.
        message: String,
        /// What helps.
        hint: Option<String>,
    },
    /// A limit of its tree leaves no place for it.
    #[error("refused: {why}. {}", advice.words())]
    NoPlace {
        /// For people: which limit.
        why: String,
        /// For an agent, which may do without it.
        advice: Advice,
        /// What helps.
        hint: String,
    },
    /// The runtime itself refuses it.
    #[error("{message}")]
    Said {
        /// For programs.
        code: ErrorCode,
        /// For people.
        message: String,
        /// A command that helps.
        hint: Option<String>,
    },
}

/// What an agent does instead of spawning another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Advice {
    Alone,
    /// There may be a place later.
    AloneOrWait,
}

impl Advice {
    fn words(self) -> &'static str {
        match self {
            Self::Alone => "Do it yourself",
            Self::AloneOrWait => "Do it yourself, or wait for some to end",
        }
    }
}

/// The result of a verb.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// Creates a refusal of the runtime itself.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self::Said { code, message: message.into(), hint: None }
    }

    /// Adds a command that helps.
    #[must_use]
    pub fn with_hint(self, text: impl Into<String>) -> Self {
        let (code, message) = (self.code(), self.to_string());
        Self::Said { code, message, hint: Some(text.into()) }
    }

    /// Returns whether the disk is full.
    pub(crate) fn is_disk_full(&self) -> bool {
        match self {
            Self::Journal(WriteError::DiskFull { .. }) => true,
            Self::Io(error) | Self::Collect(CollectError::Io(error)) => is_full(error),
            Self::Spawn(error) | Self::Fork(ForkError::Spawn(error)) => is_made_on_full_disk(error),
            Self::Fork(ForkError::Write(error)) => is_written_to_full_disk(error),
            Self::Fork(ForkError::Io { source, .. }) => is_full(source),
            Self::Refused(_)
            | Self::Journal(_)
            | Self::Conversation(_)
            | Self::Fork(
                ForkError::NoSuchStep { .. }
                | ForkError::Damaged { .. }
                | ForkError::ReadOnly { .. }
                | ForkError::Collected { .. },
            )
            | Self::Lineage(_)
            | Self::Collect(_)
            | Self::Lost(_)
            | Self::Interrupted(_)
            | Self::Outgrown(_)
            | Self::HalfApplied { .. }
            | Self::NameTaken { .. }
            | Self::TooDeep { .. }
            | Self::NoPlace { .. }
            | Self::Said { .. } => false,
        }
    }

    #[must_use]
    pub fn code(&self) -> ErrorCode {
        if self.is_disk_full() {
            return ErrorCode::Exhausted;
        }
        match self {
            Self::Refused(refusal) => refusal.code(),
            Self::Journal(error) | Self::Spawn(SpawnError::Write(error)) | Self::Fork(ForkError::Write(error)) => {
                journal_code(error)
            }
            Self::Spawn(error) | Self::Fork(ForkError::Spawn(error)) => spawn_code(error),
            Self::Fork(ForkError::NoSuchStep { .. }) => ErrorCode::Invalid,
            Self::Fork(ForkError::Collected { .. }) => ErrorCode::NotFound,
            Self::Fork(ForkError::Damaged { .. } | ForkError::ReadOnly { .. })
            | Self::Lineage(_)
            | Self::Interrupted(_)
            | Self::Outgrown(_)
            | Self::NameTaken { .. }
            | Self::Collect(CollectError::ClockJumped { .. }) => ErrorCode::Conflict,
            Self::Fork(ForkError::Io { .. })
            | Self::Collect(CollectError::Io(_))
            | Self::Conversation(_)
            | Self::Io(_)
            | Self::Lost(_) => ErrorCode::Internal,
            Self::TooDeep { .. } | Self::NoPlace { .. } => ErrorCode::Exhausted,
            Self::Said { code, .. } | Self::HalfApplied { code, .. } => *code,
        }
    }

    /// Tells whether the same request may succeed later, without anybody changing anything.
    pub(crate) fn is_temporary(&self) -> bool {
        match self.code() {
            ErrorCode::Exhausted => !matches!(self, Self::TooDeep { .. } | Self::NoPlace { advice: Advice::Alone, .. }),
            ErrorCode::Unavailable => true,
            ErrorCode::Invalid
            | ErrorCode::Conflict
            | ErrorCode::NotFound
            | ErrorCode::Permission
            | ErrorCode::Timeout
            | ErrorCode::Internal => false,
        }
    }

    /// Returns what happened, without what only an agent can do about it.
    pub(crate) fn without_advice(&self) -> String {
        if let Self::NoPlace { why, .. } = self { why.clone() } else { self.to_string() }
    }

    /// Returns a command that helps, if there is one.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            // A process to resume exists; one to create does not.
            Self::Spawn(_) | Self::Fork(_) | Self::Io(_) | Self::Collect(_) if self.is_disk_full() => {
                Some(SPACE_HINT.into())
            }
            Self::Refused(refusal) => refusal.hint(),
            Self::Journal(error) | Self::Spawn(SpawnError::Write(error)) | Self::Fork(ForkError::Write(error)) => {
                journal_hint(error).map(Into::into)
            }
            Self::Spawn(SpawnError::NoSpace { .. }) | Self::Fork(ForkError::Spawn(SpawnError::NoSpace { .. })) => {
                Some(SPACE_HINT.into())
            }
            Self::Fork(
                ForkError::NoSuchStep { source_uuid, last, .. } | ForkError::Damaged { source_uuid, last, .. },
            ) => Some(format!("relive resume --fork --from-step {last} {}", short(*source_uuid))),
            Self::Fork(ForkError::Collected { .. }) => Some("relive ps -a".into()),
            Self::NameTaken { name } => Some(format!("relive info {name}")),
            Self::TooDeep { hint, .. } | Self::Said { hint, .. } => hint.clone(),
            Self::NoPlace { hint, .. } => Some(hint.clone()),
            Self::Spawn(_)
            | Self::Fork(_)
            | Self::Lineage(_)
            | Self::Collect(_)
            | Self::Conversation(_)
            | Self::Io(_)
            | Self::Interrupted(_)
            | Self::Outgrown(_)
            | Self::HalfApplied { .. }
            | Self::Lost(_) => None,
        }
    }
}

fn is_full(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded)
}

fn is_made_on_full_disk(error: &SpawnError) -> bool {
    match error {
        SpawnError::Write(error) => is_written_to_full_disk(error),
        SpawnError::Io { source, .. } => is_full(source),
        SpawnError::NoSpace { .. } => true,
        SpawnError::Exists(_) => false,
    }
}

fn is_written_to_full_disk(error: &WriteError) -> bool {
    match error {
        WriteError::DiskFull { .. } => true,
        WriteError::Io { source, .. } => is_full(source),
        WriteError::Busy { .. }
        | WriteError::Damaged { .. }
        | WriteError::ReadOnly { .. }
        | WriteError::Absent { .. }
        | WriteError::Poisoned { .. }
        | WriteError::Misplaced { .. }
        | WriteError::TooLong { .. } => false,
    }
}

fn spawn_code(error: &SpawnError) -> ErrorCode {
    match error {
        SpawnError::Write(error) => journal_code(error),
        SpawnError::Exists(_) => ErrorCode::Conflict,
        SpawnError::NoSpace { .. } => ErrorCode::Exhausted,
        SpawnError::Io { .. } => ErrorCode::Internal,
    }
}

fn journal_code(error: &WriteError) -> ErrorCode {
    match error {
        WriteError::Busy { .. } | WriteError::Damaged { .. } | WriteError::ReadOnly { .. } => ErrorCode::Conflict,
        WriteError::Absent { .. } => ErrorCode::NotFound,
        WriteError::Poisoned { .. } => ErrorCode::Unavailable,
        WriteError::DiskFull { .. } => ErrorCode::Exhausted,
        WriteError::Misplaced { .. } | WriteError::TooLong { .. } | WriteError::Io { .. } => ErrorCode::Internal,
    }
}

fn journal_hint(error: &WriteError) -> Option<&'static str> {
    match error {
        WriteError::Damaged { .. } => Some("`relive resume --fork --from-step N ID` continues from before the damage"),
        WriteError::ReadOnly { .. } => Some("install the newer Relive that wrote it"),
        WriteError::Poisoned { .. } => Some("look at the disk (dmesg), then: relive daemon restart"),
        WriteError::DiskFull { .. } => Some("free some space, then resume; `relive gc` removes old processes"),
        WriteError::Busy { .. }
        | WriteError::Absent { .. }
        | WriteError::Misplaced { .. }
        | WriteError::TooLong { .. }
        | WriteError::Io { .. } => None,
    }
}

impl From<std::convert::Infallible> for Error {
    fn from(never: std::convert::Infallible) -> Self {
        match never {}
    }
}

impl From<JournalError> for Error {
    fn from(error: JournalError) -> Self {
        match error {
            JournalError::Write(error) => error.into(),
            JournalError::Lost(error) => error.into(),
            JournalError::Read(text) => Self::Conversation(text),
            JournalError::Held => Self::new(ErrorCode::Conflict, error.to_string()),
        }
    }
}
