//! The items of a codex turn: messages, thoughts and calls of tools.

use crate::event::EventKind;
use crate::json::Json;
use crate::parser::codex::input_of;
use crate::parser::line_events::LineEvents;

const TOOLS: [&str; 9] = [
    "commandExecution",
    "fileChange",
    "mcpToolCall",
    "dynamicToolCall",
    "collabAgentToolCall",
    "webSearch",
    "imageView",
    "imageGeneration",
    "sleep",
];
/// Items that say nothing about the state.
const SILENT_ITEMS: [&str; 7] = [
    "userMessage",
    "plan",
    "hookPrompt",
    "contextCompaction",
    "enteredReviewMode",
    "exitedReviewMode",
    "subAgentActivity",
];

pub(super) fn read_started(item: Json<'_>, events: &mut LineEvents) {
    let kind = item.text_at(&["type"]).unwrap_or_default();
    match kind.as_str() {
        "userMessage" => events.push(EventKind::UserText { text: joined_text(item.field("content")) }),
        "agentMessage" => events.other("agentMessage"),
        "reasoning" => events.push(EventKind::Thinking { text: String::new(), delta: true }),
        tool if TOOLS.contains(&tool) => {
            let id = item.text_at(&["id"]).unwrap_or_default();
            events.push(EventKind::ToolStarted { id, name: kind, input: input_of(item), preparing: false });
        }
        name if SILENT_ITEMS.contains(&name) => events.other(name),
        name => events.unknown(format!("item/{name}")),
    }
}

pub(super) fn read_completed(item: Json<'_>, events: &mut LineEvents) {
    let [kind, id, text, summary, status] = item.fields(["type", "id", "text", "summary", "status"]);
    let kind = kind.and_then(Json::text).unwrap_or_default();
    match kind.as_str() {
        "agentMessage" => {
            events.push(EventKind::Text { text: text.and_then(Json::text).unwrap_or_default(), delta: false });
        }
        "reasoning" => events.push(EventKind::Thinking { text: joined_text(summary), delta: false }),
        tool if TOOLS.contains(&tool) => {
            let failed = status.is_some_and(|status| status.is("failed") || status.is("declined"));
            events.push(EventKind::ToolEnded { id: id.and_then(Json::text).unwrap_or_default(), failed });
        }
        name if SILENT_ITEMS.contains(&name) => events.other(name),
        name => events.unknown(format!("item/{name}")),
    }
}

/// Joins a list of strings, or of objects with a `text`.
fn joined_text(list: Option<Json<'_>>) -> String {
    let parts = list.map(Json::items).unwrap_or_default();
    let texts: Vec<String> =
        parts.into_iter().filter_map(|part| part.text().or_else(|| part.text_at(&["text"]))).collect();
    texts.join("\n")
}
