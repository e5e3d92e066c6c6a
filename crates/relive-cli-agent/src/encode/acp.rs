//! Messages to an ACP agent.

use serde_json::json;

use super::{Answer, choose};
use crate::event::ApprovalRequest;

pub(super) fn user_turn(request_id: String, session_id: &str, text: &str) -> String {
    let prompt = json!([{ "type": "text", "text": text }]);
    let params = json!({ "sessionId": session_id, "prompt": prompt });
    json!({ "jsonrpc": "2.0", "id": request_id, "method": "session/prompt", "params": params }).to_string()
}

/// A notification: the reply to the prompt says that the turn was cancelled.
pub(super) fn interrupt(session_id: &str) -> String {
    json!({ "jsonrpc": "2.0", "method": "session/cancel", "params": { "sessionId": session_id } }).to_string()
}

/// An agent that offers no fitting option is told that the request was cancelled, which every agent must accept.
pub(super) fn answer(request: &ApprovalRequest, answer: &Answer) -> String {
    let outcome = match choose(request, answer) {
        Some(option) => format!(r#"{{"outcome":"selected","optionId":{}}}"#, option.value.as_str()),
        None => r#"{"outcome":"cancelled"}"#.into(),
    };
    let request_id = request.request_id.as_str();
    format!(r#"{{"jsonrpc":"2.0","id":{request_id},"result":{{"outcome":{outcome}}}}}"#)
}
