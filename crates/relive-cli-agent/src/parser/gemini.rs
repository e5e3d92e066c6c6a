//! `gemini -o stream-json`. Retries are only on its standard error.

use super::conversation::Conversation;
use super::line_events::LineEvents;
use super::quota::{FailureCause, QuotaReporter};
use crate::event::{EventKind, ReportedUsage, TurnOutcome, UsageScope};
use crate::json::Json;
use crate::machine::Turn;

#[derive(Debug, Default)]
pub(crate) struct GeminiParser {
    conversation: Conversation,
    turn: Turn,
    quota: QuotaReporter,
}

impl GeminiParser {
    pub(crate) fn read(&mut self, line: Json<'_>, events: &mut LineEvents) {
        let Some(kind) = line.text_at(&["type"]) else { return events.unknown(line.name()) };
        match kind.as_str() {
            // A process of gemini is one turn, so its first line starts it.
            "init" => {
                let [session_id, model] = line.fields(["session_id", "model"]);
                self.conversation.leave_lost_turn(&mut self.turn, events);
                self.turn = Turn::Open;
                self.quota.start_turn();
                self.conversation.enter(session_id.and_then(Json::text), model.and_then(Json::text), events);
                events.push(EventKind::TurnStarted { turn_id: None });
            }
            "message" => read_message(line, events),
            "tool_use" => {
                let [id, name, input] = line.fields(["tool_id", "tool_name", "parameters"]);
                events.push(EventKind::ToolStarted {
                    id: id.and_then(Json::text).unwrap_or_default(),
                    name: name.and_then(Json::text).unwrap_or_default(),
                    input: input.map(Json::to_raw),
                    preparing: false,
                });
            }
            "tool_result" => {
                let [id, status] = line.fields(["tool_id", "status"]);
                let failed = status.is_some_and(|status| status.is("error"));
                events.push(EventKind::ToolEnded { id: id.and_then(Json::text).unwrap_or_default(), failed });
            }
            "error" => {
                let [severity, message] = line.fields(["severity", "message"]);
                let message = message.and_then(Json::text).unwrap_or_default();
                // After a warning, and after any other message that is not an error, the turn continues to its `result`.
                if !severity.is_some_and(|severity| severity.is("error")) {
                    return events.warning(message);
                }
                self.turn = Turn::Closed;
                self.quota.read_failure(FailureCause::Unstated, &message, events);
                events.push(EventKind::Error { message });
            }
            "result" => self.read_result(line, events),
            name => events.unknown(name),
        }
    }

    fn read_result(&mut self, line: Json<'_>, events: &mut LineEvents) {
        self.turn = Turn::Closed;
        let [status, stats] = line.fields(["status", "stats"]);
        if let Some(stats) = stats {
            let [input, output, cached] = stats.fields(["input_tokens", "output_tokens", "cached"]);
            events.push(EventKind::Usage(ReportedUsage {
                input_tokens: input.and_then(Json::u64),
                output_tokens: output.and_then(Json::u64),
                cache_read_tokens: cached.and_then(Json::u64),
                ..ReportedUsage::of(UsageScope::Process)
            }));
        }
        if status.is_some_and(|status| status.is("success")) {
            return events.turn_ended(TurnOutcome::Completed, None);
        }
        let message = line.text_at(&["error", "message"]);
        self.quota.read_failure(FailureCause::Unstated, message.as_deref().unwrap_or_default(), events);
        events.turn_ended(TurnOutcome::Failed, message);
    }
}

fn read_message(line: Json<'_>, events: &mut LineEvents) {
    let [role, content, delta] = line.fields(["role", "content", "delta"]);
    let Some(text) = content.and_then(Json::text) else { return events.unknown("message/content") };
    if role.is_some_and(|role| role.is("user")) {
        return events.push(EventKind::UserText { text });
    }
    events.push(EventKind::Text { text, delta: delta.is_some_and(Json::is_true) });
}
