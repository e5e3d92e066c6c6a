//! Agent Client Protocol, version 1: the general dialect, for gemini, opencode, copilot and every other ACP agent.
//!
//! The agent does not announce a turn: a turn is the time between a `session/prompt` and its reply.

mod approvals;
mod live_sessions;
mod preparing;
mod recognize;
mod usage;

pub(super) use recognize::{is_message, is_result};

use std::mem;

use self::live_sessions::LiveSessions;
use self::preparing::PreparingCalls;
use self::recognize::{METHODS, capabilities_of, is_initialized, may_be_load_result};
use super::conversation::Conversation;
use super::json_rpc::{PendingRequests, RpcMessage};
use super::line_events::LineEvents;
use super::questions::read_form;
use super::quota::{FailureCause, QuotaReporter};
use crate::event::{EventKind, Refusal, TurnOutcome};
use crate::ids::IdSet;
use crate::json::Json;

/// Updates that say nothing about the state.
const SILENT_UPDATES: [&str; 13] = [
    "plan",
    "plan_update",
    "plan_removed",
    "available_commands_update",
    "current_mode_update",
    "config_option_update",
    "session_info_update",
    "notice",
    "compaction_update",
    "compaction_summary_chunk",
    "subagent_update",
    "session_message",
    "session_message_chunk",
];

/// Updates that only a working agent sends. One that arrives after the reply to the last prompt belongs to a turn that
/// is over.
const LIVE_UPDATES: [&str; 4] = ["agent_message_chunk", "agent_thought_chunk", "tool_call", "tool_call_update"];

#[derive(Debug, Default)]
pub(crate) struct AcpParser {
    conversation: Conversation,
    pending: PendingRequests<RequestKind>,
    replay: Replay,
    quota: QuotaReporter,
    /// The calls of this turn, including ended ones: an update may follow the end and must not start the call again.
    calls: IdSet,
    /// The calls of the turn before, because an update may also follow the end of its turn.
    calls_before: IdSet,
    preparing: PreparingCalls,
    /// Used only while the lines written to the agent are not read.
    live_sessions: LiveSessions,
    is_initialized: bool,
    /// The conversation that the agent was asked to continue, until it has.
    continued: Option<String>,
    input: Input,
}

/// Whether the lines that are written to the agent are read too.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Input {
    #[default]
    NotSeen,
    Seen,
}

/// A request whose reply changes the state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RequestKind {
    Prompt,
    /// The agent replays the whole conversation before it replies.
    Load,
    Initialize,
    /// Without a conversation to be had, nothing else can follow.
    Begin,
}

impl RequestKind {
    fn of(method: &str) -> Option<Self> {
        match method {
            "session/prompt" => Some(Self::Prompt),
            "session/load" => Some(Self::Load),
            "initialize" => Some(Self::Initialize),
            "session/new" | "session/resume" | "session/fork" => Some(Self::Begin),
            _ => None,
        }
    }
}

/// Whether the updates so far may be the replay of a conversation whose `session/load` was not seen.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Replay {
    #[default]
    NotSeen,
    /// A message of the user arrived outside of a turn: most live agents do not repeat those.
    Possible,
    /// The agent repeats user messages, or the lines written to it are read too.
    Excluded,
}

