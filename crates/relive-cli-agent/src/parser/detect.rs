//! Recognizes a dialect by one line.

use crate::dialect::Dialect;
use crate::json::Json;

/// Returns the dialect of a line, or nothing if several have such lines.
pub(crate) fn detect(line: Json<'_>) -> Option<Dialect> {
    let [kind, hook, method, id, session] = line.fields(["type", "hook_event_name", "method", "id", "sessionID"]);
    if hook.is_some() {
        return Some(Dialect::Claude);
    }
    let Some(kind) = kind.and_then(Json::text) else {
        return detect_json_rpc(line, method.and_then(Json::text).as_deref(), id.is_some());
    };
    if session.is_some() {
        return Some(Dialect::Opencode);
    }
    detect_typed(line, &kind)
}

fn detect_typed(line: Json<'_>, kind: &str) -> Option<Dialect> {
    match kind {
        "system" if is_qwen(line) => Some(Dialect::Qwen),
        "system" | "assistant" | "user" | "stream_event" | "rate_limit_event" => Some(Dialect::Claude),
        "control_request" | "control_response" | "control_cancel_request" => Some(Dialect::Claude),
        "result" if line.field("subtype").is_some() => Some(Dialect::Claude),
        "result" if line.field("status").is_some() => Some(Dialect::Gemini),
        "init" if line.field("session_id").is_some() => Some(Dialect::Gemini),
        "message" if line.field("role").is_some() => Some(Dialect::Gemini),
        "tool_use" | "tool_result" if line.field("tool_id").is_some() => Some(Dialect::Gemini),
        "error" if line.field("severity").is_some() => Some(Dialect::Gemini),
        "thread.started" | "turn.started" | "turn.completed" | "turn.failed" => Some(Dialect::CodexExec),
        "item.started" | "item.updated" | "item.completed" => Some(Dialect::CodexExec),
        _ => None,
    }
}

/// Codex leaves out the `jsonrpc` field that ACP, like everybody else, sends.
fn detect_json_rpc(line: Json<'_>, method: Option<&str>, has_id: bool) -> Option<Dialect> {
    let [version, result, error] = line.fields(["jsonrpc", "result", "error"]);
    let is_reply = has_id && (result.is_some() || error.is_some());
    match method {
        Some(method) if method.starts_with("session/") => Some(Dialect::Acp),
        Some(method) if ["thread/", "turn/", "item/"].iter().any(|prefix| method.starts_with(prefix)) => {
            Some(Dialect::CodexAppServer)
        }
        Some(_) if version.is_some() => Some(Dialect::Acp),
        Some(_) => Some(Dialect::CodexAppServer),
        None if is_reply && version.is_some() => Some(Dialect::Acp),
        None if is_reply => Some(Dialect::CodexAppServer),
        None => None,
    }
}

/// Qwen copies claude's dialect and names its own version in the first line of a turn.
pub(crate) fn is_qwen(line: Json<'_>) -> bool {
    line.field("qwen_code_version").is_some()
}
