//! `claude --output-format stream-json`, and qwen, which speaks the same dialect.
//!
//! Order surprises that were measured: `assistant` comes before the `content_block_stop` of its last block, and a
//! `tool_result` before the `message_stop` of the message that asked for it.

mod control;
mod hook_calls;
mod hooks;
mod stream_events;
mod system;

pub(super) use control::read_input;
pub(super) use hooks::is_hook;

use std::collections::BTreeMap;

use self::control::question_text;
use self::hook_calls::HookCalls;
use super::conversation::Conversation;
use super::line_events::LineEvents;
use super::quota::QuotaReporter;
use crate::dialect::Dialect;
use crate::event::{EventKind, TurnOutcome, Usage, UsageScope};
use crate::ids::{IdSet, shorten};
use crate::json::{Json, MAX_ITEMS};
use crate::machine::Turn;

/// The tool that claude asks the user with, and the tools that start a subagent.
const QUESTION_TOOL: &str = "AskUserQuestion";
const SUBAGENT_TOOLS: [&str; 2] = ["Task", "Agent"];

/// Qwen reports an interrupt only by this message.
const QWEN_CANCELLED: &str = "Operation cancelled.";

/// Blocks of a message that say nothing about the state.
const SILENT_BLOCKS: [&str; 5] = ["image", "document", "search_result", "container_upload", "compaction"];

/// Names of lines that are known and say nothing about the state.
const HOUSEKEEPING: [&str; 6] =
    ["keep_alive", "tool_progress", "tool_use_summary", "auth_status", "prompt_suggestion", "transcript_mirror"];

#[derive(Debug)]
pub(crate) struct ClaudeParser {
    usage_scope: UsageScope,
    conversation: Conversation,
    background: IdSet,
    subagents: IdSet,
    /// The tasks that are subagents in the background, each with the call that started it.
    background_subagents: BTreeMap<String, String>,
    quota: QuotaReporter,
    hook_calls: HookCalls,
    /// The turn as far as hooks tell.
    hook_turn: Turn,
}

impl ClaudeParser {
    pub(crate) fn new(dialect: Dialect) -> Self {
        let mut parser = Self {
            usage_scope: UsageScope::Turn,
            conversation: Conversation::default(),
            background: IdSet::default(),
            subagents: IdSet::default(),
            background_subagents: BTreeMap::new(),
            quota: QuotaReporter::default(),
            hook_calls: HookCalls::default(),
            hook_turn: Turn::Closed,
        };
        if dialect == Dialect::Qwen {
            parser.become_qwen();
        }
        parser
    }

    pub(crate) fn become_qwen(&mut self) {
        self.usage_scope = UsageScope::Session;
    }

    pub(crate) fn read(&mut self, line: Json<'_>, events: &mut LineEvents) {
        let [kind, hook, parent] = line.fields(["type", "hook_event_name", "parent_tool_use_id"]);
        if let Some(hook) = hook.and_then(Json::text) {
            return self.read_hook(&hook, line, events);
        }
        let Some(kind) = kind.and_then(Json::text) else { return events.unknown(line.name()) };
        if let Some(parent) = parent.and_then(Json::text) {
            events.set_subagent(&parent);
        }
        match kind.as_str() {
            "system" => self.read_system(line, events),
            "assistant" => self.read_message(line, Speaker::of_assistant(line), events),
            "user" => self.read_message(line, Speaker::User, events),
            "stream_event" => stream_events::read(line, events),
            "result" => self.read_result(line, events),
            "control_request" => control::read_request(line, events),
            "control_cancel_request" => control::read_cancel(line, events),
            "control_response" => control::read_response(line, events),
            "rate_limit_event" => self.read_rate_limit(line, events),
            name if HOUSEKEEPING.contains(&name) => events.other(name),
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
        let (blocks, is_cut) = content.items_and_rest();
        for block in blocks {
            self.read_block(block, speaker, events);
        }
        if is_cut {
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
        if is_subagent && self.subagents.insert(&id) {
            let name = input.and_then(|input| input.text_at(&["subagent_type"]));
            events.push(EventKind::SubagentStarted { id, name });
        }
    }

    fn end_tool(&mut self, block: Json<'_>, events: &mut LineEvents) {
        let [id, is_error] = block.fields(["tool_use_id", "is_error"]);
        let id = id.and_then(Json::text).unwrap_or_default();
        events.push(EventKind::ToolEnded { id: id.clone(), failed: is_error.is_some_and(Json::is_true) });
        // The call of a subagent in the background returns at once; its task says when it has ended.
        let call_id = shorten(&id);
        let is_in_background = self.background_subagents.values().any(|call| *call == call_id);
        if !is_in_background {
            self.end_subagent(id, events);
        }
    }

    fn end_subagent(&mut self, id: String, events: &mut LineEvents) {
        if self.subagents.contains(&id) && self.subagents.remove(&id) {
            events.push(EventKind::SubagentEnded { id });
        }
    }

    /// `subtype` says `success` also when the provider refused, and `is_error` says false also when a limit of claude's own
    /// was reached: either is enough for a failure.
    fn read_result(&mut self, line: Json<'_>, events: &mut LineEvents) {
        let [subtype, is_error, terminal, status] =
            line.fields(["subtype", "is_error", "terminal_reason", "api_error_status"]);
        self.report_usage(line, events);
        let error_subtype = subtype.and_then(Json::text).filter(|subtype| subtype.starts_with("error"));
        if !is_error.is_some_and(Json::is_true) && error_subtype.is_none() {
            return events.turn_ended(TurnOutcome::Completed, None);
        }
        let message = error_message(line).or(error_subtype);
        if status.and_then(Json::u64) == Some(429) {
            self.quota.report_failure(message.as_deref().unwrap_or_default(), events);
        } else {
            self.quota.read_failure(message.as_deref().unwrap_or_default(), events);
        }
        let is_aborted = terminal.and_then(Json::text).is_some_and(|reason| reason.starts_with("aborted"))
            || message.as_deref() == Some(QWEN_CANCELLED);
        let outcome = if is_aborted { TurnOutcome::Interrupted } else { TurnOutcome::Failed };
        events.turn_ended(outcome, message);
    }

    fn report_usage(&self, line: Json<'_>, events: &mut LineEvents) {
        let [usage, cost] = line.fields(["usage", "total_cost_usd"]);
        let Some(usage) = usage else { return };
        let [input, output, cache_read, cache_write] =
            usage.fields(["input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens"]);
        events.push(EventKind::Usage(Usage {
            scope: self.usage_scope,
            input_tokens: input.and_then(Json::u64),
            output_tokens: output.and_then(Json::u64),
            cache_read_tokens: cache_read.and_then(Json::u64),
            cache_write_tokens: cache_write.and_then(Json::u64),
            cost_usd: cost.and_then(Json::f64),
        }));
    }

    fn read_rate_limit(&mut self, line: Json<'_>, events: &mut LineEvents) {
        let Some(info) = line.field("rate_limit_info") else { return events.other("rate_limit_event") };
        let [status, resets_at, kind] = info.fields(["status", "resetsAt", "rateLimitType"]);
        if !status.is_some_and(|status| status.is("rejected")) {
            return events.other("rate_limit_event");
        }
        let resets_at = resets_at.and_then(Json::i64).and_then(|seconds| jiff::Timestamp::from_second(seconds).ok());
        self.quota.report_limit(&kind.and_then(Json::text).unwrap_or_default(), resets_at, events);
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
