//! `codex exec --json`.

use super::codex::{input_of, parse_reconnecting};
use super::conversation::Conversation;
use super::line_events::LineEvents;
use super::quota::{FailureCause, QuotaReporter};
use super::usage::read_tokens;
use crate::event::{EventKind, TurnOutcome, UsageScope};
use crate::json::Json;
use crate::machine::Turn;

/// Items that are calls of tools. An item of any other unknown type is no call.
const TOOLS: [&str; 5] = ["command_execution", "file_change", "mcp_tool_call", "web_search", "collab_tool_call"];

/// The other items of a turn, without `error`, which a log may have too.
const OTHER_ITEMS: [&str; 3] = ["agent_message", "reasoning", "todo_list"];

/// The length of a UUID, which is what codex names its threads by.
const UUID_CHARS: usize = 36;

/// Whether only `codex exec` prints this line.
pub(super) fn is_line(kind: &str, line: Json<'_>) -> bool {
    match kind {
        "thread.started" => line.text_at(&["thread_id"]).is_some_and(|id| id.len() == UUID_CHARS),
        "turn.completed" => line.at(&["usage", "input_tokens"]).and_then(Json::u64).is_some(),
        "item.started" | "item.updated" | "item.completed" => line.field("item").is_some_and(|item| {
            let [id, kind] = item.fields(["id", "type"]).map(|field| field.and_then(Json::text));
            let is_known = |kind: &str| TOOLS.contains(&kind) || OTHER_ITEMS.contains(&kind);
            id.is_some() && kind.is_some_and(|kind| is_known(&kind))
        }),
        _ => false,
    }
}

#[derive(Debug, Default)]
pub(crate) struct CodexExecParser {
    conversation: Conversation,
    turn: Turn,
    quota: QuotaReporter,
}

impl CodexExecParser {
    pub(crate) fn read(&mut self, line: Json<'_>, events: &mut LineEvents) {
        let [kind, item, message] = line.fields(["type", "item", "message"]);
        let Some(kind) = kind.and_then(Json::text) else { return events.unknown(line.name()) };
        match (kind.as_str(), item) {
            // The first line of every process.
            ("thread.started", _) => {
                self.conversation.leave_lost_turn(&mut self.turn, events);
                self.conversation.enter(line.text_at(&["thread_id"]), None, events);
                events.other_if_empty("thread.started");
            }
            ("turn.started", _) => {
                self.turn = Turn::Open;
                self.quota.start_turn();
                events.push(EventKind::TurnStarted { turn_id: None });
            }
            ("turn.completed", _) => {
                self.turn = Turn::Closed;
                report_usage(line, events);
                events.turn_ended(TurnOutcome::Completed, None);
            }
            ("turn.failed", _) => {
                self.turn = Turn::Closed;
                let message = line.text_at(&["error", "message"]);
                self.quota.read_failure(FailureCause::Unstated, message.as_deref().unwrap_or_default(), events);
                events.turn_ended(TurnOutcome::Failed, message);
            }
            ("error", _) => self.read_error(message.and_then(Json::text).unwrap_or_default(), events),
            ("item.started" | "item.updated" | "item.completed", Some(item)) => read_item(&kind, item, events),
            (name, _) => events.unknown(name),
        }
    }

    /// Reads an error. Codex also reports its own retries as errors; every other error ends the turn.
    fn read_error(&mut self, message: String, events: &mut LineEvents) {
        match parse_reconnecting(&message) {
            Some((attempt, max_attempts)) => events.push(EventKind::Retry {
                attempt: Some(attempt),
                max_attempts: Some(max_attempts),
                delay_ms: None,
                status: None,
                message,
            }),
            None => {
                self.turn = Turn::Closed;
                self.quota.read_failure(FailureCause::Unstated, &message, events);
                events.push(EventKind::Error { message });
            }
        }
    }
}

fn read_item(stage: &str, item: Json<'_>, events: &mut LineEvents) {
    let [kind, id, text, message, status] = item.fields(["type", "id", "text", "message", "status"]);
    let kind = kind.and_then(Json::text).unwrap_or_default();
    let id = id.and_then(Json::text).unwrap_or_default();
    let text = text.and_then(Json::text).unwrap_or_default();
    match (stage, kind.as_str()) {
        ("item.completed", "agent_message") => events.push(EventKind::Text { text, delta: false }),
        ("item.completed", "reasoning") => events.push(EventKind::Thinking { text, delta: false }),
        // A warning in spite of its name: codex prints one before the first turn.
        ("item.completed", "error") => events.warning(message.and_then(Json::text).unwrap_or_default()),
        ("item.started", tool) if TOOLS.contains(&tool) => {
            events.push(EventKind::ToolStarted { id, name: kind, input: input_of(item), preparing: false });
        }
        ("item.completed", tool) if TOOLS.contains(&tool) => {
            let status = status.and_then(Json::text).unwrap_or_default();
            events.push(EventKind::ToolEnded { id, failed: matches!(status.as_str(), "failed" | "declined") });
        }
        ("item.started" | "item.updated", "agent_message" | "reasoning" | "error") => events.other(kind),
        ("item.updated", tool) if TOOLS.contains(&tool) => events.other(kind),
        (_, "todo_list") => events.other(kind),
        (_, name) => events.unknown(format!("item/{name}")),
    }
}

/// Reports the usage, which codex counts over the whole conversation and all its resumes.
fn report_usage(line: Json<'_>, events: &mut LineEvents) {
    let Some(usage) = line.field("usage") else { return };
    let names = ["input_tokens", "output_tokens", "cached_input_tokens", "cache_write_input_tokens"];
    events.push(EventKind::Usage(read_tokens(usage, UsageScope::Session, names)));
}
