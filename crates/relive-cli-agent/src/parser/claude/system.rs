//! Claude's `system` lines: the start of a turn, retries, background commands.

use super::ClaudeParser;
use crate::event::EventKind;
use crate::ids::{IdSet, shorten};
use crate::json::Json;
use crate::parser::line_events::LineEvents;

/// The statuses of a background command that has ended.
const ENDED: [&str; 5] = ["completed", "failed", "killed", "stopped", "cancelled"];

/// Subtypes that say nothing about the state.
const SILENT_SUBTYPES: [&str; 11] = [
    "status",
    "hook_started",
    "hook_progress",
    "hook_response",
    "compact_boundary",
    "files_persisted",
    "local_command_output",
    "session_state_changed",
    "task_progress",
    "model_refusal_fallback",
    "notification",
];

/// The subtypes that say something about the state.
const HANDLED_SUBTYPES: [&str; 8] = [
    "init",
    "api_retry",
    "thinking_tokens",
    "permission_denied",
    "task_started",
    "task_updated",
    "task_notification",
    "background_tasks_changed",
];

pub(super) fn is_known_subtype(name: &str) -> bool {
    HANDLED_SUBTYPES.contains(&name) || SILENT_SUBTYPES.contains(&name)
}

impl ClaudeParser {
    pub(super) fn read_system(&mut self, line: Json<'_>, events: &mut LineEvents) {
        let subtype = line.text_at(&["subtype"]).unwrap_or_default();
        match subtype.as_str() {
            "init" => self.read_init(line, events),
            "api_retry" => read_retry(line, events),
            "thinking_tokens" => events.push(EventKind::Thinking { text: String::new(), delta: true }),
            "permission_denied" => events.warning(line.text_at(&["message"]).unwrap_or_default()),
            "task_started" => self.read_task_started(line, events),
            "task_updated" => self.read_task_updated(line, events),
            "task_notification" => self.read_task_notification(line, events),
            "background_tasks_changed" => self.read_background_tasks(line.field("tasks"), events),
            name if SILENT_SUBTYPES.contains(&name) => {}
            name => events.unknown(format!("system/{name}")),
        }
        events.other_if_empty(format!("system/{subtype}"));
    }

    /// Reads `init`, which claude prints at the start of every turn, even of a turn that a finished background command
    /// starts.
    fn read_init(&mut self, line: Json<'_>, events: &mut LineEvents) {
        let [session_id, model, socket] = line.fields(["session_id", "model", "messaging_socket_path"]);
        let socket = socket.and_then(Json::text).map(|socket| shorten(&socket).into_owned());
        if self.is_other_process(socket.as_deref()) || (self.open_turns > 0 && self.conversation.is_other(session_id)) {
            self.forget_session();
            events.process_replaced();
        }
        self.process = socket.or(self.process.take());
        let session_id = session_id.and_then(Json::text);
        self.turn_session = session_id.as_deref().map(|id| shorten(id).into_owned());
        self.conversation.enter(session_id, model.and_then(Json::text), events);
        self.start_turn(events);
    }

    /// Returns whether a turn starts in another process than the turn before. Two processes have the same socket if
    /// each was the first of a PID namespace, and some name none. In that case a turn that starts within an open one is
    /// the sign: within a process only the end of a background command starts one, and not while a call runs. If
    /// instead the end of the open turn was lost, that turn is over as well.
    fn is_other_process(&self, socket: Option<&str>) -> bool {
        let is_other_socket = self.process.as_deref().zip(socket).is_some_and(|(known, socket)| known != socket);
        is_other_socket || (self.open_turns > 0 && !(self.has_background_ended && self.calls.is_empty()))
    }

    fn read_task_started(&mut self, line: Json<'_>, events: &mut LineEvents) {
        let [background, call_id] = line.fields(["is_backgrounded", "tool_use_id"]);
        if let (Some(task_id), Some(call_id)) = (task_id(line), call_id.and_then(Json::text)) {
            self.subagents.link(&call_id, &task_id);
        }
        if background.is_some_and(Json::is_true) {
            self.start_background(task_id(line), line.text_at(&["description"]), events);
        }
    }

