//! Messages to `codex app-server`.

use serde_json::json;

use super::{Answer, choose};
use crate::event::ApprovalRequest;

pub(super) fn user_turn(request_id: String, thread_id: &str, text: &str) -> String {
    let input = json!([{ "type": "text", "text": text }]);
    json!({ "id": request_id, "method": "turn/start", "params": { "threadId": thread_id, "input": input } }).to_string()
}

pub(super) fn interrupt(request_id: String, thread_id: &str, turn_id: &str) -> String {
    json!({ "id": request_id, "method": "turn/interrupt", "params": { "threadId": thread_id, "turnId": turn_id } })
        .to_string()
}

/// Codex lists the decisions that it accepts for this request. Without a list, every version accepts these three.
pub(super) fn answer(request: &ApprovalRequest, answer: &Answer) -> String {
    let plain = match answer {
        Answer::Allow => r#""accept""#,
        Answer::AllowAlways => r#""acceptForSession""#,
        Answer::Deny { .. } => r#""decline""#,
    };
    let decision = choose(request, answer).map_or(plain, |option| option.value.as_str());
    format!(r#"{{"id":{},"result":{{"decision":{decision}}}}}"#, request.request_id.as_str())
}
