//! Why the index has no answer. None of these is an answer: the caller says that it does not know.

use std::io;
use std::path::PathBuf;

use rusqlite::ErrorCode;

/// The result of asking the index.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why the index has no answer.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The database was damaged. It was deleted, and an empty one, that is not complete, is in its place.
    #[error("{path}: damaged, and deleted; it is to be rebuilt", path = path.display())]
    Corrupt {
        /// The database.
        path: PathBuf,
    },
    /// The database was removed or replaced while it was open. What it says is lost with the daemon.
    #[error("{path}: removed while in use; it is to be rebuilt", path = path.display())]
    Removed {
        /// The database.
        path: PathBuf,
    },
    /// The database cannot be read or written, for example because the disk is full.
    #[error("{path}: {source}", path = path.display())]
    Database {
        /// The database.
        path: PathBuf,
        /// SQLite's reason.
        source: rusqlite::Error,
    },
    /// The directory of the index cannot be made or removed.
    #[error("{path}: {source}", path = path.display())]
    Io {
        /// The directory.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// The data directory cannot be listed.
    #[error("the data directory cannot be listed: {0}")]
    Data(io::Error),
    /// The caller stopped a rebuild. The index is not complete.
    #[error("stopped")]
    Stopped,
}

/// Tells whether the database itself is wrong, and not the request or the disk.
pub(crate) fn is_corrupt(error: &rusqlite::Error) -> bool {
    if let rusqlite::Error::SqliteFailure(failure, _) = error {
        // A table that is not there is a plain error of the request, and no request here is wrong.
        let wrong_tables = failure.extended_code == rusqlite::ffi::SQLITE_ERROR;
        return wrong_tables || matches!(failure.code, ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase);
    }
    // A column that does not hold what is written there: somebody else wrote it.
    matches!(
        error,
        rusqlite::Error::FromSqlConversionFailure(..)
            | rusqlite::Error::IntegralValueOutOfRange(..)
            | rusqlite::Error::InvalidColumnType(..)
            | rusqlite::Error::Utf8Error(..)
            | rusqlite::Error::SqlInputError { .. }
    )
}
