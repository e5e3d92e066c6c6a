//! The bodies of claude's hooks. They are the only source for the state of its full-screen interface, which prints no
//! events.

use super::control::options_of;
use super::hook_calls::{AskedCall, AskedOnScreen, EndedCall, HookBody};
use super::{ClaudeParser, QUESTION_TOOL};
use crate::event::{ApprovalChannel, ApprovalRequest, EventKind, RawJson, TurnOutcome};
use crate::json::Json;
use crate::machine::Turn;
use crate::parser::line_events::LineEvents;
use crate::parser::questions::joined_questions;

/// Hooks that say nothing about the state.
pub(super) const SILENT_HOOKS: [&str; 14] = [
    "PreCompact",
    "PostCompact",
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
];

/// The hooks that say something about the state, apart from [`SESSION_START`].
pub const REPORTED: [&str; 14] = [
    "UserPromptSubmit",
    "PreToolUse",
    "PermissionRequest",
    "PostToolUse",
    "PostToolUseFailure",
    "SubagentStart",
    "SubagentStop",
    "Stop",
    "StopFailure",
    "SessionEnd",
    "PermissionDenied",
    "Notification",
    "Elicitation",
    "ElicitationResult",
];

/// It says something about the state, too. Claude cannot report it by HTTP.
const SESSION_START: &str = "SessionStart";

/// Returns whether a hook says something about the state.
pub(super) fn is_handled(name: &str) -> bool {
    name == SESSION_START || REPORTED.contains(&name)
}

/// The hooks that concern the whole session regardless of their caller, and those that name the subagent themselves.
const OF_SESSION: [&str; 5] = [SESSION_START, "SessionEnd", "Notification", "SubagentStart", "SubagentStop"];

/// The hooks that end something, of the session that they name.
const ENDS: [&str; 9] = [
    "PostToolUse",
    "PostToolUseFailure",
    "PermissionDenied",
    "SubagentStop",
    "Stop",
    "StopFailure",
    "SessionEnd",
    "Notification",
    "ElicitationResult",
];

impl ClaudeParser {
    pub(super) fn read_hook(&mut self, name: &str, body: Json<'_>, events: &mut LineEvents) {
        let [session_id, agent_id] = body.fields(["session_id", "agent_id"]);
        if ENDS.contains(&name) && self.conversation.is_other(session_id) {
            return events.other(format!("{name} of another session"));
        }
        self.leave_lost_session(name, body, events);
        self.conversation.enter(session_id.and_then(Json::text), None, events);
        let agent_id = agent_id.and_then(Json::text).filter(|id| !id.is_empty());
        if let Some(id) = &agent_id
            && !OF_SESSION.contains(&name)
        {
            events.set_subagent(id);
        }
        match name {
            "UserPromptSubmit" => self.read_prompt(events),
            "PreToolUse" => self.read_call_started(&HookBody::of(body), events),
            "PermissionRequest" => self.read_permission_hook(&HookBody::of(body), events),
            "PostToolUse" | "PostToolUseFailure" | "PermissionDenied" => {
                self.read_call_ended(name, &HookBody::of(body), events);
                self.read_interrupt(body, events);
            }
            "SubagentStart" | "SubagentStop" => read_subagent(name, agent_id, body, events),
            "Elicitation" => {
                let (server, text) = (asking_server(body), body.text_at(&["message"]).unwrap_or_default());
                self.hook_calls.ask_for_server(&server, events.subagent());
                events.push(EventKind::Question {
                    request_id: RawJson::string(&server),
                    tool_id: None,
                    text,
                    input: None,
                });
            }
            "ElicitationResult" => {
                let server = asking_server(body);
                self.hook_calls.answer_server(&server);
                events.push(EventKind::Answered { request_id: RawJson::string(&server) });
            }
            "Stop" => self.read_stop(body, events),
            "StopFailure" => self.read_stop_failure(body, events),
            "SessionEnd" => self.read_session_end(body.text_at(&["reason"]), events),
            "Notification" => self.read_notification(body, events),
            SESSION_START => {}
            name if SILENT_HOOKS.contains(&name) => {}
            name => events.unknown(name),
        }
        events.other_if_empty(name);
    }

