//! Questions of an agent to its user.

use crate::event::{EventKind, RawJson, Refusal};
use crate::form::Form;
use crate::json::Json;
use crate::parser::line_events::LineEvents;

/// Joins the texts of the list `questions`, which claude and codex have in common.
pub(super) fn joined_questions(request: Json<'_>) -> String {
    let questions = request.field("questions").map(Json::items).unwrap_or_default();
    let texts: Vec<String> = questions.into_iter().filter_map(|question| question.text_at(&["question"])).collect();
    texts.join("\n")
}

/// Reads the request for a form. One that a person cannot answer in one line is declined, so that the agent continues.
pub(super) fn read_form(method: &str, request_id: RawJson, request: Json<'_>, events: &mut LineEvents) {
    let text = request.text_at(&["message"]).unwrap_or_default();
    let input = request.to_raw();
    match Form::read(input.as_str()) {
        Ok(_) => events.push(EventKind::Question { request_id, tool_id: None, text, input: Some(input) }),
        Err(unfit) => {
            let message = format!("a form was declined, because {unfit}: {text}");
            refuse(method, request_id, Refusal::Decline, message, events);
        }
    }
}

/// Reports a request that nobody can fulfil, and why.
pub(super) fn refuse(method: &str, request_id: RawJson, refusal: Refusal, message: String, events: &mut LineEvents) {
    events.push(EventKind::Warning { message });
    events.push(EventKind::UnsupportedRequest { request_id, method: method.to_owned(), refusal });
}
