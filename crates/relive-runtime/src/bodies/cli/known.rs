//! What is known of a program of a CLI agent while it is followed.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use relive_cli_agent::{
    AgentStream, ApprovalChannel, ApprovalRequest, Dialect, Encoder, Event, EventKind, FORM_TOOL, Form, Lifecycle,
    RawJson,
};
use relive_core::{Generation, Timestamp, Uuid};
use relive_journal::History;
use relive_journal::history::CliFacts;
use relive_journal::record::{CliCapabilities, CliTurnState};
use relive_session::log::{Chunk, Stream};
use tokio::time::Instant;

use super::acp;
use super::agents::{by_messages, dialect_of, provider_of};
use super::deliver::Outgoing;
use super::live::{LiveGateway, Offered};
use super::messages::{self, Claimed, Messages};
use super::subagents::Subagents;
use super::translate::{Before, Counting, OpenCall, Translator};
use super::unsupported::Unsupported;

/// How much of a tool's input is shown.
const SHOWN_MAX: usize = 120;
/// How long a program may be silent before it says that it takes a message. Claude says so at once, or after its hooks, which
/// end within a minute.
const TAKES_WITHIN: Duration = Duration::from_mins(2);
/// What a message that was dropped or given up waits for.
const FOR_NEXT: &str = "its next program gets it, unless a later message is answered first";
/// How many bytes at the end of the standard error are kept.
const ERRORS_MAX: usize = 1024;
/// The fields of an input that describe a call best, the best first.
const TELLING: [&str; 6] = ["command", "file_path", "path", "pattern", "query", "description"];

/// What is known of a program.
pub(super) struct Known {
    pub(super) process: Uuid,
    pub(super) facts: CliFacts,
    pub(super) session: Generation,
    pub(super) stream: AgentStream,
    pub(super) encoder: Option<Encoder>,
    pub(super) translator: Translator,
    /// The open requests for permission, by their keys. A question is one for its tool.
    pub(super) requests: BTreeMap<String, ApprovalRequest>,
    /// Those of them that are questions.
    questions: BTreeSet<String>,
    /// Requests that a person is to be asked about.
    pub(super) queue: VecDeque<String>,
    /// The request that a person is asked about.
    pub(super) asked: Option<String>,
    /// The output up to here was recorded by an earlier daemon.
    recorded_to: u64,
    /// The output up to here is read.
    pub(super) read_to: u64,
    /// The journal says that the output up to here is recorded.
    pub(super) marked_to: u64,
    /// The messages that were written to it.
    pub(super) messages: Messages,
    pub(super) tool: Option<(String, Timestamp)>,
    /// The commands and subagents that work beside the conversation, by the CLI's ids, in the order of their starts.
    background: Vec<(String, String, Timestamp)>,
    pub(super) subagents: Subagents,
    pub(super) turn_since: Option<Timestamp>,
    /// Why it does not get on: a retry, a quota.
    pub(super) note: Option<String>,
    /// What its model calls do, if they go through the gateway.
    pub(super) gateway: Option<LiveGateway>,
    /// Since when calls are collected.
    pub(super) collecting_since: Option<Instant>,
    /// The message of the last turn, if that failed.
    pub(super) last_failure: Option<String>,
    pub(super) has_had_turn: bool,
    /// The end of what it wrote to its standard error.
    pub(super) errors: ErrorTail,
    /// Whether this program has named its conversation.
    is_named: bool,
    /// Whether its input was closed, because its work is done.
    pub(super) closed: bool,
    pub(super) told_idle: bool,
    /// Whether it was paused when that was looked at last.
    pub(super) was_paused: bool,
    /// What the agent can do with conversations, if it speaks ACP and has said so.
    pub(super) capabilities: Option<CliCapabilities>,
    /// Why there is no conversation to be had with this program.
    pub(super) no_conversation: Option<String>,
    /// The requests of the agent that nobody can fulfil.
    pub(super) unsupported: Unsupported,
    /// The turns of an ACP agent, by their messages. Its output does not say that one begins, so a daemon that reads the
    /// output of an earlier one puts each in its place.
    told_turns: BTreeSet<u64>,
    earlier_turns: VecDeque<u64>,
}

