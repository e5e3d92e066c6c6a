//! The tables, and opening a database.

use std::path::Path;

use rusqlite::{Connection, OpenFlags, functions::FunctionFlags};

use crate::glob;

/// Increases with every change to the tables. A database of another version is deleted: everything in it can be derived
/// again.
pub(crate) const VERSION: i64 = 5;

/// Columns used by filters are separate from the JSON of a row, so that a filter reads few pages.
///
/// `process.collected_ns` is set for a process that was collected: only the ids of such a row are kept, and its
/// spending, which counts in the budget of `process.payer`. `process.unseen` is 1 if a person has to be told of its end. `spent` has what each
/// process spent, by day and model, and stays when the process is collected. `pid.alias` marks a PID that was only assigned to a
/// suspended process and is in no journal.
const TABLES: &str = "
CREATE TABLE state (key TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE process (
    id INTEGER PRIMARY KEY,
    uuid TEXT NOT NULL UNIQUE,
    backwards TEXT NOT NULL,
    name TEXT,
    cwd TEXT,
    state INTEGER,
    exit_code INTEGER,
    last_pid INTEGER,
    created_ms INTEGER,
    active_ms INTEGER,
    payer TEXT,
    tokens_in INTEGER,
    tokens_out INTEGER,
    cost_nanos INTEGER,
    journal_bytes INTEGER,
    unseen INTEGER,
    collected_ns INTEGER
);
CREATE TABLE info (id INTEGER PRIMARY KEY, json BLOB NOT NULL);
CREATE TABLE pid (
    pid INTEGER PRIMARY KEY,
    process INTEGER NOT NULL,
    end BLOB,
    successor INTEGER,
    alias INTEGER NOT NULL
);
CREATE TABLE spent (
    process INTEGER NOT NULL,
    day INTEGER NOT NULL,
    model TEXT,
    cwd TEXT,
    tokens_in INTEGER NOT NULL,
    tokens_out INTEGER NOT NULL,
    cost_nanos INTEGER,
    estimated INTEGER NOT NULL
);
CREATE INDEX spent_of_process ON spent (process);
CREATE INDEX spent_by_day ON spent (day);
CREATE INDEX process_by_suffix ON process (backwards) WHERE collected_ns IS NULL;
CREATE INDEX process_by_name ON process (name, last_pid) WHERE collected_ns IS NULL AND name IS NOT NULL;
CREATE INDEX process_by_pid ON process (last_pid, uuid) WHERE collected_ns IS NULL;
CREATE INDEX process_by_age ON process (created_ms, uuid) WHERE collected_ns IS NULL;
CREATE INDEX process_unseen ON process (active_ms) WHERE unseen = 1 AND collected_ns IS NULL;
CREATE INDEX process_by_payer ON process (payer) WHERE payer IS NOT NULL;
CREATE INDEX process_collected ON process (collected_ns) WHERE collected_ns IS NOT NULL;
CREATE INDEX pid_of_process ON pid (process);
";

/// Opens a database file, or creates it.
pub(crate) fn open(path: &Path) -> rusqlite::Result<Connection> {
    // No URI and no mutex of SQLite: the path is a plain path, and one thread at a time uses the connection.
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    // The data directory has one daemon. Without others no shared memory is needed, and no file for it.
    connection.pragma_update(None, "locking_mode", "EXCLUSIVE")?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "NORMAL")?;
    prepare(connection)
}

/// Opens a database in memory, for a disk without free space.
pub(crate) fn open_in_memory() -> rusqlite::Result<Connection> {
    prepare(Connection::open_in_memory()?)
}

fn prepare(connection: Connection) -> rusqlite::Result<Connection> {
    connection.set_prepared_statement_cache_capacity(64);
    let flags = FunctionFlags::SQLITE_UTF8 | FunctionFlags::SQLITE_DETERMINISTIC;
    connection.create_scalar_function("matches", 2, flags, |context| {
        let text = context.get_raw(1).as_str_or_null()?;
        Ok(text.is_some_and(|text| context.get_raw(0).as_str().is_ok_and(|pattern| glob::matches(pattern, text))))
    })?;
    let version: i64 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    if version == 0 {
        connection.execute_batch(&format!("BEGIN; {TABLES} PRAGMA user_version = {VERSION}; COMMIT;"))?;
    }
    Ok(connection)
}

/// Returns whether this version wrote the database.
pub(crate) fn is_ours(connection: &Connection) -> rusqlite::Result<bool> {
    let version: i64 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    Ok(version == VERSION)
}
