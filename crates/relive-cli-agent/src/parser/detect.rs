//! Recognizes a dialect by one line.
//!
//! A dialect is kept for the rest of its stream, so a line that somebody else could have printed decides nothing: the
//! name of a type or a method counts only together with the fields that the dialect always has there.

use super::{acp, claude, codex_app_server};
use crate::dialect::Dialect;
use crate::json::Json;

/// Returns the dialect of a line, or nothing if it could be of several or of none.
pub(super) fn detect(line: Json<'_>) -> Option<Dialect> {
    let [kind, hook] = line.fields(["type", "hook_event_name"]);
    if let Some(hook) = hook.and_then(Json::text) {
        return claude::is_hook(&hook).then_some(Dialect::Claude);
    }
    match kind.and_then(Json::text) {
        Some(kind) => detect_typed(line, &kind),
        None => detect_json_rpc(line),
    }
}

fn detect_typed(line: Json<'_>, kind: &str) -> Option<Dialect> {
    let has = |name: &str| line.field(name).is_some();
    let has_text = |name: &str| line.text_at(&[name]).is_some();
    let has_object = |name: &str| line.field(name).is_some_and(Json::is_object);
    let dialect = match kind {
        "step_start" | "step_finish" | "text" | "reasoning" | "tool_use" | "error" if has_text("sessionID") => {
            Dialect::Opencode
        }
        "system" if has_text("subtype") && is_qwen(line) => Dialect::Qwen,
        "system" | "result" if has_text("subtype") => Dialect::Claude,
        "assistant" | "user" if has_object("message") => Dialect::Claude,
        "stream_event" if has_object("event") => Dialect::Claude,
        "rate_limit_event" if has_object("rate_limit_info") => Dialect::Claude,
        "control_request" if has("request_id") && has_object("request") => Dialect::Claude,
        "control_response" if has_object("response") => Dialect::Claude,
        "control_cancel_request" if has("request_id") => Dialect::Claude,
        "result" if has_text("status") => Dialect::Gemini,
        "init" if has_text("session_id") => Dialect::Gemini,
        "message" if has_text("role") && has_text("content") => Dialect::Gemini,
        "tool_use" | "tool_result" if has_text("tool_id") => Dialect::Gemini,
        "error" if has_text("severity") => Dialect::Gemini,
        "thread.started" if has_text("thread_id") => Dialect::CodexExec,
        "turn.completed" if has_object("usage") => Dialect::CodexExec,
        "turn.failed" if has_object("error") => Dialect::CodexExec,
        "item.started" | "item.updated" | "item.completed" if has_object("item") => Dialect::CodexExec,
        _ => return None,
    };
    Some(dialect)
}

/// Codex leaves out the `jsonrpc` field that ACP, like everybody else, sends.
fn detect_json_rpc(line: Json<'_>) -> Option<Dialect> {
    let [method, id, version, result] = line.fields(["method", "id", "jsonrpc", "result"]);
    if let Some(method) = method.and_then(Json::text) {
        return match method.as_str() {
            method if acp::is_method(method) => Some(Dialect::Acp),
            method if codex_app_server::is_method(method) => Some(Dialect::CodexAppServer),
            _ => None,
        };
    }
    let result = result.filter(|_| id.is_some())?;
    match version {
        Some(_) => acp::is_result(result).then_some(Dialect::Acp),
        None => codex_app_server::is_result(result).then_some(Dialect::CodexAppServer),
    }
}

/// Qwen copies claude's dialect and names its own version in the first line of a turn.
pub(super) fn is_qwen(line: Json<'_>) -> bool {
    line.field("qwen_code_version").is_some()
}
