//! The index: one connection, and its queries and updates.

use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use relive_core::{End, Pid, Timestamp, Uuid};
use relive_journal::{Disk, ProcInfo};
use relive_types::short_id::{self, ShownPart};
use rusqlite::types::Type;
use rusqlite::{Connection, OptionalExtension as _, Transaction, params};

use crate::closing::{FileId, file_id};
use crate::error::{Error, Result, is_corrupt};
use crate::row::{Incarnation, Row};
use crate::write::{self, Expected};
use crate::{id, schema};

/// How many candidates of a prefix or suffix are returned at most.
pub const CANDIDATES_MAX: usize = 1_000;
/// Collected processes are counted after this many removals.
const REMOVALS_MAX: u32 = 1_024;

/// An open index. See the crate's documentation.
#[derive(Debug)]
pub struct Index {
    /// The directory of the database; absent for one in memory.
    directory: Option<PathBuf>,
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    connection: Connection,
    /// The database file, if there is one.
    file: Option<FileId>,
    /// Removals since the collected processes were last counted.
    removals: u32,
}

/// The owner of a PID.
#[derive(Debug, Clone, PartialEq)]
pub struct PidEntry {
    pub uuid: Uuid,
    /// How the incarnation ended; absent while it lives and if it was interrupted. Also absent for a PID that was only
    /// assigned to a suspended process, and once the process was collected.
    pub end: Option<End>,
    /// The PID of the next incarnation.
    pub successor: Option<Pid>,
    /// When the process was collected.
    pub collected_at: Option<Timestamp>,
}

impl Index {
    /// Opens the index of the data directory `root`, and creates it if necessary. A damaged one is deleted.
    pub fn open(root: &Path) -> Result<Self> {
        let directory = root.join("index");
        let connection = open_in(&directory)?;
        let file = file_id(&database(Some(&directory)));
        Ok(Self { directory: Some(directory), inner: Mutex::new(Inner { connection, file, removals: 0 }) })
    }

    /// Creates an index in memory, for a disk without free space. It is empty and has to be rebuilt.
    pub fn in_memory() -> Result<Self> {
        let connection = schema::open_in_memory().map_err(|source| failed(None, source))?;
        Ok(Self { directory: None, inner: Mutex::new(Inner { connection, file: None, removals: 0 }) })
    }

    /// Deletes the index of the data directory `root` because it cannot be written: an outdated index would answer "not
    /// found" for processes that it has missed.
    pub fn delete(root: &Path) -> Result<()> {
        remove(&root.join("index"))
    }

    /// Limits the size of the database, so that a test can fill it.
    #[doc(hidden)]
    pub fn limit_pages(&self, pages: u32) -> Result<()> {
        self.ask(|connection| connection.pragma_update(None, "max_page_count", pages))
    }

