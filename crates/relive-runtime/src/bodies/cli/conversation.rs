//! The conversation with one program of a CLI agent: reads its output from the session's log, records it, and writes
//! messages and answers to it.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use relive_cli_agent::Refusal;
use relive_core::{SuspendReason, Timestamp, Why};
use relive_journal::history::{CallState, CliFacts};
use relive_journal::record::{Approval, Body as Record, CliRead, CliRecord, Decision, OnBudget, Question};
use relive_journal::{Durability, History, Journal, JournalError, WriteError};
use relive_session::connection::Connection;
use relive_session::log::{Item, Reader};
use relive_session::protocol::Verb;
use serde_json::json;
use tokio::sync::watch;
use tokio::time::Instant;

use super::CliBody;
use super::agents::{self, dialect_of};
use super::calls::Calls;
use super::deliver::{self, Delivery};
use super::known::Known;
use super::live::{Asked, LiveAgent};
use super::translate::{OpenCall, Said, session_number};
use crate::drive::BodyOwner;
use crate::runtime::ProcessRef;

/// How many chunks of output are read at a time.
const CHUNKS_AT_ONCE: usize = 64;
/// How long the calls of an answer are collected before they are recorded.
const COLLECTED_FOR: Duration = Duration::from_millis(150);
/// How long to wait before something is recorded again that did not fit on the disk.
const RECORDED_AGAIN: Duration = Duration::from_secs(1);
/// How long a program may take to end after its input was closed.
const CLOSES_WITHIN: Duration = Duration::from_secs(10);

/// How the work with a program ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Finished {
    /// The body ended its input, because its work was done.
    Closed,
    /// Its last turn failed.
    Failed(String),
    Quiet,
    /// It may have ended before all that it said was read.
    Unread,
    /// It ended in the middle of a turn; with the last line of its errors.
    Broken(Option<String>),
    /// It ended before it began a turn with a message; with the last line of its errors.
    Unanswered(Option<String>),
    /// A call of this model was refused, because nothing was left to spend or its price is not known.
    Refused(String),
    /// There is no conversation to be had with it.
    NoConversation(String),
}

impl Finished {
    /// Returns the model of the call that was refused.
    pub(super) fn refused(&self) -> Option<&String> {
        if let Self::Refused(model) = self { Some(model) } else { None }
    }
}

/// The conversation with one program.
pub(super) struct Conversation {
    pub(super) body: CliBody,
    pub(super) process: ProcessRef,
    pub(super) owner: BodyOwner,
    pub(super) journal: Arc<dyn Journal>,
    pub(super) folder: PathBuf,
}

