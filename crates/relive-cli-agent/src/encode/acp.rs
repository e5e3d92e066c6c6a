//! Messages to an ACP agent.

use serde_json::json;

use super::{Answer, EncodeError, choose};
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

/// An agent that offers no way to deny is told that the request was cancelled, which every agent must accept.
pub(super) fn answer(request: &ApprovalRequest, answer: &Answer) -> Result<String, EncodeError> {
    let outcome = match (choose(request, answer), answer) {
        (Some(option), _) => format!(r#"{{"outcome":"selected","optionId":{}}}"#, option.value.as_str()),
        (None, Answer::Deny { .. }) => r#"{"outcome":"cancelled"}"#.into(),
        (None, Answer::Allow | Answer::AllowAlways) => return Err(EncodeError::NotOffered),
    };
    Ok(result(request.request_id.as_str(), &format!(r#"{{"outcome":{outcome}}}"#)))
}

pub(super) fn result(request_id: &str, result: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{request_id},"result":{result}}}"#)
}

/// The code that JSON-RPC has for a method that is not there.
pub(super) fn not_offered(request_id: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{request_id},"error":{{"code":-32601,"message":"Method not found"}}}}"#)
}
