//! Tells ACP's messages from those of other protocols with the same names.

use crate::event::Capabilities;
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

/// The reasons for the end of a turn.
const STOP_REASONS: [&str; 5] = ["end_turn", "max_tokens", "max_turn_requests", "refusal", "cancelled"];

/// Returns whether only an ACP agent sends this message. Other protocols use the same method names, but only ACP's are
/// all about a session.
pub(in crate::parser) fn is_message(method: &str, line: Json<'_>) -> bool {
    METHODS.contains(&method) && line.at(&["params", "sessionId"]).and_then(Json::text).is_some()
}

/// Returns whether only an ACP agent sends this reply: to `initialize`, to the start of a session or to a prompt. MCP
/// has a `protocolVersion` too, but it is a date.
pub(in crate::parser) fn is_result(result: Json<'_>) -> bool {
    let [session_id, stop_reason] = result.fields(["sessionId", "stopReason"]);
    let is_session = session_id.and_then(Json::text).is_some() && names_modes(result);
    let is_end = stop_reason.and_then(Json::text).is_some_and(|reason| STOP_REASONS.contains(&reason.as_str()));
    is_initialized(result) || is_session || is_end
}

/// Reads what the agent can do with conversations from its reply to `initialize`. What it does not name it cannot do.
pub(super) fn capabilities_of(result: Option<Json<'_>>) -> Capabilities {
    let at = |path: &[&str]| result.and_then(|result| result.at(path));
    let offers = |name: &str| at(&["agentCapabilities", "sessionCapabilities", name]).is_some_and(Json::is_object);
    let load = at(&["agentCapabilities", "loadSession"]).is_some_and(|load| load.as_str() == "true");
    let version = at(&["protocolVersion"]).and_then(Json::u64).unwrap_or(0);
    Capabilities { version, load, resume: offers("resume"), fork: offers("fork") }
}

/// Recognizes the reply to `initialize`.
pub(super) fn is_initialized(result: Json<'_>) -> bool {
    let [version, rest @ ..] = result.fields(["protocolVersion", "agentCapabilities", "authMethods", "agentInfo"]);
    version.and_then(Json::u64).is_some() && rest.iter().any(Option::is_some)
}

/// Returns whether this may be the reply to a `session/load`, which may be null or empty by the protocol.
pub(super) fn may_be_load_result(result: Option<Json<'_>>) -> bool {
    result.is_none_or(|result| names_modes(result) || result.has_only(&["_meta"]))
}

/// Returns whether a reply lists the modes of a session, like the reply to its start.
fn names_modes(result: Json<'_>) -> bool {
    result.fields(["modes", "models", "configOptions"]).iter().any(Option::is_some)
}
