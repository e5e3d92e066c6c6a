//! Messages to claude and qwen.

use serde_json::{Value, json};

use super::{Answer, answers};
use crate::event::{ApprovalRequest, OptionKind, RawJson};

/// Claude tells the model why it may not use a tool, and wants some text there.
const NO_REASON: &str = "The user denied this.";

pub(super) fn user_turn(text: &str, id: Option<String>) -> String {
    let message = json!({ "role": "user", "content": [{ "type": "text", "text": text }] });
    let mut line = json!({ "type": "user", "message": message });
    if let Some(id) = id {
        line["uuid"] = id.into();
    }
    line.to_string()
}

pub(super) fn interrupt(request_id: String) -> String {
    json!({ "type": "control_request", "request_id": request_id, "request": { "subtype": "interrupt" } }).to_string()
}

/// An allow has to repeat the input, because it could also change it.
pub(super) fn answer(request: &ApprovalRequest, answer: &Answer) -> String {
    let input = request.input.as_ref().map_or("{}", RawJson::as_str);
    let response = decision(request, answer, &format!(r#","updatedInput":{input}"#));
    success(request.request_id.as_str(), &response)
}

pub(super) fn success(request_id: &str, response: &str) -> String {
    format!(
        r#"{{"type":"control_response","response":{{"subtype":"success","request_id":{request_id},"response":{response}}}}}"#
    )
}

/// Claude takes an error for an answer, and continues.
pub(super) fn not_offered(request_id: &str) -> String {
    format!(
        r#"{{"type":"control_response","response":{{"subtype":"error","request_id":{request_id},"error":"not offered by this client"}}}}"#
    )
}

/// An answer is an allow, whose input has the answers by their questions.
pub(super) fn reply(request_id: &str, input: &RawJson, text: &str) -> String {
    let asked: Value = serde_json::from_str(input.as_str()).unwrap_or_default();
    let questions = asked["questions"].as_array().map(Vec::as_slice).unwrap_or_default();
    let questions: Vec<&str> = questions.iter().filter_map(|question| question["question"].as_str()).collect();
    let answers = questions.iter().zip(answers(questions.len(), text));
    let answers = Value::Object(answers.map(|(question, answer)| ((*question).to_owned(), answer.into())).collect());
    let input = input.as_str().trim_end().strip_suffix('}').unwrap_or("{");
    let comma = if input.trim() == "{" { "" } else { "," };
    let response = format!(r#"{{"behavior":"allow","updatedInput":{input}{comma}"answers":{answers}}}}}"#);
    success(request_id, &response)
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