impl Conversation {
    /// Follows a program until its session has ended or its shim is gone.
    pub(super) async fn follow(self, connection: Connection, boundary: watch::Sender<bool>) -> Finished {
        let Some((mut known, history)) = self.known().await else { return Finished::Unread };
        let on_budget = history.identity.as_ref().map_or(OnBudget::End, |identity| identity.spawned.on_budget);
        let mut calls = Calls::begin(&self, &connection, &known.facts, on_budget, boundary).await;
        let Some(mut reader) = self.open_log() else { return Finished::Unread };
        let (mut bell, mut pool_bell) = (self.owner.follow(), self.body.pool.follow());
        let mut seen = connection.seen();
        let _ = connection.request(Verb::Attach).await;
        // All that an earlier daemon has read comes before any message.
        reader = match self.read_output(reader, &mut known).await {
            Some(reader) => reader,
            None => return Finished::Unread,
        };
        let Some(mut delivery) = Delivery::begin(&self, &connection, &history, &known).await else {
            return Finished::Unread;
        };
        let mut closing: Option<Instant> = None;
        loop {
            bell.borrow_and_update();
            pool_bell.borrow_and_update();
            let (is_over, is_ended) = {
                let seen = seen.borrow_and_update();
                (seen.ended.is_some() || seen.gone, seen.ended.is_some())
            };
            reader = match self.read_output(reader, &mut known).await {
                Some(reader) => reader,
                None => return Finished::Unread,
            };
            if is_over {
                let refused = calls.and_then(|calls| calls.refused);
                let finished = if is_ended { self.finish(known).await } else { Finished::Quiet };
                return refused.map_or(finished, Finished::Refused);
            }
            if let Some(calls) = &mut calls {
                let machine = known.stream.machine();
                calls.look(&self, !machine.is_turn_open() || machine.waiting().is_some()).await;
                known.gateway = Some(calls.shown());
            }
            delivery.read(&self, &mut known).await;
            delivery.prepare(&self, &mut known).await;
            self.expect_messages(&mut known, delivery.is_done()).await;
            self.put_questions(&mut known).await;
            self.follow_pauses(&mut known).await;
            self.publish(&mut known, delivery.is_done());
            if self.wants_to_close(&known, &delivery) || (known.no_conversation.is_some() && !known.closed) {
                known.closed = true;
                closing = Some(Instant::now() + CLOSES_WITHIN);
                let _ = connection.request(Verb::CloseInput).await;
            }
            self.end_if_idle(&mut known, &delivery).await;
            let next_look = self.next_look(&known, delivery.is_done());
            tokio::select! {
                _ = seen.changed() => {}
                _ = bell.changed() => {}
                _ = pool_bell.changed() => {}
                () = Calls::changed(&mut calls) => {}
                () = delivery.write(), if delivery.has_more() => {}
                () = at(known.collecting_since.map(|since| since + COLLECTED_FOR)) => {}
                () = at(next_look) => {}
                () = at(closing) => {
                    closing = None;
                    let _ = connection.request(Verb::Kill).await;
                }
            }
            if known.collecting_since.is_some_and(|since| since.elapsed() >= COLLECTED_FOR) {
                known.collecting_since = None;
                known.translator.flush();
                self.record(&mut known).await;
            }
        }
    }

    /// Has a program be idle that has no message, or none that it will take.
    async fn expect_messages(&self, known: &mut Known, is_told_all: bool) {
        known.await_first_message(is_told_all);
        if is_told_all {
            known.give_up_messages(self.now());
            self.record(known).await;
        }
    }

    /// Returns when to look at the program although nothing has happened.
    fn next_look(&self, known: &Known, is_told_all: bool) -> Option<Instant> {
        let idle_at = known.idle_kill_at().filter(|_| !known.told_idle);
        let gives_up_at = known.gives_up_at().filter(|_| is_told_all);
        idle_at.into_iter().chain(gives_up_at).min().map(|at| self.in_time(at))
    }

    /// Reads what is left of a session that has ended.
    pub(super) async fn read_rest(self) -> Finished {
        let Some((mut known, _)) = self.known().await else { return Finished::Quiet };
        if known.facts.agent.terminal {
            return Finished::Quiet;
        }
        let Some(reader) = self.open_log() else { return Finished::Quiet };
        if self.read_output(reader, &mut known).await.is_none() {
            return Finished::Quiet;
        }
        self.finish(known).await
    }

    async fn finish(&self, mut known: Known) -> Finished {
        let (turn_was_open, has_spoken) = (known.owes_turn(), known.has_spoken());
        known.translator.program_ended();
        self.record(&mut known).await;
        if let Some(message) = known.no_conversation.take() {
            return Finished::NoConversation(message);
        }
        match known.last_failure.take() {
            Some(message) => Finished::Failed(message),
            None if turn_was_open && has_spoken => Finished::Broken(known.errors.last_line()),
            None if known.closed => Finished::Closed,
            None if turn_was_open || self.has_unheard().await => Finished::Unanswered(known.errors.last_line()),
            None => Finished::Quiet,
        }
    }

    /// Tells whether there is a message that the program has not begun to answer.
    async fn has_unheard(&self) -> bool {
        let has_unheard = |history: &History| history.cli.as_deref().is_some_and(CliFacts::has_unheard);
        self.owner.look(has_unheard).await.unwrap_or(false)
    }

    fn open_log(&self) -> Option<Reader> {
        let opened = Reader::open(&self.folder, 0);
        opened.inspect_err(|error| self.warn(&format!("its output cannot be read: {error}"))).ok()
    }

    pub(super) fn warn(&self, text: &str) {
        self.owner.warn(format!("CLI agent {}: {text}", self.process.uuid));
    }

