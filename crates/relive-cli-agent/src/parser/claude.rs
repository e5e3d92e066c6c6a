//! `claude --output-format stream-json`, and qwen, which speaks the same dialect.
//!
//! Order surprises that were measured: `assistant` comes before the `content_block_stop` of its last block, and a
//! `tool_result` before the `message_stop` of the message that asked for it.

mod control;
mod hook_calls;
mod hooks;
mod stream_events;
mod recognize;
mod subagents;
mod system;

pub(super) use control::read_input;
pub(super) use recognize::{is_hook, is_line};

use self::hook_calls::HookCalls;
use self::subagents::Subagents;
use super::conversation::{Conversation, Entered};
use super::line_events::LineEvents;
use super::quota::{FailureCause, QuotaReporter};
use super::usage::read_tokens;
use crate::dialect::Dialect;
use crate::event::{EventKind, TurnOutcome, Usage, UsageScope};
use crate::ids::IdSet;
use crate::json::{Json, MAX_ITEMS};
use crate::machine::Turn;

/// The tool that claude asks the user with, and the tools that start a subagent.
const QUESTION_TOOL: &str = "AskUserQuestion";
const SUBAGENT_TOOLS: [&str; 2] = ["Task", "Agent"];

/// Qwen reports an interrupt only by this message.
const QWEN_CANCELLED: &str = "Operation cancelled.";

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
    /// How many turns have started and not ended. The end of a background command may start one while another is open.
    open_turns: u32,
    background: IdSet,
    subagents: Subagents,
    quota: QuotaReporter,
    hook_calls: HookCalls,
    /// The turn as far as hooks tell.
    hook_turn: Turn,
}

impl ClaudeParser {
    pub(crate) fn new(dialect: Dialect) -> Self {
        Self {
            dialect,
            conversation: Conversation::default(),
            open_turns: 0,
            background: IdSet::default(),
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
        let [kind, hook, parent, agent_id] = line.fields(["type", "hook_event_name", "parent_tool_use_id", "agent_id"]);
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
            "assistant" => self.read_message(line, Speaker::of_assistant(line), events),
            "user" => self.read_message(line, Speaker::User, events),
            "stream_event" => stream_events::read(line, events),
            "result" => self.read_result(line, events),
            "control_request" => self.read_control_request(line, events),
            "control_cancel_request" => control::read_cancel(line, events),
            "control_response" => control::read_response(line, events),
            "rate_limit_event" => self.read_rate_limit(line, events),
            name if SILENT_LINES.contains(&name) => events.other(name),
            name => events.unknown(name),
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
        events.push(EventKind::ToolStarted { id: id.clone(), name, input: input.map(Json::to_raw) });
        if is_subagent && self.subagents.start(&id) {
            let name = input.and_then(|input| input.text_at(&["subagent_type"]));
            events.push(EventKind::SubagentStarted { id, name });
        }
    }

    fn end_tool(&mut self, block: Json<'_>, events: &mut LineEvents) {
        let [id, is_error] = block.fields(["tool_use_id", "is_error"]);
        let id = id.and_then(Json::text).unwrap_or_default();
        events.push(EventKind::ToolEnded { id: id.clone(), failed: is_error.is_some_and(Json::is_true) });
        if self.subagents.end_call(&id) {
            events.push(EventKind::SubagentEnded { id });
        }
    }

    /// `subtype` says `success` also when the provider refused, and `is_error` says false also when a limit of claude's own
    /// was reached: either is enough for a failure.
    fn read_result(&mut self, line: Json<'_>, events: &mut LineEvents) {
        let [subtype, is_error, terminal] = line.fields(["subtype", "is_error", "terminal_reason"]);
        self.report_usage(line, events);
        let error_subtype = subtype.and_then(Json::text).filter(|subtype| subtype.starts_with("error"));
        if !is_error.is_some_and(Json::is_true) && error_subtype.is_none() {
            return self.end_turn(TurnOutcome::Completed, None, events);
        }
        let message = error_message(line).or(error_subtype);
        self.quota.read_failure(FailureCause::Unstated, message.as_deref().unwrap_or_default(), events);
        let is_aborted = terminal.and_then(Json::text).is_some_and(|reason| reason.starts_with("aborted"))
            || message.as_deref() == Some(QWEN_CANCELLED);
        let outcome = if is_aborted { TurnOutcome::Interrupted } else { TurnOutcome::Failed };
        self.end_turn(outcome, message, events);
    }

    fn start_turn(&mut self, entered: Entered, events: &mut LineEvents) {
        self.open_turns = match entered {
            Entered::Same => self.open_turns.saturating_add(1),
            // The turns of the conversation before have no end.
            Entered::Another => 1,
        };
        self.quota.start_turn();
        events.push(EventKind::TurnStarted { turn_id: None });
    }

    /// Reports the end of the last open turn: until then the agent works.
    fn end_turn(&mut self, outcome: TurnOutcome, message: Option<String>, events: &mut LineEvents) {
        self.open_turns = self.open_turns.saturating_sub(1);
        if self.open_turns == 0 {
            return events.turn_ended(outcome, message);
        }
        match message {
            Some(message) => events.warning(message),
            None => events.other_if_empty("result"),
        }
    }

    fn report_usage(&self, line: Json<'_>, events: &mut LineEvents) {
        let [usage, cost] = line.fields(["usage", "total_cost_usd"]);
        let Some(usage) = usage else { return };
        let scope = if self.dialect == Dialect::Qwen { UsageScope::Session } else { UsageScope::Turn };
        let names = ["input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens"];
        let cost_usd = cost.and_then(Json::f64);
        events.push(EventKind::Usage(Usage { cost_usd, ..read_tokens(usage, scope, names) }));
    }

    fn read_rate_limit(&mut self, line: Json<'_>, events: &mut LineEvents) {
        let Some(info) = line.field("rate_limit_info") else { return events.other("rate_limit_event") };
        let [status, resets_at, kind] = info.fields(["status", "resetsAt", "rateLimitType"]);
        if !status.is_some_and(|status| status.is("rejected")) {
            return events.other("rate_limit_event");
        }
        let resets_at = resets_at.and_then(Json::i64).and_then(|seconds| jiff::Timestamp::from_second(seconds).ok());
        self.quota.read_limit(&kind.and_then(Json::text).unwrap_or_default(), resets_at, events);
        events.other_if_empty("rate_limit_event");
    }
}

/// The author of a message.
#[derive(Debug, Clone, Copy)]
enum Speaker {
    Agent,
    User,
    /// Claude shows an error of its provider as a message of the agent; the `result` that follows ends the turn.
    Provider,
}

impl Speaker {
    fn of_assistant(line: Json<'_>) -> Self {
        let is_error = line.field("is_api_error_message").is_some_and(Json::is_true);
        if is_error { Self::Provider } else { Self::Agent }
    }

    fn says(self, text: String) -> EventKind {
        match self {
            Self::Agent => EventKind::Text { text, delta: false },
            Self::User => EventKind::UserText { text },
            Self::Provider => EventKind::Warning { message: text },
        }
    }
}

/// Claude says why in `result` or in `errors`, qwen in `error`.
fn error_message(line: Json<'_>) -> Option<String> {
    let [result, errors, error] = line.fields(["result", "errors", "error"]);
    let first_error = errors.and_then(|errors| errors.items().first().copied());
    result.or(first_error).and_then(Json::text).or_else(|| error?.text_at(&["message"]))
}