impl Known {
    /// Begins with what the journal says. `calls` are those of the last step.
    pub(super) fn of(
        process: Uuid,
        history: &History,
        calls: Vec<OpenCall>,
        session: Generation,
        idle_timeout: Duration,
        now: Timestamp,
    ) -> Option<Self> {
        let facts = history.cli.as_deref().cloned()?;
        let read = facts.read.filter(|read| read.session == session.0);
        let dialect = dialect_of(&facts.agent);
        let mut translator = Translator::new(Before {
            provider: provider_of(&facts.agent),
            model: facts.model.clone(),
            session_id: facts.session_id.clone(),
            calls,
            is_turn_open: facts.is_turn_open(),
            reported: facts.reported,
            counting: if facts.gateway.is_some() { Counting::Gateway } else { Counting::Claims },
        });
        // It may be silent since then. Every line of its own is later.
        let launched = facts.launches.last().copied().unwrap_or(now);
        if read.is_none() && facts.launches.len() > 1 {
            // What an earlier program left open is not this one's.
            translator.program_ended();
        }
        let last = facts.turn.as_ref().filter(|_| read.is_some());
        let failed = last.filter(|turn| turn.state == CliTurnState::Failed);
        Some(Self {
            process,
            stream: AgentStream::new(Some(dialect), idle_timeout, launched),
            encoder: Encoder::new(dialect).ok(),
            translator,
            requests: BTreeMap::new(),
            questions: BTreeSet::new(),
            queue: VecDeque::new(),
            asked: open_key(history).filter(|_| read.is_some()),
            recorded_to: read.map_or(0, |read| read.offset),
            read_to: 0,
            marked_to: read.map_or(0, |read| read.offset),
            messages: Messages::default(),
            tool: None,
            background: Vec::new(),
            subagents: Subagents::default(),
            turn_since: None,
            note: None,
            gateway: None,
            collecting_since: None,
            last_failure: failed.map(|turn| turn.message.clone().unwrap_or_default()),
            has_had_turn: last.is_some(),
            errors: ErrorTail::default(),
            is_named: false,
            closed: false,
            told_idle: false,
            // A pause may have ended before it was looked at.
            was_paused: true,
            capabilities: None,
            no_conversation: None,
            unsupported: Unsupported::default(),
            told_turns: BTreeSet::new(),
            earlier_turns: VecDeque::new(),
            session,
            facts,
        })
    }

    /// Takes in the messages by which the program begins, whether they are written already or not: they have the same
    /// ids in every daemon, so that their replies are known. `told` are the messages of people that it was told.
    pub(super) fn expect(&mut self, opening: &[String], told: Vec<u64>, now: Timestamp) {
        for line in opening {
            self.stream.push_input(line.as_bytes(), now);
        }
        let turn = self.facts.turn.as_ref().filter(|_| self.facts.read.is_some());
        let has_unclaimed_turn = turn.is_some_and(|turn| turn.state == CliTurnState::Open && turn.input.is_none());
        self.messages = Messages::new(!told.is_empty(), has_unclaimed_turn);
        if dialect_of(&self.facts.agent) == Dialect::Acp {
            self.earlier_turns = told.into();
        }
    }

    /// Takes in that a part of the output is lost: the turns of that part are over, as far as they were recorded.
    pub(super) fn lose_output(&mut self, now: Timestamp) {
        let (heard, is_open) = (self.facts.heard, self.facts.is_turn_open());
        self.messages.lose_output(is_open);
        self.earlier_turns.retain(|turn| *turn > heard || (*turn == heard && is_open));
        if let Some(session_id) = self.facts.session_id.clone().filter(|_| self.facts.read.is_some()) {
            self.stream.lose_output(&session_id, now);
            self.learn(&EventKind::SessionStarted { session_id, model: None }.into(), now);
            // It may have begun in that part.
            self.begin_earlier_turn(now);
        }
    }

    /// Puts the next turn that an earlier daemon began in its place.
    fn begin_earlier_turn(&mut self, at: Timestamp) {
        if self.may_begin_turn()
            && let Some(seq) = self.earlier_turns.pop_front()
            && let Some(encoder) = &mut self.encoder
        {
            encoder.number_requests_from(seq);
            // The text of the message changes nothing.
            let lines = encoder.user_turn("").unwrap_or_default();
            self.wrote(&Outgoing { number: seq, input: Some(seq), lines }, at);
        }
    }

