//! How claude reports failures: as the result of a turn, as a message in the agent's place, and to a hook.

use super::ClaudeParser;
use crate::event::{EventKind, TurnOutcome};
use crate::ids::shorten;
use crate::json::Json;
use crate::parser::line_events::LineEvents;
use crate::parser::quota::FailureCause;

/// Qwen reports an interrupt only by this message.
const QWEN_CANCELLED: &str = "Operation cancelled.";

/// The model of messages that claude itself wrote.
const SYNTHETIC_MODEL: &str = "<synthetic>";

impl ClaudeParser {
    /// Reads the result of a turn. `subtype` is `success` even if the provider refused, and `is_error` is false even if
    /// a limit of claude's own was reached: either is enough for a failure.
    pub(super) fn read_result(&mut self, line: Json<'_>, events: &mut LineEvents) {
        let [subtype, is_error, terminal, session_id] =
            line.fields(["subtype", "is_error", "terminal_reason", "session_id"]);
        if self.conversation.is_other(session_id) {
            let session_id = session_id.and_then(Json::text).unwrap_or_default();
            if self.turn_session.as_deref() != Some(shorten(&session_id).as_ref()) {
                return events.other("result of another session");
            }
            self.conversation.enter(Some(session_id), None, events);
        }
        if events.is_by_subagent() {
            return events.other("result of a subagent");
        }
        self.report_usage(line, events);
        let error_subtype = subtype.and_then(Json::text).filter(|subtype| subtype.starts_with("error"));
        if !is_error.is_some_and(Json::is_true) && error_subtype.is_none() {
            return self.end_turn(TurnOutcome::Completed, None, events);
        }
        let message = error_message(line).or(error_subtype);
        self.quota.read_failure(FailureCause::Unstated, message.as_deref().unwrap_or_default(), events);
        let is_aborted = terminal.and_then(Json::text).is_some_and(|reason| reason.starts_with("aborted"))
            || message.as_deref() == Some(QWEN_CANCELLED);
        let outcome = if is_aborted { TurnOutcome::Interrupted } else { TurnOutcome::Failed };
        self.end_turn(outcome, message, events);
    }

    /// Reports the quota if claude itself wrote the message. The agent's own text about limits is not a report.
    pub(super) fn read_synthetic_message(&mut self, line: Json<'_>, events: &mut LineEvents) {
        let [error, status] = line.fields(["error", "api_error_status"]);
        let cause_word = error.and_then(Json::text);
        let is_synthetic = line.at(&["message", "model"]).is_some_and(|model| model.is(SYNTHETIC_MODEL));
        if !is_synthetic && !is_api_error(line) && cause_word.is_none() {
            return;
        }
        let text = line.at(&["message", "content"]).map(message_text).unwrap_or_default();
        // The provider refused, which it also does when it is asked too fast.
        let is_refused = status.is_some() || text.contains("429");
        let cause = match cause_word.as_deref() {
            Some("billing_error") => FailureCause::Quota,
            Some("rate_limit") if !is_refused => FailureCause::Quota,
            Some(_) | None => FailureCause::Unstated,
        };
        let message = if text.is_empty() { cause_word.unwrap_or_default() } else { text };
        self.quota.read_failure(cause, &message, events);
    }

    /// Reads a `StopFailure` hook. `error` is one of a few words, `error_details` and `last_assistant_message` are
    /// texts. Claude stops a turn with `rate_limit` when it will not retry on its own.
    pub(super) fn read_stop_failure(&mut self, body: Json<'_>, events: &mut LineEvents) {
        let [error, details, last_message] = body.fields(["error", "error_details", "last_assistant_message"]);
        let message = details.or(error).and_then(Json::text);
        let is_quota = error.is_some_and(|error| error.is("billing_error") || error.is("rate_limit"));
        let cause = if is_quota { FailureCause::Quota } else { FailureCause::Unstated };
        let texts = [details, last_message].into_iter().flatten().filter_map(Json::text);
        let said = texts.collect::<Vec<_>>().join("\n");
        let said = if said.is_empty() { message.clone().unwrap_or_default() } else { said };
        self.quota.read_failure(cause, &said, events);
        self.end_hook_turn(TurnOutcome::Failed, message, events);
    }
}

/// The author of a message.
#[derive(Debug, Clone, Copy)]
pub(super) enum Speaker {
    Agent,
    User,
    /// Claude shows an error of its provider as a message of the agent; the `result` that follows ends the turn.
    Provider,
}

impl Speaker {
    pub(super) fn of_assistant(line: Json<'_>) -> Self {
        if is_api_error(line) { Self::Provider } else { Self::Agent }
    }

    pub(super) fn says(self, text: String) -> EventKind {
        match self {
            Self::Agent => EventKind::Text { text, delta: false },
            Self::User => EventKind::UserText { text },
            Self::Provider => EventKind::Warning { message: text },
        }
    }
}

/// Returns whether a message is an error of the provider. Claude's transcripts spell the flag differently from its
/// stream.
fn is_api_error(line: Json<'_>) -> bool {
    let flags = line.fields(["is_api_error_message", "isApiErrorMessage"]);
    flags.into_iter().flatten().any(Json::is_true)
}

/// Returns the text of a message, whose content is a list of blocks or one string.
fn message_text(content: Json<'_>) -> String {
    content.text().unwrap_or_else(|| {
        let texts: Vec<String> = content.items().iter().filter_map(|block| block.text_at(&["text"])).collect();
        texts.join("\n")
    })
}

/// Returns the cause of a failure: claude puts it in `result` or `errors`, qwen in `error`.
fn error_message(line: Json<'_>) -> Option<String> {
    let [result, errors, error] = line.fields(["result", "errors", "error"]);
    let first_error = errors.and_then(|errors| errors.items().first().copied());
    result.or(first_error).and_then(Json::text).or_else(|| error?.text_at(&["message"]))
}
