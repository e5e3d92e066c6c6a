//! The events of the provider's own stream, which claude repeats with `--include-partial-messages`.

use super::SILENT_BLOCKS;
use crate::event::EventKind;
use crate::json::Json;
use crate::parser::line_events::LineEvents;

/// Events that say nothing about the state; `goal_state` is qwen's.
const SILENT_EVENTS: [&str; 6] =
    ["message_start", "message_delta", "message_stop", "content_block_stop", "ping", "goal_state"];
const SILENT_DELTAS: [&str; 4] = ["input_json_delta", "signature_delta", "citations_delta", "compaction_delta"];

pub(super) fn read(line: Json<'_>, events: &mut LineEvents) {
    let Some(event) = line.field("event") else { return events.other("stream_event") };
    let [block, delta] = event.fields(["content_block", "delta"]);
    let kind = event.kind();
    match (kind.as_str(), block, delta) {
        ("content_block_start", Some(block), _) => read_block_start(&block.kind(), events),
        ("content_block_delta", _, Some(delta)) => read_delta(delta, events),
        ("error", _, _) => events.warning(event.text_at(&["error", "message"]).unwrap_or_default()),
        (kind, _, _) if SILENT_EVENTS.contains(&kind) => events.other(kind),
        (kind, _, _) => events.unknown(format!("stream_event/{kind}")),
    }
}

fn read_block_start(block: &str, events: &mut LineEvents) {
    let is_tool = block.ends_with("tool_use") || block.ends_with("tool_result");
    match block {
        "thinking" => events.push(EventKind::Thinking { text: String::new(), delta: true }),
        "text" | "redacted_thinking" => events.other("content_block_start"),
        block if is_tool || SILENT_BLOCKS.contains(&block) => events.other("content_block_start"),
        block => events.unknown(format!("content_block_start/{block}")),
    }
}

fn read_delta(delta: Json<'_>, events: &mut LineEvents) {
    let kind = delta.kind();
    let text = |name: &str| delta.text_at(&[name]).unwrap_or_default();
    match kind.as_str() {
        "text_delta" => events.push(EventKind::Text { text: text("text"), delta: true }),
        "thinking_delta" => events.push(EventKind::Thinking { text: text("thinking"), delta: true }),
        kind if SILENT_DELTAS.contains(&kind) => events.other("content_block_delta"),
        kind => events.unknown(format!("content_block_delta/{kind}")),
    }
}
