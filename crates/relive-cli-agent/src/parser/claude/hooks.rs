//! The bodies of claude's hooks, which give the state of its full-screen interface: it prints no events.

use super::ClaudeParser;
use crate::event::{ApprovalRequest, EventKind, RawJson, TurnOutcome};
use crate::ids::shorten;
use crate::json::Json;
use crate::parser::line_events::LineEvents;

/// Hooks that say nothing about the state.
const HOUSEKEEPING: [&str; 19] = [
    "Notification",
    "PermissionDenied",
    "PreCompact",
    "PostCompact",
    "SessionEnd",
    "Setup",
    "ConfigChange",
    "InstructionsLoaded",
    "UserPromptExpansion",
    "PostToolBatch",
    "TaskCreated",
    "TaskCompleted",
    "TeammateIdle",
    "CwdChanged",
    "FileChanged",
    "WorktreeCreate",
    "WorktreeRemove",
    "Elicitation",
    "ElicitationResult",
];

/// The hooks that say something about the state.
const READ: [&str; 10] = [
    "SessionStart",
    "UserPromptSubmit",
    "PreToolUse",
    "PermissionRequest",
    "PostToolUse",
    "PostToolUseFailure",
    "SubagentStart",
    "SubagentStop",
    "Stop",
    "StopFailure",
];

/// Whether only claude calls this hook.
pub(in crate::parser) fn is_hook(name: &str) -> bool {
    READ.contains(&name) || HOUSEKEEPING.contains(&name)
}

impl ClaudeParser {
    pub(super) fn read_hook(&mut self, name: &str, body: Json<'_>, events: &mut LineEvents) {
        let [session_id, agent_id] = body.fields(["session_id", "agent_id"]);
        let agent_id = agent_id.and_then(Json::text);
        if let Some(session_id) = session_id.and_then(Json::text) {
            self.start_session(session_id, None, events);
        }
        if let Some(id) = agent_id.clone()
            && !name.starts_with("Subagent")
        {
            events.set_subagent(id);
        }
        match name {
            "UserPromptSubmit" => events.push(EventKind::TurnStarted { turn_id: None }),
            "PreToolUse" => self.read_call_started(body, events),
            "PermissionRequest" => self.read_permission_hook(body, events),
            "PostToolUse" | "PostToolUseFailure" => {
                let (id, _) = call_of(body);
                events.push(EventKind::ToolEnded { id, failed: name == "PostToolUseFailure" });
            }
            "SubagentStart" => {
                let name = body.text_at(&["agent_type"]);
                events.push(EventKind::SubagentStarted { id: agent_id.unwrap_or_default(), name });
            }
            "SubagentStop" => events.push(EventKind::SubagentEnded { id: agent_id.unwrap_or_default() }),
            "Stop" => {
                self.read_background_tasks(body.field("background_tasks"), events);
                events.turn_ended(TurnOutcome::Completed, None);
            }
            "StopFailure" => events.turn_ended(TurnOutcome::Failed, body.text_at(&["error"])),
            "SessionStart" => events.other_if_empty(name),
            name if HOUSEKEEPING.contains(&name) => events.other(name),
            name => events.unknown(name),
        }
    }

    fn read_call_started(&mut self, body: Json<'_>, events: &mut LineEvents) {
        let (id, name) = call_of(body);
        self.hook_call = Some((shorten(&name).into_owned(), shorten(&id).into_owned()));
        events.push(EventKind::ToolStarted { id, name, input: body.field("tool_input").map(Json::to_raw) });
    }

    fn read_permission_hook(&mut self, body: Json<'_>, events: &mut LineEvents) {
        let (id, tool) = call_of(body);
        let announced = self.hook_call.as_ref().filter(|(name, _)| *name == shorten(&tool));
        let id = announced.map_or(id, |(_, id)| id.clone());
        events.push(EventKind::ApprovalAsked(ApprovalRequest {
            request_id: RawJson::string(&id),
            tool_id: Some(id),
            tool,
            input: body.field("tool_input").map(Json::to_raw),
            reason: None,
            options: Vec::new(),
        }));
    }
}

/// The id and the tool of a call. Where a hook has no id, the tool's name stands in.
fn call_of(body: Json<'_>) -> (String, String) {
    let [id, name] = body.fields(["tool_use_id", "tool_name"]);
    let name = name.and_then(Json::text).unwrap_or_default();
    (id.and_then(Json::text).unwrap_or_else(|| name.clone()), name)
}
