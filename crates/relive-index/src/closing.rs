//! Whether the daemon before told the index everything: it says so when it closes it.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use relive_journal::DataDirectory;
use rusqlite::{OptionalExtension as _, params};

use crate::error::{Error, Result};
use crate::index::Index;
use crate::write;

/// Which file a path names: one that was replaced has another number.
pub(crate) type FileId = (u64, u64);

pub(crate) fn file_id(path: &Path) -> Option<FileId> {
    fs::symlink_metadata(path).ok().map(|metadata| (metadata.dev(), metadata.ino()))
}

impl Index {
    /// Takes the index into use, and tells whether it knows everything: it is complete, the daemon before closed it, and
    /// no history was begun or collected since, by whoever.
    ///
    /// On return the index counts as not closed, also after a power cut.
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

    /// Says that everything that happened was told.
    pub fn close(&self, data: &DataDirectory) -> Result<()> {
        let Some(changed_at) = changed_at_ns(data) else { return Ok(()) };
        self.change(|transaction| {
            let sql = "INSERT INTO state (key, value) VALUES ('closed', ?1)
                       ON CONFLICT DO UPDATE SET value = excluded.value";
            transaction.execute(sql, params![changed_at]).map(drop)
        })
    }

    /// Says that something was missed: the index is not complete, also for the next daemon.
    pub fn mark_incomplete(&self) -> Result<()> {
        self.change(|transaction| write::set_complete(transaction, false))
    }

    /// Refuses an index whose file was removed or replaced: what is written there would be lost.
    pub fn check_place(&self) -> Result<()> {
        let Some((path, file)) = self.place() else { return Ok(()) };
        if file.is_some() && file_id(&path) == file { Ok(()) } else { Err(Error::Removed { path }) }
    }
}

fn changed_at_ns(data: &DataDirectory) -> Option<i64> {
    let changed_at: SystemTime = data.changed_at().ok()?;
    i64::try_from(changed_at.duration_since(UNIX_EPOCH).ok()?.as_nanos()).ok()
}
