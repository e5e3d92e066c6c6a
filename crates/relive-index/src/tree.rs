//! The trees of processes that share a budget, and their spending.

use relive_core::{Usd, Uuid};
use relive_journal::history::Spent;

use crate::error::Result;
use crate::id;
use crate::index::{Index, uuid_at};

/// A process that draws from the budget of another, directly or through others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dependent {
    pub uuid: Uuid,
    /// The spending when it was indexed.
    pub spent: Spent,
    /// The length of the journal that was read; absent if the process was collected or could not be read.
    pub journal_bytes: Option<u64>,
}

impl Index {
    /// Returns every process that draws from the budget of this one, including collected ones.
    pub fn dependents(&self, uuid: Uuid) -> Result<Vec<Dependent>> {
        self.ask(|connection| {
            // UNION, not UNION ALL: it also terminates for journals that claim to be their own ancestors.
            let mut statement = connection.prepare_cached(
                "WITH RECURSIVE tree (uuid) AS (
                     SELECT uuid FROM process WHERE payer = ?1
                     UNION SELECT process.uuid FROM tree JOIN process ON process.payer = tree.uuid)
                 SELECT process.uuid, process.tokens_in, process.tokens_out, process.cost_nanos, journal_bytes,
                     EXISTS (SELECT 1 FROM spent WHERE spent.process = process.id AND spent.estimated)
                 FROM tree JOIN process ON process.uuid = tree.uuid",
            )?;
            let unsigned = |number: Option<i64>| number.and_then(|number| u64::try_from(number).ok());
            let dependent = |row: &rusqlite::Row<'_>| {
                Ok(Dependent {
                    uuid: uuid_at(row, 0)?,
                    spent: Spent {
                        tokens_in: unsigned(row.get(1)?).unwrap_or(0),
                        tokens_out: unsigned(row.get(2)?).unwrap_or(0),
                        cost_usd: unsigned(row.get(3)?).map(Usd::from_nanos),
                        estimated: row.get(5)?,
                    },
                    journal_bytes: unsigned(row.get(4)?),
                })
            };
            let found: Vec<Dependent> =
                statement.query_map([id::forwards(uuid)], dependent)?.collect::<rusqlite::Result<_>>()?;
            Ok(found.into_iter().filter(|dependent| dependent.uuid != uuid).collect())
        })
    }
}
