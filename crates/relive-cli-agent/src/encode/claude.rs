//! Messages to claude and qwen.

use serde_json::json;

use super::Answer;
use crate::event::{ApprovalRequest, OptionKind, RawJson};

/// Claude tells the model why it may not use a tool, and wants some text there.
const NO_REASON: &str = "The user denied this.";

pub(super) fn user_turn(text: &str) -> String {
    json!({ "type": "user", "message": { "role": "user", "content": [{ "type": "text", "text": text }] } }).to_string()
}

pub(super) fn interrupt(request_id: String) -> String {
    json!({ "type": "control_request", "request_id": request_id, "request": { "subtype": "interrupt" } }).to_string()
}

/// An allow has to repeat the input, because it could also change it.
pub(super) fn answer(request: &ApprovalRequest, answer: &Answer) -> String {
    let input = request.input.as_ref().map_or("{}", RawJson::as_str);
    let response = decision(request, answer, &format!(r#","updatedInput":{input}"#));
    let request_id = request.request_id.as_str();
    format!(
        r#"{{"type":"control_response","response":{{"subtype":"success","request_id":{request_id},"response":{response}}}}}"#
    )
}

/// A hook's allow leaves the input as it is.
pub(super) fn hook_answer(request: &ApprovalRequest, answer: &Answer) -> String {
    let decision = decision(request, answer, "");
    format!(r#"{{"hookSpecificOutput":{{"hookEventName":"PermissionRequest","decision":{decision}}}}}"#)
}

fn decision(request: &ApprovalRequest, answer: &Answer, updated_input: &str) -> String {
    let always = request.options.iter().find(|option| option.kind == OptionKind::AllowAlways);
    match (answer, always) {
        (Answer::AllowAlways, Some(always)) => {
            let permissions = always.value.as_str();
            format!(r#"{{"behavior":"allow"{updated_input},"updatedPermissions":{permissions}}}"#)
        }
        (Answer::Allow | Answer::AllowAlways, _) => format!(r#"{{"behavior":"allow"{updated_input}}}"#),
        (Answer::Deny { reason }, _) => {
            json!({ "behavior": "deny", "message": reason.as_deref().unwrap_or(NO_REASON) }).to_string()
        }
    }
}