    /// Reads what the journal says.
    async fn known(&self) -> Option<(Known, History)> {
        let (data, uuid) = (Arc::clone(&self.body.exec.data), self.process.uuid);
        let read = self.body.exec.pool.run(move || {
            let (history, _) = data.history(uuid)?;
            let calls = match history.answer_place {
                Some(place) => data.calls(uuid, place)?,
                None => Vec::new(),
            };
            let told = deliver::sent_turns(&data.directory(uuid))?;
            Ok::<_, std::io::Error>((history, calls, told))
        });
        let (history, calls, told) = match read.await {
            Ok(Ok(read)) => read,
            Ok(Err(error)) => {
                self.warn(&format!("its journal cannot be read: {error}"));
                return None;
            }
            Err(_) => return None,
        };
        let settled = match &history.phase {
            relive_journal::history::Phase::Calling { calls } => calls.as_slice(),
            relive_journal::history::Phase::Boundary | relive_journal::history::Phase::Asking { .. } => &[],
        };
        let calls = calls.into_iter().zip(settled);
        let calls = calls.map(|(call, state)| OpenCall { id: call.id, is_settled: *state == CallState::Settled });
        let calls = calls.collect();
        let session = session_number(&self.folder);
        let mut known = Known::of(uuid, &history, calls, session, self.body.idle_timeout(), self.now())?;
        known.expect(&agents::expected(&known.facts, &cwd_of(&history)), told, self.now());
        Some((known, history))
    }

    pub(super) fn now(&self) -> Timestamp {
        self.body.clock.now()
    }

    /// Reads all output that there is, and records it.
    async fn read_output(&self, mut reader: Reader, known: &mut Known) -> Option<Reader> {
        loop {
            let read = self.body.exec.pool.run(move || {
                let mut chunks = Vec::new();
                let more = read_chunks(&mut reader, &mut chunks);
                (reader, chunks, more)
            });
            let (back, chunks, more) = read.await.ok()?;
            reader = back;
            if let Err(error) = more {
                self.warn(&format!("its output cannot be read: {error}"));
                return None;
            }
            let is_last = chunks.len() < CHUNKS_AT_ONCE;
            for item in chunks {
                match item {
                    Item::Chunk(chunk) => known.take_in(&chunk),
                    Item::Gap { .. } => known.lose_output(self.now()),
                }
            }
            self.record(known).await;
            if is_last {
                return Some(reader);
            }
        }
    }

    /// Writes what was said to the journal, with the position up to which it is complete.
    async fn record(&self, known: &mut Known) {
        let said = known.translator.take();
        let last = said.iter().rposition(|said| matches!(said, Said::Record(_)));
        // With the last record: all that was read is recorded then.
        let mut mark = (known.translator.is_empty() && known.read_to > known.marked_to).then_some(known.read_to);
        let mut records = Vec::new();
        for (place, said) in said.into_iter().enumerate() {
            match said {
                Said::Record(record) => {
                    records.push(*record);
                    if let Some(offset) = mark.take_if(|_| Some(place) == last) {
                        let read = Some(CliRead { session: known.session.0, offset });
                        records.push(Record::Cli(CliRecord { read, ..CliRecord::default() }));
                        known.marked_to = offset;
                    }
                }
                Said::Event(kind, body) => {
                    // An event is shown after the records before it.
                    self.append(std::mem::take(&mut records)).await;
                    self.journal.event(kind, body);
                }
            }
        }
        self.append(records).await;
        if known.translator.has_calls() {
            known.collecting_since.get_or_insert_with(Instant::now);
        } else {
            known.collecting_since = None;
        }
    }

    /// Records that a message is about to be written.
    pub(super) async fn number(&self, seq: u64) -> bool {
        let record = Record::Cli(CliRecord { sent: Some(seq), ..CliRecord::default() });
        let appended = self.journal.append(vec![record], Durability::Synced).await;
        appended.inspect_err(|error| self.warn(&format!("message {seq} cannot be sent: {error}"))).is_ok()
    }

