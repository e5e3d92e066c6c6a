//! All events of a process in their order: those that are stored, and those that its journal stands for.
//!
//! **Invariant:** an event is written before the records that follow it. So a reader that sees a record, and then looks
//! for events, finds all that happened before that record.

use std::collections::VecDeque;
use std::io;

use relive_core::{Generation, Uuid};

use super::derive::{self, Said, Told};
use super::{CALL, TEXT, THINKING};
use crate::directory::ProcessDirectory;
use crate::disk::Disk;
use crate::payload::Blobs;
use crate::reader::{Cursor, Entry, Item, Reader};
use crate::record::{AskedFor, Body, Call};
use crate::regular;

/// A place among the events of a process.
#[derive(Debug)]
pub struct EventReader {
    uuid: Option<Uuid>,
    journal: Reader,
    stored: Reader,
    blobs: Blobs,
    last: Cursor,
    /// The record that is looked at next.
    record: Option<Entry>,
    /// The stored event that is handed out next.
    event: Option<Entry>,
    /// The last record that was looked at.
    passed: Cursor,
    /// The epoch under way, if its events are derived.
    derived: Option<Generation>,
    /// Whether the records are those of the process that this one was forked from.
    is_foreign: bool,
    /// Whether it was said that something else is in the place of the stored events.
    is_lost: bool,
    /// The `model_started` that is not answered yet, unless its answer is not shown.
    asked: Option<Cursor>,
    told: Told,
    answer: LastAnswer,
    /// The records and the stored events that say which of its calls were made, read only if one has failed.
    made: Vec<Entry>,
    ready: VecDeque<Item>,
}

/// The calls of the last answer, read only if one of them is to be shown.
#[derive(Debug, Default)]
enum LastAnswer {
    #[default]
    None,
    Unread(Entry),
    Calls(Vec<Call>),
}

impl LastAnswer {
    fn calls(&mut self) -> &[Call] {
        if let Self::Unread(record) = self {
            *self = match derive::body(record) {
                Some(Body::ModelEnded(answer)) => Self::Calls(answer.calls),
                Some(_) | None => Self::None,
            };
        }
        match self {
            Self::Calls(calls) => calls,
            Self::None | Self::Unread(_) => &[],
        }
    }
}

impl EventReader {
    /// Reads what comes after `after`; from the beginning if that is the default.
    #[must_use]
    pub fn new(directory: &ProcessDirectory, after: Cursor) -> Self {
        Self {
            uuid: directory.uuid(),
            journal: Reader::new(directory.steps(), Cursor::default()),
            stored: Reader::new(directory.events(), Cursor::default()),
            blobs: Blobs::new(Disk::new(), directory.path()),
            last: after,
            record: None,
            event: None,
            passed: Cursor::default(),
            derived: None,
            is_foreign: false,
            is_lost: false,
            asked: None,
            told: Told::default(),
            answer: LastAnswer::None,
            made: Vec::new(),
            ready: VecDeque::new(),
        }
    }

    /// The next item; `None` when there is none for now. Ask again when the files may have grown.
    pub fn next_item(&mut self) -> io::Result<Option<Item>> {
        loop {
            if let Some(item) = self.ready.pop_front() {
                return Ok(Some(item));
            }
            // The record first: all that happened before it is then found.
            if self.record.is_none() {
                self.record = next_record(&mut self.journal)?;
            }
            if self.event.is_none() {
                match self.stored.next_item() {
                    Ok(Some(Item::Record(event))) => self.event = Some(event),
                    Ok(Some(damaged @ Item::Damaged { .. })) => return Ok(Some(damaged)),
                    Ok(None) => {}
                    // The journal tells its part all the same.
                    Err(error) if regular::is_other(&error) => {
                        if !std::mem::replace(&mut self.is_lost, true) {
                            return Ok(Some(Item::Damaged { offset: 0 }));
                        }
                    }
                    Err(error) => return Err(error),
                }
            }
            if let Some(event) = self.event.take_if(|event| is_next(event, self.record.as_ref(), self.passed)) {
                self.hand_out_stored(event);
            } else if let Some(record) = self.record.take() {
                self.look_at(record);
            } else {
                return Ok(None);
            }
        }
    }

    fn hand_out_stored(&mut self, event: Entry) {
        let is_of = |asked: Cursor| (asked.epoch, asked.seq) == (event.id.epoch, event.id.seq);
        if self.asked.is_some_and(is_of) {
            self.told.part = event.id.part;
            match event.kind.as_str() {
                THINKING => self.told.thinking += piece_len(&event.line),
                TEXT => self.told.text += piece_len(&event.line),
                _ => {}
            }
        }
        // A CLI agent makes its calls itself: they have no record.
        if event.kind == CALL && self.derived == Some(event.id.epoch) {
            self.made.push(event.clone());
        }
        self.hand_out(event);
    }

