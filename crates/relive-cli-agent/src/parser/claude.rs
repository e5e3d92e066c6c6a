//! `claude --output-format stream-json`, and qwen, which speaks the same dialect.
//!
//! Order surprises that were measured: `assistant` comes before the `content_block_stop` of its last block, and a
//! `tool_result` before the `message_stop` of the message that asked for it.

mod control;
mod failures;
mod hook_calls;
mod hooks;
mod recognize;
mod stream_events;
mod subagents;
mod system;

pub(super) use control::read_input;
pub use hooks::REPORTED;
pub(super) use recognize::{is_hook, is_line};

use self::failures::Speaker;
use self::hook_calls::HookCalls;
use self::subagents::Subagents;
use super::conversation::Conversation;
use super::line_events::LineEvents;
use super::quota::{QuotaReporter, reset_of_field};
use super::usage::read_tokens;
use crate::dialect::Dialect;
use crate::event::{EventKind, ReportedUsage, TurnOutcome, UsageScope};
use crate::ids::IdSet;
use crate::json::{Json, MAX_ITEMS};
use crate::machine::Turn;

/// The tool that claude asks the user with, and the tools that start a subagent.
const QUESTION_TOOL: &str = "AskUserQuestion";
const SUBAGENT_TOOLS: [&str; 2] = ["Task", "Agent"];

/// Blocks of a message that say nothing about the state.
const SILENT_BLOCKS: [&str; 5] = ["image", "document", "search_result", "container_upload", "compaction"];

/// Lines that say nothing about the state.
const SILENT_LINES: [&str; 6] =
    ["keep_alive", "tool_progress", "tool_use_summary", "auth_status", "prompt_suggestion", "transcript_mirror"];

#[derive(Debug)]
pub(crate) struct ClaudeParser {
    /// Claude or qwen.
    dialect: Dialect,
    conversation: Conversation,
    /// The conversation in which the last turn started. A stray line of another conversation does not prevent its
    /// result from ending it.
    turn_session: Option<String>,
    /// The socket that claude listens on, which distinguishes its processes. Qwen and older versions do not name it.
    process: Option<String>,
    /// How many turns have started and not ended. The end of a background command may start one while another is open.
    open_turns: u32,
    background: IdSet,
    /// Whether a background command has ended since the last turn started: then another turn may start within that one.
    has_background_ended: bool,
    /// The open calls of the agent itself.
    calls: IdSet,
    subagents: Subagents,
    quota: QuotaReporter,
    hook_calls: HookCalls,
    /// The turn as reported by hooks.
    hook_turn: Turn,
}

impl ClaudeParser {
    pub(crate) fn new(dialect: Dialect) -> Self {
        Self {
            dialect,
            conversation: Conversation::default(),
            turn_session: None,
            process: None,
            open_turns: 0,
            background: IdSet::default(),
            has_background_ended: false,
            calls: IdSet::default(),
            subagents: Subagents::default(),
            quota: QuotaReporter::default(),
            hook_calls: HookCalls::default(),
            hook_turn: Turn::Closed,
        }
    }

    pub(crate) fn dialect(&self) -> Dialect {
        self.dialect
    }

    pub(crate) fn become_qwen(&mut self) {
        self.dialect = Dialect::Qwen;
    }

    pub(crate) fn read(&mut self, line: Json<'_>, events: &mut LineEvents) {
        let [kind, hook, parent, agent_id, session_id] =
            line.fields(["type", "hook_event_name", "parent_tool_use_id", "agent_id", "session_id"]);
        if let Some(hook) = hook.and_then(Json::text) {
            return self.read_hook(&hook, line, events);
        }
        let Some(kind) = kind.and_then(Json::text) else { return events.unknown(line.name()) };
        if let Some(parent) = parent.and_then(Json::text) {
            events.set_subagent(&parent);
            if let Some(agent_id) = agent_id.and_then(Json::text) {
                self.subagents.link(&parent, &agent_id);
            }
        }
        match kind.as_str() {
            "system" => self.read_system(line, events),
            "assistant" => {
                self.read_synthetic_message(line, events);
                self.read_message(line, Speaker::of_assistant(line), events);
            }
            "user" => self.read_message(line, Speaker::User, events),
            "stream_event" => stream_events::read(line, events),
            "result" => self.read_result(line, events),
            "control_request" => self.read_control_request(line, events),
            "control_cancel_request" => control::read_cancel(line, events),
            "control_response" => control::read_response(line, events),
            "rate_limit_event" => self.read_rate_limit(line, events),
            "command_lifecycle" => read_message_state(line, events),
            name if SILENT_LINES.contains(&name) => events.other(name),
            name => events.unknown(name),
        }
        // Reading may have begun within a turn, or claude moved to another conversation.
        if ["assistant", "user", "stream_event"].contains(&kind.as_str()) {
            self.conversation.enter(session_id.and_then(Json::text), None, events);
        }
    }

    /// A whole message. Its content is a list of blocks, or one string.
    fn read_message(&mut self, line: Json<'_>, speaker: Speaker, events: &mut LineEvents) {
        let content = line.at(&["message", "content"]);
        if let Some(text) = content.and_then(Json::text) {
            return events.push(speaker.says(text));
        }
        let Some(content) = content.filter(|content| content.is_list()) else {
            return events.unknown("message/content");
        };
        let (blocks, has_more) = content.items_and_has_more();
        for block in blocks {
            self.read_block(block, speaker, events);
        }
        if has_more {
            events.warning(format!("only the first {MAX_ITEMS} blocks of a message were read"));
        }
        events.other_if_empty("message");
    }

