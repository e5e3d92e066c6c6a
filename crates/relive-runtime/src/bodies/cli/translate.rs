//! From the events of a CLI to the records of a journal: steps, calls and texts, as a native agent has them.
//!
//! A CLI reorders its events and loses some, and a journal has rules: a step ends before the next one begins, and each
//! call has one result. So texts and calls are collected, and become a record when something needs it to be there: a
//! result, a request for permission, the end of the turn, or silence.

mod calls;

use std::collections::BTreeSet;

use relive_cli_agent::{Event, EventKind, ReportedUsage, TurnOutcome, UsageScope};
use relive_core::Generation;
use relive_journal::events;
use relive_journal::payload::Json;
use relive_journal::record::{
    Body as Record, Call, CliRecord, CliSession, CliTurn, CliTurnState, ModelEnded, ModelStarted, Partial, Usage,
};
use serde_json::{Value, json};

use super::acp;

/// The longest message of a failed turn that is recorded.
const MESSAGE_MAX: usize = 4096;
/// The longest text of an answer that is recorded, and the longest thinking: as much as of a native agent.
const COLLECTED_MAX: usize = 16 << 20;
/// The result of a call that the CLI says nothing more about.
const NO_RESULT: &str = "the CLI reported no result";

/// Something to be written.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Said {
    Record(Box<Record>),
    Event(&'static str, Value),
}

/// Where in a step the agent is.
#[derive(Debug, Clone, PartialEq, Default)]
enum Stage {
    #[default]
    Boundary,
    Asking,
    Calling(Vec<OpenCall>),
}

/// A recorded call.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct OpenCall {
    pub(super) id: String,
    pub(super) is_settled: bool,
}

/// Collects what a CLI says into records.
#[derive(Debug, Default)]
pub(super) struct Translator {
    provider: &'static str,
    model: Option<String>,
    session_id: Option<String>,
    stage: Stage,
    thinking: Collected,
    text: Collected,
    calls: Vec<Call>,
    /// Those whose input is not known yet.
    preparing: BTreeSet<String>,
    /// Results of calls that are not recorded yet.
    early: Vec<(String, bool)>,
    turn: TurnNow,
    /// The tokens of the turn, as the CLI reports them.
    usage: Option<Usage>,
    /// The tokens of the whole conversation, as the CLI reports them.
    reported: (u64, u64),
    counting: Counting,
    said: Vec<Said>,
}

/// A text as it comes, in pieces and then perhaps again as a whole.
#[derive(Debug, Default)]
struct Collected {
    all: String,
    /// The pieces since the last whole text.
    pieces: String,
    /// Whether the next text begins a new paragraph.
    is_whole: bool,
    /// Whether more came than is kept.
    is_cut: bool,
    /// The beginning of an answer that was begun again since.
    begun_before: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum TurnNow {
    #[default]
    Closed,
    Open,
}

/// What a journal says of the state before.
#[derive(Debug, Default)]
pub(super) struct Before {
    pub(super) provider: &'static str,
    pub(super) model: Option<String>,
    pub(super) session_id: Option<String>,
    /// The calls of the last step, if they are not all settled.
    pub(super) calls: Vec<OpenCall>,
    pub(super) is_turn_open: bool,
    pub(super) reported: (u64, u64),
    pub(super) counting: Counting,
}

/// Who counts the tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Counting {
    /// Nobody but the CLI, which claims what it likes.
    #[default]
    Claims,
    /// The gateway, in records of its own.
    Gateway,
}

impl Collected {
    /// Adds a piece or a whole text, and returns what is new of it.
    fn add(&mut self, text: &str, delta: bool) -> String {
        let mut new = String::new();
        if std::mem::take(&mut self.is_whole) && !self.all.is_empty() && !text.is_empty() {
            new.push_str("\n\n");
        }
        let room = COLLECTED_MAX.saturating_sub(self.all.len());
        if delta {
            let kept = &text[..text.floor_char_boundary(room)];
            self.is_cut |= kept.len() < text.len();
            self.pieces.push_str(kept);
            new.push_str(kept);
        } else {
            let pieces = std::mem::take(&mut self.pieces);
            match text.strip_prefix(pieces.as_str()) {
                Some(rest) => new.push_str(rest),
                // An answer that was cut was begun again. Only the last one counts.
                None if !text.is_empty() && pieces.ends_with(text) => {
                    self.begun_before = Some(pieces[..pieces.len() - text.len()].to_owned());
                    self.all.truncate(self.all.len() - pieces.len());
                    self.all.push_str(text);
                    self.is_whole = true;
                    return String::new();
                }
                None => new.push_str(text),
            }
            self.is_whole = true;
        }
        self.is_cut |= new.len() > room;
        new.truncate(new.floor_char_boundary(room));
        self.all.push_str(&new);
        new
    }

