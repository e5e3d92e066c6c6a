//! Messages and answers to a CLI agent: recorded by whoever sends them, and written to its standard input, each once.
//!
//! Each has the number of its record, and the shim remembers the last one that it wrote. A body that adopts a session
//! goes through the records of the run again, and only what is missing is written.

use std::collections::VecDeque;
use std::io;

use relive_cli_agent::{Answer, EncodeError};
use relive_journal::History;
use relive_journal::payload::Blobs;
use relive_journal::reader::{Cursor, Item, Reader};
use relive_journal::record::{Approval, CliRecord, Decision, Input};
use relive_session::connection::Connection;
use relive_session::protocol::{Outcome, Verb};
use relive_session::stage::Stage;

use super::agents;
use super::conversation::Conversation;
use super::known::Known;

/// How many records are read at a time.
const READ_AT_ONCE: usize = 256;
/// The number of the messages by which a program begins: before every record.
const FIRST: u64 = 0;

/// Something to be written to a program.
#[derive(Debug, Clone)]
pub(super) struct Outgoing {
    number: u64,
    /// The message that it is, by its record.
    pub(super) input: Option<u64>,
    /// One or more whole lines.
    pub(super) lines: String,
}

/// A record that is to be written to the program.
#[derive(Debug)]
enum Due {
    Turn { seq: u64, text: String },
    Answer { seq: u64, approval: Box<Approval> },
}

/// What a reader of the journal has found.
enum Found {
    Due(Due),
    Launched,
}

/// The messages to one program.
pub(super) struct Delivery {
    connection: Connection,
    reader: Option<Reader>,
    /// The last message that was written, at least in part.
    written: Option<u64>,
    /// The last message that began a turn: it is not written again to a later program.
    heard: u64,
    due: VecDeque<Due>,
    current: Option<Outgoing>,
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
        let cwd = history.identity.as_ref().map(|identity| identity.spawned.cwd.clone()).unwrap_or_default();
        let how = agents::start_of(history.cli.as_deref()?);
        let lines = match written {
            Some(_) => String::new(),
            None => agents::handshake(history.cli.as_deref()?, how, &cwd).concat(),
        };
        let current = (!lines.is_empty()).then_some(Outgoing { number: FIRST, input: None, lines });
        Some(Self {
            connection: connection.clone(),
            reader: Some(Reader::new(directory.steps(), Cursor::default())),
            written,
            heard: known.facts.heard,
            due: VecDeque::new(),
            current,
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
            let found = match read.await {
                Ok((reader, found)) => {
                    self.reader = Some(reader);
                    found
                }
                Err(_) => return,
            };
            let (found, is_last) = match found {
                Ok(found) => found,
                Err(error) => return conversation.warn(&format!("its messages cannot be read: {error}")),
            };
            for found in found {
                self.take_in(found, known, conversation);
            }
            if is_last {
                return;
            }
        }
    }

    fn take_in(&mut self, found: Found, known: &mut Known, conversation: &Conversation) {
        match found {
            // Answers to an earlier program are not for this one.
            Found::Launched => self.due.retain(|due| matches!(due, Due::Turn { .. })),
            Found::Due(Due::Turn { seq, text }) if self.is_written(seq) => {
                // The program has it and has not begun a turn with it.
                let lines = encoded(known, seq, &text).unwrap_or_default();
                known.wrote(&Outgoing { number: seq, input: Some(seq), lines }, conversation.now());
            }
            Found::Due(Due::Answer { seq, approval }) if self.is_written(seq) => {
                known.answered(approval.key.as_deref().unwrap_or_default());
            }
            Found::Due(due) => self.due.push_back(due),
        }
    }

    fn is_written(&self, seq: u64) -> bool {
        self.written.is_some_and(|written| seq <= written)
    }

    /// Encodes the next message, if it can be written now.
    pub(super) fn prepare(&mut self, conversation: &Conversation, known: &mut Known) {
        while self.current.is_none()
            && let Some(due) = self.due.front()
        {
            let outgoing = match due {
                Due::Turn { .. } if !known.may_begin_turn() => return,
                Due::Turn { seq, text } => match encoded(known, *seq, text) {
                    Ok(lines) => Some(Outgoing { number: *seq, input: Some(*seq), lines }),
                    Err(error) => {
                        conversation.warn(&format!("message {seq} cannot be sent: {error}"));
                        None
                    }
                },
                Due::Answer { seq, approval } => {
                    let request = known.answered(approval.key.as_deref().unwrap_or_default());
                    let line = request.zip(known.encoder.as_ref()).map(|(request, encoder)| {
                        encoder.answer(&request, &answer_of(approval))
                    });
                    match line {
                        Some(Ok(lines)) => Some(Outgoing { number: *seq, input: None, lines }),
                        Some(Err(error)) => {
                            conversation.warn(&format!("answer {seq} cannot be sent: {error}"));
                            None
                        }
                        // The CLI has withdrawn its request meanwhile.
                        None => None,
                    }
                }
            };
            self.due.pop_front();
            self.current = outgoing;
        }
    }

    pub(super) fn has_more(&self) -> bool {
        self.current.is_some() && !self.is_closed
    }

    /// Returns whether everything was written.
    pub(super) fn is_done(&self) -> bool {
        self.current.is_none() && self.due.is_empty()
    }

    /// Writes the next message, and returns it. It may be dropped: a message that is written twice arrives once.
    pub(super) async fn write(&mut self) -> Option<Outgoing> {
        let outgoing = self.current.as_ref()?;
        match self.connection.write_message(outgoing.number, outgoing.lines.as_bytes()).await {
            Ok(Outcome::Done) => self.current.take(),
            // It has ended, or has closed its input: what is not written is for its next run.
            Ok(_) | Err(_) => {
                self.is_closed = true;
                None
            }
        }
    }
}

fn encoded(known: &mut Known, seq: u64, text: &str) -> Result<String, EncodeError> {
    let encoder = known.encoder.as_mut().ok_or(EncodeError::NoSession)?;
    encoder.number_requests_from(seq);
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
                found.push(Found::Due(Due::Turn { seq, text }));
            }
            "approval" => {
                let approval: Approval = serde_json::from_str(&entry.line)?;
                if approval.key.is_some() && approval.decision != Decision::Asked {
                    found.push(Found::Due(Due::Answer { seq, approval: Box::new(approval) }));
                }
            }
            "cli" => {
                let record: CliRecord = serde_json::from_str(&entry.line)?;
                if record.launched.is_some() {
                    found.push(Found::Launched);
                }
            }
            _ => {}
        }
    }
    Ok((found, false))
}

fn blobs(conversation: &Conversation) -> Blobs {
    let data = &conversation.body.exec.data;
    Blobs::new(data.io().disk.clone(), data.directory(conversation.process.uuid).path())
}
