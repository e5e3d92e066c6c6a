//! Distinguishes claude's lines and hooks from lines of other programs with the same names.

use super::hooks::{SILENT_HOOKS, is_handled};
use super::system::is_known_subtype;
use crate::json::Json;

/// The requests that claude makes of its client.
const CONTROL_REQUESTS: [&str; 5] =
    ["can_use_tool", "elicitation", "request_user_dialog", "hook_callback", "mcp_message"];

/// The events of the provider's stream.
const STREAM_EVENTS: [&str; 6] = [
    "message_start",
    "content_block_start",
    "content_block_delta",
    "content_block_stop",
    "message_delta",
    "message_stop",
];

/// Returns whether only claude, or qwen, prints this line. All its lines except control messages name the conversation.
pub(in crate::parser) fn is_line(kind: &str, line: Json<'_>) -> bool {
    let [session_id, subtype, uuid, message, is_error] =
        line.fields(["session_id", "subtype", "uuid", "message", "is_error"]);
    let has_session = is_text(session_id);
    let has_ids = has_session && is_text(uuid);
    match kind {
        "system" => {
            let is_known = subtype.and_then(Json::text).is_some_and(|subtype| is_known_subtype(&subtype));
            has_session && (is_known || (is_text(subtype) && has_ids))
        }
        "assistant" | "user" => {
            let [role, content] = message.map(|message| message.fields(["role", "content"])).unwrap_or([None; 2]);
            has_ids && role.is_some_and(|role| role.is(kind)) && content.is_some()
        }
        "stream_event" => {
            let event = line.text_at(&["event", "type"]);
            has_ids && event.is_some_and(|event| STREAM_EVENTS.contains(&event.as_str()))
        }
        "result" => {
            let is_outcome = |subtype: String| subtype == "success" || subtype.starts_with("error");
            has_session && is_error.is_some() && subtype.and_then(Json::text).is_some_and(is_outcome)
        }
        "rate_limit_event" => {
            let status = line.text_at(&["rate_limit_info", "status"]);
            status.is_some_and(|status| ["allowed", "allowed_warning", "rejected"].contains(&status.as_str()))
        }
        "control_request" => {
            let request = line.text_at(&["request", "subtype"]);
            is_text(line.field("request_id")) && request.is_some_and(|name| CONTROL_REQUESTS.contains(&name.as_str()))
        }
        "control_response" => {
            let [subtype, id] = line.field("response").map_or([None; 2], |it| it.fields(["subtype", "request_id"]));
            is_text(id) && subtype.is_some_and(|subtype| subtype.is("success") || subtype.is("error"))
        }
        "control_cancel_request" => is_text(line.field("request_id")),
        _ => false,
    }
}

/// Returns whether only claude calls this hook. Gemini's hooks have some of the same names, but also a `timestamp`.
pub(in crate::parser) fn is_hook(name: &str, body: Json<'_>) -> bool {
    let [session_id, timestamp] = body.fields(["session_id", "timestamp"]);
    let is_known = is_handled(name) || SILENT_HOOKS.contains(&name);
    is_known && is_text(session_id) && timestamp.is_none()
}

fn is_text(value: Option<Json<'_>>) -> bool {
    value.and_then(Json::text).is_some()
}
