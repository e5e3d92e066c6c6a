//! The common parts of the two codex dialects.

use crate::event::RawJson;
use crate::json::Json;

/// Returns the field of an item that describes its call.
pub(super) fn input_of(item: Json<'_>) -> Option<RawJson> {
    let fields = item.fields(["command", "arguments", "changes", "query", "prompt"]);
    fields.into_iter().flatten().next().map(Json::to_raw)
}

/// Reads the attempt and the number of attempts from `Reconnecting... 2/5 (...)`.
pub(super) fn parse_reconnecting(message: &str) -> Option<(u64, u64)> {
    let rest = message.strip_prefix("Reconnecting... ")?;
    let (attempt, rest) = rest.split_once('/')?;
    let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    Some((attempt.parse().ok()?, rest[..digits].parse().ok()?))
}