    /// Drops the work of a session that has ended without a hook: claude was killed and started again, or is in another
    /// conversation.
    fn leave_lost_session(&mut self, hook: &str, body: Json<'_>, events: &mut LineEvents) {
        let [session_id, source] = body.fields(["session_id", "source"]);
        let is_process_start =
            hook == SESSION_START && source.is_some_and(|source| source.is("startup") || source.is("resume"));
        let has_work = self.hook_turn == Turn::Open || !self.hook_calls.is_empty();
        if is_process_start && (has_work || !self.background.is_empty()) {
            self.forget_session();
            events.process_replaced();
        } else if has_work && self.conversation.is_other(session_id) {
            self.forget_session();
            events.push(EventKind::SessionEnded { reason: Some("another conversation started".into()) });
        }
    }

    /// Reads a prompt of the user. No hook reports the end of a call that the user has refused or interrupted. A prompt
    /// can only be typed when no dialog is open; a prompt typed during the turn reaches the agent between two calls.
    fn read_prompt(&mut self, events: &mut LineEvents) {
        if !events.is_by_subagent() {
            if self.hook_calls.has_open() {
                self.end_hook_turn(TurnOutcome::Interrupted, None, events);
                self.end_foreground_subagents(events);
            }
            self.hook_turn = Turn::Open;
            self.quota.start_turn();
        }
        events.push(EventKind::TurnStarted { turn_id: None });
    }

    /// Reads the end of a turn. A subagent that is not listed as a task has ended with it.
    fn read_stop(&mut self, body: Json<'_>, events: &mut LineEvents) {
        let tasks = body.field("background_tasks").filter(|tasks| tasks.is_list());
        self.read_background_tasks(tasks, events);
        self.end_hook_turn(TurnOutcome::Completed, None, events);
        if tasks.is_some() && !events.is_by_subagent() {
            self.end_foreground_subagents(events);
        }
    }

    /// Closes the approvals of subagents that the agent itself waited for.
    fn end_foreground_subagents(&mut self, events: &mut LineEvents) {
        for approval_id in self.hook_calls.take_foreground_approvals(&self.background) {
            events.push(EventKind::Answered { request_id: RawJson::string(&approval_id) });
        }
    }

    /// Reads the end of a session: claude was closed, or has dropped its conversation.
    fn read_session_end(&mut self, reason: Option<String>, events: &mut LineEvents) {
        if self.hook_turn == Turn::Open {
            self.end_hook_turn(TurnOutcome::Interrupted, reason.clone(), events);
        }
        self.forget_session();
        events.push(EventKind::SessionEnded { reason });
    }

    /// Reads a notification. An interrupted turn has no `Stop`; a minute later claude notifies that it waits for input.
    /// No dialog is open then, not even a subagent's.
    fn read_notification(&mut self, body: Json<'_>, events: &mut LineEvents) {
        match NotificationKind::of(body) {
            NotificationKind::WaitsForInput => {}
            NotificationKind::AsksPermission => return self.read_permission_dialog(body, events),
            NotificationKind::Other => return,
        }
        if self.hook_turn == Turn::Open || self.hook_calls.has_open() {
            self.end_hook_turn(TurnOutcome::Interrupted, body.text_at(&["message"]), events);
        }
        for approval_id in self.hook_calls.take_approvals() {
            events.push(EventKind::Answered { request_id: RawJson::string(&approval_id) });
        }
    }

    /// Reads the notification about a dialog that has been open for some seconds. Without a hook for permissions it is
    /// the only sign.
    fn read_permission_dialog(&mut self, body: Json<'_>, events: &mut LineEvents) {
        let message = body.text_at(&["message"]);
        let tool = message.as_deref().map(asking_tool).unwrap_or_default();
        let Some(AskedOnScreen { tool, asked: AskedCall { id, subagent } }) = self.hook_calls.ask_on_screen(tool)
        else {
            return;
        };
        if let Some(subagent) = subagent {
            events.set_subagent(&subagent);
        }
        events.push(EventKind::ApprovalAsked(ApprovalRequest {
            request_id: RawJson::string(&id),
            tool_id: Some(id),
            tool,
            input: None,
            reason: message,
            options: Vec::new(),
            channel: ApprovalChannel::Screen,
        }));
    }

    pub(super) fn end_hook_turn(&mut self, outcome: TurnOutcome, message: Option<String>, events: &mut LineEvents) {
        if !events.is_by_subagent() {
            self.hook_turn = Turn::Closed;
            self.hook_calls.end_turn();
        }
        events.turn_ended(outcome, message);
    }