    fn take(&mut self) -> Option<String> {
        let all = std::mem::take(self).all;
        Some(all).filter(|all| !all.is_empty())
    }
}

impl Translator {
    pub(super) fn new(before: Before) -> Self {
        let Before { provider, model, session_id, calls, is_turn_open, reported, counting } = before;
        let stage = if calls.iter().all(|call| call.is_settled) { Stage::Boundary } else { Stage::Calling(calls) };
        let turn = if is_turn_open { TurnNow::Open } else { TurnNow::Closed };
        Self { provider, model, session_id, stage, turn, reported, counting, ..Self::default() }
    }

    /// Takes what is to be written.
    pub(super) fn take(&mut self) -> Vec<Said> {
        std::mem::take(&mut self.said)
    }

    pub(super) fn is_turn_open(&self) -> bool {
        self.turn == TurnNow::Open
    }

    /// Returns whether nothing is collected, so that all that was read is recorded.
    pub(super) fn is_empty(&self) -> bool {
        self.text.all.is_empty() && self.thinking.all.is_empty() && self.calls.is_empty()
    }

    /// Takes in an event. `input` is the message that it begins to answer, if it does.
    pub(super) fn take_in(&mut self, event: &Event, input: Option<u64>) {
        if event.subagent.is_some() {
            return;
        }
        match &event.kind {
            EventKind::SessionStarted { session_id, model } => self.enter_session(session_id, model.as_deref()),
            EventKind::TurnStarted { .. } => self.start_turn(input),
            EventKind::Thinking { text, delta } => self.think(text, *delta, input),
            EventKind::Text { text, delta } => self.speak(text, *delta, input),
            EventKind::ToolStarted { id, name, input: args, preparing } => {
                self.start_turn(input);
                self.start_call(id, name, args.as_ref(), *preparing);
            }
            EventKind::ToolEnded { id, failed } => self.end_call(id, !failed),
            EventKind::Usage(usage) => self.count(usage),
            EventKind::TurnEnded { outcome, message } => self.end_turn(*outcome, message.as_deref()),
            EventKind::Error { message } => self.end_turn(TurnOutcome::Failed, Some(message)),
            EventKind::Retry { attempt, message, delay_ms, status, .. } => {
                self.give_up_answer(message);
                let body = json!({"attempt": attempt, "delay_ms": delay_ms, "status": status, "text": message});
                self.said.push(Said::Event("retry", body));
            }
            EventKind::Quota { message, resets_at, .. } => {
                let resets_at = resets_at.map(|at| at.to_string());
                self.said.push(Said::Event("quota", json!({"text": message, "resets_at": resets_at})));
            }
            EventKind::Warning { message } => self.warn(message),
            EventKind::Capabilities(offered) => {
                let capabilities = Some(acp::recorded(*offered));
                self.record(Record::Cli(CliRecord { capabilities, ..CliRecord::default() }));
            }
            EventKind::SessionFailed { message } => self.warn(message),
            EventKind::SessionEnded { .. }
            | EventKind::UnsupportedRequest { .. }
            | EventKind::Idle
            | EventKind::UserText { .. }
            | EventKind::MessageTaken { .. }
            | EventKind::MessageDropped { .. }
            | EventKind::BackgroundStarted { .. }
            | EventKind::BackgroundEnded { .. }
            | EventKind::SubagentStarted { .. }
            | EventKind::SubagentEnded { .. }
            | EventKind::ApprovalAsked(_)
            | EventKind::Question { .. }
            | EventKind::Answered { .. }
            | EventKind::Malformed { .. }
            | EventKind::Unknown { .. }
            | EventKind::Other { .. } => {}
        }
    }

    /// Warns whoever reads the events of the agent.
    pub(super) fn warn(&mut self, text: impl AsRef<str>) {
        self.said.push(Said::Event("warning", json!({"text": text.as_ref()})));
    }

    fn record(&mut self, record: Record) {
        self.said.push(Said::Record(Box::new(record)));
    }

    fn enter_session(&mut self, id: &str, model: Option<&str>) {
        let model = model.map(str::to_owned).or_else(|| self.model.clone());
        if self.session_id.as_deref() == Some(id) && self.model == model {
            return;
        }
        (self.session_id, self.model) = (Some(id.to_owned()), model.clone());
        let session = Some(CliSession { id: id.to_owned(), model });
        self.record(Record::Cli(CliRecord { session, ..CliRecord::default() }));
    }

    fn start_turn(&mut self, input: Option<u64>) {
        if self.turn == TurnNow::Closed {
            self.turn = TurnNow::Open;
            self.push_turn(CliTurnState::Open, input, None);
        }
        if self.stage == Stage::Boundary {
            self.begin_step();
        }
    }

