//! Whether the index is up to date: a daemon marks it as closed when it ends cleanly.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use relive_journal::DataDirectory;
use rusqlite::{OptionalExtension as _, params};

use crate::error::{Error, Result};
use crate::index::Index;
use crate::write;

/// Identifies a file: a replaced file has another number.
pub(crate) type FileId = (u64, u64);

pub(crate) fn file_id(path: &Path) -> Option<FileId> {
    fs::symlink_metadata(path).ok().map(|metadata| (metadata.dev(), metadata.ino()))
}

impl Index {
    /// Opens the index for use, and returns whether it knows every process: it is complete, the previous daemon closed
    /// it, and no journal was created or collected since then.
    ///
    /// On return the index no longer counts as closed, even after a power cut.
    pub fn begin(&self, data: &DataDirectory) -> Result<bool> {
        let marked: Option<i64> = self.ask(|connection| {
            let sql = "SELECT value FROM state WHERE key = 'closed'";
            connection.query_row(sql, [], |row| row.get(0)).optional()
        })?;
        let is_closed = marked.is_some() && marked == changed_at_ns(data);
        if marked.is_some() {
            self.ask(|connection| connection.pragma_update(None, "synchronous", "FULL"))?;
            let unmarked =
                self.change(|transaction| transaction.execute("DELETE FROM state WHERE key = 'closed'", []).map(drop));
            self.ask(|connection| connection.pragma_update(None, "synchronous", "NORMAL"))?;
            unmarked?;
        }
        Ok(is_closed && self.is_complete()?)
    }

    /// Marks the index as closed: every change has been written to it.
    pub fn close(&self, data: &DataDirectory) -> Result<()> {
        let Some(changed_at) = changed_at_ns(data) else { return Ok(()) };
        self.change(|transaction| {
            let sql = "INSERT INTO state (key, value) VALUES ('closed', ?1)
                       ON CONFLICT DO UPDATE SET value = excluded.value";
            transaction.execute(sql, params![changed_at]).map(drop)
        })
    }

    /// Marks the index as incomplete, also for the next daemon, because a change was missed.
    pub fn mark_incomplete(&self) -> Result<()> {
        self.change(|transaction| write::set_complete(transaction, false))
    }

    /// Refuses an index whose file was removed or replaced: changes written to it would be lost.
    pub fn check_place(&self) -> Result<()> {
        let Some((path, file)) = self.place() else { return Ok(()) };
        if file.is_some() && file_id(&path) == file { Ok(()) } else { Err(Error::Removed { path }) }
    }
}

fn changed_at_ns(data: &DataDirectory) -> Option<i64> {
    let changed_at: SystemTime = data.changed_at().ok()?;
    i64::try_from(changed_at.duration_since(UNIX_EPOCH).ok()?.as_nanos()).ok()
}