    fn hand_out(&mut self, event: Entry) {
        if event.id > self.last {
            self.last = event.id;
            self.ready.push_back(Item::Record(event));
        }
    }

    /// Hands out the events that a record stands for.
    fn look_at(&mut self, record: Entry) {
        self.passed = record.id;
        match record.kind.as_str() {
            "opened" => {
                let derives = matches!(derive::body(&record), Some(Body::Opened(opened)) if opened.derives_events);
                self.derived = derives.then_some(record.id.epoch);
                self.asked = None;
            }
            // The records before that of its own are copies of another process's.
            "spawned" => {
                self.is_foreign =
                    matches!(derive::body(&record), Some(Body::Spawned(spawned)) if Some(spawned.uuid) != self.uuid);
            }
            "model_started" if self.is_told(&record) => {
                if let Some(Body::ModelStarted(started)) = derive::body(&record) {
                    self.asked = (started.purpose != Some(AskedFor::Summary)).then_some(record.id);
                    self.told = Told::default();
                    self.derive(derive::model(&record, &started));
                }
            }
            "model_ended" => {
                self.tell_rest(&record);
                self.answer = LastAnswer::Unread(record);
                self.made.clear();
            }
            "partial" => self.tell_rest(&record),
            "call_started" => {
                if self.is_news(&record)
                    && let Some(Body::CallStarted(started)) = derive::body(&record)
                {
                    let event = derive::call(&record, &started, self.answer.calls(), &self.blobs);
                    self.derive(event);
                }
                self.made.push(record);
            }
            "call_ended" if self.is_news(&record) => {
                if let Some(Body::CallEnded(ended)) = derive::body(&record) {
                    let was_made = ended.ok || self.made.iter().any(|made| derive::makes(made, ended.call));
                    let was_made = was_made && !ended.denied;
                    let event = derive::call_result(&record, &ended, self.answer.calls(), was_made, &self.blobs);
                    self.derive(event);
                }
            }
            _ => {}
        }
    }

    /// Tells whether this record stands for events.
    fn is_told(&self, record: &Entry) -> bool {
        self.derived == Some(record.id.epoch) && !self.is_foreign
    }

    fn is_news(&self, record: &Entry) -> bool {
        self.is_told(record) && record.id > self.last
    }

    fn derive(&mut self, event: Option<Entry>) {
        if let Some(event) = event {
            self.hand_out(event);
        }
    }

    /// Hands out what is not told of an answer.
    fn tell_rest(&mut self, record: &Entry) {
        let Some(asked) = self.asked.take().filter(|_| self.is_told(record)) else { return };
        if (asked.epoch, asked.seq) < (self.last.epoch, self.last.seq) {
            return;
        }
        let said = match derive::body(record) {
            Some(Body::ModelEnded(answer)) => Said { thinking: answer.thinking, text: answer.text },
            Some(Body::Partial(partial)) => Said { thinking: partial.thinking, text: partial.text },
            Some(_) | None => return,
        };
        for event in derive::rest_of_answer(record, said, &self.blobs, asked, self.told, self.last) {
            self.hand_out(event);
        }
    }
}

/// Reads on to the next record. Of damage the readers of the journal itself are told.
fn next_record(journal: &mut Reader) -> io::Result<Option<Entry>> {
    loop {
        match journal.next_item()? {
            Some(Item::Record(record)) => return Ok(Some(record)),
            Some(Item::Damaged { .. }) => {}
            None => return Ok(None),
        }
    }
}

/// Tells whether a stored event comes before the next record. If there is none for now, the record after which it
/// happened has to be there, for it may stand for events of its own.
fn is_next(event: &Entry, record: Option<&Entry>, passed: Cursor) -> bool {
    if event.id.part == 0 {
        // Of an epoch of which nothing is derived.
        return record.is_none_or(|record| event.id.epoch <= record.id.epoch);
    }
    let follows = Cursor { part: 0, ..event.id };
    match record {
        Some(record) => follows < record.id,
        None => follows <= passed,
    }
}

fn piece_len(line: &str) -> usize {
    #[derive(serde::Deserialize)]
    struct Piece<'a> {
        #[serde(borrow)]
        text: std::borrow::Cow<'a, str>,
    }
    serde_json::from_str::<Piece<'_>>(line).map_or(0, |piece| piece.text.len())
}
