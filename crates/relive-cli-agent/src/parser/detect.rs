//! Recognizes a dialect by one line.
//!
//! A dialect is kept for the rest of its stream, so a line that another program could have printed decides nothing. The
//! name of a type or a method counts only together with the fields that the dialect always has there, as recorded, and
//! that a log, a chat or another protocol does not have. Types without such fields, like gemini's `error` and `message`
//! or codex's `turn.failed`, decide nothing: in each stream a line that decides comes before them.

use super::{acp, claude, codex_app_server, codex_exec};
use crate::dialect::Dialect;
use crate::json::Json;

/// Opencode's own ids of conversations.
const OPENCODE_SESSION: &str = "ses_";

/// Returns the dialect of a line, or `None` if several dialects or none fit.
pub(super) fn detect(line: Json<'_>) -> Option<Dialect> {
    let [kind, hook] = line.fields(["type", "hook_event_name"]);
    if let Some(hook) = hook.and_then(Json::text) {
        return claude::is_hook(&hook, line).then_some(Dialect::Claude);
    }
    match kind.and_then(Json::text) {
        Some(kind) => detect_typed(line, &kind),
        None => detect_json_rpc(line),
    }
}

fn detect_typed(line: Json<'_>, kind: &str) -> Option<Dialect> {
    if claude::is_line(kind, line) {
        return Some(if is_qwen(line) { Dialect::Qwen } else { Dialect::Claude });
    }
    if codex_exec::is_line(kind, line) {
        return Some(Dialect::CodexExec);
    }
    if is_opencode(kind, line) {
        return Some(Dialect::Opencode);
    }
    is_gemini(kind, line).then_some(Dialect::Gemini)
}

fn is_opencode(kind: &str, line: Json<'_>) -> bool {
    let [session_id, part, error] = line.fields(["sessionID", "part", "error"]);
    let is_session = session_id.and_then(Json::text).is_some_and(|id| id.starts_with(OPENCODE_SESSION));
    let has_content = match kind {
        "step_start" | "step_finish" | "text" | "reasoning" | "tool_use" => part.is_some_and(Json::is_object),
        "error" => error.is_some_and(|error| error.text_at(&["name"]).is_some()),
        _ => false,
    };
    is_session && has_content
}

fn is_gemini(kind: &str, line: Json<'_>) -> bool {
    let has_text = |names: &[&str]| names.iter().all(|name| line.text_at(&[name]).is_some());
    match kind {
        "init" => has_text(&["session_id", "model", "timestamp"]),
        "tool_use" => has_text(&["tool_id", "tool_name"]) && line.field("parameters").is_some_and(Json::is_object),
        "tool_result" => has_text(&["tool_id", "status", "timestamp"]),
        "result" => has_text(&["status"]) && line.at(&["stats", "total_tokens"]).and_then(Json::u64).is_some(),
        _ => false,
    }
}

/// Tells ACP from codex, which leaves out the `jsonrpc` field.
fn detect_json_rpc(line: Json<'_>) -> Option<Dialect> {
    let [method, id, version, result] = line.fields(["method", "id", "jsonrpc", "result"]);
    let is_acp = version.is_some();
    if let Some(method) = method.and_then(Json::text) {
        return if is_acp {
            acp::is_message(&method, line).then_some(Dialect::Acp)
        } else {
            codex_app_server::is_message(&method, line).then_some(Dialect::CodexAppServer)
        };
    }
    let result = result.filter(|_| id.is_some())?;
    if is_acp {
        acp::is_result(result).then_some(Dialect::Acp)
    } else {
        codex_app_server::is_result(result).then_some(Dialect::CodexAppServer)
    }
}

/// Returns whether the line is qwen's: it copies claude's dialect and names its own version in the first line of a
/// turn.
pub(super) fn is_qwen(line: Json<'_>) -> bool {
    line.field("qwen_code_version").is_some()
}
