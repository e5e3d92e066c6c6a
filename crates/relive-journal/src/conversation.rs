//! The conversation, rebuilt from the journal as a model has to be shown it.
//!
//! Always holds: every tool call is followed by exactly one result, in the order of the calls, before anything else is
//! said. A call that has no result yet says so in its place.

mod said;

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

use crate::history::{History, Place};
use crate::line;
use crate::payload::{Json, Text};
use crate::record::{Body, Call};

pub use said::Said;

/// What a model is told about a call whose outcome nobody can know.
pub const TOLD_IN_DOUBT: &str =
    "The call was interrupted and its outcome is unknown: it may or may not have taken effect. Look before you act.";
/// What a model is told about a call that a person said was done.
pub const TOLD_DONE: &str = "The call was interrupted. The user has checked: it took effect.";
/// What a model is told about a call that a person said was not done.
pub const TOLD_NOT_DONE: &str = "The call was interrupted. The user has checked: it did not take effect.";
/// The text in place of the result of a call that has none yet.
pub const TOLD_PENDING: &str = "The call has not been run.";

/// One message of a conversation.
#[derive(Debug, Clone, PartialEq)]
pub enum Message {
    /// A message to the agent.
    User {
        /// By whom it was chosen, it names the message.
        id: String,
        text: Text,
    },
    /// The summary that replaces everything before it.
    Summary { text: Text },
    Model {
        step: u32,
        thinking: Option<Text>,
        text: Option<Text>,
        calls: Vec<Call>,
        /// Parts that its provider wants back unchanged.
        carry: Option<Json>,
    },
    Tool {
        step: u32,
        call: u32,
        /// The call's name by the provider.
        id: String,
        /// Whether it worked.
        ok: bool,
        /// The result, or the text in its place.
        result: Text,
    },
}

/// A place to cut a conversation: the messages before it can be summarized, those after it are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cut {
    /// The number of messages before it.
    pub messages: usize,
    /// The last record before it; all records after it are of messages after it.
    pub through: u64,
}

impl History {
    /// The conversation so far. `journal` is the file this history was read from.
    pub fn conversation(&self, journal: &File) -> io::Result<Vec<Message>> {
        Ok(self.conversation_and_cuts(journal)?.0)
    }

    /// The places of the records that the conversation is made of, in its order.
    pub(crate) fn conversation_places(&self) -> impl Iterator<Item = &Place> {
        self.conversation.iter().chain(&self.unheard)
    }

    /// Reads the records that the conversation is made of, in its order. `journal` is the file this history was read
    /// from.
    pub(crate) fn conversation_records(&self, journal: &File) -> io::Result<Vec<Body>> {
        let mut buffer = Vec::new();
        self.conversation_places().map(|place| Ok(read(journal, *place, &mut buffer)?.1)).collect()
    }

    /// The conversation so far, and where it can be cut, first to last. No cut parts a call from its result.
    pub fn conversation_and_cuts(&self, journal: &File) -> io::Result<(Vec<Message>, Vec<Cut>)> {
        let places: Vec<Place> = self.conversation.iter().chain(&self.unheard).copied().collect();
        let is_summary = |place: &Place| self.summary.is_some_and(|summary| summary.seq == place.seq);
        // The first record of all that come later: one that came while the model was asked stands after its answer.
        let mut later = vec![u64::MAX; places.len() + 1];
        for (index, place) in places.iter().enumerate().rev() {
            later[index] = later[index + 1].min(place.seq);
        }
        let mut conversation = Builder::default();
        let mut buffer = Vec::new();
        let mut cuts = Vec::new();
        let mut through = 0;
        for (index, place) in places.iter().enumerate() {
            let (step, body) = read(journal, *place, &mut buffer)?;
            conversation.take(step, body);
            // It is written after what stands behind it.
            if !is_summary(place) {
                through = through.max(place.seq);
            }
            if conversation.calls.is_empty() && 0 < through && through < later[index + 1] {
                cuts.push(Cut { messages: conversation.messages.len(), through });
            }
        }
        Ok((conversation.finish(), cuts))
    }
}

/// Returns the calls of the answer at this place; none if that is something else.
pub(crate) fn calls(journal: &File, place: Place) -> io::Result<Vec<Call>> {
    let body = read(journal, place, &mut Vec::new())?.1;
    Ok(if let Body::ModelEnded(answer) = body { answer.calls } else { Vec::new() })
}

fn read(journal: &File, place: Place, buffer: &mut Vec<u8>) -> io::Result<(u32, Body)> {
    buffer.resize(place.len as usize, 0);
    journal.read_exact_at(buffer, place.offset)?;
    let line = buffer.strip_suffix(b"\n").unwrap_or(buffer);
    let changed = || io::Error::new(io::ErrorKind::InvalidData, format!("record {} has changed", place.seq));
    if !line::is_intact(line) {
        return Err(changed());
    }
    let head = line::head(line)?;
    let body = Body::decode(&head.kind, line).ok_or_else(changed)??;
    Ok((head.step, body))
}

#[derive(Default)]
struct Builder {
    messages: Vec<Message>,
    /// The calls of the last answer, each with its result once it is known.
    calls: Vec<(Call, Option<(bool, Text)>)>,
    step: u32,
    /// Messages that arrived while the calls ran: they come after the results.
    meanwhile: Vec<Message>,
}

impl Builder {
    fn take(&mut self, step: u32, body: Body) {
        match Said::of(body) {
            Some(Said::Input(input)) => {
                let message = Message::User { id: input.id, text: input.text };
                if self.calls.is_empty() { self.messages.push(message) } else { self.meanwhile.push(message) }
            }
            Some(Said::Summary(compacted)) => self.messages.push(Message::Summary { text: compacted.summary }),
            Some(Said::Answer(answer)) => {
                self.flush();
                self.step = step;
                self.calls = answer.calls.iter().map(|call| (call.clone(), None)).collect();
                let (thinking, text, calls, carry) = (answer.thinking, answer.text, answer.calls, answer.carry);
                self.messages.push(Message::Model { step, thinking, text, calls, carry });
            }
            Some(Said::Result { call, ok, text }) => self.result(call, ok, text),
            Some(Said::Asked | Said::CutOff) | None => {}
        }
    }

    fn result(&mut self, call: u32, ok: bool, result: Text) {
        if let Some((_, slot)) = self.calls.get_mut(call as usize) {
            *slot = Some((ok, result));
        }
        if self.calls.iter().all(|(_, result)| result.is_some()) {
            self.flush();
        }
    }

    fn flush(&mut self) {
        for (call, (asked, result)) in (0..).zip(self.calls.drain(..)) {
            let (ok, result) = result.unwrap_or((false, TOLD_PENDING.into()));
            self.messages.push(Message::Tool { step: self.step, call, id: asked.id, ok, result });
        }
        self.messages.append(&mut self.meanwhile);
    }

    fn finish(mut self) -> Vec<Message> {
        self.flush();
        self.messages
    }
}
