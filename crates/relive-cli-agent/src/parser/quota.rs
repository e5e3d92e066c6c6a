//! A used-up quota, which most CLIs report only by the words of an error.

use jiff::Timestamp;

use super::line_events::LineEvents;
use crate::event::EventKind;

/// Parts of the messages of the CLIs and their providers, in lower case. An HTTP status of 429 is not enough: providers
/// also answer with it when they are asked too fast, and gemini then adds a remark about its quotas.
const QUOTA_PHRASES: [&str; 13] = [
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
    "credit balance is too low",
];

/// The words before the time until the reset, in lower case.
const BEFORE_DURATION: [&str; 4] = ["try again in ", "reset after ", "resets in ", "retry in "];

/// An error text is short; the rest of a long one is a dump, and is neither searched nor repeated.
const MAX_MESSAGE_CHARS: usize = 4096;

/// Times of a reset before this one, in 2001, are not times: `|5` is the end of some other message.
const FIRST_RESET_SECOND: i64 = 1_000_000_000;

/// Reports a quota once a turn, by the first line that says it: codex and gemini print the same error twice, codex repeats
/// the limits after every model call, and claude prints the limit before the message.
#[derive(Debug, Default)]
pub(super) struct QuotaReporter {
    is_reported: bool,
}

impl QuotaReporter {
    pub(super) fn start_turn(&mut self) {
        self.is_reported = false;
    }

    /// Reports the quota if a failure is about one: because the CLI says so, or by its message.
    pub(super) fn read_failure(&mut self, cause: FailureCause, message: &str, events: &mut LineEvents) {
        let message: String = message.chars().take(MAX_MESSAGE_CHARS).collect();
        let searched = message.to_lowercase();
        let is_quota = match cause {
            FailureCause::Quota => true,
            FailureCause::Unstated => QUOTA_PHRASES.iter().any(|phrase| searched.contains(phrase)),
        };
        if is_quota {
            let (resets_at, resets_in_ms) = (reset_time(&message), reset_duration_ms(&searched));
            self.report(EventKind::Quota { resets_at, resets_in_ms, message }, events);
        }
    }

    /// Reports a line that is only about the limit.
    pub(super) fn read_limit(&mut self, name: &str, resets_at: Option<Timestamp>, events: &mut LineEvents) {
        let message = if name.is_empty() { "limit reached".into() } else { format!("limit reached: {name}") };
        self.report(EventKind::Quota { resets_at, resets_in_ms: None, message }, events);
    }

    fn report(&mut self, quota: EventKind, events: &mut LineEvents) {
        if !self.is_reported {
            self.is_reported = true;
            events.push(quota);
        }
    }
}

/// What the CLI itself says about the cause of a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FailureCause {
    Quota,
    Unstated,
}

/// Claude appends the time: `Claude AI usage limit reached|1794796313`.
fn reset_time(message: &str) -> Option<Timestamp> {
    let (_, seconds) = message.rsplit_once('|')?;
    let seconds: i64 = seconds.trim().parse().ok()?;
    Timestamp::from_second(seconds).ok().filter(|_| seconds >= FIRST_RESET_SECOND)
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