    /// Has a program be idle that waits for its first message, and that nothing is left to be told. Some say nothing before
    /// that, and some begin as if they had a turn.
    pub(super) fn await_first_message(&mut self, is_told_all: bool) {
        let begins_by_itself = by_messages(dialect_of(&self.facts.agent));
        let has_work = self.messages.has_answered() || !self.background.is_empty();
        let has_greeted = !self.messages.is_told() && !has_work;
        let machine = self.stream.machine_mut();
        let is_silent = machine.lifecycle() == Lifecycle::Spawning && !machine.is_turn_open();
        if is_told_all && !begins_by_itself && (is_silent || has_greeted) {
            machine.mark_idle();
        }
    }

    /// Tells what the agent does, whose messages may not all be written yet: one that is about to get one is not idle.
    pub(super) fn lifecycle(&self, is_told_all: bool) -> Lifecycle {
        let is_told_all = is_told_all && !self.messages.is_expecting();
        match self.stream.machine().lifecycle() {
            Lifecycle::Idle if !is_told_all && !self.is_named => Lifecycle::Spawning,
            Lifecycle::Idle if !is_told_all => Lifecycle::Working,
            known @ (Lifecycle::Spawning | Lifecycle::Working | Lifecycle::Idle | Lifecycle::Killed) => known,
        }
    }

    /// Tells whether the turn of this message was put in its place.
    pub(super) fn was_told(&self, seq: u64) -> bool {
        self.told_turns.contains(&seq)
    }

    /// Tells whether a turn may be written now. Codex takes one at a time.
    pub(super) fn may_begin_turn(&self) -> bool {
        match dialect_of(&self.facts.agent) {
            Dialect::CodexAppServer | Dialect::Acp => self.is_named && !self.stream.machine().is_turn_open(),
            Dialect::Claude | Dialect::Qwen | Dialect::CodexExec | Dialect::Gemini | Dialect::Opencode => true,
        }
    }

    /// Takes in a piece of output. What an earlier daemon has recorded only changes what is known.
    pub(super) fn take_in(&mut self, chunk: &Chunk) {
        self.read_to = chunk.next;
        if chunk.stream == Stream::Err {
            self.errors.push(&chunk.bytes);
            return;
        }
        let at = i64::try_from(chunk.at_ms).ok().and_then(|ms| Timestamp::from_millisecond(ms).ok());
        let at = at.unwrap_or(self.stream.machine().last_active());
        let mut events = Vec::new();
        self.stream.push(&chunk.bytes, at, |_, report| events.extend(report.events));
        let is_new = chunk.next > self.recorded_to;
        for event in &events {
            if self.is_greeting(event) {
                continue;
            }
            self.learn(event, at);
            if let EventKind::MessageDropped { id } = &event.kind {
                self.drop_message(id, is_new);
            }
            let heard = match event.subagent {
                None => self.messages.take_in(&event.kind, is_new && !self.translator.is_turn_open()),
                Some(_) => None,
            };
            if is_new {
                self.translate(event, heard);
            }
        }
        self.begin_earlier_turn(at);
    }

    /// Takes in that the program drops a message. If it had not taken it, the message is for its next program.
    fn drop_message(&mut self, id: &str, is_new: bool) {
        if self.messages.drop_message(self.process, id) {
            self.forget_untaken_turn();
            if is_new {
                self.translator.warn(format!("it dropped a message that it had not begun to answer: {FOR_NEXT}"));
            }
        }
    }

    /// Tells whether a program announces itself before its first message, which begins no turn.
    fn is_greeting(&self, event: &Event) -> bool {
        let is_told = self.messages.is_told() || self.messages.has_answered();
        matches!(event.kind, EventKind::TurnStarted { .. }) && !is_told && !self.translator.is_turn_open()
    }

    /// Translates an event, by which the program has perhaps begun to answer a message.
    fn translate(&mut self, event: &Event, heard: Option<u64>) {
        if self.translator.is_turn_open() {
            heard.into_iter().for_each(|heard| self.translator.heard(heard));
        } else if self.is_silent_turn(event, heard) {
            // It has not said that it begins.
            self.translator.take_in(&EventKind::TurnStarted { turn_id: None }.into(), heard);
        }
        self.translator.take_in(event, heard);
    }

    /// Tells whether an event is the end of a turn of which nothing else was said, or a question before it said anything.
    fn is_silent_turn(&self, event: &Event, heard: Option<u64>) -> bool {
        let is_acp = dialect_of(&self.facts.agent) == Dialect::Acp;
        let ends = is_acp && event.subagent.is_none() && messages::is_end(&event.kind);
        ends || heard.is_some() && !messages::is_in_step(&event.kind)
    }