    /// Records that the last turn answers this message.
    pub(super) fn heard(&mut self, input: u64) {
        let state = if self.is_turn_open() { CliTurnState::Open } else { CliTurnState::Completed };
        self.push_turn(state, Some(input), None);
    }

    fn push_turn(&mut self, state: CliTurnState, input: Option<u64>, message: Option<String>) {
        let turn = Some(CliTurn { state, input, message, reported: Some(self.reported) });
        self.record(Record::Cli(CliRecord { turn, ..CliRecord::default() }));
    }

    fn begin_step(&mut self) {
        let model = self.model.as_deref().unwrap_or("default");
        let model = format!("{}/{model}", self.provider);
        self.record(Record::ModelStarted(ModelStarted {
            model,
            reserved_tokens: 0,
            reserved_cost_usd: None,
            purpose: None,
        }));
        self.stage = Stage::Asking;
    }

    fn think(&mut self, text: &str, delta: bool, input: Option<u64>) {
        self.start_turn(input);
        let was_cut = self.thinking.is_cut;
        let new = self.thinking.add(text, delta);
        self.say_piece("thinking", new);
        self.say_cut(!was_cut && self.thinking.is_cut);
    }

    fn speak(&mut self, text: &str, delta: bool, input: Option<u64>) {
        self.start_turn(input);
        let was_cut = self.text.is_cut;
        let new = self.text.add(text, delta);
        if let Some(cut) = self.text.begun_before.take().filter(|_| self.stage == Stage::Asking) {
            self.record_partial(None, Some(cut), self.no_usage(), "it was cut off and begun again");
            self.begin_step();
        }
        self.say_piece("text", new);
        self.say_cut(!was_cut && self.text.is_cut);
    }

    fn say_cut(&mut self, is_cut: bool) {
        if is_cut {
            self.warn("its answer is longer than 16 MiB: the rest is not recorded");
        }
    }

    /// Shows a piece of an answer as it comes. While a call is open, the answer has not begun in the journal.
    fn say_piece(&mut self, kind: &'static str, text: String) {
        if self.stage == Stage::Asking && !text.is_empty() {
            self.said.push(Said::Event(kind, json!({ "text": text })));
        }
    }

    /// Records what was collected, if calls of the step before do not prevent that, nor a text before a call whose input is not
    /// known.
    pub(super) fn flush(&mut self) {
        let is_ready = self.calls.is_empty() || self.calls.iter().any(|call| !self.preparing.contains(&call.id));
        if self.is_empty() || !is_ready || self.has_open_calls() {
            return;
        }
        if self.stage != Stage::Asking {
            self.begin_step();
        }
        self.end_step(self.no_usage());
    }

    /// Returns the usage of a step that nothing is known of, or whose calls are recorded elsewhere.
    fn no_usage(&self) -> Usage {
        let cost_usd = (self.counting == Counting::Gateway).then(relive_core::Usd::default);
        Usage { cost_usd, ..Usage::default() }
    }

    fn end_step(&mut self, usage: Usage) {
        // The input of the others is to come.
        let (later, calls): (Vec<Call>, Vec<Call>) =
            std::mem::take(&mut self.calls).into_iter().partition(|call| self.preparing.contains(&call.id));
        self.calls = later;
        let open: Vec<OpenCall> =
            calls.iter().map(|call| OpenCall { id: call.id.clone(), is_settled: false }).collect();
        let shown: Vec<Value> = calls
            .iter()
            .zip(0_u32..)
            .map(|(call, place)| json!({"call": place, "name": call.name, "args": args_of(call)}))
            .collect();
        let (thinking, text) = (self.thinking.take().map(Into::into), self.text.take().map(Into::into));
        self.record(Record::ModelEnded(ModelEnded { thinking, text, calls, usage, carry: None, git: None }));
        self.said.extend(shown.into_iter().map(|call| Said::Event(events::CALL, call)));
        self.stage = if open.is_empty() { Stage::Boundary } else { Stage::Calling(open) };
        for (id, ok) in std::mem::take(&mut self.early) {
            self.settle(&id, ok, "");
        }
    }

    fn end_turn(&mut self, outcome: TurnOutcome, message: Option<&str>) {
        let state = match outcome {
            TurnOutcome::Completed => CliTurnState::Completed,
            TurnOutcome::Interrupted => CliTurnState::Interrupted,
            TurnOutcome::Failed => CliTurnState::Failed,
            TurnOutcome::Replayed => return,
        };
        // Claude has words for its own developers there.
        let is_told = |message: &&str| !message.starts_with("[ede_diagnostic]");
        let message = match state {
            CliTurnState::Interrupted => Some(message.filter(is_told).unwrap_or("the turn was interrupted")),
            CliTurnState::Open | CliTurnState::Completed | CliTurnState::Failed => message,
        };
        let message = message.map(|message| message[..message.floor_char_boundary(MESSAGE_MAX)].to_owned());
        self.close(message.as_deref().filter(|_| state != CliTurnState::Completed));
        if std::mem::take(&mut self.turn) == TurnNow::Open {
            self.push_turn(state, None, message.filter(|_| state != CliTurnState::Completed));
        }
    }

