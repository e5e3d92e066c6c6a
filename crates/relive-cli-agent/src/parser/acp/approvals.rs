//! The permissions that an ACP agent asks for.

use crate::event::{ApprovalChannel, ApprovalOption, ApprovalRequest, EventKind, OptionKind, RawJson};
use crate::json::Json;
use crate::parser::line_events::LineEvents;

/// Reads a request. `tool` is the name under which its call was announced, if that is known: qwen's title of the request is
/// the command again.
pub(super) fn read(id: Json<'_>, params: Json<'_>, tool: Option<String>, events: &mut LineEvents) {
    let [call, options] = params.fields(["toolCall", "options"]);
    let [tool_id, title, input] =
        call.map(|call| call.fields(["toolCallId", "title", "rawInput"])).unwrap_or([None; 3]);
    let options = options.map(Json::items).unwrap_or_default();
    events.push(EventKind::ApprovalAsked(ApprovalRequest {
        request_id: id.to_raw(),
        tool_id: tool_id.and_then(Json::text),
        tool: tool.or_else(|| title.and_then(Json::text)).unwrap_or_default(),
        input: input.map(Json::to_raw).or_else(|| described(call?)),
        reason: None,
        options: options.into_iter().filter_map(option_of).collect(),
        channel: ApprovalChannel::Stream,
    }));
}

/// Returns what a request without the input of its call says about it: gemini sends its kind, what it would change, and
/// where.
fn described(call: Json<'_>) -> Option<RawJson> {
    const NAMES: [&str; 3] = ["kind", "content", "locations"];
    let said = NAMES.into_iter().zip(call.fields(NAMES));
    let said = said.filter_map(|(name, value)| Some((name, value?)));
    // Empty lists say nothing.
    let fields: Vec<(&str, RawJson)> = said
        .filter(|(_, value)| value.text().is_some() || !value.items().is_empty())
        .map(|(name, value)| (name, value.to_raw()))
        .collect();
    (!fields.is_empty()).then(|| RawJson::object(&fields))
}

fn option_of(option: Json<'_>) -> Option<ApprovalOption> {
    let [id, kind] = option.fields(["optionId", "kind"]);
    let kind = match kind.and_then(Json::text).as_deref() {
        Some("allow_once") => OptionKind::AllowOnce,
        Some("allow_always") => OptionKind::AllowAlways,
        Some("reject_once") => OptionKind::DenyOnce,
        Some("reject_always") => OptionKind::DenyAlways,
        Some(_) | None => OptionKind::Other,
    };
    Some(ApprovalOption { kind, value: id?.to_raw() })
}
