//! Messages and answers to a CLI agent: recorded by whoever sends them, and written to its standard input, each once.
//!
//! Each has the number of its record, and the shim remembers the last one that it wrote. A body that adopts a session
//! goes through the records of the run again, and only what is missing is written.

use std::collections::{BTreeSet, VecDeque};
use std::io;

use relive_cli_agent::{Answer, Dialect, EncodeError, Refusal};
use relive_core::Signal;
use relive_journal::payload::Blobs;
use relive_journal::reader::{Cursor, Item, Reader};
use relive_journal::record::{Approval, CliRecord, CliStart, Decision, Input, Question, SignalMask};
use relive_journal::{History, ProcessDirectory};
use relive_session::connection::Connection;
use relive_session::protocol::{Outcome, Verb};
use relive_session::stage::Stage;

use super::conversation::{Conversation, cwd_of};
use super::known::Known;
use super::messages::message_id;
use super::unsupported::RefusedBefore;
use super::{acp, agents};

/// How many records are read at a time.
const READ_AT_ONCE: usize = 256;
/// The numbers of the messages by which a program begins: before every record of a message.
const FIRST: u64 = 0;
const SECOND: u64 = 1;

/// The lowest number that the record of a message can have.
const FIRST_INPUT: u64 = 1;

/// Something to be written to a program.
#[derive(Debug, Clone)]
pub(super) struct Outgoing {
    pub(super) number: u64,
    /// The message that it is, by its record.
    pub(super) input: Option<u64>,
    /// One or more whole lines.
    pub(super) lines: String,
}

/// A record that is to be written to the program.
#[derive(Debug)]
struct Due {
    seq: u64,
    what: What,
}

#[derive(Debug)]
enum What {
    Turn(String),
    Answer(Box<Approval>),
    /// The refusal of a request with this id, in JSON.
    Unsupported(String, Refusal),
    /// The turn is to be stopped.
    Interrupt,
    /// The answer to a question, by the CLI's id of that.
    Reply {
        key: String,
        text: String,
    },
}

impl What {
    /// Returns the CLI's id of the request that it answers; `None` for what answers nothing.
    fn key(&self) -> Option<&str> {
        match self {
            Self::Turn(_) | Self::Unsupported(..) | Self::Interrupt => None,
            Self::Answer(approval) => Some(approval.key.as_deref().unwrap_or_default()),
            Self::Reply { key, .. } => Some(key),
        }
    }
}

/// What a reader of the journal has found.
enum Found {
    Due(Due),
    /// The record of this number is about to be written, as the message with this number.
    Sent {
        number: u64,
        seq: u64,
    },
    /// A request of the program is about to be refused, by the message with the number of this record.
    Unsupported {
        number: u64,
        id: String,
        refusal: Refusal,
    },
    Launched,
}

/// How far a program is with the messages by which it begins.
#[derive(Debug)]
enum Opening {
    /// It is asked for a conversation when it has said what it can do.
    Waits {
        how: CliStart,
        cwd: String,
    },
    Done,
}

/// The messages to one program.
pub(super) struct Delivery {
    connection: Connection,
    reader: Option<Reader>,
    /// The last message that was written before, at least in part.
    written: Option<u64>,
    /// The last message that began a turn: it is not written again to a later program.
    heard: u64,
    /// Not numbered yet.
    due: VecDeque<Due>,
    /// Numbered, in that order.
    numbered: VecDeque<(u64, Due)>,
    /// Written by an earlier daemon, with their numbers.
    done: Vec<(u64, Due)>,
    /// The last message that was read.
    last_input: u64,
    /// The record that is being numbered.
    claimed: Option<u64>,
    current: Option<Outgoing>,
    opening: Opening,
    refused_before: RefusedBefore,
    /// Whether the program takes no more.
    is_closed: bool,
}

