//! `codex app-server`: JSON-RPC without the `jsonrpc` field.
//!
//! One server holds several threads. A thread whose parent is known is a subagent, and its turns are not the agent's. The
//! agent works while a turn is open on any of the other threads.

mod approvals;
mod items;
mod methods;
mod open_turns;
mod open_work;
mod subagents;
mod threads;

pub(super) use methods::{is_message, is_result};

use self::open_turns::OpenTurns;
use self::open_work::OpenWork;
use self::subagents::Subagents;
use super::codex::parse_reconnecting;
use super::conversation::Conversation;
use super::json_rpc::{PendingRequests, RpcMessage};
use super::line_events::LineEvents;
use super::quota::{FailureCause, QuotaReporter, reset_of_field};
use super::usage::read_tokens;
use crate::event::{EventKind, TurnOutcome, UsageScope};
use crate::ids::IdSet;
use crate::json::Json;

/// The requests by which a conversation begins.
const BEGINNINGS: [&str; 4] = ["initialize", "thread/start", "thread/resume", "thread/fork"];

#[derive(Debug, Default)]
pub(crate) struct CodexAppServerParser {
    is_initialized: bool,
    conversation: Conversation,
    /// The threads that lines were about, without those of subagents.
    threads: IdSet,
    subagents: Subagents,
    open_turns: OpenTurns,
    open_work: OpenWork,
    quota: QuotaReporter,
    pending: PendingRequests<RequestKind>,
}

/// A request whose reply changes the state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RequestKind {
    TurnStart,
    /// Without a thread to be had, nothing else can follow.
    Begin,
}

impl CodexAppServerParser {
    pub(crate) fn read(&mut self, line: Json<'_>, events: &mut LineEvents) {
        match RpcMessage::of(line) {
            RpcMessage::Request { method, params, .. } | RpcMessage::Notification { method, params }
                if method.starts_with("item/") && self.is_late(params) =>
            {
                events.other(format!("late {method}"));
            }
            RpcMessage::Request { id, method, params } => {
                let thread_id = params.and_then(thread_of);
                self.note_thread(thread_id.as_deref(), events);
                approvals::read(&method, id, params, events);
                self.open_work.note(thread_id.as_deref(), events.as_slice());
            }
            RpcMessage::Notification { method, params: Some(params) } => {
                let thread_id = thread_of(params);
                self.note_thread(thread_id.as_deref(), events);
                self.read_notification(&method, params, events);
                self.open_work.note(thread_id.as_deref(), events.as_slice());
            }
            RpcMessage::Notification { method, params: None } => events.other(method),
            RpcMessage::Reply { id, result } => {
                if result.is_some_and(methods::is_initialized) {
                    self.begin_anew_if_initialized(events);
                    self.is_initialized = true;
                }
                self.pending.take(id);
                if let Some(thread) = result.and_then(|result| result.field("thread")) {
                    self.start_thread(thread, events);
                }
                events.other_if_empty("reply");
            }
            RpcMessage::ErrorReply { id, error } => {
                let message = error.text_at(&["message"]).unwrap_or_default();
                self.quota.read_failure(FailureCause::Unstated, &message, events);
                match self.pending.take(id) {
                    Some(RequestKind::TurnStart) if self.open_turns.is_empty() => {
                        events.push(EventKind::Error { message });
                    }
                    Some(RequestKind::Begin) => events.push(EventKind::SessionFailed { message }),
                    Some(RequestKind::TurnStart) | None => events.warning(message),
                }
            }
            RpcMessage::ErrorWithoutId { error } => events.warning(error.text_at(&["message"]).unwrap_or_default()),
            RpcMessage::Invalid => events.unknown(line.name()),
        }
    }

    /// Starts over when the server is initialized a second time: another process has started.
    fn begin_anew_if_initialized(&mut self, events: &mut LineEvents) {
        if self.is_initialized {
            *self = Self::default();
            events.process_replaced();
        }
    }

    /// Reads a line that was written to the server.
    pub(crate) fn read_input(&mut self, line: Json<'_>, events: &mut LineEvents) {
        match RpcMessage::of(line) {
            RpcMessage::Request { id, method, .. } if method == "turn/start" => {
                self.pending.add(id, RequestKind::TurnStart);
                if self.open_turns.is_empty() {
                    self.quota.start_turn();
                }
                events.push(EventKind::TurnStarted { turn_id: None });
            }
            RpcMessage::Request { id, method, .. } if BEGINNINGS.contains(&method.as_str()) => {
                if method == "initialize" {
                    self.begin_anew_if_initialized(events);
                }
                self.pending.add(id, RequestKind::Begin);
                events.other_if_empty(method);
            }
            RpcMessage::Reply { id, .. } | RpcMessage::ErrorReply { id, .. } => {
                events.push(EventKind::Answered { request_id: id.to_raw() });
                self.open_work.note(None, events.as_slice());
            }
            RpcMessage::Request { method, .. } | RpcMessage::Notification { method, .. } => events.other(method),
            RpcMessage::ErrorWithoutId { .. } | RpcMessage::Invalid => events.other(line.name()),
        }
    }

