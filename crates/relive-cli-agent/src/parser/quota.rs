//! A used-up quota, which most CLIs report only by the words of an error.

mod reset;
mod wording;

pub(super) use self::reset::reset_of_field;

use jiff::Timestamp;

use self::reset::ResetTime;
use self::wording::is_about_quota;
use super::line_events::LineEvents;
use crate::event::EventKind;
use crate::ids::IdSet;

/// An error text is short; the rest of a long one is a dump, and is neither searched nor repeated.
const MAX_MESSAGE_CHARS: usize = 4096;

/// Reports a quota once a turn, by the first line that says it: codex and gemini print the same error twice, codex repeats
/// the limits after every model call, and claude prints the limit before the message. A second report follows if a later
/// line is the first to name the time of the reset. Each subagent has reports of its own.
#[derive(Debug, Default)]
pub(super) struct QuotaReporter {
    own: Reported,
    subagents: IdSet,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Reported {
    #[default]
    Nothing,
    WithoutReset,
    WithReset,
}

impl QuotaReporter {
    pub(super) fn start_turn(&mut self) {
        *self = Self::default();
    }

    /// Reports the quota if a failure is about one: because the CLI says so, or by its message.
    pub(super) fn read_failure(&mut self, cause: FailureCause, message: &str, events: &mut LineEvents) {
        let message: String = message.chars().take(MAX_MESSAGE_CHARS).collect();
        let is_quota = match cause {
            FailureCause::Quota => true,
            FailureCause::Unstated => is_about_quota(&message),
        };
        if is_quota {
            self.report(ResetTime::in_text(&message), message, events);
        }
    }

    /// Reports a line that is only about the limit.
    pub(super) fn read_limit(&mut self, name: &str, resets_at: Option<Timestamp>, events: &mut LineEvents) {
        let message = if name.is_empty() { "limit reached".into() } else { format!("limit reached: {name}") };
        self.report(ResetTime { at: resets_at, ..ResetTime::default() }, message, events);
    }

    fn report(&mut self, reset: ResetTime, message: String, events: &mut LineEvents) {
        let is_new = match events.subagent() {
            Some(subagent) => self.subagents.insert(subagent),
            None => match (self.own, reset.is_known()) {
                (Reported::Nothing, _) | (Reported::WithoutReset, true) => true,
                (Reported::WithoutReset, false) | (Reported::WithReset, _) => false,
            },
        };
        if !is_new {
            return;
        }
        if events.subagent().is_none() {
            self.own = if reset.is_known() { Reported::WithReset } else { Reported::WithoutReset };
        }
        let ResetTime { at: resets_at, in_ms: resets_in_ms, clock: resets_clock } = reset;
        events.push(EventKind::Quota { resets_at, resets_in_ms, resets_clock, message });
    }
}

/// The cause of a failure, as far as the CLI reports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FailureCause {
    Quota,
    Unstated,
}
