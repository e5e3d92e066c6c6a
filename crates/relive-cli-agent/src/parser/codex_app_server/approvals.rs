//! The requests that codex makes of its user.

use crate::event::{ApprovalChannel, ApprovalOption, ApprovalRequest, EventKind, OptionKind, RawJson, Refusal};
use crate::json::Json;
use crate::parser::line_events::LineEvents;
use crate::parser::questions::{joined_questions, read_form, refuse};

pub(super) fn read(method: &str, id: Json<'_>, params: Option<Json<'_>>, events: &mut LineEvents) {
    match (method, params) {
        (method, Some(params)) if method.ends_with("/requestApproval") => read_approval(method, id, params, events),
        ("execCommandApproval" | "applyPatchApproval", Some(params)) => read_old_approval(method, id, params, events),
        ("item/tool/requestUserInput", Some(params)) => {
            read_questions(method, id, params, events);
        }
        ("mcpServer/elicitation/request", Some(params)) => read_form(method, id.to_raw(), params, events),
        (method, _) => {
            if is_known(method) {
                events.other(method)
            } else {
                events.unknown(method)
            }
            let refusal = Refusal::NotOffered;
            events.push(EventKind::UnsupportedRequest { request_id: id.to_raw(), method: method.to_owned(), refusal });
        }
    }
}

/// Reads questions of the tool `request_user_input`. The answers are told by the ids of the questions.
fn read_questions(method: &str, id: Json<'_>, params: Json<'_>, events: &mut LineEvents) {
    let (request_id, tool_id, text) = (id.to_raw(), params.text_at(&["itemId"]), joined_questions(params));
    let questions = params.field("questions").map(Json::items).unwrap_or_default();
    if questions.is_empty() || questions.iter().any(|question| question.text_at(&["id"]).is_none()) {
        let message = format!("a question was refused, because it has no id: {text}");
        return refuse(method, request_id, Refusal::NotOffered, message, events);
    }
    events.push(EventKind::Question { request_id, tool_id, text, input: Some(params.to_raw()) });
}

/// Tells whether codex asks for something that only its own clients offer.
fn is_known(method: &str) -> bool {
    const NOT_OFFERED: [&str; 3] = ["item/tool/call", "account/chatgptAuthTokens/refresh", "attestation/generate"];
    NOT_OFFERED.contains(&method)
}

/// Reads a request for approval. The second part of the method is the tool: `item/commandExecution/requestApproval`.
fn read_approval(method: &str, id: Json<'_>, params: Json<'_>, events: &mut LineEvents) {
    let [item_id, command, permissions, reason, decisions] =
        params.fields(["itemId", "command", "permissions", "reason", "availableDecisions"]);
    let options = decisions.map(Json::items).unwrap_or_default();
    events.push(EventKind::ApprovalAsked(ApprovalRequest {
        request_id: id.to_raw(),
        tool_id: item_id.and_then(Json::text),
        tool: method.split('/').nth(1).unwrap_or_default().into(),
        input: command.or(permissions).map(Json::to_raw),
        reason: reason.and_then(Json::text),
        options: options
            .into_iter()
            .map(|value| ApprovalOption { kind: option_kind(value), value: value.to_raw() })
            .collect(),
        channel: ApprovalChannel::Stream,
    }));
}

/// The answers to a request of an older version, which does not list them.
const OLD_DECISIONS: [(OptionKind, &str); 4] = [
    (OptionKind::AllowOnce, "approved"),
    (OptionKind::AllowAlways, "approved_for_session"),
    (OptionKind::DenyOnce, "denied"),
    (OptionKind::Cancel, "abort"),
];

fn read_old_approval(method: &str, id: Json<'_>, params: Json<'_>, events: &mut LineEvents) {
    let [call_id, command, changes, reason] = params.fields(["callId", "command", "fileChanges", "reason"]);
    let tool = if method == "execCommandApproval" { "commandExecution" } else { "fileChange" };
    events.push(EventKind::ApprovalAsked(ApprovalRequest {
        request_id: id.to_raw(),
        tool_id: call_id.and_then(Json::text),
        tool: tool.into(),
        input: command.or(changes).map(Json::to_raw),
        reason: reason.and_then(Json::text),
        options: OLD_DECISIONS.map(|(kind, value)| ApprovalOption { kind, value: RawJson::string(value) }).into(),
        channel: ApprovalChannel::Stream,
    }));
}

fn option_kind(decision: Json<'_>) -> OptionKind {
    match decision.text().as_deref() {
        Some("accept") => OptionKind::AllowOnce,
        Some("acceptForSession") => OptionKind::AllowAlways,
        Some("decline") => OptionKind::DenyOnce,
        Some("cancel") => OptionKind::Cancel,
        None if decision.field("acceptWithExecpolicyAmendment").is_some() => OptionKind::AllowAlways,
        Some(_) | None => OptionKind::Other,
    }
}