impl AcpParser {
    pub(crate) fn read(&mut self, line: Json<'_>, events: &mut LineEvents) {
        match RpcMessage::of(line) {
            RpcMessage::Notification { method, params } if method == "session/update" => {
                self.read_update(params, events);
            }
            RpcMessage::Notification { method, .. } => read_other_method(&method, events),
            RpcMessage::Request { id, method, params } => {
                let name = self.note_request(&method, params, events);
                read_request(&method, id, params, name, events);
            }
            RpcMessage::Reply { id, result } => {
                let request = self.pending.take(id);
                let is_begun = match request {
                    Some(request) => request == RequestKind::Initialize,
                    None => result.is_some_and(is_initialized),
                };
                if is_begun {
                    self.begin_anew_if_initialized(events);
                    self.is_initialized = true;
                    events.push(EventKind::Capabilities(capabilities_of(result)));
                } else if matches!(request, Some(RequestKind::Load | RequestKind::Begin)) {
                    self.conversation.enter(self.continued.take(), None, events);
                }
                self.read_reply(result, events);
            }
            RpcMessage::ErrorReply { id, error } => {
                let message = error_message(error);
                self.quota.read_failure(FailureCause::Unstated, &message, events);
                let request = self.pending.take(id);
                let is_prompt = match self.input {
                    Input::Seen => request == Some(RequestKind::Prompt),
                    Input::NotSeen => !is_refusal(error),
                };
                if matches!(request, Some(RequestKind::Initialize | RequestKind::Load | RequestKind::Begin)) {
                    self.continued = None;
                    events.push(EventKind::SessionFailed { message });
                } else if is_prompt && self.end_prompt(PromptEnd::Answered) {
                    events.push(EventKind::Error { message });
                } else {
                    events.warning(message);
                }
            }
            RpcMessage::ErrorWithoutId { error } => events.warning(error_message(error)),
            RpcMessage::Invalid => events.unknown(line.name()),
        }
    }

    /// Starts over when the agent is initialized a second time: another process has started.
    fn begin_anew_if_initialized(&mut self, events: &mut LineEvents) {
        if self.is_initialized {
            *self = Self { input: self.input, ..Self::default() };
            events.process_replaced();
        }
    }

    /// Takes in that output was lost. The replies to the messages by which the agent began are in that output, and it is
    /// in this conversation now. A prompt may still be without its reply.
    pub(crate) fn lose_output(&mut self, session_id: &str, events: &mut LineEvents) {
        self.pending.keep(RequestKind::Prompt);
        self.continued = None;
        self.is_initialized = true;
        self.conversation.enter(Some(session_id.to_owned()), None, events);
    }

    /// Reads a line that was written to the agent.
    pub(crate) fn read_input(&mut self, line: Json<'_>, events: &mut LineEvents) {
        match RpcMessage::of(line) {
            RpcMessage::Request { id, method, params } => {
                if method == "initialize" {
                    self.begin_anew_if_initialized(events);
                }
                self.replay = Replay::Excluded;
                self.input = Input::Seen;
                let request = RequestKind::of(&method);
                if let Some(request) = request {
                    self.pending.add(id, request);
                }
                let session_id = params.and_then(|params| params.text_at(&["sessionId"]));
                match method.as_str() {
                    // It is in the conversation when it says so.
                    "session/load" | "session/resume" => self.continued = session_id,
                    "session/fork" => {}
                    _ => self.conversation.enter(session_id, None, events),
                }
                if request == Some(RequestKind::Prompt) {
                    self.quota.start_turn();
                    events.push(EventKind::TurnStarted { turn_id: None });
                }
                events.other_if_empty(method);
            }
            RpcMessage::Reply { id, .. } | RpcMessage::ErrorReply { id, .. } => {
                events.push(EventKind::Answered { request_id: id.to_raw() });
            }
            RpcMessage::Notification { method, .. } => events.other(method),
            RpcMessage::ErrorWithoutId { .. } | RpcMessage::Invalid => events.other(line.name()),
        }
    }

