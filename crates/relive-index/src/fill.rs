//! Fills the index from the data directory, and finds changes that it has missed.

use std::collections::{HashMap, HashSet};
use std::fs;

use relive_core::{Pid, Uuid};
use relive_journal::DataDirectory;
use relive_journal::data::Tombstone;
use rusqlite::{Transaction, params};

use crate::error::{Error, Result};
use crate::index::{Index, uuid_at};
use crate::row::Row;
use crate::write::{self, Expected};

/// How many entries one transaction writes. Other requests are served in between.
const BATCH: usize = 500;
/// How many rows are compared at a time.
const COMPARED: i64 = 5_000;

/// An entry of the data directory.
#[derive(Debug, Clone, PartialEq)]
pub enum Entry {
    /// A process with a readable journal.
    Here(Box<Row>),
    /// A process whose journal cannot be read. It is found by its id, so that the caller is told the reason.
    Unreadable(Uuid),
    /// A process that was collected.
    Collected(Box<Tombstone>),
    /// A recorded PID, which may be in no journal.
    Noted(Pid, Uuid),
}

/// The result of [`Index::refresh`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Refreshed {
    /// Journals that were not in the index, or had changed since.
    pub read: usize,
    /// Rows of processes that no longer exist.
    pub removed: usize,
}

/// Reads every entry of the data directory, one process at a time. Nothing is read before the first entry is requested.
pub fn entries(data: &DataDirectory) -> impl Iterator<Item = Result<Entry>> {
    let here = list(|| Ok(data.uuids()?.into_iter().filter_map(|uuid| read(data, uuid))));
    let collected = list(|| Ok(data.tombstones()?.into_iter().map(Box::new).map(Entry::Collected)));
    let noted = list(|| Ok(data.noted_pids().into_iter().map(|(pid, uuid)| Entry::Noted(pid, uuid))));
    here.chain(collected).chain(noted)
}

/// Calls `make` when the first entry is requested.
fn list<I: Iterator<Item = Entry>>(make: impl FnOnce() -> std::io::Result<I>) -> impl Iterator<Item = Result<Entry>> {
    std::iter::once_with(make).flat_map(|made| {
        let (entries, error) = match made {
            Ok(entries) => (Some(entries), None),
            Err(error) => (None, Some(Err(Error::Data(error)))),
        };
        error.into_iter().chain(entries.into_iter().flatten().map(Ok))
    })
}

/// Returns `None` for a process that is gone or whose journal does not describe it.
fn read(data: &DataDirectory, uuid: Uuid) -> Option<Entry> {
    match Row::read(data, uuid) {
        Ok(Some(row)) => Some(Entry::Here(Box::new(row))),
        Ok(None) => Some(Entry::Unreadable(uuid)),
        Err(_) if fs::symlink_metadata(data.directory(uuid).path()).is_err() => None,
        Err(_) => Some(Entry::Unreadable(uuid)),
    }
}

impl Index {
    /// Rebuilds the index from these entries, journals first. An error among the entries stops it, and the index stays
    /// incomplete.
    ///
    /// It may run while processes are created, ended and collected: the index is emptied before the first entry is
    /// requested, and changes written in the meantime are newer than any entry.
    pub fn rebuild(&self, entries: impl IntoIterator<Item = Result<Entry>>) -> Result<()> {
        self.clear()?;
        let mut entries = entries.into_iter();
        loop {
            let batch = entries.by_ref().take(BATCH).collect::<Result<Vec<Entry>>>()?;
            if batch.is_empty() {
                break;
            }
            self.change(|transaction| batch.iter().try_for_each(|entry| insert(transaction, entry)))?;
        }
        self.change(|transaction| {
            write::prune(transaction)?;
            write::set_complete(transaction, true)
        })
    }

    /// Compares the index with the data directory, by one `stat` for each journal, and adds what it has missed: a power
    /// cut may lose the last changes to the index. Afterwards the index is complete.
    ///
    /// A known process that has not ended is skipped: its runtime writes every change to the index. `stop` is called
    /// between journals.
    pub fn refresh(&self, data: &DataDirectory, stop: impl Fn() -> bool) -> Result<Refreshed> {
        // Read before the directory is listed, so that a row without a directory belongs to a process that is gone.
        let known = self.lengths()?;
        let here: HashSet<Uuid> = data.uuids().map_err(Error::Data)?.into_iter().collect();
        let mut done = Refreshed::default();
        for uuid in &here {
            if stop() {
                return Err(Error::Stopped);
            }
            let seen = known.get(uuid);
            let length = fs::metadata(data.directory(*uuid).steps()).ok().map(|metadata| metadata.len());
            if seen.is_some_and(|seen| seen.is_some() && *seen == length) {
                continue;
            }
            if seen.is_some() && data.is_marked(*uuid) {
                continue;
            }
            let expected = seen.map_or(Expected::Absent, |seen| Expected::Length(*seen));
            match read(data, *uuid) {
                Some(Entry::Here(row)) => self.change(|transaction| write::upsert(transaction, &row, expected))?,
                Some(_) => self.change(|transaction| write::insert_unreadable(transaction, *uuid))?,
                None => continue,
            }
            done.read += 1;
        }
        let tombstones = data.tombstones().map_err(Error::Data)?;
        let collected: HashMap<Uuid, &Tombstone> =
            tombstones.iter().map(|tombstone| (tombstone.uuid, tombstone)).collect();
        for uuid in known.keys().filter(|uuid| !here.contains(uuid)) {
            self.change(|transaction| match collected.get(uuid) {
                Some(tombstone) => write::collect(transaction, *uuid, tombstone.collected_at),
                None => write::forget(transaction, *uuid),
            })?;
            done.removed += 1;
        }
        for batch in tombstones.chunks(BATCH) {
            self.change(|transaction| {
                batch.iter().try_for_each(|tombstone| write::insert_tombstone(transaction, tombstone))
            })?;
        }
        self.note_pids(data.noted_pids())?;
        self.change(|transaction| {
            write::prune(transaction)?;
            write::set_complete(transaction, true)
        })?;
        Ok(done)
    }

    /// Returns the existing processes, each with the length of the journal that its row was made from.
    fn lengths(&self) -> Result<HashMap<Uuid, Option<u64>>> {
        let mut lengths = HashMap::new();
        let mut after = String::new();
        loop {
            let part: Vec<(Uuid, Option<i64>)> = self.ask(|connection| {
                let mut statement = connection.prepare_cached(
                    "SELECT uuid, journal_bytes FROM process WHERE uuid > ?1 AND collected_ns IS NULL
                     ORDER BY uuid LIMIT ?2",
                )?;
                let row = |row: &rusqlite::Row<'_>| Ok((uuid_at(row, 0)?, row.get(1)?));
                statement.query_map(params![after, COMPARED], row)?.collect()
            })?;
            let Some((last, _)) = part.last() else { return Ok(lengths) };
            after = crate::id::forwards(*last);
            lengths.extend(
                part.into_iter().map(|(uuid, bytes)| (uuid, bytes.and_then(|bytes| u64::try_from(bytes).ok()))),
            );
        }
    }
}

fn insert(transaction: &Transaction<'_>, entry: &Entry) -> rusqlite::Result<()> {
    match entry {
        Entry::Here(row) => write::upsert(transaction, row, Expected::Absent),
        Entry::Unreadable(uuid) => write::insert_unreadable(transaction, *uuid),
        Entry::Collected(tombstone) => write::insert_tombstone(transaction, tombstone),
        Entry::Noted(pid, uuid) => write::note(transaction, *pid, *uuid),
    }
}