impl Delivery {
    /// Waits until the program has started; `None` if its shim is gone.
    pub(super) async fn begin(
        conversation: &Conversation,
        connection: &Connection,
        history: &History,
        known: &Known,
    ) -> Option<Self> {
        connection.wait_for(|seen| seen.snapshot.stage != Stage::Starting).await.ok()?;
        let written = match connection.request(Verb::Stat).await {
            Ok(Outcome::Stat(stat)) => stat.input?.written.map(|part| part.message),
            Ok(_) | Err(_) => return None,
        };
        let directory = conversation.body.exec.data.directory(conversation.process.uuid);
        let cwd = cwd_of(history);
        let facts = history.cli.as_deref()?;
        let how = agents::start_of(facts);
        let lines = match written {
            Some(_) => String::new(),
            None => agents::handshake(facts, how, &cwd).concat(),
        };
        let is_open = written.is_some_and(|written| written > FIRST);
        let opening = match agents::dialect_of(&facts.agent) {
            Dialect::Acp if !is_open => Opening::Waits { how, cwd },
            Dialect::Acp
            | Dialect::Claude
            | Dialect::Qwen
            | Dialect::CodexExec
            | Dialect::CodexAppServer
            | Dialect::Gemini
            | Dialect::Opencode => Opening::Done,
        };
        let current = (!lines.is_empty()).then_some(Outgoing { number: FIRST, input: None, lines });
        Some(Self {
            connection: connection.clone(),
            reader: Some(Reader::new(directory.steps(), Cursor::default())),
            written,
            heard: known.facts.heard,
            due: VecDeque::new(),
            numbered: VecDeque::new(),
            done: Vec::new(),
            last_input: known.facts.heard.max(FIRST_INPUT),
            claimed: None,
            current,
            opening,
            refused_before: RefusedBefore::new(),
            is_closed: false,
        })
    }

    /// Reads the records that were added.
    pub(super) async fn read(&mut self, conversation: &Conversation, known: &mut Known) {
        loop {
            let Some(mut reader) = self.reader.take() else { return };
            // Records that are not on the disk may be lost, and their numbers reused.
            reader.set_limit(conversation.owner.synced_end().unwrap_or(0));
            let (blobs, heard) = (blobs(conversation), self.heard);
            let read = conversation.body.exec.pool.run(move || {
                let found = read_records(&mut reader, &blobs, heard);
                (reader, found)
            });
            let Ok((reader, found)) = read.await else { return };
            self.reader = Some(reader);
            let (found, is_last) = match found {
                Ok(found) => found,
                Err(error) => return conversation.warn(&format!("its messages cannot be read: {error}")),
            };
            found.into_iter().for_each(|found| self.take_in(found));
            if is_last {
                break;
            }
        }
        for (number, Due { seq, what }) in std::mem::take(&mut self.done) {
            match what {
                What::Turn(text) => {
                    if known.was_told(seq) || known.is_claimed(number, seq) {
                        continue;
                    }
                    // The program has it, and has not begun a turn with it.
                    let lines = encoded(known, number, seq, &text).unwrap_or_default();
                    known.wrote(&Outgoing { number, input: Some(seq), lines }, conversation.now());
                }
                answer @ (What::Answer(_) | What::Reply { .. }) => {
                    known.answered(answer.key().unwrap_or_default());
                }
                What::Unsupported(..) | What::Interrupt => {}
            }
        }
        // Nobody is asked again about what an earlier daemon took the answer to.
        let open = self.due.iter().chain(self.numbered.iter().map(|(_, due)| due));
        for key in open.filter_map(|due| due.what.key()) {
            known.queue.retain(|queued| queued != key);
        }
    }

    fn take_in(&mut self, found: Found) {
        match found {
            Found::Due(due) => {
                if matches!(due.what, What::Turn(_)) {
                    self.last_input = self.last_input.max(due.seq);
                }
                self.due.push_back(due);
            }
            Found::Sent { number, seq } => {
                self.claimed.take_if(|claimed| *claimed == seq);
                let Some(place) = self.due.iter().position(|due| due.seq == seq) else { return };
                let Some(due) = self.due.remove(place) else { return };
                if self.written.is_some_and(|written| number <= written) {
                    self.done.push((number, due));
                } else {
                    self.numbered.push_back((number, due));
                }
            }
            Found::Unsupported { number, id, refusal } => {
                self.refused_before.add(&id);
                if self.written.is_none_or(|written| number > written) {
                    self.numbered.push_back((number, Due { seq: number, what: What::Unsupported(id, refusal) }));
                }
            }
            Found::Launched => {
                self.refused_before.clear();
                // Another program: messages that began no turn are for this one, answers are not.
                self.due.extend(self.done.drain(..).map(|(_, due)| due));
                self.due.extend(self.numbered.drain(..).map(|(_, due)| due));
                self.due.retain(|due| matches!(due.what, What::Turn(_)));
                self.due.make_contiguous().sort_by_key(|due| due.seq);
            }
        }
    }