    fn read_update(&mut self, params: Option<Json<'_>>, events: &mut LineEvents) {
        let Some(update) = params.and_then(|params| params.field("update")) else {
            return events.other("session/update");
        };
        let name = update.text_at(&["sessionUpdate"]).unwrap_or_default();
        if self.pending.contains(RequestKind::Load) {
            return events.other(format!("replayed {name}"));
        }
        let is_turn_over = self.input == Input::Seen && !self.pending.contains(RequestKind::Prompt);
        if is_turn_over && LIVE_UPDATES.contains(&name.as_str()) {
            return events.other(format!("late {name}"));
        }
        if name == "user_message_chunk" && self.replay == Replay::NotSeen {
            self.replay = Replay::Possible;
        }
        if LIVE_UPDATES.contains(&name.as_str())
            && let Some(session_id) = params.and_then(|params| params.text_at(&["sessionId"]))
        {
            self.live_sessions.work(&session_id, update.text_at(&["toolCallId"]).as_deref());
        }
        let content = update.field("content");
        let text = content.and_then(|content| content.text_at(&["text"])).unwrap_or_default();
        match name.as_str() {
            "agent_message_chunk" | "agent_thought_chunk" | "user_message_chunk" if !is_text(content) => {
                read_other_content(&name, content, events);
            }
            // Qwen reports the usage of a call in an empty message, also while a tool runs.
            "agent_message_chunk" if text.is_empty() => usage::read_chunk(update, events),
            "agent_message_chunk" => events.push(EventKind::Text { text, delta: true }),
            "agent_thought_chunk" => events.push(EventKind::Thinking { text, delta: true }),
            "user_message_chunk" => events.push(EventKind::UserText { text }),
            "tool_call" => {
                // Some agents count their calls anew in each turn.
                if let Some(id) = update.text_at(&["toolCallId"]) {
                    self.calls_before.remove(&id);
                }
                self.read_tool_call(update, events);
            }
            "tool_call_update" => self.read_tool_call(update, events),
            "usage_update" => usage::read_update(update, events),
            name if SILENT_UPDATES.contains(&name) => {}
            name => events.unknown(format!("session/update/{name}")),
        }
        events.other_if_empty(name);
    }

    /// Reads a tool call. It may be announced when it is already over, and some agents announce it with its first
    /// update.
    fn read_tool_call(&mut self, update: Json<'_>, events: &mut LineEvents) {
        let [id, title, input, status] = update.fields(["toolCallId", "title", "rawInput", "status"]);
        let id = id.and_then(Json::text).unwrap_or_default();
        let failed = match status.and_then(Json::text).as_deref() {
            Some("completed") => Some(false),
            Some("failed") => Some(true),
            Some(_) | None => None,
        };
        if !self.calls_before.contains(&id) && self.calls.insert(&id) {
            let name = title.and_then(Json::text).unwrap_or_default();
            // Qwen announces a call before its model has written the input.
            let is_missing = failed.is_none() && input.is_some_and(|input| input.has_only(&[]));
            let preparing = is_missing && self.preparing.add(&id, &name);
            events.push(EventKind::ToolStarted { id: id.clone(), name, input: input.map(Json::to_raw), preparing });
        } else {
            let _ = self.complete_call(&id, input, events);
        }
        if let Some(failed) = failed {
            let _ = self.preparing.take(&id);
            events.push(EventKind::ToolEnded { id, failed });
        }
    }

    /// Starts a call again whose input was missing, if this is the input. Returns its name.
    fn complete_call(&mut self, id: &str, input: Option<Json<'_>>, events: &mut LineEvents) -> Option<String> {
        let input = input.filter(|input| !input.has_only(&[]))?;
        let name = self.preparing.take(id)?;
        let (id, input) = (id.to_owned(), Some(input.to_raw()));
        events.push(EventKind::ToolStarted { id, name: name.clone(), input, preparing: false });
        Some(name)
    }

    fn read_reply(&mut self, result: Option<Json<'_>>, events: &mut LineEvents) {
        let fields = result.map(|result| result.fields(["stopReason", "sessionId", "usage"]));
        let [stop_reason, session_id, usage] = fields.unwrap_or([None; 3]);
        self.conversation.enter(session_id.and_then(Json::text), None, events);
        if let Some(usage) = usage {
            usage::read_reply(usage, events);
        }
        if let Some(reason) = stop_reason.and_then(Json::text) {
            let end = if reason == "cancelled" { PromptEnd::Cancelled } else { PromptEnd::Answered };
            if self.end_prompt(end) {
                end_turn(reason, events);
            }
        } else if session_id.is_none() && self.replay == Replay::Possible && may_be_load_result(result) {
            self.replay = Replay::NotSeen;
            self.forget_turn();
            events.turn_ended(TurnOutcome::Replayed, None);
        }
        events.other_if_empty("reply");
    }

