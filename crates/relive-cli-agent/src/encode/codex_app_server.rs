//! Messages to `codex app-server`.

use serde_json::json;

use super::{Answer, EncodeError, choose};
use crate::event::{ApprovalRequest, RawJson};

/// The tool of a request for more permissions.
const PERMISSIONS: &str = "permissions";

pub(super) fn user_turn(request_id: String, thread_id: &str, text: &str) -> String {
    let input = json!([{ "type": "text", "text": text }]);
    json!({ "id": request_id, "method": "turn/start", "params": { "threadId": thread_id, "input": input } }).to_string()
}

pub(super) fn interrupt(request_id: String, thread_id: &str, turn_id: &str) -> String {
    json!({ "id": request_id, "method": "turn/interrupt", "params": { "threadId": thread_id, "turnId": turn_id } })
        .to_string()
}

pub(super) fn answer(request: &ApprovalRequest, answer: &Answer) -> Result<String, EncodeError> {
    let result = if request.tool == PERMISSIONS { grant(request, answer) } else { decision(request, answer)? };
    Ok(format!(r#"{{"id":{},"result":{result}}}"#, request.request_id.as_str()))
}

/// Codex lists the decisions that it accepts for this request. Without a list, every version accepts these three.
fn decision(request: &ApprovalRequest, answer: &Answer) -> Result<String, EncodeError> {
    let decision = match (choose(request, answer), answer) {
        (Some(option), _) => option.value.as_str(),
        (None, _) if !request.options.is_empty() => return Err(EncodeError::NotOffered),
        (None, Answer::Allow) => r#""accept""#,
        (None, Answer::AllowAlways) => r#""acceptForSession""#,
        (None, Answer::Deny { .. }) => r#""decline""#,
    };
    Ok(format!(r#"{{"decision":{decision}}}"#))
}

/// A request for more permissions is answered with those that are granted: all that were asked for, or none.
fn grant(request: &ApprovalRequest, answer: &Answer) -> String {
    let asked = request.input.as_ref().map_or("{}", RawJson::as_str);
    let (permissions, scope) = match answer {
        Answer::Allow => (asked, "turn"),
        Answer::AllowAlways => (asked, "session"),
        Answer::Deny { .. } => ("{}", "turn"),
    };
    format!(r#"{{"permissions":{permissions},"scope":"{scope}"}}"#)
}