    /// Records that a request of the program is about to be refused.
    pub(super) async fn refuse(&self, id: String, refusal: Refusal) -> bool {
        let declined = refusal == Refusal::Decline;
        let record = Record::Cli(CliRecord { unsupported: Some(id), declined, ..CliRecord::default() });
        let appended = self.journal.append(vec![record], Durability::Synced).await;
        appended.inspect_err(|error| self.warn(&format!("a request cannot be refused: {error}"))).is_ok()
    }

    async fn append(&self, records: Vec<Record>) {
        if records.is_empty() {
            return;
        }
        let durability = if records.iter().any(is_lasting) { Durability::Synced } else { Durability::Deferred };
        loop {
            match self.journal.append(records.clone(), durability).await {
                Ok(_) => return,
                Err(JournalError::Write(WriteError::DiskFull { .. })) if self.owner.told_to_end().is_none() => {
                    self.wait_for_space().await;
                }
                Err(error) => return self.warn(&format!("what it says cannot be recorded: {error}")),
            }
        }
    }

    /// Waits before something is recorded again that did not fit on the disk. Meanwhile the program waits for its reader, so
    /// nothing that it says is lost.
    async fn wait_for_space(&self) {
        self.owner.disk_full().await;
        tokio::time::sleep(RECORDED_AGAIN).await;
    }

    /// Asks a person about the next request for permission, or allows it, or asks what the agent asks.
    async fn put_questions(&self, known: &mut Known) {
        if let Some(asked) = &known.asked
            && !known.requests.contains_key(asked)
        {
            // The CLI has withdrawn it.
            known.asked = None;
            let open = self.owner.look(|history| history.question().cloned()).await.ok().flatten();
            let records = open.map(|open| {
                let reason = Some("the agent no longer asks for it".to_owned());
                Record::Approval(Approval { decision: Decision::Denied, reason, ..open })
            });
            if let Err(error) = self.owner.withdraw(records.into_iter().collect()).await {
                self.warn(&format!("a request cannot be withdrawn: {error}"));
            }
        }
        while known.asked.is_none()
            && let Some(key) = known.queue.pop_front()
        {
            let Some(request) = known.requests.get(&key).cloned() else { continue };
            let call = known.translator.call_for(&request);
            self.record(known).await;
            if known.is_question(&key) {
                let question = Question { call, answer: None, req: None, key: Some(key.clone()) };
                match self.owner.ask(vec![Record::Question(question)], SuspendReason::Question).await {
                    Ok(()) => known.asked = Some(key),
                    Err(error) if error.is_disk_full() && self.owner.told_to_end().is_none() => {
                        known.queue.push_front(key);
                        self.wait_for_space().await;
                    }
                    Err(error) => self.warn(&format!("a question cannot be recorded: {error}")),
                }
                continue;
            }
            let offered = known.offered(&request);
            let is_allowable = offered.allow || offered.allow_always;
            let (decision, reason) = match known.facts.agent.yes {
                true if is_allowable => (Decision::Allowed, None),
                // Without an answer it would wait for ever.
                true => (Decision::Denied, Some("it offers no way to allow this".to_owned())),
                false => (Decision::Asked, None),
            };
            let approval = Approval {
                call,
                name: Some(request.tool.clone()),
                decision,
                always: decision == Decision::Allowed && !offered.allow,
                rule: None,
                host: None,
                reason,
                req: None,
                key: Some(key.clone()),
            };
            if known.facts.agent.yes {
                self.append(vec![Record::Approval(approval)]).await;
                continue;
            }
            match self.owner.ask(vec![Record::Approval(approval)], SuspendReason::Approval).await {
                Ok(()) => known.asked = Some(key),
                Err(error) if error.is_disk_full() && self.owner.told_to_end().is_none() => {
                    known.queue.push_front(key);
                    self.wait_for_space().await;
                }
                Err(error) => self.warn(&format!("a request cannot be recorded: {error}")),
            }
        }
    }