    /// Prepares the next message, if it can be written now. Each is numbered by a record first, because an answer comes
    /// before the messages that wait for the end of a turn.
    pub(super) async fn prepare(&mut self, conversation: &Conversation, known: &mut Known) {
        self.open_conversation(known);
        self.refuse_requests(conversation, known).await;
        while self.current.is_none()
            && let Some((number, due)) = self.numbered.pop_front()
        {
            match outgoing(known, number, &due) {
                Ok(Some(outgoing)) => {
                    // Before it is written: what the program says then follows it.
                    known.wrote(&outgoing, conversation.now());
                    self.current = Some(outgoing);
                }
                // The CLI has withdrawn its request meanwhile, or its turn is over.
                Ok(None) => {}
                Err(EncodeError::NoSession) => {
                    self.numbered.push_front((number, due));
                    return;
                }
                Err(error) => conversation.warn(&format!("message {} cannot be sent: {error}", due.seq)),
            }
        }
        if self.current.is_some() || self.claimed.is_some() || self.is_closed {
            return;
        }
        let is_answered = self.due.iter().any(|due| due.what.key().is_some());
        // What was allowed is not done while somebody has paused the agent: it gets the answer when it is resumed.
        let holds_answers = is_answered && conversation.is_paused_as_recorded().await;
        let is_urgent = |due: &&Due| match due.what {
            What::Turn(_) => false,
            What::Answer(_) | What::Reply { .. } => !holds_answers,
            What::Unsupported(..) | What::Interrupt => true,
        };
        let urgent = self.due.iter().find(is_urgent);
        let turn = self.due.front().filter(|due| due.what.key().is_none());
        let next = urgent.or_else(|| turn.filter(|_| known.may_begin_turn()));
        let Some(seq) = next.map(|due| due.seq) else { return };
        self.claimed = Some(seq);
        if !conversation.number(seq).await {
            self.claimed = None;
        }
    }

    /// Asks an agent for its conversation, once it has said what it can do.
    fn open_conversation(&mut self, known: &mut Known) {
        let Opening::Waits { how, cwd } = &self.opening else { return };
        let Some(capabilities) = known.capabilities.filter(|_| self.current.is_none()) else { return };
        match acp::begin(&known.facts, *how, cwd, capabilities) {
            Ok(lines) => self.current = Some(Outgoing { number: SECOND, input: None, lines }),
            Err(refused) => known.no_conversation = Some(refused),
        }
        self.opening = Opening::Done;
    }

    /// Records the refusal of requests that nobody can fulfil, so that it is written once.
    async fn refuse_requests(&mut self, conversation: &Conversation, known: &mut Known) {
        self.refused_before.remove_from(&mut known.unsupported);
        while let Some((id, refusal)) = known.unsupported.first() {
            if !conversation.refuse(id.to_owned(), refusal).await {
                // It is tried again with the next change.
                return;
            }
            known.unsupported.refused();
        }
    }

    /// Returns the last message that was read, by its record.
    pub(super) fn last_input(&self) -> u64 {
        self.last_input
    }

    pub(super) fn has_more(&self) -> bool {
        self.current.is_some() && !self.is_closed
    }

    /// Returns whether everything was written.
    pub(super) fn is_done(&self) -> bool {
        self.current.is_none() && self.due.is_empty() && self.numbered.is_empty()
    }

    /// Writes the next message. It may be dropped: a message that is written twice arrives once.
    pub(super) async fn write(&mut self) {
        let Some(outgoing) = self.current.as_ref() else { return };
        match self.connection.write_message(outgoing.number, outgoing.lines.as_bytes()).await {
            Ok(Outcome::Done) => self.current = None,
            // It has ended, or has closed its input: what is not written is for its next run.
            Ok(_) | Err(_) => self.is_closed = true,
        }
    }
}

/// Encodes a record; nothing if the request that it answers is gone.
fn outgoing(known: &mut Known, number: u64, due: &Due) -> Result<Option<Outgoing>, EncodeError> {
    match &due.what {
        What::Turn(text) => {
            let lines = encoded(known, number, due.seq, text)?;
            Ok(Some(Outgoing { number, input: Some(due.seq), lines }))
        }
        What::Answer(approval) => {
            let request = known.answered(approval.key.as_deref().unwrap_or_default());
            let Some((request, encoder)) = request.zip(known.encoder.as_ref()) else { return Ok(None) };
            let lines = match encoder.answer(&request, &answer_of(approval)) {
                // Without an answer it would wait for ever.
                Err(EncodeError::NotOffered) => {
                    known.note = Some("it offers no way to allow this, so it was told no".to_owned());
                    encoder.answer(&request, &Answer::Deny { reason: None })?
                }
                encoded => encoded?,
            };
            Ok(Some(Outgoing { number, input: None, lines }))
        }
        What::Interrupt if !known.stream.machine().is_turn_open() => Ok(None),
        What::Interrupt => {
            let encoder = known.encoder.as_mut().ok_or(EncodeError::NoSession)?;
            encoder.number_requests_from(due.seq);
            Ok(Some(Outgoing { number, input: None, lines: encoder.interrupt()? }))
        }
        What::Unsupported(id, refusal) => {
            let encoder = known.encoder.as_ref().ok_or(EncodeError::NoSession)?;
            Ok(Some(Outgoing { number, input: None, lines: encoder.refuse(id, *refusal) }))
        }
        What::Reply { key, text } => {
            let request = known.answered(key);
            let Some((request, encoder)) = request.zip(known.encoder.as_ref()) else { return Ok(None) };
            let Some(input) = &request.input else { return Ok(None) };
            let lines = encoder.reply(&request.request_id, input, text);
            Ok(Some(Outgoing { number, input: None, lines }))
        }
    }
}