    fn read_task_updated(&mut self, line: Json<'_>, events: &mut LineEvents) {
        let Some(patch) = line.field("patch") else { return };
        if patch.field("is_backgrounded").is_some_and(Json::is_true) {
            self.start_background(task_id(line), None, events);
        }
        if has_ended(patch) {
            self.end_background(task_id(line), events);
        }
    }

    /// Reads the end of a background task. Claude also reports slow foreground commands this way, whose ids were never
    /// in the background.
    fn read_task_notification(&mut self, line: Json<'_>, events: &mut LineEvents) {
        if line.field("status").is_none() || has_ended(line) {
            self.end_background(task_id(line), events);
        }
    }

    /// Replaces the list of running background tasks. A line without a list changes nothing.
    pub(super) fn read_background_tasks(&mut self, tasks: Option<Json<'_>>, events: &mut LineEvents) {
        let Some(mut tasks) = tasks.filter(|tasks| tasks.is_list()).map(Json::items) else { return };
        tasks.retain(|task| !has_ended(*task));
        let mut running = IdSet::default();
        for id in tasks.iter().filter_map(|task| task_id(*task)) {
            running.insert(&id);
        }
        let ended: Vec<String> = self.background.iter().filter(|id| !running.contains(id)).map(Into::into).collect();
        for id in ended {
            self.end_background(Some(id), events);
        }
        for task in tasks {
            self.start_background(task_id(task), task.text_at(&["description"]), events);
        }
    }

    fn start_background(&mut self, id: Option<String>, description: Option<String>, events: &mut LineEvents) {
        let Some(id) = id else { return };
        let restarted_call = self.subagents.start_task(&id);
        if self.background.insert(&id) {
            events.push(EventKind::BackgroundStarted { id, description });
        }
        if let Some(id) = restarted_call {
            events.push(EventKind::SubagentStarted { id, name: None });
        }
    }

    fn end_background(&mut self, id: Option<String>, events: &mut LineEvents) {
        let Some(id) = id else { return };
        let ended_call = self.subagents.end_task(&id);
        if self.background.remove(&id) {
            self.has_background_ended = true;
            events.push(EventKind::BackgroundEnded { id });
        }
        if let Some(id) = ended_call {
            events.push(EventKind::SubagentEnded { id });
        }
    }
}

fn has_ended(task: Json<'_>) -> bool {
    task.text_at(&["status"]).is_some_and(|status| ENDED.contains(&status.as_str()))
}

/// Returns the id of a task: `task_id` in stream lines, `id` in the `Stop` hook.
fn task_id(task: Json<'_>) -> Option<String> {
    let [task_id, id] = task.fields(["task_id", "id"]);
    task_id.or(id).and_then(Json::text)
}

fn read_retry(line: Json<'_>, events: &mut LineEvents) {
    let [attempt, max_attempts, delay_ms, status, error] =
        line.fields(["attempt", "max_retries", "retry_delay_ms", "error_status", "error"]);
    events.push(EventKind::Retry {
        attempt: attempt.and_then(Json::u64),
        max_attempts: max_attempts.and_then(Json::u64),
        delay_ms: delay_ms.and_then(Json::u64),
        status: status.and_then(Json::u64),
        message: error.and_then(Json::text).unwrap_or_default(),
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dialect::Dialect;
    use crate::lines::Line;
    use crate::parser::Parser;

    #[test]
    fn every_listed_subtype_is_recognized() {
        for subtype in SILENT_SUBTYPES.iter().chain(&HANDLED_SUBTYPES) {
            let line = format!(r#"{{"type":"system","subtype":"{subtype}"}}"#);
            let events = Parser::new(Some(Dialect::Claude)).read(Line::Whole(line.as_bytes()));
            assert!(!events.iter().any(|event| matches!(event.kind, EventKind::Unknown { .. })), "{subtype}");
        }
    }
}
