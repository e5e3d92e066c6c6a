//! Recognizes a used-up quota by the words of an error, for CLIs that report it in no other way.

use jiff::Timestamp;

use super::line_events::LineEvents;
use crate::event::EventKind;

/// Parts of the messages of codex, claude, gemini and their providers, in lower case.
const WORDS: [&str; 7] = [
    "usage limit",
    "quota exceeded",
    "exceeded your current quota",
    "insufficient_quota",
    "resource_exhausted",
    "429 too many requests",
    "request a quota increase",
];

/// An error text is short; the rest of a long one is a dump.
const SEARCHED_CHARS: usize = 4096;

/// Adds a quota event if the message is about a used-up quota.
pub(crate) fn report(message: &str, events: &mut LineEvents) {
    let searched = message.chars().take(SEARCHED_CHARS).collect::<String>().to_lowercase();
    if WORDS.iter().any(|word| searched.contains(word)) {
        events.push(EventKind::Quota { resets_at: reset_time(message), message: message.into() });
    }
}

/// Claude appends the time: `Claude AI usage limit reached|1794796313`.
fn reset_time(message: &str) -> Option<Timestamp> {
    let (_, seconds) = message.rsplit_once('|')?;
    Timestamp::from_second(seconds.trim().parse().ok()?).ok()
}
