//! The changes to the tables. Each is part of a transaction.

use relive_core::{Pid, Timestamp, Uuid};
use relive_journal::data::{KEPT_DAYS, KEPT_MAX, NOTED_MAX, Tombstone};
use rusqlite::{OptionalExtension as _, Transaction, params};

use crate::id;
use crate::row::{Incarnation, Row, State, state_of};
use crate::usage;

const DAY_NS: i64 = 24 * 60 * 60 * 1_000_000_000;

/// The condition on a row for a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Expected {
    /// Anything.
    Any,
    /// No row: an existing one is newer.
    Absent,
    /// A row that was made from a journal of this length, or from one that could not be read.
    Length(Option<u64>),
    /// Any row but one that was made from a journal of the same length.
    Other,
}

pub(crate) fn set_complete(transaction: &Transaction<'_>, complete: bool) -> rusqlite::Result<()> {
    let sql = "INSERT INTO state (key, value) VALUES ('complete', ?1) ON CONFLICT DO UPDATE SET value = excluded.value";
    transaction.prepare_cached(sql)?.execute([complete])?;
    Ok(())
}

/// Returns whether the row of a process is as expected; the new row was made from a journal of `length`.
fn is_as_expected(
    transaction: &Transaction<'_>,
    uuid: &str,
    length: u64,
    expected: Expected,
) -> rusqlite::Result<bool> {
    if expected == Expected::Any {
        return Ok(true);
    }
    let sql = "SELECT journal_bytes, collected_ns FROM process WHERE uuid = ?1";
    let mut statement = transaction.prepare_cached(sql)?;
    let found: Option<(Option<i64>, Option<i64>)> =
        statement.query_row([uuid], |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
    Ok(match (expected, found) {
        (Expected::Any, _) | (Expected::Absent | Expected::Other, None) => true,
        (Expected::Other, Some((found, collected))) => collected.is_some() || found != Some(signed(length)),
        (Expected::Length(bytes), Some((found, None))) => found == bytes.map(signed),
        (Expected::Absent, Some(_)) | (Expected::Length(_), None | Some((_, Some(_)))) => false,
    })
}

pub(crate) fn upsert(transaction: &Transaction<'_>, row: &Row, expected: Expected) -> rusqlite::Result<()> {
    let info = &row.info;
    let uuid = id::forwards(info.uuid);
    if !is_as_expected(transaction, &uuid, info.journal_bytes(), expected)? {
        return Ok(());
    }
    let mut statement = transaction.prepare_cached(
        "INSERT INTO process (uuid, backwards, name, cwd, state, exit_code, last_pid, created_ms, active_ms, payer,
             tokens_in, tokens_out, cost_nanos, journal_bytes, unseen)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15)
         ON CONFLICT (uuid) DO UPDATE SET name = excluded.name, cwd = excluded.cwd, state = excluded.state,
             exit_code = excluded.exit_code, last_pid = excluded.last_pid, created_ms = excluded.created_ms,
             active_ms = excluded.active_ms, payer = excluded.payer, tokens_in = excluded.tokens_in,
             tokens_out = excluded.tokens_out, cost_nanos = excluded.cost_nanos,
             journal_bytes = excluded.journal_bytes, unseen = excluded.unseen, collected_ns = NULL
         RETURNING id",
    )?;
    let columns = params![
        uuid,
        id::backwards(info.uuid),
        info.name,
        info.cwd,
        state_number(state_of(info)),
        info.end.as_ref().map(|end| end.exit().code),
        row.incarnations.last().map_or(0, |last| last.pid.0),
        info.created_at.as_millisecond(),
        info.last_active.as_millisecond(),
        info.payer().map(id::forwards),
        signed(info.spent.tokens_in),
        signed(info.spent.tokens_out),
        info.spent.cost_usd.map(|cost| signed(cost.nanos())),
        signed(info.journal_bytes()),
        info.unseen,
    ];
    let process: i64 = statement.query_row(columns, |row| row.get(0))?;
    let mut statement = transaction.prepare_cached("INSERT OR REPLACE INTO info (id, json) VALUES (?1, ?2)")?;
    statement.execute(params![process, json(info)?])?;
    usage::enter(transaction, process, info)?;
    upsert_incarnations(transaction, process, &row.incarnations)
}