    /// Returns the path of the database and the identity of its file; `None` for one in memory.
    pub(crate) fn place(&self) -> Option<(PathBuf, Option<FileId>)> {
        let directory = self.directory.as_deref()?;
        Some((database(Some(directory)), self.lock().file))
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs a query. A damaged database is deleted at once.
    pub(crate) fn ask<T>(&self, ask: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> Result<T> {
        let mut inner = self.lock();
        let answer = ask(&inner.connection);
        answer.map_err(|source| self.dispose(&mut inner, source))
    }

    /// Runs a change as one transaction.
    pub(crate) fn change<T>(&self, change: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<T>) -> Result<T> {
        let mut inner = self.lock();
        let changed = inner.connection.transaction().and_then(|transaction| {
            let answer = change(&transaction)?;
            transaction.commit()?;
            Ok(answer)
        });
        changed.map_err(|source| self.dispose(&mut inner, source))
    }

    /// Replaces a damaged database with an empty one.
    fn dispose(&self, inner: &mut Inner, source: rusqlite::Error) -> Error {
        if !is_corrupt(&source) {
            return failed(self.directory.as_deref(), source);
        }
        let Ok(empty) = schema::open_in_memory() else { return failed(self.directory.as_deref(), source) };
        // Closes the file before it is removed. If no new one can be created, the one in memory stays.
        inner.connection = empty;
        if let Some(directory) = &self.directory
            && Disk::new().remove_tree(directory).is_ok()
            && let Ok(connection) = open_in(directory)
        {
            inner.connection = connection;
            inner.file = file_id(&database(Some(directory)));
        }
        Error::Corrupt { path: database(self.directory.as_deref()) }
    }

    /// Returns whether the index knows every process. Until then "not found" is not a valid answer.
    pub fn is_complete(&self) -> Result<bool> {
        self.ask(|connection| {
            let mut statement = connection.prepare_cached("SELECT value FROM state WHERE key = 'complete'")?;
            let value: Option<i64> = statement.query_row([], |row| row.get(0)).optional()?;
            Ok(value == Some(1))
        })
    }

    /// Marks the index as complete.
    pub fn mark_complete(&self) -> Result<()> {
        self.change(|transaction| write::set_complete(transaction, true))
    }

    /// Marks the index as incomplete, and empties it.
    pub(crate) fn clear(&self) -> Result<()> {
        self.change(|transaction| {
            write::set_complete(transaction, false)?;
            transaction.execute_batch("DELETE FROM process; DELETE FROM info; DELETE FROM pid; DELETE FROM spent;")
        })
    }

    /// Writes the state of a process. Called when it was created, resumed, paused or ended, after its journal was
    /// synced and before its marker is removed.
    pub fn upsert(&self, row: &Row) -> Result<()> {
        self.change(|transaction| write::upsert(transaction, row, Expected::Any))
    }

    /// Writes the state of several processes in one transaction. Rows that are up to date are skipped.
    pub fn upsert_all(&self, rows: &[Row]) -> Result<()> {
        self.change(|transaction| rows.iter().try_for_each(|row| write::upsert(transaction, row, Expected::Other)))
    }

    /// Records that a process was collected. Its PIDs are kept as long as a tombstone.
    pub fn remove(&self, uuid: Uuid, collected_at: Timestamp) -> Result<()> {
        let mut inner = self.lock();
        inner.removals += 1;
        let counts = inner.removals >= REMOVALS_MAX;
        if counts {
            inner.removals = 0;
        }
        drop(inner);
        self.change(|transaction| {
            write::collect(transaction, uuid, collected_at)?;
            if counts { write::prune(transaction) } else { Ok(()) }
        })
    }

    /// Records PIDs that are assigned to suspended processes without being in their journals.
    pub fn note_pids(&self, pids: impl IntoIterator<Item = (Pid, Uuid)>) -> Result<()> {
        self.change(|transaction| pids.into_iter().try_for_each(|(pid, uuid)| write::note(transaction, pid, uuid)))
    }

    /// Returns the present or former owner of a PID.
    pub fn by_pid(&self, pid: Pid) -> Result<Option<PidEntry>> {
        self.ask(|connection| {
            let mut statement = connection.prepare_cached(
                "SELECT process.uuid, pid.end, pid.successor, process.collected_ns
                 FROM pid CROSS JOIN process ON process.id = pid.process WHERE pid.pid = ?1",
            )?;
            let entry = |row: &rusqlite::Row<'_>| {
                Ok(PidEntry {
                    uuid: uuid_at(row, 0)?,
                    end: json_at(row, 1)?,
                    successor: row.get::<_, Option<u32>>(2)?.map(Pid),
                    collected_at: timestamp_at(row, 3)?,
                })
            };
            statement.query_row([pid.0], entry).optional()
        })
    }

    /// Returns the latest process with this name: the one with the highest PID.
    pub fn by_name(&self, name: &str) -> Result<Option<Uuid>> {
        self.ask(|connection| {
            let mut statement = connection.prepare_cached(
                "SELECT uuid FROM process WHERE name = ?1 AND collected_ns IS NULL ORDER BY last_pid DESC LIMIT 1",
            )?;
            statement.query_row([name], |row| uuid_at(row, 0)).optional()
        })
    }

    /// Returns the processes whose UUID begins with this text, at most `max` and at most [`CANDIDATES_MAX`], in order.
    /// Hyphens are optional.
    pub fn by_prefix(&self, prefix: &str, max: usize) -> Result<Vec<Uuid>> {
        let digits = short_id::digits_of_prefix(prefix);
        self.between(
            "SELECT uuid FROM process WHERE uuid >= ?1 AND uuid < ?2 AND collected_ns IS NULL ORDER BY uuid LIMIT ?3",
            digits.as_deref(),
            max,
        )
    }

    /// Returns the processes whose UUID ends with this text, at most `max` and at most [`CANDIDATES_MAX`].
    pub fn by_suffix(&self, suffix: &str, max: usize) -> Result<Vec<Uuid>> {
        let digits = short_id::digits_of_suffix(suffix);
        self.between(
            "SELECT uuid FROM process WHERE backwards >= ?1 AND backwards < ?2 AND collected_ns IS NULL
             ORDER BY backwards LIMIT ?3",
            digits.as_deref(),
            max,
        )
    }

    /// Returns the processes whose shown id begins like this, at most `max` and at most [`CANDIDATES_MAX`]. The text is
    /// searched in all of them, which takes some milliseconds for 100,000: it is typed by a person.
    pub fn by_shown(&self, part: &ShownPart, max: usize) -> Result<Vec<Uuid>> {
        self.ask(|connection| {
            let mut statement = connection.prepare_cached(
                "SELECT uuid FROM process WHERE instr(uuid, ?1) > 0 AND collected_ns IS NULL ORDER BY uuid",
            )?;
            let found = statement.query_map(params![part.digits()], |row| uuid_at(row, 0))?;
            let is_meant = |uuid: &rusqlite::Result<Uuid>| uuid.as_ref().map_or(true, |uuid| part.begins(*uuid));
            found.filter(is_meant).take(max.min(CANDIDATES_MAX)).collect()
        })
    }

    fn between(&self, sql: &str, digits: Option<&str>, max: usize) -> Result<Vec<Uuid>> {
        let Some(digits) = digits else { return Ok(Vec::new()) };
        self.ask(|connection| {
            let mut statement = connection.prepare_cached(sql)?;
            let max = i64::try_from(max.min(CANDIDATES_MAX)).unwrap_or(i64::MAX);
            statement.query_map(params![digits, id::end_of(digits), max], |row| uuid_at(row, 0))?.collect()
        })
    }

    /// Returns a process; `None` if it is not known, was collected, or could not be read when it was indexed.
    pub fn row(&self, uuid: Uuid) -> Result<Option<Row>> {
        self.ask(|connection| {
            let mut statement = connection.prepare_cached(
                "SELECT process.id, info.json FROM process JOIN info ON info.id = process.id WHERE process.uuid = ?1",
            )?;
            let found: Option<(i64, ProcInfo)> =
                statement.query_row([id::forwards(uuid)], |row| Ok((row.get(0)?, info_at(row, 1)?))).optional()?;
            let Some((process, info)) = found else { return Ok(None) };
            let mut statement =
                connection.prepare_cached("SELECT pid, end FROM pid WHERE process = ?1 AND alias = 0 ORDER BY pid")?;
            let incarnation =
                |row: &rusqlite::Row<'_>| Ok(Incarnation { pid: Pid(row.get(0)?), end: json_at(row, 1)? });
            let incarnations = statement.query_map([process], incarnation)?.collect::<rusqlite::Result<_>>()?;
            Ok(Some(Row { info, incarnations }))
        })
    }

    /// Returns up to `max` existing processes that could not be read when they were indexed, in order.
    pub fn unreadable(&self, max: usize) -> Result<Vec<Uuid>> {
        self.ask(|connection| {
            let mut statement = connection.prepare_cached(
                "SELECT uuid FROM process WHERE last_pid IS NULL AND collected_ns IS NULL ORDER BY uuid LIMIT ?1",
            )?;
            let max = i64::try_from(max).unwrap_or(i64::MAX);
            statement.query_map([max], |row| uuid_at(row, 0))?.collect()
        })
    }

    /// Returns when a process was collected; `None` if it was not, or if that has been forgotten.
    pub fn collected(&self, uuid: Uuid) -> Result<Option<Timestamp>> {
        self.ask(|connection| {
            let mut statement = connection.prepare_cached("SELECT collected_ns FROM process WHERE uuid = ?1")?;
            Ok(statement.query_row([id::forwards(uuid)], |row| timestamp_at(row, 0)).optional()?.flatten())
        })
    }
}

/// Opens the database in this directory. A damaged one, or one of another version, is deleted first.
fn open_in(directory: &Path) -> Result<Connection> {
    let path = database(Some(directory));
    for _ in 0..2 {
        make_directory(directory)?;
        match schema::open(&path) {
            Ok(connection) if schema::is_ours(&connection).unwrap_or(false) => return Ok(connection),
            Ok(_) => {}
            Err(error) if is_corrupt(&error) => {}
            Err(source) => return Err(Error::Database { path, source }),
        }
        remove(directory)?;
    }
    Err(Error::Corrupt { path })
}

/// Creates the directory, and removes anything else in the place of its files.
fn make_directory(directory: &Path) -> Result<()> {
    let is_regular = |path: &Path| fs::symlink_metadata(path).map_or(true, |metadata| metadata.is_file());
    let path = database(Some(directory));
    let wal = directory.join("index.db-wal");
    if !fs::symlink_metadata(directory).map_or(true, |metadata| metadata.is_dir())
        || !is_regular(&path)
        || !is_regular(&wal)
    {
        remove(directory)?;
    }
    let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(directory);
    made.map_err(|source| Error::Io { path: directory.to_owned(), source })
}

fn remove(directory: &Path) -> Result<()> {
    Disk::new().remove_tree(directory).map_err(|source| Error::Io { path: directory.to_owned(), source })
}

fn database(directory: Option<&Path>) -> PathBuf {
    directory.map_or_else(|| PathBuf::from(":memory:"), |directory| directory.join("index.db"))
}

fn failed(directory: Option<&Path>, source: rusqlite::Error) -> Error {
    Error::Database { path: database(directory), source }
}

fn damaged(column: usize, error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(column, Type::Blob, error.into())
}

pub(crate) fn uuid_at(row: &rusqlite::Row<'_>, column: usize) -> rusqlite::Result<Uuid> {
    let text = row.get_ref(column)?.as_str()?;
    id::parse(text).ok_or_else(|| damaged(column, "not a UUID"))
}

pub(crate) fn info_at(row: &rusqlite::Row<'_>, column: usize) -> rusqlite::Result<ProcInfo> {
    serde_json::from_slice(row.get_ref(column)?.as_blob()?).map_err(|error| damaged(column, error))
}

fn json_at<T: serde::de::DeserializeOwned>(row: &rusqlite::Row<'_>, column: usize) -> rusqlite::Result<Option<T>> {
    let bytes = row.get_ref(column)?.as_blob_or_null()?;
    bytes.map(|bytes| serde_json::from_slice(bytes).map_err(|error| damaged(column, error))).transpose()
}

fn timestamp_at(row: &rusqlite::Row<'_>, column: usize) -> rusqlite::Result<Option<Timestamp>> {
    let at: Option<i64> = row.get(column)?;
    let parse = |at: i64| {
        Timestamp::from_nanosecond(at.into()).map_err(|_| damaged(column, io::ErrorKind::InvalidData.to_string()))
    };
    at.map(parse).transpose()
}
