//! Reads an answer from `genai` within bounds.
//!
//! `genai` decodes the wire formats and trusts the server: it collects everything it gets. So every poll goes through
//! [`Listener`], which counts the bytes of the frames (`Meter`), the time that `genai` spends on one unfinished frame,
//! the length of every call and the polls for the body of a refusal, and cuts an answer that exceeds a limit. A panic
//! in `genai` counts as a broken answer.
//!
//! **Invariant:** whatever a server sends, an answer ends, and a panic does not leave this module.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use futures_util::StreamExt as _;
use genai::chat::{ChatFrameSink, ChatStream, ChatStreamEvent, FrameCtx, RawFrameRef, StreamEnd};
use reqwest::StatusCode;
use serde_json::Value;

use crate::client::take_refusal;
use crate::model::{Delta, ModelError, ToolCall};

/// How many bytes a server may send for one answer. A piece of text of a few bytes comes in a frame of hundreds.
const WIRE_MAX: u64 = 128 * 1024 * 1024;
/// How long `genai` may work on one frame. Its time is quadratic in the length of a frame: 16 MiB take seconds.
const BUSY_MAX: Duration = Duration::from_secs(10);
/// The longest arguments of one call. The rest is not read: `genai` copies all of them for every piece.
const ARGS_MAX: usize = 2 * 1024 * 1024;
/// How many calls are collected.
const CALLS_MAX: usize = 1024;

/// How often `genai` is polled for the body of a refusal, which it collects without a limit. A poll reads the bytes
/// that arrived since the last one: at most a few hundred KiB.
const REFUSAL_POLLS_MAX: u32 = 64;
/// How long the body of a refusal may take.
const REFUSAL_MAX: Duration = Duration::from_secs(30);

/// Counts the bytes of the frames of one answer.
#[derive(Debug, Default)]
pub(crate) struct Meter(AtomicU64);

impl ChatFrameSink for Meter {
    fn on_frame(&self, _: &FrameCtx, frame: RawFrameRef<'_>) {
        self.0.fetch_add(frame.data.len() as u64 + 1, Ordering::Relaxed);
    }
}

/// The result of waiting for the next event.
pub(crate) enum Heard {
    Deltas(Vec<Delta>),
    /// The answer is complete. The calls are those that [`Pieces::Apart`] collected.
    End(Box<StreamEnd>, Vec<ToolCall>),
    /// The answer broke off, with these last pieces.
    Cut(Vec<Delta>),
    Failed(genai::Error),
    TooLong(&'static str),
    /// A refusal whose body is too long to read.
    Refused(StatusCode),
    Broken,
}

/// A refusal while its body is read.
struct Refusal {
    status: StatusCode,
    since: Instant,
    polls: u32,
}

/// How `genai` reports the pieces of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pieces {
    /// Each event has all arguments so far, and the end has the calls.
    Together,
    /// Each event has one piece, to be collected here. If `genai` collected them, an index chosen by the server would
    /// become the length of a list.
    Apart,
}

/// An answer that is being received.
pub(crate) struct Listener {
    events: ChatStream,
    meter: Arc<Meter>,
    pieces: Pieces,
    calls: Vec<ToolCall>,
    /// How long `genai` has worked since the last frame.
    busy: Duration,
    refusal: Option<Refusal>,
}

impl Listener {
    pub(crate) fn new(events: ChatStream, meter: Arc<Meter>, pieces: Pieces) -> Self {
        Self { events, meter, pieces, calls: Vec::new(), busy: Duration::ZERO, refusal: None }
    }

    pub(crate) async fn next(&mut self) -> Heard {
        let event = match std::future::poll_fn(|context| self.poll(context)).await {
            Ok(Some(Ok(event))) => event,
            Ok(Some(Err(error))) => return Heard::Failed(error),
            Ok(None) => return Heard::Broken,
            Err(heard) => return heard,
        };
        match event {
            ChatStreamEvent::Chunk(chunk) => Heard::Deltas(vec![Delta::Text(chunk.content)]),
            ChatStreamEvent::ReasoningChunk(chunk) => Heard::Deltas(vec![Delta::Thinking(chunk.content)]),
            ChatStreamEvent::ToolCallChunk(chunk) => self.piece(chunk.tool_call),
            // The event at the end contains the complete signatures.
            ChatStreamEvent::ThoughtSignatureChunk(_) | ChatStreamEvent::Heartbeat => {
                Heard::Deltas(vec![Delta::Progress])
            }
            ChatStreamEvent::Start => Heard::Deltas(Vec::new()),
            ChatStreamEvent::End(end) => Heard::End(Box::new(end), std::mem::take(&mut self.calls)),
        }
    }

