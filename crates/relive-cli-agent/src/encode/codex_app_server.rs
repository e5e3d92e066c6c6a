//! Messages to `codex app-server`.

use serde_json::{Value, json};

use super::{Answer, EncodeError, answers, choose};
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
    let granted = if request.tool == PERMISSIONS { grant(request, answer) } else { decision(request, answer)? };
    Ok(result(request.request_id.as_str(), &granted))
}

pub(super) fn result(request_id: &str, result: &str) -> String {
    format!(r#"{{"id":{request_id},"result":{result}}}"#)
}

/// The code that JSON-RPC has for a method that is not there. Codex continues as if nobody had answered.
pub(super) fn not_offered(request_id: &str) -> String {
    format!(r#"{{"id":{request_id},"error":{{"code":-32601,"message":"Method not found"}}}}"#)
}

/// The answers to questions are told by the ids of the questions, each in a list.
pub(super) fn reply(request_id: &str, input: &RawJson, text: &str) -> String {
    let asked: Value = serde_json::from_str(input.as_str()).unwrap_or_default();
    let questions = asked["questions"].as_array().map(Vec::as_slice).unwrap_or_default();
    let ids: Vec<&str> = questions.iter().filter_map(|question| question["id"].as_str()).collect();
    let answers = ids.iter().zip(answers(ids.len(), text));
    let answers = answers.map(|(id, answer)| ((*id).to_owned(), json!({ "answers": [answer] })));
    result(request_id, &json!({ "answers": Value::Object(answers.collect()) }).to_string())
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