/// Writes only the incarnations that changed: a process may have thousands.
fn upsert_incarnations(
    transaction: &Transaction<'_>,
    process: i64,
    incarnations: &[Incarnation],
) -> rusqlite::Result<()> {
    let mut statement = transaction.prepare_cached("SELECT count(*) FROM pid WHERE process = ?1 AND alias = 0")?;
    let known: i64 = statement.query_row([process], |row| row.get(0))?;
    if usize::try_from(known).unwrap_or(usize::MAX) > incarnations.len() {
        transaction.prepare_cached("DELETE FROM pid WHERE process = ?1 AND alias = 0")?.execute([process])?;
    }
    let mut statement = transaction.prepare_cached(
        "INSERT INTO pid (pid, process, end, successor, alias) VALUES (?1, ?2, ?3, ?4, 0)
         ON CONFLICT (pid) DO UPDATE SET process = excluded.process, end = excluded.end,
             successor = excluded.successor, alias = 0
         WHERE process IS NOT excluded.process OR end IS NOT excluded.end OR successor IS NOT excluded.successor
             OR alias != 0",
    )?;
    for (place, incarnation) in incarnations.iter().enumerate() {
        let end = incarnation.end.as_ref().map(json).transpose()?;
        let successor = incarnations.get(place + 1).map(|next| next.pid.0);
        statement.execute(params![incarnation.pid.0, process, end, successor])?;
    }
    Ok(())
}

/// Adds a process whose directory cannot be read, so that its id is found.
pub(crate) fn insert_unreadable(transaction: &Transaction<'_>, uuid: Uuid) -> rusqlite::Result<()> {
    let sql = "INSERT OR IGNORE INTO process (uuid, backwards) VALUES (?1, ?2)";
    transaction.prepare_cached(sql)?.execute(params![id::forwards(uuid), id::backwards(uuid)])?;
    Ok(())
}

pub(crate) fn collect(transaction: &Transaction<'_>, uuid: Uuid, collected_at: Timestamp) -> rusqlite::Result<()> {
    let mut statement = transaction.prepare_cached(
        "INSERT INTO process (uuid, backwards, collected_ns) VALUES (?1, ?2, ?3)
         ON CONFLICT (uuid) DO UPDATE SET name = NULL, cwd = NULL, state = NULL, exit_code = NULL, last_pid = NULL,
             created_ms = NULL, active_ms = NULL, journal_bytes = NULL, collected_ns = excluded.collected_ns
         RETURNING id",
    )?;
    let columns = params![id::forwards(uuid), id::backwards(uuid), nanoseconds(collected_at)];
    let process: i64 = statement.query_row(columns, |row| row.get(0))?;
    transaction.prepare_cached("DELETE FROM info WHERE id = ?1")?.execute([process])?;
    transaction.prepare_cached("DELETE FROM pid WHERE process = ?1 AND alias = 1")?.execute([process])?;
    let sql = "UPDATE pid SET end = NULL, successor = NULL WHERE process = ?1";
    transaction.prepare_cached(sql)?.execute([process])?;
    Ok(())
}

/// Adds a tombstone, unless the process exists.
pub(crate) fn insert_tombstone(transaction: &Transaction<'_>, tombstone: &Tombstone) -> rusqlite::Result<()> {
    let mut statement = transaction.prepare_cached("SELECT collected_ns FROM process WHERE uuid = ?1")?;
    let known: Option<Option<i64>> =
        statement.query_row([id::forwards(tombstone.uuid)], |row| row.get(0)).optional()?;
    if known == Some(None) {
        return Ok(());
    }
    collect(transaction, tombstone.uuid, tombstone.collected_at)?;
    if let Some(spent) = &tombstone.spent {
        let mut statement = transaction.prepare_cached(
            "UPDATE process SET payer = ?2, tokens_in = ?3, tokens_out = ?4, cost_nanos = ?5 WHERE uuid = ?1",
        )?;
        statement.execute(params![
            id::forwards(tombstone.uuid),
            tombstone.budget_uuid.map(id::forwards),
            signed(spent.tokens_in),
            signed(spent.tokens_out),
            spent.cost_usd.map(|cost| signed(cost.nanos())),
        ])?;
    }
    let sql = "SELECT id FROM process WHERE uuid = ?1";
    let process = transaction.prepare_cached(sql)?.query_row([id::forwards(tombstone.uuid)], |row| row.get(0))?;
    usage::enter_collected(transaction, process, tombstone)?;
    let mut statement = transaction.prepare_cached(
        "INSERT OR IGNORE INTO pid (pid, process, alias) SELECT ?1, id, 0 FROM process WHERE uuid = ?2",
    )?;
    for pid in &tombstone.pids {
        statement.execute(params![pid.0, id::forwards(tombstone.uuid)])?;
    }
    Ok(())
}