    /// Finds out whether a message that an earlier daemon has written was taken, by its number and its record.
    pub(super) fn is_claimed(&mut self, number: u64, seq: u64) -> bool {
        match self.messages.claim(number, seq) {
            Claimed::Waiting => false,
            Claimed::Taken | Claimed::Dropped => true,
            Claimed::Answered => {
                self.translator.heard(seq);
                true
            }
        }
    }

    /// Takes in something that is written to the program.
    pub(super) fn wrote(&mut self, written: &Outgoing, at: Timestamp) {
        if let Some(input) = written.input {
            if !self.told_turns.insert(input) {
                return;
            }
            self.messages.wrote(written.number, input);
        }
        for line in written.lines.lines() {
            for event in self.stream.push_input(line.as_bytes(), at) {
                if let EventKind::Answered { request_id } = &event.kind {
                    self.close_request(request_id.as_str());
                }
            }
        }
    }

    /// Tells whether a turn was written to the program that it has not ended, although it may not have said a word in it.
    pub(super) fn owes_turn(&self) -> bool {
        self.translator.is_turn_open() || self.stream.machine().is_turn_open()
    }

    /// Tells whether the program has nothing to do, and no message that it is known to take next.
    pub(super) fn is_idle(&self) -> bool {
        let is_idle = self.stream.machine().lifecycle() == Lifecycle::Idle && !self.translator.is_turn_open();
        is_idle && !self.messages.is_expecting()
    }

    /// Tells whether the program works, by what it says itself. A message that it was told begins no turn if it does not take it.
    fn says_it_works(&self) -> bool {
        self.messages.is_turn_open() || self.translator.is_turn_open() || !self.background.is_empty()
    }

    /// Has the program be idle if it works only on messages that it will not take.
    fn forget_untaken_turn(&mut self) {
        if !self.says_it_works() && !self.messages.is_expecting() && self.has_spoken() {
            self.stream.machine_mut().mark_idle();
        }
    }

    /// Returns when the program is no longer expected to take the messages that it has; `None` while it works, is paused or has
    /// none.
    pub(super) fn gives_up_at(&self) -> Option<Timestamp> {
        let is_silent = !self.says_it_works() && self.messages.is_expecting() && !self.was_paused;
        let at = self.stream.machine().silent_since().saturating_add(TAKES_WITHIN).unwrap_or(Timestamp::MAX);
        is_silent.then_some(at)
    }

    /// Counts the messages that the program has not taken in time as messages for its next program.
    pub(super) fn give_up_messages(&mut self, now: Timestamp) {
        if self.gives_up_at().is_some_and(|at| at <= now) {
            self.messages.give_up();
            self.forget_untaken_turn();
            self.translator.warn(format!("it has not taken a message for 2 minutes: {FOR_NEXT}"));
        }
    }

    /// Returns when it is ended for being idle; `None` while no countdown runs.
    pub(super) fn idle_kill_at(&self) -> Option<Timestamp> {
        self.stream.machine().idle_kill_at().filter(|_| self.is_idle() && !self.was_paused)
    }

    /// Tells whether the program has said anything that its dialect knows.
    pub(super) fn has_spoken(&self) -> bool {
        self.stream.machine().lifecycle() != Lifecycle::Spawning
    }

    /// Takes in the answer of a person, and returns the request that it is to.
    pub(super) fn answered(&mut self, key: &str) -> Option<ApprovalRequest> {
        self.queue.retain(|queued| queued != key);
        self.asked.take_if(|asked| asked == key);
        let request = self.requests.remove(key)?;
        let machine = self.stream.machine_mut();
        // It was answered by a person, perhaps through an earlier daemon: that is no sign of life.
        let at = machine.last_active();
        machine.apply(&EventKind::Answered { request_id: request.request_id.clone() }.into(), at);
        Some(request)
    }

    /// Returns the answers to a request that the CLI takes.
    pub(super) fn offered(&self, request: &ApprovalRequest) -> Offered {
        self.encoder.as_ref().map_or(Offered::ALL, |encoder| Offered::of(request, encoder))
    }

    fn close_request(&mut self, key: &str) {
        self.queue.retain(|queued| queued != key);
        self.requests.remove(key);
    }

