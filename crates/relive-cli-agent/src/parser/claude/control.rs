//! Claude's control messages: permissions, questions, and what the user writes to the CLI.

use super::{ClaudeParser, QUESTION_TOOL};
use crate::event::{ApprovalChannel, ApprovalOption, ApprovalRequest, EventKind, OptionKind, RawJson, Refusal};
use crate::json::Json;
use crate::parser::line_events::LineEvents;
use crate::parser::questions::{joined_questions, read_form, refuse};

impl ClaudeParser {
    pub(super) fn read_control_request(&mut self, line: Json<'_>, events: &mut LineEvents) {
        let [id, request] = line.fields(["request_id", "request"]);
        let (Some(id), Some(request)) = (id, request) else { return events.other("control_request") };
        let [agent_id, tool_id] = request.fields(["agent_id", "tool_use_id"]).map(|id| id.and_then(Json::text));
        let owner = tool_id.as_deref().and_then(|tool_id| self.subagents.owner_of(tool_id));
        let agent = agent_id.as_deref().map(|agent_id| self.subagents.call_of(agent_id).unwrap_or(agent_id));
        if let Some(subagent) = owner.or(agent)
            && !events.is_by_subagent()
        {
            events.set_subagent(subagent);
        }
        if let Some(subagent) = events.subagent() {
            self.subagents.ask(subagent);
        }
        read_request(id.to_raw(), request, events);
    }
}

fn read_request(request_id: RawJson, request: Json<'_>, events: &mut LineEvents) {
    let subtype = request.text_at(&["subtype"]).unwrap_or_default();
    match subtype.as_str() {
        "can_use_tool" => read_permission(request_id, request, events),
        "elicitation" => read_form(&subtype, request_id, request, events),
        "request_user_dialog" => {
            let [kind, message] = [request.text_at(&["dialog_kind"]), request.text_at(&["payload", "message"])];
            let message =
                format!("a dialog was refused, because Relive has none: {}", message.or(kind).unwrap_or_default());
            refuse(&subtype, request_id, Refusal::NotOffered, message, events);
        }
        "hook_callback" | "mcp_message" => events.other(format!("control_request/{subtype}")),
        _ => events.unknown(format!("control_request/{subtype}")),
    }
}

fn read_permission(request_id: RawJson, request: Json<'_>, events: &mut LineEvents) {
    let [tool, tool_id, input, reason, suggestions] =
        request.fields(["tool_name", "tool_use_id", "input", "decision_reason", "permission_suggestions"]);
    let tool = tool.and_then(Json::text).unwrap_or_default();
    let tool_id = tool_id.and_then(Json::text);
    if tool == QUESTION_TOOL {
        let text = input.map(joined_questions).unwrap_or_default();
        return events.push(EventKind::Question { request_id, tool_id, text, input: input.map(Json::to_raw) });
    }
    events.push(EventKind::ApprovalAsked(ApprovalRequest {
        request_id,
        tool_id,
        tool,
        input: input.map(Json::to_raw),
        reason: reason.and_then(Json::text),
        options: options_of(suggestions),
        channel: ApprovalChannel::Stream,
    }));
}

/// Returns the rules that claude suggests to add if the user allows all similar calls.
pub(super) fn options_of(suggestions: Option<Json<'_>>) -> Vec<ApprovalOption> {
    let always = suggestions.filter(|suggestions| !suggestions.items().is_empty());
    let option = always.map(|value| ApprovalOption { kind: OptionKind::AllowAlways, value: value.to_raw() });
    option.into_iter().collect()
}

/// Reads the withdrawal of a request: the turn was interrupted, or a hook has answered.
pub(super) fn read_cancel(line: Json<'_>, events: &mut LineEvents) {
    match line.field("request_id") {
        Some(id) => events.push(EventKind::Answered { request_id: id.to_raw() }),
        None => events.other("control_cancel_request"),
    }
}

pub(super) fn read_response(line: Json<'_>, events: &mut LineEvents) {
    match line.text_at(&["response", "error"]) {
        Some(error) => events.warning(error),
        None => events.other("control_response"),
    }
}

/// Reads a line that was written to claude's standard input.
pub(in crate::parser) fn read_input(line: Json<'_>, events: &mut LineEvents) {
    let kind = line.text_at(&["type"]).unwrap_or_default();
    match (kind.as_str(), line.at(&["response", "request_id"])) {
        ("user", _) => events.push(EventKind::TurnStarted { turn_id: None }),
        ("control_response", Some(id)) => events.push(EventKind::Answered { request_id: id.to_raw() }),
        (kind, _) => events.other(kind),
    }
}