    /// Reads the start of a call, which implies an open turn, for this parser as for the machine.
    fn read_call_started(&mut self, body: &HookBody<'_>, events: &mut LineEvents) {
        if !events.is_by_subagent() {
            self.hook_turn = Turn::Open;
        }
        let id = self.hook_calls.start(body);
        let (name, input) = (body.tool.clone(), body.input.map(Json::to_raw));
        events.push(EventKind::ToolStarted { id, name, input, preparing: false });
    }

    /// Reads an interrupt: pressing escape interrupts the turn with its call, and no `Stop` follows.
    fn read_interrupt(&mut self, body: Json<'_>, events: &mut LineEvents) {
        let is_interrupt = body.field("is_interrupt").is_some_and(Json::is_true);
        if is_interrupt && self.hook_turn == Turn::Open {
            self.end_hook_turn(TurnOutcome::Interrupted, None, events);
        }
    }

    fn read_call_ended(&mut self, hook: &str, body: &HookBody<'_>, events: &mut LineEvents) {
        let EndedCall { id, approval_id, subagent } = self.hook_calls.end(body);
        if let Some(subagent) = subagent {
            events.set_subagent(&subagent);
        }
        events.push(EventKind::ToolEnded { id, failed: hook != "PostToolUse" });
        if let Some(approval_id) = approval_id {
            events.push(EventKind::Answered { request_id: RawJson::string(&approval_id) });
        }
    }

    fn read_permission_hook(&mut self, body: &HookBody<'_>, events: &mut LineEvents) {
        let AskedCall { id, subagent } = self.hook_calls.ask(body);
        if let Some(subagent) = subagent {
            events.set_subagent(&subagent);
        }
        let request_id = RawJson::string(&id);
        if body.tool == QUESTION_TOOL {
            let text = body.input.map(joined_questions).unwrap_or_default();
            return events.push(EventKind::Question { request_id, tool_id: Some(id), text, input: None });
        }
        events.push(EventKind::ApprovalAsked(ApprovalRequest {
            request_id,
            tool_id: Some(id),
            tool: body.tool.clone(),
            input: body.input.map(Json::to_raw),
            reason: None,
            options: options_of(body.suggestions),
            channel: ApprovalChannel::Hook,
        }));
    }
}

enum NotificationKind {
    WaitsForInput,
    AsksPermission,
    Other,
}

impl NotificationKind {
    /// Returns the kind of a notification. Versions that do not name its type have only the message.
    fn of(body: Json<'_>) -> Self {
        let [kind, message] = body.fields(["notification_type", "message"]).map(|text| text.and_then(Json::text));
        match (kind.as_deref(), message.as_deref().unwrap_or_default()) {
            (Some("idle_prompt"), _) => Self::WaitsForInput,
            (Some("permission_prompt"), _) => Self::AsksPermission,
            (None, message) if message.contains("waiting for your input") => Self::WaitsForInput,
            (None, message) if message.contains("needs your permission") => Self::AsksPermission,
            (Some(_) | None, _) => Self::Other,
        }
    }
}

/// Returns the tool in `Claude needs your permission to use Bash`.
fn asking_tool(message: &str) -> &str {
    let (_, tool) = message.split_once("permission to use ").unwrap_or_default();
    tool.split_whitespace().next().unwrap_or_default().trim_end_matches('.')
}

fn read_subagent(hook: &str, id: Option<String>, body: Json<'_>, events: &mut LineEvents) {
    match id {
        None => events.other(hook),
        Some(id) if hook == "SubagentStart" => {
            events.push(EventKind::SubagentStarted { id, name: body.text_at(&["agent_type"]) });
        }
        Some(id) => events.push(EventKind::SubagentEnded { id }),
    }
}

/// Returns the MCP server of an elicitation. Only the result always has an `elicitation_id`, so the server identifies
/// the question: it asks one at a time.
fn asking_server(body: Json<'_>) -> String {
    body.text_at(&["mcp_server_name"]).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dialect::Dialect;
    use crate::lines::Line;
    use crate::parser::Parser;

    #[test]
    fn every_listed_hook_is_recognized() {
        for hook in SILENT_HOOKS.iter().chain(&REPORTED).chain(&[SESSION_START]) {
            let line = format!(r#"{{"hook_event_name":"{hook}","session_id":"s"}}"#);
            let events = Parser::new(Some(Dialect::Claude)).read(Line::Whole(line.as_bytes()));
            assert!(!events.iter().any(|event| matches!(event.kind, EventKind::Unknown { .. })), "{hook}");
        }
    }
}
