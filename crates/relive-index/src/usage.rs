//! What was spent, by day, model, directory and process: of everything that is here, and of what was collected as long as
//! its tombstone is kept.

use relive_core::{Pid, Usd, Uuid};
use relive_journal::ProcInfo;
use relive_journal::data::Tombstone;
use relive_journal::history::{LedgerEntry, Spent, day_of, is_paid};
use rusqlite::{Transaction, params};

use crate::error::Result;
use crate::index::{Index, uuid_at};

/// How many rows are returned at most.
pub const USAGE_MAX: usize = 10_000;

/// The keys that rows are grouped by. Without any there is one row, the sum.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct UsageBy {
    pub day: bool,
    pub model: bool,
    pub directory: bool,
    pub process: bool,
}

/// A sum. What it is not told apart by is absent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsageRow {
    /// Days since 1970-01-01, by UTC.
    pub day: Option<i64>,
    /// Absent also where only an older Relive knew it.
    pub model: Option<String>,
    pub cwd: Option<String>,
    pub uuid: Option<Uuid>,
    pub pid: Option<Pid>,
    pub name: Option<String>,
    pub tokens_in: u64,
    pub tokens_out: u64,
    /// Absent where a price was not known.
    pub cost_usd: Option<Usd>,
    /// The number of processes in the sum.
    pub processes: u64,
    /// Whether some of it is an estimate.
    pub estimated: bool,
}

impl Index {
    /// Returns what was spent on this day (by UTC, counted from 1970-01-01) or later, the latest day first, at most
    /// [`USAGE_MAX`] rows.
    pub fn usage(&self, since: Option<i64>, by: UsageBy) -> Result<Vec<UsageRow>> {
        let dimensions = [
            (by.day, "spent.day", "DESC"),
            (by.model, "spent.model", "ASC"),
            (by.directory, "spent.cwd", "ASC"),
            (by.process, "process.uuid", "DESC"),
        ];
        let shown = |place: usize| if dimensions[place].0 { dimensions[place].1 } else { "NULL" };
        let of_process = |column: &'static str| if by.process { column } else { "NULL" };
        let grouped: Vec<&str> = dimensions.iter().filter(|(is, ..)| *is).map(|(_, column, _)| *column).collect();
        let ordered: Vec<String> =
            dimensions.iter().filter(|(is, ..)| *is).map(|(_, c, way)| format!("{c} {way}")).collect();
        let mut sql = format!(
            "SELECT {}, {}, {}, {}, {}, {}, sum(spent.tokens_in), sum(spent.tokens_out),
                 CASE WHEN count(*) = count(spent.cost_nanos) THEN sum(spent.cost_nanos) END,
                 count(DISTINCT spent.process), max(spent.estimated)
             FROM spent JOIN process ON process.id = spent.process WHERE (?1 IS NULL OR spent.day >= ?1)",
            shown(0),
            shown(1),
            shown(2),
            shown(3),
            of_process("max(process.last_pid)"),
            of_process("max(process.name)"),
        );
        if grouped.is_empty() {
            sql += " HAVING count(*) > 0";
        } else {
            sql += &format!(" GROUP BY {} ORDER BY {}", grouped.join(", "), ordered.join(", "));
        }
        sql += " LIMIT ?2";
        let most = i64::try_from(USAGE_MAX).unwrap_or(i64::MAX);
        self.ask(|connection| {
            let mut statement = connection.prepare_cached(&sql)?;
            let row = |row: &rusqlite::Row<'_>| {
                Ok(UsageRow {
                    day: row.get(0)?,
                    model: row.get(1)?,
                    cwd: row.get(2)?,
                    uuid: if by.process { Some(uuid_at(row, 3)?) } else { None },
                    pid: row.get::<_, Option<u32>>(4)?.map(Pid),
                    name: row.get(5)?,
                    tokens_in: row.get::<_, i64>(6)?.cast_unsigned(),
                    tokens_out: row.get::<_, i64>(7)?.cast_unsigned(),
                    cost_usd: row.get::<_, Option<i64>>(8)?.map(|nanos| Usd::from_nanos(nanos.cast_unsigned())),
                    processes: row.get::<_, i64>(9)?.cast_unsigned(),
                    estimated: row.get(10)?,
                })
            };
            statement.query_map(params![since, most], row)?.collect()
        })
    }
}

/// Replaces what a process has spent by what its ledger says. Where an older Relive kept none, everything counts for the
/// day on which it was last active, with a model nobody knows.
pub(crate) fn enter(transaction: &Transaction<'_>, process: i64, info: &ProcInfo) -> rusqlite::Result<()> {
    let whole = |spent: Spent| entry_of(day_of(info.last_active), spent);
    replace(transaction, process, Some(&info.cwd), info.ledger.as_deref(), whole(info.spent))
}

/// The same of a process that was collected.
pub(crate) fn enter_collected(transaction: &Transaction<'_>, process: i64, gone: &Tombstone) -> rusqlite::Result<()> {
    let whole = gone.spent.and_then(|spent| entry_of(day_of(gone.dead_at), spent));
    replace(transaction, process, gone.cwd.as_deref(), gone.ledger.as_deref(), whole)
}

fn entry_of(day: i64, spent: Spent) -> Option<LedgerEntry> {
    let Spent { tokens_in, tokens_out, cost_usd, estimated } = spent;
    let is_something = tokens_in > 0 || tokens_out > 0;
    is_something.then(|| LedgerEntry { day, model: String::new(), tokens_in, tokens_out, cost_usd, estimated })
}

fn replace(
    transaction: &Transaction<'_>,
    process: i64,
    cwd: Option<&str>,
    ledger: Option<&[LedgerEntry]>,
    whole: Option<LedgerEntry>,
) -> rusqlite::Result<()> {
    transaction.prepare_cached("DELETE FROM spent WHERE process = ?1")?.execute([process])?;
    let mut statement = transaction.prepare_cached(
        "INSERT INTO spent (process, day, model, cwd, tokens_in, tokens_out, cost_nanos, estimated)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
    )?;
    for entry in ledger.unwrap_or(whole.as_slice()) {
        let model = Some(&entry.model).filter(|model| !model.is_empty());
        let cost = entry.cost_usd.map(|cost| signed(cost.nanos()));
        statement.execute(params![
            process,
            entry.day,
            model,
            cwd,
            signed(entry.tokens_in),
            signed(entry.tokens_out),
            cost,
            entry.estimated && is_paid(&entry.model)
        ])?;
    }
    Ok(())
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
