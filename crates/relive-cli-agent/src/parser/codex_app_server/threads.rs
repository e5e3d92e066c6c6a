//! The threads of one server: the agent's or a subagent's, with or without work.

use super::CodexAppServerParser;
use crate::event::EventKind;
use crate::json::Json;
use crate::parser::conversation::Conversation;
use crate::parser::line_events::LineEvents;

impl CodexAppServerParser {
    pub(super) fn start_thread(&mut self, thread: Json<'_>, events: &mut LineEvents) {
        let [id, parent, model, nickname] = thread.fields(["id", "parentThreadId", "model", "agentNickname"]);
        let Some(id) = id.and_then(Json::text) else { return };
        match parent.and_then(Json::text).filter(|parent| self.is_known_thread(parent)) {
            Some(parent) => {
                if self.subagents.start(&id) {
                    events.push(EventKind::SubagentStarted { id: id.clone(), name: nickname.and_then(Json::text) });
                }
                self.give_to_subagent(&id, parent, events);
            }
            None => {
                self.threads.insert(&id);
                self.conversation.enter(Some(id), model.and_then(Json::text), events);
            }
        }
    }

    fn is_known_thread(&self, id: &str) -> bool {
        self.threads.contains(id) || self.subagents.contains(id)
    }

    /// Moves a turn to a subagent. Its turn may start before its thread is announced, and was then taken for the
    /// agent's.
    fn give_to_subagent(&mut self, id: &str, parent: String, events: &mut LineEvents) {
        self.threads.remove(id);
        if self.conversation.is(id) {
            self.conversation.enter(Some(parent), None, events);
        }
        if self.open_turns.contains(id) {
            self.subagents.start_turn(id);
            if self.open_turns.end(Some(id), None) {
                events.push(EventKind::Idle);
            }
        }
    }

    /// Marks the events of a line as a subagent's if its thread is one; otherwise the thread is one of the agent's.
    pub(super) fn note_thread(&mut self, thread_id: Option<&str>, events: &mut LineEvents) {
        let Some(thread_id) = thread_id else { return };
        if self.subagents.contains(thread_id) {
            events.set_subagent(thread_id);
        } else {
            self.threads.insert(thread_id);
        }
    }

    /// Reads the end of a thread. The turn of a closed thread has no end of its own.
    pub(super) fn read_thread_closed(&mut self, method: &str, params: Json<'_>, events: &mut LineEvents) {
        let Some(id) = params.text_at(&["threadId"]) else { return };
        self.threads.remove(&id);
        if self.subagents.contains(&id) {
            if self.subagents.close(&id) {
                events.push(EventKind::SubagentEnded { id });
            }
            return;
        }
        let is_known = self.conversation.is(&id) || self.open_turns.contains(&id);
        self.open_work.end(&id, events);
        if is_known && self.open_turns.end(Some(&id), None) {
            self.conversation = Conversation::default();
            self.quota.start_turn();
            events.push(EventKind::SessionEnded { reason: Some(method.into()) });
        }
    }

    /// Reads the status of a thread. Codex reports that a thread is idle just before the outcome of its turn. If that
    /// line is lost, this one has to do.
    pub(super) fn read_thread_status(&mut self, params: Json<'_>, events: &mut LineEvents) {
        let status = params.text_at(&["status", "type"]).unwrap_or_default();
        match status.as_str() {
            "notLoaded" => self.read_thread_closed("thread/status/changed", params, events),
            "idle" => self.end_work_of_thread(params, EventKind::Idle, events),
            "systemError" => {
                let message = "thread/status/changed: systemError".into();
                self.end_work_of_thread(params, EventKind::Error { message }, events);
            }
            _ => {}
        }
    }

    fn end_work_of_thread(&mut self, params: Json<'_>, end: EventKind, events: &mut LineEvents) {
        let Some(id) = params.text_at(&["threadId"]) else { return };
        if self.subagents.is_working(&id) && self.subagents.end_turn(&id) {
            events.push(EventKind::SubagentEnded { id });
        } else if self.open_turns.contains(&id) {
            self.open_work.end(&id, events);
            if self.open_turns.end(Some(&id), None) {
                events.push(end);
            }
        }
    }
}