    /// Returns whether a line is about a turn that is over. The ends of its calls are known by then, too.
    fn is_late(&self, params: Option<Json<'_>>) -> bool {
        let turn_id = params.and_then(|params| params.text_at(&["turnId"]));
        turn_id.is_some_and(|turn_id| self.open_turns.is_completed(&turn_id))
    }

    /// Opens the turn of an item, because reading may have begun within that turn.
    fn join_turn_of_item(&mut self, params: Json<'_>, events: &LineEvents) {
        let ids = params.fields(["threadId", "turnId"]).map(|id| id.and_then(Json::text));
        if let [Some(thread_id), Some(turn_id)] = ids
            && !events.is_by_subagent()
        {
            self.open_turns.join(&thread_id, &turn_id);
        }
    }

    fn read_notification(&mut self, method: &str, params: Json<'_>, events: &mut LineEvents) {
        if method.starts_with("item/") {
            self.join_turn_of_item(params, events);
        }
        let [turn, item, delta, message] = params.fields(["turn", "item", "delta", "message"]);
        let delta = delta.and_then(Json::text).unwrap_or_default();
        match (method, item) {
            ("thread/started", _) => {
                if let Some(thread) = params.field("thread") {
                    self.start_thread(thread, events);
                }
            }
            ("thread/closed" | "thread/deleted", _) => self.read_thread_closed(method, params, events),
            ("thread/status/changed", _) => self.read_thread_status(params, events),
            ("turn/started", _) => self.read_turn_started(params, turn, events),
            ("turn/completed", _) => self.read_turn_completed(params, turn, events),
            ("item/started", Some(item)) => items::read_started(item, events),
            ("item/completed", Some(item)) => items::read_completed(item, events),
            ("item/agentMessage/delta", _) => events.push(EventKind::Text { text: delta, delta: true }),
            (method, _) if method.starts_with("item/reasoning/") => {
                events.push(EventKind::Thinking { text: delta, delta: true });
            }
            ("error", _) => self.read_error(params, events),
            ("warning" | "guardianWarning", _) => events.warning(message.and_then(Json::text).unwrap_or_default()),
            ("configWarning" | "deprecationNotice", _) => {
                events.warning(params.text_at(&["summary"]).unwrap_or_default());
            }
            ("thread/tokenUsage/updated", _) => report_usage(params, events),
            ("account/rateLimits/updated", _) => self.read_rate_limits(params, events),
            ("serverRequest/resolved", _) => {
                if let Some(id) = params.field("requestId") {
                    events.push(EventKind::Answered { request_id: id.to_raw() });
                }
            }
            (method, _) if methods::is_silent(method) => {}
            (method, _) => events.unknown(method),
        }
        events.other_if_empty(method);
    }

    /// Reads the start of a turn. The conversation moves to its thread, unless a turn is open on another thread.
    fn read_turn_started(&mut self, params: Json<'_>, turn: Option<Json<'_>>, events: &mut LineEvents) {
        let turn_id = turn.and_then(|turn| turn.text_at(&["id"]));
        let thread_id = params.text_at(&["threadId"]).unwrap_or_default();
        // A thread has one turn at a time: the end of the one before was lost.
        if !self.open_turns.is_open(&thread_id, turn_id.as_deref().unwrap_or_default()) {
            self.open_work.end(&thread_id, events);
        }
        if events.is_by_subagent() {
            if self.subagents.start_turn(&thread_id) {
                events.push(EventKind::SubagentStarted { id: thread_id, name: None });
            }
            return events.push(EventKind::TurnStarted { turn_id });
        }
        if !self.open_turns.start(&thread_id, turn_id.as_deref().unwrap_or_default()) {
            return;
        }
        self.quota.start_turn();
        self.conversation.enter(Some(thread_id), None, events);
        events.push(EventKind::TurnStarted { turn_id });
    }

