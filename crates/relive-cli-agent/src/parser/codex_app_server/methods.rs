//! The methods that codex calls. An unlisted name belongs to a newer codex or to another program.

use super::thread_of;
use crate::json::Json;

/// Notifications that say nothing about the state.
const SILENT: [&str; 47] = [
    "account/login/completed",
    "account/updated",
    "app/list/updated",
    "command/exec/outputDelta",
    "externalAgentConfig/import/completed",
    "externalAgentConfig/import/progress",
    "fs/changed",
    "fuzzyFileSearch/sessionCompleted",
    "fuzzyFileSearch/sessionUpdated",
    "hook/completed",
    "hook/started",
    "item/autoApprovalReview/completed",
    "item/autoApprovalReview/started",
    "item/commandExecution/outputDelta",
    "item/commandExecution/terminalInteraction",
    "item/fileChange/outputDelta",
    "item/fileChange/patchUpdated",
    "item/mcpToolCall/progress",
    "item/plan/delta",
    "mcpServer/oauthLogin/completed",
    "mcpServer/startupStatus/updated",
    "model/rerouted",
    "model/safetyBuffering/updated",
    "model/verification",
    "process/exited",
    "process/outputDelta",
    "rawResponseItem/completed",
    "remoteControl/status/changed",
    "skills/changed",
    "thread/archived",
    "thread/closed",
    "thread/compacted",
    "thread/deleted",
    "thread/goal/cleared",
    "thread/goal/updated",
    "thread/name/updated",
    "thread/realtime/closed",
    "thread/realtime/error",
    "thread/realtime/itemAdded",
    "thread/realtime/started",
    "thread/settings/updated",
    "thread/status/changed",
    "thread/unarchived",
    "turn/diff/updated",
    "turn/moderationMetadata",
    "turn/plan/updated",
    "windowsSandbox/setupCompleted",
];

/// The other methods, without those that any program could call (`error`, `warning`).
const HANDLED: [&str; 24] = [
    "account/chatgptAuthTokens/refresh",
    "account/rateLimits/updated",
    "applyPatchApproval",
    "configWarning",
    "deprecationNotice",
    "execCommandApproval",
    "guardianWarning",
    "item/agentMessage/delta",
    "item/commandExecution/requestApproval",
    "item/completed",
    "item/fileChange/requestApproval",
    "item/permissions/requestApproval",
    "item/reasoning/summaryPartAdded",
    "item/reasoning/summaryTextDelta",
    "item/reasoning/textDelta",
    "item/started",
    "item/tool/call",
    "item/tool/requestUserInput",
    "mcpServer/elicitation/request",
    "serverRequest/resolved",
    "thread/started",
    "thread/tokenUsage/updated",
    "turn/completed",
    "turn/started",
];

pub(super) fn is_silent(method: &str) -> bool {
    SILENT.contains(&method)
}

/// Returns whether only codex sends this message. Some of its method names are used by other programs too; codex adds
/// the time to its notifications, and most are about a thread.
pub(in crate::parser) fn is_message(method: &str, line: Json<'_>) -> bool {
    let [params, emitted_at] = line.fields(["params", "emittedAtMs"]);
    let has_thread =
        params.is_some_and(|params| thread_of(params).is_some() || params.field("thread").is_some_and(has_id));
    (HANDLED.contains(&method) || is_silent(method)) && (has_thread || emitted_at.and_then(Json::u64).is_some())
}

/// Returns whether only codex sends this reply: to `initialize`, or to the start of a thread.
pub(in crate::parser) fn is_result(result: Json<'_>) -> bool {
    let [thread, provider] = result.fields(["thread", "modelProvider"]);
    is_initialized(result) || (thread.is_some_and(has_id) && provider.is_some())
}

/// Recognizes the reply to `initialize`.
pub(super) fn is_initialized(result: Json<'_>) -> bool {
    let [agent, home] = result.fields(["userAgent", "codexHome"]);
    agent.and_then(Json::text).is_some_and(|agent| home.is_some() || agent.starts_with("codex"))
}

fn has_id(object: Json<'_>) -> bool {
    object.text_at(&["id"]).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dialect::Dialect;
    use crate::event::EventKind;
    use crate::lines::Line;
    use crate::parser::Parser;

    /// Each method may be a notification or a request: the list does not distinguish them.
    #[test]
    fn every_listed_method_is_recognized() {
        for method in SILENT.iter().chain(&HANDLED) {
            let params = r#"{"item":{"type":"plan"},"turn":{"id":"u"}}"#;
            let is_known = ["", r#""id":1,"#].iter().any(|id| {
                let line = format!(r#"{{{id}"method":"{method}","params":{params}}}"#);
                let events = Parser::new(Some(Dialect::CodexAppServer)).read(Line::Whole(line.as_bytes()));
                !events.iter().any(|event| matches!(event.kind, EventKind::Unknown { .. }))
            });
            assert!(is_known, "{method}");
        }
    }
}