/// Deletes a process that neither exists nor was collected.
pub(crate) fn forget(transaction: &Transaction<'_>, uuid: Uuid) -> rusqlite::Result<()> {
    let uuid = id::forwards(uuid);
    for sql in [
        "DELETE FROM pid WHERE process = (SELECT id FROM process WHERE uuid = ?1)",
        "DELETE FROM info WHERE id = (SELECT id FROM process WHERE uuid = ?1)",
        "DELETE FROM spent WHERE process = (SELECT id FROM process WHERE uuid = ?1)",
        "DELETE FROM process WHERE uuid = ?1",
    ] {
        transaction.prepare_cached(sql)?.execute([&uuid])?;
    }
    Ok(())
}

/// Adds a PID that is assigned to an existing process, and drops the oldest ones above the limit.
pub(crate) fn note(transaction: &Transaction<'_>, pid: Pid, uuid: Uuid) -> rusqlite::Result<()> {
    let uuid = id::forwards(uuid);
    let noted = transaction
        .prepare_cached(
            "INSERT OR IGNORE INTO pid (pid, process, alias)
             SELECT ?1, id, 1 FROM process WHERE uuid = ?2 AND collected_ns IS NULL",
        )?
        .execute(params![pid.0, uuid])?;
    if noted > 0 {
        let mut statement = transaction.prepare_cached(
            "DELETE FROM pid WHERE pid IN (
                 SELECT pid.pid FROM process JOIN pid ON pid.process = process.id
                 WHERE process.uuid = ?1 AND pid.alias = 1 ORDER BY pid.pid DESC LIMIT -1 OFFSET ?2)",
        )?;
        statement.execute(params![uuid, i64::try_from(NOTED_MAX).unwrap_or(i64::MAX)])?;
    }
    Ok(())
}

/// Deletes collected processes that are too old or too many, like their tombstones.
pub(crate) fn prune(transaction: &Transaction<'_>) -> rusqlite::Result<()> {
    let newest: Option<i64> = transaction.query_row("SELECT max(collected_ns) FROM process", [], |row| row.get(0))?;
    let Some(newest) = newest else { return Ok(()) };
    let sql = "SELECT collected_ns FROM process WHERE collected_ns IS NOT NULL
               ORDER BY collected_ns DESC LIMIT 1 OFFSET ?1";
    let surplus: Option<i64> =
        transaction.query_row(sql, [i64::try_from(KEPT_MAX).unwrap_or(i64::MAX)], |row| row.get(0)).optional()?;
    let last_gone = (newest - KEPT_DAYS * DAY_NS - 1).max(surplus.unwrap_or(i64::MIN));
    transaction
        .execute("DELETE FROM pid WHERE process IN (SELECT id FROM process WHERE collected_ns <= ?1)", [last_gone])?;
    transaction
        .execute("DELETE FROM spent WHERE process IN (SELECT id FROM process WHERE collected_ns <= ?1)", [last_gone])?;
    transaction.execute("DELETE FROM process WHERE collected_ns <= ?1", [last_gone])?;
    Ok(())
}

pub(crate) fn state_number(state: State) -> i64 {
    match state {
        State::Running => 0,
        State::Suspended => 1,
        State::Dead => 2,
    }
}

fn nanoseconds(at: Timestamp) -> i64 {
    i64::try_from(at.as_nanosecond()).unwrap_or(i64::MAX)
}

fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

fn json(value: &impl serde::Serialize) -> rusqlite::Result<Vec<u8>> {
    serde_json::to_vec(value).map_err(|error| rusqlite::Error::ToSqlConversionFailure(error.into()))
}
