//! Tells ACP's messages from those of other protocols with the same names.

use crate::json::Json;

/// The methods that an agent calls, without the extensions of vendors.
pub(super) const METHODS: [&str; 12] = [
    "session/update",
    "session/request_permission",
    "session/elicitation",
    "elicitation/create",
    "elicitation/complete",
    "fs/read_text_file",
    "fs/write_text_file",
    "terminal/create",
    "terminal/output",
    "terminal/wait_for_exit",
    "terminal/kill",
    "terminal/release",
];

/// Why an agent says that a turn has ended.
const STOP_REASONS: [&str; 5] = ["end_turn", "max_tokens", "max_turn_requests", "refusal", "cancelled"];

/// Whether only an ACP agent sends this message. Its methods have names that other protocols use too, and are all about a
/// session.
pub(in crate::parser) fn is_message(method: &str, line: Json<'_>) -> bool {
    METHODS.contains(&method) && line.at(&["params", "sessionId"]).and_then(Json::text).is_some()
}

/// Whether only an ACP agent replies like this: to `initialize`, to the start of a session, to a prompt. MCP has a
/// `protocolVersion` too, which is a date.
pub(in crate::parser) fn is_result(result: Json<'_>) -> bool {
    let [session_id, stop_reason] = result.fields(["sessionId", "stopReason"]);
    let is_session = session_id.and_then(Json::text).is_some() && names_modes(result);
    let is_end = stop_reason.and_then(Json::text).is_some_and(|reason| STOP_REASONS.contains(&reason.as_str()));
    is_initialized(result) || is_session || is_end
}

/// Recognizes the reply to `initialize`.
pub(super) fn is_initialized(result: Json<'_>) -> bool {
    let [version, rest @ ..] = result.fields(["protocolVersion", "agentCapabilities", "authMethods", "agentInfo"]);
    version.and_then(Json::u64).is_some() && rest.iter().any(Option::is_some)
}

/// Whether this may be the reply to a `session/load`, which the protocol lets be null or empty.
pub(super) fn may_be_load_result(result: Option<Json<'_>>) -> bool {
    result.is_none_or(|result| names_modes(result) || result.has_only(&["_meta"]))
}

/// Whether a reply says how a session can be configured, like that to the start of one.
fn names_modes(result: Json<'_>) -> bool {
    result.fields(["modes", "models", "configOptions"]).iter().any(Option::is_some)
}
