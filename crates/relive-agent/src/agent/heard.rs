//! Collects an answer as it arrives, within limits.
//!
//! **Invariant:** whatever a model sends, an answer fits into memory and into one record, so that it is never requested
//! and billed again because it could not be recorded. A single call that exceeds a limit becomes a call that no tool
//! accepts, and its result tells the model why. An answer that exceeds a limit as a whole is cut.

use relive_journal::payload::Json;
use relive_journal::record::{Call, Usage};
use relive_llm::{Delta, ModelError, ToolCall, estimated_tokens};

use crate::tools::args::refused_arguments;

/// The longest answer: its thinking, text, arguments and everything its provider wants back.
pub(super) const ANSWER_MAX: usize = 16 * 1024 * 1024;
/// How many pieces an answer may have. Without it, an answer of empty pieces would have no end.
const PIECES_MAX: usize = 1024 * 1024;
/// How many calls of one answer are made.
const CALLS_MAX: usize = 128;
/// The longest arguments of one call.
const ARGS_MAX: usize = 8 * 1024 * 1024;
/// How deeply arguments may be nested. A JSON parser gives up at 128, and a record adds levels of its own.
const DEPTH_MAX: usize = 64;
/// The longest id of a call.
const ID_MAX: usize = 256;
/// The longest name of a tool.
const NAME_MAX: usize = 64;

/// The answer so far.
#[derive(Debug, Default)]
pub(super) struct Heard {
    pub(super) thinking: String,
    pub(super) text: String,
    calls: Vec<ToolCall>,
    calls_left_out: usize,
    carry: Option<String>,
    pub(super) usage: Option<Usage>,
    bytes: usize,
    pieces: usize,
}

impl Heard {
    /// Adds the next piece.
    pub(super) fn take(&mut self, delta: Delta) -> Result<(), ModelError> {
        let len = match &delta {
            Delta::Thinking(piece) | Delta::Text(piece) | Delta::Carry(piece) => piece.len(),
            Delta::Call(call) => {
                call.id.len().saturating_add(call.name.len()).saturating_add(call.args.len().min(ARGS_MAX))
            }
            Delta::Usage(_) | Delta::Progress => 0,
        };
        self.bytes = self.bytes.saturating_add(len);
        self.pieces += 1;
        if self.bytes > ANSWER_MAX || self.pieces > PIECES_MAX {
            let (mib, pieces) = (ANSWER_MAX >> 20, PIECES_MAX);
            return Err(ModelError::TooLong(format!(
                "the model's answer was cut because it had no end: it passed {mib} MiB or {pieces} pieces \
                 (hint: relive resume asks again)"
            )));
        }
        match delta {
            Delta::Thinking(piece) => self.thinking.push_str(&piece),
            Delta::Text(piece) => self.text.push_str(&piece),
            Delta::Call(_) if self.calls.len() == CALLS_MAX => self.calls_left_out += 1,
            Delta::Call(call) => self.calls.push(call),
            Delta::Carry(carry) => self.carry = Some(carry),
            Delta::Usage(usage) => self.usage = Some(usage),
            Delta::Progress => {}
        }
        Ok(())
    }

    /// Returns whether the answer contains neither text nor a call.
    pub(super) fn is_empty(&self) -> bool {
        self.text.trim().is_empty() && self.calls.is_empty()
    }

    /// Returns whether nothing arrived at all.
    pub(super) fn is_nothing(&self) -> bool {
        self.thinking.is_empty() && self.text.is_empty() && self.calls.is_empty()
    }

    /// Estimates the tokens of the answer.
    pub(super) fn estimated_tokens(&self) -> u64 {
        let calls = self.calls.iter().map(|call| call.args.len()).sum::<usize>();
        estimated_tokens(self.thinking.len() + self.text.len() + calls)
    }

    /// Returns the text to record: with a note to the model if calls were left out.
    pub(super) fn take_text(&mut self) -> String {
        let mut text = std::mem::take(&mut self.text);
        if self.calls_left_out > 0 {
            let gap = if text.is_empty() { "" } else { "\n\n" };
            text.push_str(&format!(
                "{gap}[{} more calls were left out: at most {CALLS_MAX} of one answer are made]",
                self.calls_left_out
            ));
        }
        text
    }

    /// Returns the calls to record.
    pub(super) fn take_calls(&mut self) -> Vec<Call> {
        let calls = std::mem::take(&mut self.calls).into_iter().enumerate();
        calls
            .map(|(number, call)| Call { id: id(call.id, number), name: name(&call.name), args: args(call.args) })
            .collect()
    }

    /// Returns the JSON that the provider wants back, unless no record could hold it.
    pub(super) fn take_carry(&mut self) -> Option<Json> {
        let carry = self.carry.take().filter(|carry| carry.len() <= ARGS_MAX && depth(carry) <= DEPTH_MAX)?;
        Json::parse(&carry).ok()
    }
}

/// Returns the id to record. It is sent back with the result, so a long one is shortened to one that is unique in the
/// answer.
fn id(id: String, number: usize) -> String {
    if id.len() <= ID_MAX && !id.contains(char::is_control) {
        return id;
    }
    let kept: String = id.chars().filter(|letter| !letter.is_control()).collect();
    format!("{}-{number}", &kept[..kept.floor_char_boundary(ID_MAX - 8)])
}

/// Returns the name to record. Providers refuse a conversation with a name that has other characters, and no tool has
/// one.
fn name(name: &str) -> String {
    let clean = |letter: char| if letter.is_ascii_alphanumeric() || "_-.".contains(letter) { letter } else { '_' };
    let name: String = name.chars().take(NAME_MAX).map(clean).collect();
    if name.is_empty() { "_".to_owned() } else { name }
}

fn args(args: String) -> Json {
    let args = if args.trim().is_empty() { "{}".to_owned() } else { args };
    let refused = if args.len() > ARGS_MAX {
        format!("the arguments were {} bytes long; at most {ARGS_MAX} are accepted", args.len())
    } else {
        let depth = depth(&args);
        if depth > DEPTH_MAX {
            format!("the arguments were nested {depth} deep; at most {DEPTH_MAX} levels are accepted")
        } else {
            match Json::parse(&args) {
                Ok(json) => return json,
                Err(error) => format!("the arguments are not JSON: {error}"),
            }
        }
    };
    refused_arguments(&refused)
}

/// Returns the nesting depth of a JSON text, even if it is too deep to be parsed.
fn depth(json: &str) -> usize {
    let (mut depth, mut deepest, mut in_string, mut escaped) = (0_usize, 0, false, false);
    for byte in json.bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            b'[' | b'{' if !in_string => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b']' | b'}' if !in_string => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

#[cfg(test)]
mod tests;