    fn close_request_of_tool(&mut self, id: &str) {
        let of_tool = |request: &ApprovalRequest| request.tool_id.as_deref() == Some(id);
        let key = self.requests.iter().find(|(_, request)| of_tool(request)).map(|(key, _)| key.clone());
        key.into_iter().for_each(|key| self.close_request(&key));
    }

    fn open_request(&mut self, request: ApprovalRequest) {
        let key = request.request_id.as_str().to_owned();
        let is_new = self.requests.insert(key.clone(), request).is_none();
        if is_new && self.asked.as_ref() != Some(&key) {
            self.queue.push_back(key);
        }
    }

    /// Returns what runs, and since when: the tool of its turn, or the first of those beside the conversation.
    pub(super) fn running(&self) -> Option<(String, Timestamp)> {
        let background = || self.background.first().map(|(_, text, since)| (text.clone(), *since));
        self.tool.clone().or_else(background)
    }

    /// Tells whether a request is a question, which is answered with a text.
    pub(super) fn is_question(&self, key: &str) -> bool {
        self.questions.contains(key)
    }

    fn learn(&mut self, event: &Event, at: Timestamp) {
        if let Some(encoder) = &mut self.encoder {
            encoder.observe(event);
        }
        self.learn_of_opening(event);
        self.learn_of_background(event, at);
        let is_own = event.subagent.is_none();
        match &event.kind {
            EventKind::ApprovalAsked(request) if request.channel == ApprovalChannel::Stream => {
                self.open_request(request.clone());
            }
            EventKind::Question { request_id, tool_id, input: Some(input), .. } => {
                self.questions.insert(request_id.as_str().to_owned());
                let dialect = dialect_of(&self.facts.agent);
                self.open_request(question_request(dialect, request_id, tool_id.as_deref(), input));
            }
            EventKind::Answered { request_id } => self.close_request(request_id.as_str()),
            EventKind::ToolEnded { id, .. } => {
                self.close_request_of_tool(id);
                if is_own {
                    self.tool = None;
                }
            }
            EventKind::ToolStarted { name, input, .. } if is_own => {
                self.tool = Some((described(name, input.as_ref()), at));
            }
            EventKind::SessionStarted { session_id, .. } if is_own => {
                self.facts.session_id = Some(session_id.clone());
                self.is_named = true;
            }
            EventKind::TurnStarted { .. } if is_own => self.begin_turn(at),
            EventKind::TurnEnded { outcome, message } if is_own => {
                let failed = *outcome == relive_cli_agent::TurnOutcome::Failed;
                self.end_turn(failed.then(|| message.clone().unwrap_or_else(|| "the turn failed".to_owned())));
            }
            EventKind::Error { message } if is_own => self.end_turn(Some(message.clone())),
            EventKind::Retry { message, .. } => self.note = Some(asks_again(message)),
            EventKind::Quota { message, .. } => self.note = Some(message.clone()),
            EventKind::Text { .. } | EventKind::Thinking { .. } if is_own => {
                self.begin_turn(at);
                self.note = None;
            }
            EventKind::ApprovalAsked(_)
            | EventKind::Capabilities(_)
            | EventKind::SessionFailed { .. }
            | EventKind::UnsupportedRequest { .. }
            | EventKind::ToolStarted { .. }
            | EventKind::SessionStarted { .. }
            | EventKind::TurnStarted { .. }
            | EventKind::TurnEnded { .. }
            | EventKind::Error { .. }
            | EventKind::Text { .. }
            | EventKind::Thinking { .. }
            | EventKind::SessionEnded { .. }
            | EventKind::BackgroundStarted { .. }
            | EventKind::BackgroundEnded { .. }
            | EventKind::Idle
            | EventKind::UserText { .. }
            | EventKind::MessageTaken { .. }
            | EventKind::MessageDropped { .. }
            | EventKind::SubagentStarted { .. }
            | EventKind::SubagentEnded { .. }
            | EventKind::Question { .. }
            | EventKind::Usage(_)
            | EventKind::Warning { .. }
            | EventKind::Malformed { .. }
            | EventKind::Unknown { .. }
            | EventKind::Other { .. } => {}
        }
    }