    /// Notes that a prompt has ended. Returns whether the turn is over: while another prompt has no reply, it continues.
    fn end_prompt(&mut self, end: PromptEnd) -> bool {
        let is_last = match (self.input, end) {
            (Input::Seen, _) => !self.pending.contains(RequestKind::Prompt),
            (Input::NotSeen, PromptEnd::Answered) => self.live_sessions.end_one(),
            (Input::NotSeen, PromptEnd::Cancelled) => true,
        };
        if is_last {
            self.forget_turn();
            if self.replay == Replay::Possible {
                self.replay = Replay::Excluded;
            }
        }
        is_last
    }

    fn forget_turn(&mut self) {
        self.quota.start_turn();
        self.calls_before = mem::take(&mut self.calls);
        self.preparing = PreparingCalls::default();
        self.live_sessions.end_all();
    }

    /// Takes in a request. Returns the name of its call if that was announced without its input, which the request has.
    fn note_request(&mut self, method: &str, params: Option<Json<'_>>, events: &mut LineEvents) -> Option<String> {
        let params = params.filter(|_| method == "session/request_permission")?;
        let id = params.text_at(&["toolCall", "toolCallId"]);
        if let Some(session_id) = params.text_at(&["sessionId"]) {
            self.live_sessions.ask(&session_id, id.as_deref());
        }
        self.complete_call(&id?, params.at(&["toolCall", "rawInput"]), events)
    }
}

/// The end of a prompt. A cancelled one may have waited for an approval.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PromptEnd {
    Answered,
    Cancelled,
}

/// Returns whether the agent refused a message of the client because of its form. A prompt fails for other reasons, and
/// its reply is the one that matters: so if the lines written to the agent are not read, any other error counts as the
/// reply to a prompt.
fn is_refusal(error: Json<'_>) -> bool {
    error.field("code").and_then(Json::i64).is_some_and(|code| [-32700, -32600, -32601, -32602].contains(&code))
}

/// Returns the message of an error. It is often only `Internal error`; the data, a text or an object, says more.
fn error_message(error: Json<'_>) -> String {
    let [message, data] = error.fields(["message", "data"]);
    let message = message.and_then(Json::text).unwrap_or_default();
    let details = data.and_then(|data| {
        let [details, inner, error] = data.fields(["details", "message", "error"]);
        [Some(data), details, inner, error].into_iter().flatten().find_map(Json::text)
    });
    match details {
        Some(details) => format!("{message}: {details}"),
        None => message,
    }
}

fn end_turn(reason: String, events: &mut LineEvents) {
    match reason.as_str() {
        "end_turn" => events.turn_ended(TurnOutcome::Completed, None),
        "cancelled" => events.turn_ended(TurnOutcome::Interrupted, None),
        _ => events.turn_ended(TurnOutcome::Failed, Some(reason)),
    }
}

fn read_request(method: &str, id: Json<'_>, params: Option<Json<'_>>, tool: Option<String>, events: &mut LineEvents) {
    match (method, params) {
        ("session/request_permission", Some(params)) => approvals::read(id, params, tool, events),
        ("elicitation/create" | "session/elicitation", Some(params)) => read_form(method, id.to_raw(), params, events),
        (method, _) => {
            read_other_method(method, events);
            let refusal = Refusal::NotOffered;
            events.push(EventKind::UnsupportedRequest { request_id: id.to_raw(), method: method.to_owned(), refusal });
        }
    }
}

/// Reads requests for files and terminals of the client, and extensions: by the protocol their names begin with an
/// underscore, but qwen's do not.
fn read_other_method(method: &str, events: &mut LineEvents) {
    let is_extension = ["_", "qwen/", "craft/"].iter().any(|prefix| method.starts_with(prefix));
    if METHODS.contains(&method) || is_extension { events.other(method) } else { events.unknown(method) }
}

fn is_text(content: Option<Json<'_>>) -> bool {
    content.is_none_or(|content| content.kind() == "text")
}

/// Reports content that is not text by its name only.
fn read_other_content(chunk: &str, content: Option<Json<'_>>, events: &mut LineEvents) {
    const KNOWN: [&str; 4] = ["image", "audio", "resource", "resource_link"];
    let kind = content.map(Json::kind).unwrap_or_default();
    let name = format!("{chunk}/{kind}");
    if KNOWN.contains(&kind.as_str()) { events.other(name) } else { events.unknown(name) }
}
