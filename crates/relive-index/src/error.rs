//! Errors of the index. An error is never "not found": the caller reports that the answer is unknown.

use std::io;
use std::path::PathBuf;

use rusqlite::ErrorCode;

/// The result of asking the index.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The reason why the index has no answer.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The database was damaged. It was deleted and replaced by an empty, incomplete one.
    #[error("{path}: damaged; deleted, and it will be rebuilt", path = path.display())]
    Corrupt { path: PathBuf },
    /// The database was removed or replaced while it was open. Its content is lost when the daemon ends.
    #[error("{path}: removed while in use; it will be rebuilt", path = path.display())]
    Removed { path: PathBuf },
    /// The database cannot be read or written, for example because the disk is full.
    #[error("{path}: {source}", path = path.display())]
    Database { path: PathBuf, source: rusqlite::Error },
    /// The directory of the index cannot be created or removed.
    #[error("{path}: {source}", path = path.display())]
    Io { path: PathBuf, source: io::Error },
    /// The data directory cannot be listed.
    #[error("the data directory cannot be listed: {0}")]
    Data(io::Error),
    /// The caller stopped a rebuild. The index is not complete.
    #[error("stopped")]
    Stopped,
}

/// Returns whether the database itself is damaged, as opposed to a wrong request or a disk error.
pub(crate) fn is_corrupt(error: &rusqlite::Error) -> bool {
    if let rusqlite::Error::SqliteFailure(failure, _) = error {
        // A missing table is reported as a wrong request, and no request here is wrong.
        let wrong_tables = failure.extended_code == rusqlite::ffi::SQLITE_ERROR;
        return wrong_tables || matches!(failure.code, ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase);
    }
    // A column with an unexpected type: another program wrote it.
    matches!(
        error,
        rusqlite::Error::FromSqlConversionFailure(..)
            | rusqlite::Error::IntegralValueOutOfRange(..)
            | rusqlite::Error::InvalidColumnType(..)
            | rusqlite::Error::Utf8Error(..)
            | rusqlite::Error::SqlInputError { .. }
    )
}
