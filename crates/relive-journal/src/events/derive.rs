//! The events that a record stands for.

use serde::Serialize;

use crate::line::{self, Head, VERSION};
use crate::payload::{Blobs, Json, Text};
use crate::reader::{Cursor, Entry};
use crate::record::{AskedFor, Body, Call, CallEnded, CallStarted, ModelStarted};
use crate::recovery::{Recovery, session_name};

use super::{CALL, TEXT, THINKING};

/// How many bytes of a result an event shows.
const RESULT_MAX: usize = 200;
/// How many bytes of arguments an event shows: enough for nearly every command.
const ARGS_MAX: usize = 4096;

/// The longest text of one event. Even escaped it is well within the longest line.
const TEXT_MAX: usize = 128 * 1024;

#[derive(Serialize)]
struct ModelEvent<'a> {
    model: &'a str,
    #[serde(rename = "for", skip_serializing_if = "Option::is_none")]
    purpose: Option<AskedFor>,
}

#[derive(Serialize)]
struct CallEvent<'a> {
    call: u32,
    name: &'a str,
    args: &'a str,
    /// Their length, if they are not shown completely.
    #[serde(skip_serializing_if = "Option::is_none")]
    args_bytes: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rule: Option<String>,
    /// Where its output can be read while it runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    session: Option<String>,
}

#[derive(Serialize)]
struct ResultEvent<'a> {
    call: u32,
    name: &'a str,
    ok: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    denied: bool,
    /// What was denied, or failed before it began: such a call was never made, so that no other event has its arguments.
    #[serde(skip_serializing_if = "Option::is_none")]
    args: Option<&'a str>,
    /// Their length, if they are not shown completely.
    #[serde(skip_serializing_if = "Option::is_none")]
    args_bytes: Option<usize>,
    text: &'a str,
    /// Its end, if it is not shown completely: a command's has the exit code.
    #[serde(skip_serializing_if = "Option::is_none")]
    last: Option<&'a str>,
}

#[derive(Serialize)]
struct PieceEvent<'a> {
    text: &'a str,
}

/// How much of an answer `events.jsonl` contains as pieces.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Told {
    pub(super) thinking: usize,
    pub(super) text: usize,
    /// The last part that was taken.
    pub(super) part: u64,
}

/// The answer that a record contains.
pub(super) struct Said {
    pub(super) thinking: Option<Text>,
    pub(super) text: Option<Text>,
}

/// Returns the event that a model is asked.
pub(super) fn model(record: &Entry, started: &ModelStarted) -> Option<Entry> {
    event(record, record.id, "model", &ModelEvent { model: &started.model, purpose: started.purpose })
}

/// Returns the event that a call is made.
pub(super) fn call(record: &Entry, started: &CallStarted, calls: &[Call], blobs: &Blobs) -> Option<Entry> {
    let args = arguments(started.call, calls, blobs);
    let body = CallEvent {
        call: started.call,
        name: &started.name,
        args: head(&args, ARGS_MAX),
        args_bytes: (args.len() > ARGS_MAX).then_some(args.len()),
        rule: started.rule.as_ref().map(ToString::to_string),
        session: (started.recovery == Recovery::Join).then(|| session_name(record.id.seq)),
    };
    event(record, record.id, CALL, &body)
}

/// Tells whether a `call_started` or the event of a call is about this call.
pub(super) fn makes(entry: &Entry, call: u32) -> bool {
    #[derive(serde::Deserialize)]
    struct Made {
        call: u32,
    }
    serde_json::from_str::<Made>(&entry.line).is_ok_and(|made| made.call == call)
}

/// Returns the event that a call has a result. With its arguments, if it was never made.
pub(super) fn call_result(
    record: &Entry,
    ended: &CallEnded,
    calls: &[Call],
    was_made: bool,
    blobs: &Blobs,
) -> Option<Entry> {
    let name = calls.get(ended.call as usize).map_or("", |call| &call.name);
    let result = whole(Some(ended.result.clone()), blobs);
    let last = result.lines().last().filter(|_| result.len() > RESULT_MAX).map(|last| head(last, RESULT_MAX));
    let CallEnded { call, ok, denied, .. } = *ended;
    let args = (!was_made).then(|| arguments(call, calls, blobs));
    let body = ResultEvent {
        call,
        name,
        ok,
        denied,
        args: args.as_deref().map(|args| head(args, ARGS_MAX)),
        args_bytes: args.as_ref().map(String::len).filter(|len| *len > ARGS_MAX),
        text: head(&result, RESULT_MAX),
        last,
    };
    event(record, record.id, "call_result", &body)
}

/// Returns the arguments of a call as the model wrote them.
fn arguments(call: u32, calls: &[Call], blobs: &Blobs) -> String {
    match calls.get(call as usize).map(|call| &call.args) {
        None => String::new(),
        Some(Json::Inline(raw)) => raw.get().to_owned(),
        Some(Json::Blob(blob)) => blobs.get_text(blob.hash).unwrap_or_else(|_| blob.head.clone()),
    }
}

fn head(text: &str, max: usize) -> &str {
    &text[..text.floor_char_boundary(max)]
}

/// Returns what neither the pieces in `events.jsonl` tell of the answer to the question `asked`, nor those that a reader
/// which has seen all up to `seen` was shown.
pub(super) fn rest_of_answer(
    record: &Entry,
    said: Said,
    blobs: &Blobs,
    asked: Cursor,
    told: Told,
    seen: Cursor,
) -> Vec<Entry> {
    let (thinking, text) = (whole(said.thinking, blobs), whole(said.text, blobs));
    let seen_part = if (asked.epoch, asked.seq) == (seen.epoch, seen.seq) { seen.part } else { 0 };
    let (mut events, mut part) = (Vec::new(), told.part);
    for (kind, said, from) in [(THINKING, &thinking, told.thinking), (TEXT, &text, told.text)] {
        let rest = said.get(from..).unwrap_or_default();
        // Pieces that were cut off since they were seen.
        let cut_off = usize::try_from(seen_part.saturating_sub(part)).unwrap_or(usize::MAX);
        let (cut_off, mut rest) = rest.split_at(rest.floor_char_boundary(cut_off));
        part += cut_off.len() as u64;
        while !rest.is_empty() {
            let (piece, others) = rest.split_at(rest.floor_char_boundary(TEXT_MAX));
            part += piece.len() as u64;
            rest = others;
            events.extend(event(record, Cursor { part, ..asked }, kind, &PieceEvent { text: piece }));
        }
    }
    events
}

/// Returns a text, or as much of it as its record has if its blob is gone.
fn whole(text: Option<Text>, blobs: &Blobs) -> String {
    match text {
        None => String::new(),
        Some(Text::Inline(text)) => text,
        Some(Text::Blob(blob)) => blobs.get_text(blob.hash).unwrap_or(blob.head),
    }
}

fn event(record: &Entry, id: Cursor, kind: &str, body: &impl Serialize) -> Option<Entry> {
    let Entry { at, step, .. } = *record;
    let part = (id.part > 0).then_some(id.part);
    let head = Head {
        v: VERSION,
        seq: id.seq,
        epoch: id.epoch,
        part,
        synced: None,
        at,
        kind: kind.into(),
        step,
        skip: false,
        up: None,
    };
    let mut line = Vec::new();
    line::encode(&mut line, &head, body).ok()?;
    line.pop();
    Some(Entry { id, at, kind: kind.to_owned(), step, line: String::from_utf8(line).ok()? })
}

/// Reads the body of a record.
pub(super) fn body(record: &Entry) -> Option<Body> {
    Body::decode(&record.kind, record.line.as_bytes())?.ok()
}