    /// Reads the end of a turn. A subagent ends with each of its turns; its thread stays known, because the agent may
    /// give it another one.
    fn read_turn_completed(&mut self, params: Json<'_>, turn: Option<Json<'_>>, events: &mut LineEvents) {
        let [turn_id, status] = turn.map_or([None; 2], |turn| turn.fields(["id", "status"]));
        let (turn_id, status) = (turn_id.and_then(Json::text), status.and_then(Json::text).unwrap_or_default());
        let outcome = match status.as_str() {
            "completed" => TurnOutcome::Completed,
            "interrupted" => TurnOutcome::Interrupted,
            _ => TurnOutcome::Failed,
        };
        let error = turn.and_then(|turn| turn.field("error")).filter(|_| outcome == TurnOutcome::Failed);
        let message = error.and_then(|error| error.text_at(&["message"]));
        let info = error.and_then(|error| error.field("codexErrorInfo"));
        self.read_failure(message.as_deref().unwrap_or_default(), info, events);
        let thread_id = params.text_at(&["threadId"]);
        if events.is_by_subagent() {
            if let Some(id) = thread_id.filter(|id| self.subagents.end_turn(id)) {
                events.push(EventKind::SubagentEnded { id });
            }
            return;
        }
        if let Some(turn_id) = &turn_id {
            self.open_turns.note_completed(turn_id);
        }
        let is_last = self.open_turns.end(thread_id.as_deref(), turn_id.as_deref());
        if let Some(thread_id) = thread_id.filter(|id| !self.open_turns.contains(id)) {
            self.open_work.end(&thread_id, events);
        }
        match message {
            message if is_last => events.turn_ended(outcome, message),
            Some(message) => events.warning(message),
            None => {}
        }
    }

    fn read_failure(&mut self, message: &str, info: Option<Json<'_>>, events: &mut LineEvents) {
        let is_quota = info.is_some_and(|info| info.is("usageLimitExceeded"));
        let cause = if is_quota { FailureCause::Quota } else { FailureCause::Unstated };
        self.quota.read_failure(cause, message, events);
    }

    /// Reads an error. The turn continues if codex says that it will retry, or if the error is about a request of the
    /// client. A subagent's error is not the agent's.
    fn read_error(&mut self, params: Json<'_>, events: &mut LineEvents) {
        let [error, will_retry, thread_id, turn_id] = params.fields(["error", "willRetry", "threadId", "turnId"]);
        let message = error.and_then(|error| error.text_at(&["message"])).unwrap_or_default();
        if will_retry.is_some_and(Json::is_true) {
            let (attempt, max_attempts) = parse_reconnecting(&message).unzip();
            return events.push(EventKind::Retry { attempt, max_attempts, delay_ms: None, status: None, message });
        }
        let info = error.and_then(|error| error.field("codexErrorInfo"));
        if info.is_some_and(is_about_a_request) {
            return events.warning(message);
        }
        self.read_failure(&message, info, events);
        let (thread_id, turn_id) = (thread_id.and_then(Json::text), turn_id.and_then(Json::text));
        if events.is_by_subagent() || self.open_turns.end(thread_id.as_deref(), turn_id.as_deref()) {
            events.push(EventKind::Error { message });
        } else {
            events.warning(message);
        }
    }

    /// Reads the rate limits, which are sent after every model call. Only a line that names the limit that was reached
    /// is about a used-up quota.
    fn read_rate_limits(&mut self, params: Json<'_>, events: &mut LineEvents) {
        let Some(limits) = params.field("rateLimits") else { return };
        let [reached, primary, secondary] = limits.fields(["rateLimitReachedType", "primary", "secondary"]);
        let Some(reached) = reached.and_then(Json::text) else { return };
        let windows = [primary, secondary].into_iter().flatten();
        let used_up =
            windows.filter(|window| window.field("usedPercent").and_then(Json::f64).is_some_and(|used| used >= 100.0));
        let resets_at = used_up.filter_map(|window| window.field("resetsAt").and_then(reset_of_field)).max();
        self.quota.read_limit(&reached, resets_at, events);
    }
}

/// Returns the thread that a line is about. The requests of older versions call it a conversation.
fn thread_of(params: Json<'_>) -> Option<String> {
    let [thread_id, conversation_id] = params.fields(["threadId", "conversationId"]);
    thread_id.or(conversation_id).and_then(Json::text)
}

/// Returns whether codex refused a request made during a turn; the turn itself continues.
fn is_about_a_request(info: Json<'_>) -> bool {
    const NAMES: [&str; 2] = ["activeTurnNotSteerable", "threadRollbackFailed"];
    NAMES.iter().any(|name| info.is(name) || info.field(name).is_some())
}

fn report_usage(params: Json<'_>, events: &mut LineEvents) {
    let Some(total) = params.at(&["tokenUsage", "total"]) else { return };
    let names = ["inputTokens", "outputTokens", "cachedInputTokens", "cacheWriteInputTokens"];
    events.push(EventKind::Usage(read_tokens(total, UsageScope::Session, names)));
}