fn encoded(known: &mut Known, number: u64, seq: u64, text: &str) -> Result<String, EncodeError> {
    let encoder = known.encoder.as_mut().ok_or(EncodeError::NoSession)?;
    encoder.number_requests_from(seq);
    encoder.name_next_message(message_id(known.process, number));
    encoder.user_turn(text)
}

fn answer_of(approval: &Approval) -> Answer {
    match approval.decision {
        Decision::Allowed if approval.always => Answer::AllowAlways,
        Decision::Allowed => Answer::Allow,
        Decision::Denied | Decision::Asked => Answer::Deny { reason: approval.reason.clone() },
    }
}

/// Reads the next records that concern the program, and whether these are all.
fn read_records(reader: &mut Reader, blobs: &Blobs, heard: u64) -> io::Result<(Vec<Found>, bool)> {
    let mut found = Vec::new();
    for _ in 0..READ_AT_ONCE {
        let Some(item) = reader.next_item()? else { return Ok((found, true)) };
        let Item::Record(entry) = item else { continue };
        let seq = entry.id.seq;
        match entry.kind.as_str() {
            "input" if seq > heard => {
                let input: Input = serde_json::from_str(&entry.line)?;
                let text = blobs.text(&input.text).map_err(io::Error::other)?;
                found.push(Found::Due(Due { seq, what: What::Turn(text) }));
            }
            "approval" => {
                let approval: Approval = serde_json::from_str(&entry.line)?;
                if approval.key.is_some() && approval.decision != Decision::Asked {
                    found.push(Found::Due(Due { seq, what: What::Answer(Box::new(approval)) }));
                }
            }
            "signal_mask" => {
                let mask: SignalMask = serde_json::from_str(&entry.line)?;
                let is_interrupt = mask.delivered == Some(Signal::Int);
                found.extend(is_interrupt.then_some(Found::Due(Due { seq, what: What::Interrupt })));
            }
            "question" => {
                let question: Question = serde_json::from_str(&entry.line)?;
                if let (Some(key), Some(text)) = (question.key, question.answer) {
                    found.push(Found::Due(Due { seq, what: What::Reply { key, text } }));
                }
            }
            "cli" => {
                let record: CliRecord = serde_json::from_str(&entry.line)?;
                found.extend(record.launched.map(|_| Found::Launched));
                let refusal = if record.declined { Refusal::Decline } else { Refusal::NotOffered };
                found.extend(record.unsupported.map(|id| Found::Unsupported { number: seq, id, refusal }));
                found.extend(record.sent.map(|sent| Found::Sent { number: seq, seq: sent }));
            }
            _ => {}
        }
    }
    Ok((found, false))
}

/// Reads which messages were written to the last program, or are about to be: those that begin turns, in order.
pub(super) fn sent_turns(directory: &ProcessDirectory) -> io::Result<Vec<u64>> {
    let mut reader = Reader::new(directory.steps(), Cursor::default());
    let (mut inputs, mut sent) = (BTreeSet::new(), Vec::new());
    while let Some(item) = reader.next_item()? {
        let Item::Record(entry) = item else { continue };
        match entry.kind.as_str() {
            "input" => {
                inputs.insert(entry.id.seq);
            }
            "cli" => {
                let record: CliRecord = serde_json::from_str(&entry.line)?;
                if record.launched.is_some() {
                    sent.clear();
                }
                sent.extend(record.sent.filter(|sent| inputs.contains(sent)));
            }
            _ => {}
        }
    }
    Ok(sent)
}

fn blobs(conversation: &Conversation) -> Blobs {
    let data = &conversation.body.exec.data;
    Blobs::new(data.io().disk.clone(), data.directory(conversation.process.uuid).path())
}