    /// Ends the step under way; `cause` is why it is not complete.
    fn close(&mut self, cause: Option<&str>) {
        let usage = self.usage.take();
        // No more input comes.
        self.preparing.clear();
        self.settle_all(NO_RESULT);
        let has_more = !self.is_empty() || usage.is_some();
        if self.stage == Stage::Boundary && has_more {
            self.begin_step();
        }
        if self.stage != Stage::Asking {
            return;
        }
        let usage = usage.unwrap_or_else(|| self.no_usage());
        match cause {
            Some(cause) if self.calls.is_empty() => {
                let (thinking, text) = (self.thinking.take(), self.text.take());
                self.record_partial(thinking, text, usage, cause);
            }
            Some(_) | None => {
                self.end_step(usage);
                self.settle_all(NO_RESULT);
            }
        }
    }

    /// Records the beginning of an answer that the agent asks for again. The next one may begin in other words, and whoever was
    /// shown these is shown all of it.
    fn give_up_answer(&mut self, cause: &str) {
        let cause = if cause.trim().is_empty() { "it was cut off" } else { cause };
        let has_begun = !self.text.pieces.is_empty() || !self.thinking.pieces.is_empty();
        if has_begun && self.stage == Stage::Asking && self.calls.is_empty() {
            let (thinking, text) = (self.thinking.take(), self.text.take());
            self.record_partial(thinking, text, self.no_usage(), &cause[..cause.floor_char_boundary(MESSAGE_MAX)]);
        }
    }

    fn record_partial(&mut self, thinking: Option<String>, text: Option<String>, usage: Usage, cause: &str) {
        let (thinking, text) = (thinking.map(Into::into), text.map(Into::into));
        self.record(Record::Partial(Partial { thinking, text, usage, cause: Some(cause.to_owned()) }));
        self.stage = Stage::Boundary;
    }

    /// Records that the program has ended, whatever it was doing.
    pub(super) fn program_ended(&mut self) {
        const CAUSE: &str = "the agent ended in the middle of its turn";
        if self.turn == TurnNow::Open {
            self.end_turn(TurnOutcome::Interrupted, Some(CAUSE));
        } else {
            self.close(Some(CAUSE));
        }
    }

    fn count(&mut self, reported: &ReportedUsage) {
        let input = [reported.input_tokens, reported.cache_read_tokens, reported.cache_write_tokens];
        let input: u64 = match reported.scope {
            // Codex counts what comes from its cache as input already.
            UsageScope::Session => reported.input_tokens.unwrap_or(0),
            UsageScope::Step | UsageScope::Turn | UsageScope::Process | UsageScope::Unspecified => {
                input.into_iter().flatten().sum()
            }
        };
        let output = reported.output_tokens.unwrap_or(0);
        let (tokens_in, tokens_out) = match reported.scope {
            UsageScope::Session | UsageScope::Process => {
                let before = std::mem::replace(&mut self.reported, (input, output));
                let counted = self.usage.unwrap_or_default();
                let more = (input.saturating_sub(before.0), output.saturating_sub(before.1));
                (counted.tokens_in + more.0, counted.tokens_out + more.1)
            }
            UsageScope::Step => {
                let counted = self.usage.unwrap_or_default();
                (counted.tokens_in + input, counted.tokens_out + output)
            }
            UsageScope::Turn | UsageScope::Unspecified => (input, output),
        };
        if self.counting == Counting::Gateway {
            return;
        }
        // It is what the CLI says, which nobody has checked.
        self.usage = Some(Usage { tokens_in, tokens_out, estimated: true, ..Usage::default() });
    }
}

fn args_of(call: &Call) -> String {
    const ARGS_MAX: usize = 4096;
    match &call.args {
        Json::Inline(raw) => raw.get()[..raw.get().floor_char_boundary(ARGS_MAX)].to_owned(),
        Json::Blob(blob) => blob.head.clone(),
    }
}

/// Returns the number of the session in this directory.
pub(super) fn session_number(folder: &std::path::Path) -> Generation {
    let name = folder.file_name().and_then(|name| name.to_str());
    Generation(name.and_then(|name| name.parse().ok()).unwrap_or(0))
}

#[cfg(test)]
mod tests;