    fn read_block(&mut self, block: Json<'_>, speaker: Speaker, events: &mut LineEvents) {
        let kind = block.kind();
        match kind.as_str() {
            "text" => events.push(speaker.says(block.text_at(&["text"]).unwrap_or_default())),
            "thinking" | "redacted_thinking" => {
                let text = block.text_at(&["thinking"]).unwrap_or_default();
                events.push(EventKind::Thinking { text, delta: false });
            }
            kind if kind.ends_with("tool_use") => self.start_tool(block, events),
            kind if kind.ends_with("tool_result") => self.end_tool(block, events),
            kind if SILENT_BLOCKS.contains(&kind) => events.other(format!("message/{kind}")),
            kind => events.unknown(format!("message/{kind}")),
        }
    }

    fn start_tool(&mut self, block: Json<'_>, events: &mut LineEvents) {
        let [id, name, input] = block.fields(["id", "name", "input"]);
        let id = id.and_then(Json::text).unwrap_or_default();
        let name = name.and_then(Json::text).unwrap_or_default();
        let is_subagent = SUBAGENT_TOOLS.contains(&name.as_str());
        match events.subagent() {
            Some(subagent) => self.subagents.start_inner_call(&id, subagent),
            None => drop(self.calls.insert(&id)),
        }
        let raw = input.map(Json::to_raw);
        events.push(EventKind::ToolStarted { id: id.clone(), name, input: raw, preparing: false });
        if is_subagent && self.subagents.start(&id, events.subagent()) {
            let name = input.and_then(|input| input.text_at(&["subagent_type"]));
            events.push(EventKind::SubagentStarted { id, name });
        }
    }

    fn end_tool(&mut self, block: Json<'_>, events: &mut LineEvents) {
        let [id, is_error] = block.fields(["tool_use_id", "is_error"]);
        let id = id.and_then(Json::text).unwrap_or_default();
        events.push(EventKind::ToolEnded { id: id.clone(), failed: is_error.is_some_and(Json::is_true) });
        self.calls.remove(&id);
        self.subagents.end_inner_call(&id);
        for id in self.subagents.end_call(&id) {
            events.push(EventKind::SubagentEnded { id });
        }
    }

    fn start_turn(&mut self, events: &mut LineEvents) {
        self.open_turns = self.open_turns.saturating_add(1);
        self.has_background_ended = false;
        self.quota.start_turn();
        events.push(EventKind::TurnStarted { turn_id: None });
    }

    /// Forgets everything that was open, because the conversation or its process is gone.
    fn forget_session(&mut self) {
        let Self { dialect, process, .. } = self;
        *self = Self { process: process.take(), ..Self::new(*dialect) };
    }

    /// Reports the end of the last open turn: until then the agent works.
    fn end_turn(&mut self, outcome: TurnOutcome, message: Option<String>, events: &mut LineEvents) {
        self.open_turns = self.open_turns.saturating_sub(1);
        self.calls = IdSet::default();
        if self.open_turns == 0 {
            for id in self.subagents.end_turn(&self.background) {
                events.push(EventKind::SubagentEnded { id });
            }
            return events.turn_ended(outcome, message);
        }
        match message {
            Some(message) => events.warning(message),
            None => events.other_if_empty("result"),
        }
    }

    /// Reads the beginning of a line that is too long. The line at the end of a turn has the whole answer in it, and the turn ends
    /// however long that is.
    pub(crate) fn read_head(&mut self, head: &str, events: &mut LineEvents) {
        // Some versions write the type after the answer. Quotes in a text are escaped, so these are names of fields.
        let has_totals = [r#""duration_api_ms":"#, r#""total_cost_usd":"#].iter().all(|field| head.contains(field));
        if head.starts_with(r#"{"type":"result","#) || has_totals && !head.starts_with(r#"{"type":"#) {
            let is_failure = [r#""subtype":"error"#, r#""is_error":true"#].iter().any(|field| head.contains(field));
            let outcome = if is_failure { TurnOutcome::Failed } else { TurnOutcome::Completed };
            self.end_turn(outcome, None, events);
        }
    }

    fn report_usage(&self, line: Json<'_>, events: &mut LineEvents) {
        let [usage, cost] = line.fields(["usage", "total_cost_usd"]);
        let Some(usage) = usage else { return };
        let scope = if self.dialect == Dialect::Qwen { UsageScope::Session } else { UsageScope::Turn };
        let names = ["input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens"];
        let cost_usd = cost.and_then(Json::f64);
        events.push(EventKind::Usage(ReportedUsage { cost_usd, ..read_tokens(usage, scope, names) }));
    }

    fn read_rate_limit(&mut self, line: Json<'_>, events: &mut LineEvents) {
        let Some(info) = line.field("rate_limit_info") else { return events.other("rate_limit_event") };
        let [status, resets_at, kind, overage] = info.fields(["status", "resetsAt", "rateLimitType", "isUsingOverage"]);
        if !status.is_some_and(|status| status.is("rejected")) || overage.is_some_and(Json::is_true) {
            return events.other("rate_limit_event");
        }
        let resets_at = resets_at.and_then(reset_of_field);
        self.quota.read_limit(&kind.and_then(Json::text).unwrap_or_default(), resets_at, events);
        events.other_if_empty("rate_limit_event");
    }
}

/// Reads what became of a message that was written with an id.
fn read_message_state(line: Json<'_>, events: &mut LineEvents) {
    let [id, state] = line.fields(["command_uuid", "state"]);
    let Some((id, state)) = id.and_then(Json::text).zip(state.and_then(Json::text)) else {
        return events.other("command_lifecycle");
    };
    match state.as_str() {
        "queued" => events.other("command_lifecycle"),
        "started" | "completed" => events.push(EventKind::MessageTaken { id }),
        "cancelled" | "discarded" | "refused" => events.push(EventKind::MessageDropped { id }),
        state => events.unknown(format!("command_lifecycle/{state}")),
    }
}
