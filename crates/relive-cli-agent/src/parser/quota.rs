//! A used-up quota, which most CLIs report only by the words of an error.

use jiff::Timestamp;

use super::line_events::LineEvents;
use crate::event::EventKind;

/// Parts of the messages of the CLIs and their providers, in lower case.
const WORDS: [&str; 16] = [
    "your usage limit",
    "usage limit reached",
    "usage limit has been reached",
    "usage_limit_reached",
    "hit your limit",
    "-hour limit reached",
    "weekly limit reached",
    "quota exceeded",
    "exceeded your current quota",
    "exhausted your capacity",
    "exhausted your daily quota",
    "insufficient_quota",
    "resource_exhausted",
    "429 too many requests",
    "request a quota increase",
    "credit balance is too low",
];

/// The words before the time until the reset, in lower case.
const BEFORE_DURATION: [&str; 4] = ["try again in ", "reset after ", "resets in ", "retry in "];

/// An error text is short; the rest of a long one is a dump.
const SEARCHED_CHARS: usize = 4096;

/// Reports a quota once a turn: codex and gemini print the same error twice, and a message says less than a line about
/// the limit that came before it.
#[derive(Debug, Default)]
pub(super) struct QuotaReporter {
    is_reported: bool,
}

impl QuotaReporter {
    pub(super) fn start_turn(&mut self) {
        self.is_reported = false;
    }

    /// Reports the quota if the message of a failure is about one.
    pub(super) fn read_failure(&mut self, message: &str, events: &mut LineEvents) {
        let searched = searched_part(message);
        if WORDS.iter().any(|word| searched.contains(word)) {
            self.report_failure(message, events);
        }
    }

    /// Reports a failure that is known to be about the quota.
    pub(super) fn report_failure(&mut self, message: &str, events: &mut LineEvents) {
        if !self.is_reported {
            let resets_in_ms = reset_duration_ms(&searched_part(message));
            self.report(
                EventKind::Quota { resets_at: reset_time(message), resets_in_ms, message: message.into() },
                events,
            );
        }
    }

    /// Reports a line that is only about the limit.
    pub(super) fn report_limit(&mut self, name: &str, resets_at: Option<Timestamp>, events: &mut LineEvents) {
        let message = if name.is_empty() { "limit reached".into() } else { format!("limit reached: {name}") };
        self.report(EventKind::Quota { resets_at, resets_in_ms: None, message }, events);
    }

    fn report(&mut self, quota: EventKind, events: &mut LineEvents) {
        self.is_reported = true;
        events.push(quota);
    }
}

fn searched_part(message: &str) -> String {
    message.chars().take(SEARCHED_CHARS).collect::<String>().to_lowercase()
}

/// Claude appends the time: `Claude AI usage limit reached|1794796313`.
fn reset_time(message: &str) -> Option<Timestamp> {
    let (_, seconds) = message.rsplit_once('|')?;
    Timestamp::from_second(seconds.trim().parse().ok()?).ok()
}

/// Reads `try again in 3 days 4 hours`, `reset after 5h22m3s`, `retry in 34.5s`.
fn reset_duration_ms(message: &str) -> Option<u64> {
    let mut rest = BEFORE_DURATION.iter().find_map(|before| message.split_once(before)).map(|(_, rest)| rest)?;
    let mut total_ms = None;
    while let Some((part_ms, after)) = duration_part(rest) {
        total_ms = Some(part_ms.saturating_add(total_ms.unwrap_or(0)));
        let after = after.trim_start_matches([' ', ',']);
        rest = after.strip_prefix("and ").unwrap_or(after);
    }
    total_ms
}

/// Reads a number and its unit, and returns what is left.
fn duration_part(text: &str) -> Option<(u64, &str)> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, rest) = text.split_at(digits);
    let number: f64 = number.parse().ok()?;
    let rest = rest.trim_start();
    let letters = rest.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(rest.len());
    let (unit, rest) = rest.split_at(letters);
    let unit_ms = match unit {
        "ms" => 1.0,
        "s" | "sec" | "secs" | "second" | "seconds" => 1e3,
        "m" | "min" | "mins" | "minute" | "minutes" => 60e3,
        "h" | "hr" | "hrs" | "hour" | "hours" => 3600e3,
        "d" | "day" | "days" => 86_400e3,
        _ => return None,
    };
    // The cast saturates, and a number made of digits is never negative.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates, and is not negative")]
    Some(((number * unit_ms) as u64, rest))
}