    fn publish(&self, known: &mut Known, is_told_all: bool) {
        let machine = known.stream.machine();
        let asked = known.asked.as_ref().and_then(|key| known.requests.get(key));
        let asked = asked.map(|request| Asked::of(request, known.offered(request)));
        let agent = LiveAgent {
            name: known.facts.agent.agent.clone(),
            dialect: dialect_of(&known.facts.agent),
            lifecycle: known.lifecycle(is_told_all),
            activity: machine.activity(),
            last_active: machine.last_active(),
            idle_kill_at: known.idle_kill_at().filter(|_| is_told_all),
            session_id: known.facts.session_id.clone(),
            waiting: machine.waiting(),
            tool: known.running(),
            subagents: known.subagents.clone(),
            turn_since: known.turn_since,
            asked,
            note: known.note.clone(),
            gateway: known.gateway,
            in_terminal: false,
            dialog_since: None,
            reports: true,
        };
        if self.body.agents.put(self.process.uuid, agent) {
            self.owner.ring();
        }
    }

    /// Begins the idle countdown anew when a pause has ended.
    async fn follow_pauses(&self, known: &mut Known) {
        let is_paused = self.owner.is_paused();
        if std::mem::replace(&mut known.was_paused, is_paused) && !is_paused {
            let resumed_at = |history: &History| history.cli.as_deref().and_then(|cli| cli.resumed_at);
            if let Some(at) = self.owner.look(resumed_at).await.ok().flatten() {
                known.stream.machine_mut().restart_countdown(at);
            }
        }
    }

    /// Tells whether the work is done, so that the program can end.
    fn wants_to_close(&self, known: &Known, delivery: &Delivery) -> bool {
        let is_idle = known.is_idle();
        known.facts.agent.until_idle
            && !known.closed
            && is_idle
            && known.has_had_turn
            && delivery.is_done()
            && !self.owner.is_paused()
    }

    /// Ends an agent that has been idle for long enough, or whose room another one needs. A message that was acknowledged
    /// meanwhile keeps it.
    async fn end_if_idle(&self, known: &mut Known, delivery: &Delivery) {
        let (pool, uuid, machine) = (&self.body.pool, self.process.uuid, known.stream.machine());
        let is_idle =
            known.is_idle() && delivery.is_done() && !known.closed && !known.told_idle && !self.owner.is_paused();
        pool.report_idle(uuid, is_idle.then(|| machine.last_active()));
        let is_evicted = pool.is_to_leave(uuid);
        let is_due = known.idle_kill_at().is_some_and(|at| at <= self.now());
        if is_idle && (is_due || is_evicted) {
            let read_to = delivery.last_input();
            let is_needed = move |history: &History| history.cli.as_ref().is_none_or(|cli| cli.last_input > read_to);
            known.told_idle = self.owner.end_unless(Why::Idle, is_needed).await;
            if known.told_idle && is_evicted {
                self.journal.event("evicted", json!({"text": "it was idle, and another agent needs its place"}));
            }
        }
        if is_evicted && !known.told_idle {
            pool.stays(uuid);
        }
    }

    fn in_time(&self, at: Timestamp) -> Instant {
        let left = at.duration_since(self.now());
        Instant::now() + Duration::try_from(left).unwrap_or_default()
    }
}

/// Reads what there is, up to a number of chunks.
fn read_chunks(reader: &mut Reader, chunks: &mut Vec<Item>) -> io::Result<()> {
    while chunks.len() < CHUNKS_AT_ONCE
        && let Some(item) = reader.next()?
    {
        chunks.push(item);
    }
    Ok(())
}

/// Returns the working directory of a process.
pub(super) fn cwd_of(history: &History) -> String {
    history.identity.as_ref().map(|identity| identity.spawned.cwd.clone()).unwrap_or_default()
}

/// Tells whether a record has to be on the disk at once: what a later run depends on.
fn is_lasting(record: &Record) -> bool {
    let of_cli = |cli: &CliRecord| cli.session.is_some() || cli.turn.is_some();
    matches!(record, Record::Approval(_) | Record::Question(_)) || matches!(record, Record::Cli(cli) if of_cli(cli))
}

/// Waits until a moment, or for ever without one.
async fn at(moment: Option<Instant>) {
    match moment {
        Some(moment) => tokio::time::sleep_until(moment).await,
        None => std::future::pending().await,
    }
}
