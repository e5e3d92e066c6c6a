//! Pages of `ps -a`: filters, order and cursors.

use relive_core::{Timestamp, Uuid};
use relive_journal::ProcInfo;
use rusqlite::ToSql;

use crate::error::Result;
use crate::id;
use crate::index::{Index, info_at, uuid_at};
use crate::row::State;
use crate::write::state_number;

/// The longest page.
pub const PAGE_MAX: usize = 1_000;

/// A filter for processes. All conditions that are set must hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter {
    /// The state according to the journal.
    pub state: Option<State>,
    /// A pattern for the name: `*` matches any text, `?` any one character. A process without a name never matches.
    pub name: Option<String>,
    /// A directory: matches processes that were created in it or below it.
    pub cwd: Option<String>,
    /// How the process ended. One that has not ended never matches.
    pub outcome: Option<Outcome>,
    /// Matches processes that were active at this moment or later.
    pub since: Option<Timestamp>,
}

/// Success or failure of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// With exit code 0.
    Succeeded,
    /// With any other exit code.
    Failed,
}

/// The order of a listing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Order {
    /// By the last PID, lowest first.
    #[default]
    Pid,
    /// By the last PID, highest first.
    PidDescending,
    /// By the time of creation, oldest first.
    Created,
    /// By the time of creation, newest first.
    CreatedDescending,
}

/// The place after the last row of a page. It stays valid while processes come and go; a process whose last PID changes
/// in the meantime moves in the order by PID and may be listed again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cursor {
    /// The PID, or the time of creation in milliseconds.
    pub key: i64,
    /// Orders rows with the same key.
    pub uuid: Uuid,
}

/// One page of a listing.
#[derive(Debug, Clone, PartialEq)]
pub struct Page {
    /// The processes, as they were when they were indexed; see [`crate::Freshness`].
    pub rows: Vec<ProcInfo>,
    /// The start of the next page; absent on the last one.
    pub next: Option<Cursor>,
}

impl Order {
    /// Returns the column, the comparison and the direction.
    fn sql(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::Pid => ("last_pid", "ASC", ">"),
            Self::PidDescending => ("last_pid", "DESC", "<"),
            Self::Created => ("created_ms", "ASC", ">"),
            Self::CreatedDescending => ("created_ms", "DESC", "<"),
        }
    }
}

impl Index {
    /// Returns processes that have ended and that nobody has seen since, the newest first.
    pub fn unseen(&self, limit: usize) -> Result<Vec<ProcInfo>> {
        let limit = i64::try_from(limit.min(PAGE_MAX)).unwrap_or(i64::MAX);
        let sql = "SELECT info.json FROM process CROSS JOIN info ON info.id = process.id
             WHERE process.unseen = 1 AND process.collected_ns IS NULL ORDER BY process.active_ms DESC LIMIT ?1";
        self.ask(|connection| {
            let mut statement = connection.prepare_cached(sql)?;
            statement.query_map([limit], |row| info_at(row, 0))?.collect()
        })
    }

    /// Returns the matching processes after this place, at most `limit` and at most [`PAGE_MAX`].
    pub fn page(&self, filter: &Filter, order: Order, after: Option<Cursor>, limit: usize) -> Result<Page> {
        let limit = limit.clamp(1, PAGE_MAX);
        let (column, direction, beyond) = order.sql();
        let mut sql = format!(
            "SELECT process.{column}, process.uuid, info.json
             FROM process CROSS JOIN info ON info.id = process.id WHERE process.collected_ns IS NULL"
        );
        let mut values: Vec<Box<dyn ToSql>> = Vec::new();
        if let Some(Cursor { key, uuid }) = after {
            sql += &format!(" AND (process.{column}, process.uuid) {beyond} (?, ?)");
            values.push(Box::new(key));
            values.push(Box::new(id::forwards(uuid)));
        }
        if let Some(state) = filter.state {
            sql += " AND process.state = ?";
            values.push(Box::new(state_number(state)));
        }
        match filter.outcome {
            Some(Outcome::Succeeded) => sql += " AND process.exit_code = 0",
            Some(Outcome::Failed) => sql += " AND process.exit_code != 0",
            None => {}
        }
        if let Some(cwd) = &filter.cwd {
            let cwd = cwd.trim_end_matches('/');
            // `0` is the character after `/`.
            sql += " AND (process.cwd = ? OR (process.cwd >= ? AND process.cwd < ?))";
            values.push(Box::new(if cwd.is_empty() { "/".to_owned() } else { cwd.to_owned() }));
            values.push(Box::new(format!("{cwd}/")));
            values.push(Box::new(format!("{cwd}0")));
        }
        if let Some(since) = filter.since {
            sql += " AND process.active_ms >= ?";
            values.push(Box::new(since.as_millisecond()));
        }
        if let Some(pattern) = &filter.name {
            sql += " AND process.name IS NOT NULL AND matches(?, process.name)";
            values.push(Box::new(pattern.clone()));
        }
        sql += &format!(" ORDER BY process.{column} {direction}, process.uuid {direction} LIMIT ?");
        values.push(Box::new(i64::try_from(limit + 1).unwrap_or(i64::MAX)));
        let mut found: Vec<(Cursor, ProcInfo)> = self.ask(|connection| {
            let mut statement = connection.prepare_cached(&sql)?;
            let values = rusqlite::params_from_iter(values.iter());
            let row =
                |row: &rusqlite::Row<'_>| Ok((Cursor { key: row.get(0)?, uuid: uuid_at(row, 1)? }, info_at(row, 2)?));
            statement.query_map(values, row)?.collect()
        })?;
        let more = found.len() > limit;
        found.truncate(limit);
        let next = found.last().filter(|_| more).map(|(cursor, _)| *cursor);
        Ok(Page { rows: found.into_iter().map(|(_, info)| info).collect(), next })
    }
}