    /// Polls `genai`, and checks the limits even if there is no event.
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<Option<genai::Result<ChatStreamEvent>>, Heard>> {
        // It may belong to another model, whose question was abandoned on this thread.
        let _ = take_refusal();
        let (bytes, begun) = (self.meter.0.load(Ordering::Relaxed), Instant::now());
        let Ok(polled) = catch_unwind(AssertUnwindSafe(|| self.events.poll_next_unpin(context))) else {
            return Poll::Ready(Err(Heard::Broken));
        };
        if let Some(status) = take_refusal() {
            self.refusal = Some(Refusal { status, since: Instant::now(), polls: 0 });
        }
        if let (Some(refusal), Poll::Pending) = (&mut self.refusal, &polled) {
            refusal.polls += 1;
            if refusal.polls > REFUSAL_POLLS_MAX || refusal.since.elapsed() > REFUSAL_MAX {
                return Poll::Ready(Err(Heard::Refused(refusal.status)));
            }
        }
        let now = self.meter.0.load(Ordering::Relaxed);
        self.busy = if now == bytes { self.busy + begun.elapsed() } else { Duration::ZERO };
        if now > WIRE_MAX {
            return Poll::Ready(Err(Heard::TooLong("sent an endless answer, which was cut after 128 MiB")));
        }
        if self.busy > BUSY_MAX {
            return Poll::Ready(Err(Heard::TooLong("sent an answer with a part that is too long to read")));
        }
        polled.map(Ok)
    }

    fn piece(&mut self, piece: genai::chat::ToolCall) -> Heard {
        match self.pieces {
            Pieces::Together => {
                let len = piece.fn_arguments.as_str().map_or(0, str::len);
                if len > ARGS_MAX { Heard::Cut(vec![Delta::Call(call(piece))]) } else { progress() }
            }
            Pieces::Apart => {
                let args = match piece.fn_arguments {
                    Value::String(text) => text,
                    other @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_)) => {
                        other.to_string()
                    }
                };
                let Some(known) = self.call_of(piece.call_id, piece.fn_name) else { return progress() };
                known.args.push_str(&args);
                if known.args.len() > ARGS_MAX {
                    return Heard::Cut(std::mem::take(&mut self.calls).into_iter().map(Delta::Call).collect());
                }
                progress()
            }
        }
    }

    /// Returns the call that a piece belongs to. A piece without an id gets the id `call_INDEX` from `genai`.
    fn call_of(&mut self, id: String, name: String) -> Option<&mut ToolCall> {
        let by_index = || id.strip_prefix("call_")?.parse().ok().filter(|index| *index < self.calls.len());
        let known = self.calls.iter().position(|call| call.id == id).or_else(by_index);
        let place = match known {
            Some(place) => place,
            None if name.is_empty() && !self.calls.is_empty() => self.calls.len() - 1,
            None if self.calls.len() == CALLS_MAX => return None,
            None => {
                self.calls.push(ToolCall { id, name: String::new(), args: String::new() });
                self.calls.len() - 1
            }
        };
        let call = self.calls.get_mut(place)?;
        if call.name.is_empty() {
            call.name = name;
        }
        Some(call)
    }
}

fn progress() -> Heard {
    Heard::Deltas(vec![Delta::Progress])
}

/// Converts a call. Arguments that are not an object are wrapped in one that no tool accepts, so that the model is
/// told. Arguments that `genai` could not parse stay unchanged, and the agent loop reports the reason.
pub(crate) fn call(call: genai::chat::ToolCall) -> ToolCall {
    let args = match call.fn_arguments {
        Value::Object(fields) => Value::Object(fields).to_string(),
        Value::Null => "{}".to_owned(),
        Value::String(text) => text,
        other @ (Value::Bool(_) | Value::Number(_) | Value::Array(_)) => no_object(&other),
    };
    ToolCall { id: call.call_id, name: call.fn_name, args }
}

fn no_object(args: &Value) -> String {
    serde_json::json!({"arguments_that_are_no_object": args}).to_string()
}

/// Checks the arguments of a call that was collected here, as [`call`] does.
pub(crate) fn collected(call: ToolCall) -> ToolCall {
    let args = match serde_json::from_str::<Value>(&call.args) {
        Ok(args @ (Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::String(_))) => no_object(&args),
        Ok(Value::Null) => "{}".to_owned(),
        Ok(Value::Object(_)) | Err(_) => call.args,
    };
    ToolCall { args, ..call }
}

impl Heard {
    /// Returns the error of an answer that exceeded a limit.
    pub(crate) fn too_long(provider: &str, what: &str) -> ModelError {
        ModelError::TooLong(format!("{provider} {what} (hint: relive resume asks again)"))
    }
}
