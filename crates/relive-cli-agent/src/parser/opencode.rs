//! `opencode run --format json`.
//!
//! A turn consists of steps, each a model call. A tool call is printed only when it has ended. While the provider fails and
//! opencode retries, it prints nothing.

use super::conversation::Conversation;
use super::line_events::LineEvents;
use super::quota::{FailureCause, QuotaReporter};
use crate::event::{EventKind, ReportedUsage, TurnOutcome, UsageScope};
use crate::json::Json;

#[derive(Debug, Default)]
pub(crate) struct OpencodeParser {
    conversation: Conversation,
    turn: TurnStage,
    quota: QuotaReporter,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum TurnStage {
    /// Reading may have begun within a turn.
    #[default]
    NotSeen,
    Open,
    Ended,
}

impl OpencodeParser {
    pub(crate) fn read(&mut self, line: Json<'_>, events: &mut LineEvents) {
        let [kind, session_id, part] = line.fields(["type", "sessionID", "part"]);
        let Some(kind) = kind.and_then(Json::text) else { return events.unknown(line.name()) };
        if self.turn == TurnStage::Open && self.conversation.is_other(session_id) {
            // Only the start of a step moves the stream to another conversation, and the turn before is lost.
            if kind != "step_start" {
                return events.other(format!("{kind} of another session"));
            }
            self.turn = TurnStage::NotSeen;
            self.conversation.leave(events);
        }
        self.conversation.enter(session_id.and_then(Json::text), None, events);
        // Reading may have begun within a turn.
        if matches!(kind.as_str(), "text" | "reasoning") || (kind == "tool_use" && self.turn == TurnStage::NotSeen) {
            self.turn = TurnStage::Open;
        }
        let text = part.and_then(|part| part.text_at(&["text"])).unwrap_or_default();
        match kind.as_str() {
            "step_start" if self.turn == TurnStage::Open => events.other("step_start"),
            "step_start" => {
                self.turn = TurnStage::Open;
                self.quota.start_turn();
                events.push(EventKind::TurnStarted { turn_id: None });
            }
            "tool_use" if self.turn == TurnStage::Ended => events.other("late tool_use"),
            "text" => events.push(EventKind::Text { text, delta: false }),
            "reasoning" => events.push(EventKind::Thinking { text, delta: false }),
            "tool_use" => read_tool(part, events),
            "step_finish" => self.read_step_finish(part, events),
            "error" => {
                self.turn = TurnStage::Ended;
                let message = error_message(line);
                let said = match line.text_at(&["error", "data", "responseBody"]) {
                    Some(body) => format!("{message}\n{body}"),
                    None => message.clone(),
                };
                self.quota.read_failure(FailureCause::Unstated, &said, events);
                events.push(EventKind::Error { message });
            }
            name => events.unknown(name),
        }
    }

    fn read_step_finish(&mut self, part: Option<Json<'_>>, events: &mut LineEvents) {
        let Some(part) = part else { return events.other("step_finish") };
        let [reason, tokens, cost] = part.fields(["reason", "tokens", "cost"]);
        events.push(EventKind::Usage(usage_of(tokens, cost.and_then(Json::f64))));
        match reason.and_then(Json::text).as_deref() {
            // The model wants its tools, so another step follows.
            Some("tool-calls" | "unknown") | None => {}
            Some("stop") => self.end_turn(TurnOutcome::Completed, None, events),
            Some(reason) => self.end_turn(TurnOutcome::Failed, Some(reason.into()), events),
        }
    }

    fn end_turn(&mut self, outcome: TurnOutcome, message: Option<String>, events: &mut LineEvents) {
        self.turn = TurnStage::Ended;
        events.turn_ended(outcome, message);
    }
}

fn read_tool(part: Option<Json<'_>>, events: &mut LineEvents) {
    let Some(part) = part else { return events.other("tool_use") };
    let [id, name, state] = part.fields(["callID", "tool", "state"]);
    let id = id.and_then(Json::text).unwrap_or_default();
    let status = state.and_then(|state| state.text_at(&["status"])).unwrap_or_default();
    events.push(EventKind::ToolStarted {
        id: id.clone(),
        name: name.and_then(Json::text).unwrap_or_default(),
        input: state.and_then(|state| state.field("input")).map(Json::to_raw),
        preparing: false,
    });
    match status.as_str() {
        "completed" => events.push(EventKind::ToolEnded { id, failed: false }),
        "error" => events.push(EventKind::ToolEnded { id, failed: true }),
        _ => {}
    }
}

fn usage_of(tokens: Option<Json<'_>>, cost_usd: Option<f64>) -> ReportedUsage {
    let number = |path: &[&str]| tokens.and_then(|tokens| tokens.at(path)).and_then(Json::u64);
    ReportedUsage {
        scope: UsageScope::Step,
        input_tokens: number(&["input"]),
        output_tokens: number(&["output"]),
        cache_read_tokens: number(&["cache", "read"]),
        cache_write_tokens: number(&["cache", "write"]),
        cost_usd,
    }
}

fn error_message(line: Json<'_>) -> String {
    let Some(error) = line.field("error") else { return String::new() };
    error
        .text_at(&["data", "message"])
        .or_else(|| error.text_at(&["name"]))
        .or_else(|| error.text())
        .unwrap_or_default()
}
