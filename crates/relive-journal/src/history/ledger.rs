//! The spending of a process by day and model, so that it can be reported without reading the journal again.

use relive_core::{Timestamp, Usd};
use serde::{Deserialize, Serialize};

use super::History;
use crate::record::Usage;

const SECONDS_PER_DAY: i64 = 24 * 60 * 60;
/// The most entries of a ledger. Later spending is added to the last one.
const ENTRIES_MAX: usize = 1_000;

/// The spending on one day, in UTC, with one model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LedgerEntry {
    /// Days since 1970-01-01.
    pub day: i64,
    pub model: String,
    pub tokens_in: u64,
    pub tokens_out: u64,
    /// Absent as soon as one call's price was not known.
    pub cost_usd: Option<Usd>,
    /// Whether some of it is an estimate.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub estimated: bool,
}

/// Tells whether the tokens of a model are paid for. Those of a script are never known better than by an estimate.
#[must_use]
pub fn is_paid(model: &str) -> bool {
    !model.starts_with("script/")
}

/// Returns the day of a moment in UTC, counted from 1970-01-01.
#[must_use]
pub fn day_of(at: Timestamp) -> i64 {
    at.as_second().div_euclid(SECONDS_PER_DAY)
}

impl History {
    /// Returns the model that the process is run on, as far as its journal says: the one it was moved to, or asked last.
    #[must_use]
    pub fn last_model(&self) -> Option<&str> {
        let asked = Some(self.asked_model.as_str()).filter(|model| !model.is_empty());
        self.model.as_deref().or(asked)
    }

    /// Adds the usage of a model call, on the day when it is known.
    pub(super) fn enter(&mut self, at: Timestamp, model: &str, usage: Usage) {
        let day = day_of(at);
        let is_same = |entry: &LedgerEntry| entry.day == day && entry.model == model;
        let place = match self.ledger.iter().rposition(is_same) {
            Some(place) => place,
            None if self.ledger.len() == ENTRIES_MAX => ENTRIES_MAX - 1,
            None => {
                let cost_usd = Some(Usd::default());
                let model = model.to_owned();
                self.ledger.push(LedgerEntry { day, model, tokens_in: 0, tokens_out: 0, cost_usd, estimated: false });
                self.ledger.len() - 1
            }
        };
        let Some(entry) = self.ledger.get_mut(place) else { return };
        entry.tokens_in = entry.tokens_in.saturating_add(usage.tokens_in);
        entry.tokens_out = entry.tokens_out.saturating_add(usage.tokens_out);
        entry.estimated |= usage.estimated;
        entry.cost_usd = entry.cost_usd.zip(usage.cost_usd).map(|(a, b)| a.saturating_add(b));
    }
}