    /// Learns what is said about the conversation itself, and what waits for a reply.
    fn learn_of_opening(&mut self, event: &Event) {
        if let EventKind::Capabilities(offered) = &event.kind {
            self.capabilities = Some(acp::recorded(*offered));
        } else if let EventKind::SessionFailed { message } = &event.kind {
            self.no_conversation = Some(message.clone());
        } else if let EventKind::UnsupportedRequest { request_id, refusal, .. } = &event.kind {
            let over = self.unsupported.ask(request_id.as_str(), *refusal);
            self.no_conversation = over.or(self.no_conversation.take());
        }
    }

    /// Learns what works beside the conversation.
    fn learn_of_background(&mut self, event: &Event, at: Timestamp) {
        self.subagents.learn(event, at);
        if let EventKind::BackgroundStarted { id, description } = &event.kind {
            let text = description.as_deref().map(|text| format!(": {}", one_line(text))).unwrap_or_default();
            self.background.push((id.clone(), format!("background{text}"), at));
        } else if let EventKind::BackgroundEnded { id } = &event.kind {
            self.background.retain(|(other, ..)| other != id);
        } else if let EventKind::SessionEnded { .. } = &event.kind {
            self.background.clear();
        }
    }

    fn begin_turn(&mut self, at: Timestamp) {
        self.turn_since.get_or_insert(at);
        (self.last_failure, self.has_had_turn) = (None, true);
    }

    fn end_turn(&mut self, failure: Option<String>) {
        (self.turn_since, self.tool, self.note, self.has_had_turn) = (None, None, None, true);
        self.last_failure = failure;
        self.requests.clear();
        self.questions.clear();
        self.queue.clear();
    }
}

/// The end of what a program wrote to its standard error.
#[derive(Debug, Default)]
pub(super) struct ErrorTail {
    bytes: Vec<u8>,
}

impl ErrorTail {
    fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        let excess = self.bytes.len().saturating_sub(ERRORS_MAX);
        self.bytes.drain(..excess);
    }

    /// Returns the last line that is not empty.
    pub(super) fn last_line(&self) -> Option<String> {
        let text = String::from_utf8_lossy(&self.bytes);
        text.lines().map(str::trim).rfind(|line| !line.is_empty()).map(str::to_owned)
    }
}

/// Describes that an agent asks its model again. Claude calls an error without a name `unknown`.
fn asks_again(message: &str) -> String {
    match message.trim() {
        "" | "unknown" => "asks the model again".to_owned(),
        message => format!("asks the model again: {message}"),
    }
}

/// Returns the name of a question among the calls of the journal: that of the CLI's own tool.
fn question_tool(dialect: Dialect, input: &RawJson) -> &'static str {
    if Form::read(input.as_str()).is_ok() {
        return FORM_TOOL;
    }
    match dialect {
        Dialect::Claude | Dialect::Qwen => "AskUserQuestion",
        Dialect::CodexAppServer | Dialect::CodexExec => "request_user_input",
        Dialect::Acp | Dialect::Gemini | Dialect::Opencode => "question",
    }
}

/// Returns a question as the request for permission that it is to claude.
fn question_request(dialect: Dialect, request_id: &RawJson, tool_id: Option<&str>, input: &RawJson) -> ApprovalRequest {
    ApprovalRequest {
        request_id: request_id.clone(),
        tool_id: tool_id.map(str::to_owned),
        tool: question_tool(dialect, input).to_owned(),
        input: Some(input.clone()),
        reason: None,
        options: Vec::new(),
        channel: ApprovalChannel::Stream,
    }
}

/// Returns the CLI's id of the request that a person is asked about.
fn open_key(history: &History) -> Option<String> {
    let approval = history.question().and_then(|asked| asked.key.clone());
    approval.or_else(|| history.open_question().and_then(|asked| asked.key.clone()))
}

/// Describes a call in one line.
pub(super) fn described(name: &str, input: Option<&RawJson>) -> String {
    let value: Option<serde_json::Value> = input.and_then(|input| serde_json::from_str(input.as_str()).ok());
    let telling = value.as_ref().and_then(|value| match value.as_str() {
        // Codex names the command alone.
        Some(text) => Some(text),
        None => TELLING.iter().find_map(|name| value.get(*name)?.as_str()),
    });
    let Some(telling) = telling else { return name.to_owned() };
    format!("{name}: {}", one_line(telling))
}

/// Returns the beginning of a text in one line.
fn one_line(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let end = line.floor_char_boundary(SHOWN_MAX);
    let more = if end < line.len() { "..." } else { "" };
    format!("{}{more}", &line[..end])
}
