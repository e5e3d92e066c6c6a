//! Spending by day, model, project and process.

use std::sync::Arc;

use relive_api::{UsageQuery, UsageReport, UsageRow};
use relive_core::{ErrorCode, Timestamp};
use relive_index::UsageBy;
use relive_types::short_id;
use relive_types::suggest::closest;

use crate::error::{Error, Result};
use crate::runtime::Runtime;

const SECONDS_PER_DAY: i64 = 24 * 60 * 60;
const DIMENSIONS: [&str; 4] = ["day", "model", "project", "process"];

impl Runtime {
    /// Returns the spending. No journal is read: running processes are written to the index first, and collected ones
    /// are known as long as their tombstones.
    pub async fn usage(self: &Arc<Self>, query: UsageQuery) -> Result<UsageReport> {
        let by = parse_by(query.by.as_deref())?;
        let since = query.since.as_deref().map(parse_day).transpose()?;
        let owners: Vec<_> = self.lock().bodies.values().cloned().collect();
        for owner in owners {
            if let Some(Some(row)) = owner.look(crate::doing::patience(), relive_index::Row::of).await {
                self.catalog.tell_row(row);
            }
        }
        let rows = self.catalog.usage(since, by).await?;
        Ok(UsageReport { rows: rows.into_iter().map(shown).collect() })
    }
}

fn shown(row: relive_index::UsageRow) -> UsageRow {
    let relive_index::UsageRow {
        day,
        model,
        cwd,
        uuid,
        pid,
        name,
        tokens_in,
        tokens_out,
        cost_usd,
        processes,
        estimated,
    } = row;
    let short = uuid.map(short_id::short);
    UsageRow {
        day: day.map(format_day),
        model,
        cwd,
        tokens_in,
        tokens_out,
        estimated,
        cost_usd,
        processes,
        uuid,
        short,
        pid,
        name,
    }
}

fn format_day(day: i64) -> String {
    let at = Timestamp::from_second(day.saturating_mul(SECONDS_PER_DAY)).unwrap_or_default();
    at.strftime("%Y-%m-%d").to_string()
}

fn parse_day(text: &str) -> Result<i64> {
    let at: std::result::Result<Timestamp, _> = format!("{text}T00:00:00Z").parse();
    at.map(relive_journal::history::day_of)
        .map_err(|_| Error::new(ErrorCode::Invalid, format!("since: `{text}` is not a day, such as 2026-11-16")))
}

fn parse_by(text: Option<&str>) -> Result<UsageBy> {
    let mut by = UsageBy::default();
    for word in text.unwrap_or("day,model,project").split(',').map(str::trim).filter(|word| !word.is_empty()) {
        match word {
            "day" => by.day = true,
            "model" => by.model = true,
            "project" => by.directory = true,
            "process" => by.process = true,
            _ => {
                let meant = closest(word, DIMENSIONS).map(|meant| format!(" (did you mean `{meant}`?)"));
                let message = format!("by: `{word}` is none of {}{}", DIMENSIONS.join(", "), meant.unwrap_or_default());
                return Err(Error::new(ErrorCode::Invalid, message));
            }
        }
    }
    Ok(by)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_written_as_they_are_read() {
        for day in ["1970-01-01", "2024-02-29", "2026-11-16"] {
            assert_eq!(format_day(parse_day(day).unwrap()), day);
        }
        for bad in ["", "yesterday", "2026-13-01", "2026-11-16T00:00:00Z"] {
            assert!(parse_day(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_dimensions_of_a_report_are_a_list_of_words() {
        let all = UsageBy { day: true, model: true, directory: true, process: false };
        assert_eq!(parse_by(None).unwrap(), all);
        assert_eq!(parse_by(Some("")).unwrap(), UsageBy::default());
        assert_eq!(parse_by(Some("process, day")).unwrap(), UsageBy { day: true, process: true, ..UsageBy::default() });
        assert!(parse_by(Some("modle")).unwrap_err().to_string().ends_with("(did you mean `model`?)"));
    }
}
