//! The presentation of a program's output. Pure: from chunks of the log to bytes on a stream.

use relive_core::{Pid, Timestamp};
use relive_session::log::{Chunk, Item, Stream};
use serde_json::{Value, json};

use crate::render::time::Clock;

/// A longer line is shown in parts.
const LINE_MAX: usize = 64 * 1024;

#[derive(Debug, Clone)]
pub(super) enum Form {
    /// As it was printed.
    Plain,
    /// Each line with the time of its beginning.
    Timestamps(Clock),
    /// One object per piece, with its PID, and the node of a run whose output it is.
    Json { pid: Pid, node: Option<String> },
}

/// Bytes to be written as a whole.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub stream: Stream,
    pub bytes: Vec<u8>,
}

#[derive(Debug)]
pub(super) struct Printer {
    form: Form,
    /// Whether plain output is also split at line ends.
    by_lines: bool,
    /// Whether the end of the output is the end of a line.
    whole_lines: bool,
    /// Whether plain output has stopped in the middle of a line.
    is_in_line: bool,
    out: Unfinished,
    err: Unfinished,
}

/// The output of a stream since its last complete line or, with JSON, its last complete character.
#[derive(Debug, Default)]
struct Unfinished {
    at_ms: u64,
    bytes: Vec<u8>,
}

impl Printer {
    pub(super) fn new(form: Form) -> Self {
        let (out, err) = (Unfinished::default(), Unfinished::default());
        Self { form, by_lines: false, whole_lines: false, is_in_line: false, out, err }
    }

    /// Returns a printer that ends the last line.
    pub(super) fn with_whole_lines(self, whole_lines: bool) -> Self {
        Self { whole_lines, ..self }
    }

    /// Returns lines, so that they can be counted.
    pub(super) fn by_lines(form: Form) -> Self {
        Self { by_lines: true, ..Self::new(form) }
    }

    pub(super) fn pieces(&mut self, item: Item) -> Vec<Piece> {
        let form = self.form.clone();
        match (item, &form) {
            (Item::Chunk(chunk), Form::Json { pid, node }) => vec![object(self.output(*pid, &chunk), node.as_deref())],
            (Item::Gap { from, to }, Form::Json { pid, node }) => {
                let gap =
                    json!({ "id": from.to_string(), "at": null, "pid": pid, "kind": "gap", "to": to.to_string() });
                vec![object(gap, node.as_deref())]
            }
            (Item::Gap { .. }, Form::Plain | Form::Timestamps(_)) => Vec::new(),
            (Item::Chunk(chunk), Form::Plain) if !self.by_lines => {
                self.is_in_line = !chunk.bytes.ends_with(b"\n");
                vec![Piece { stream: chunk.stream, bytes: chunk.bytes }]
            }
            (Item::Chunk(chunk), Form::Plain | Form::Timestamps(_)) => {
                let stream = chunk.stream;
                let unfinished = self.of(stream);
                let lines = unfinished.lines(&chunk);
                lines.into_iter().map(|(at_ms, line)| shown(&form, stream, at_ms, line)).collect()
            }
        }
    }

    /// Returns the rest at the end of the output.
    pub(super) fn rest(&mut self) -> Vec<Piece> {
        let form = self.form.clone();
        let mut rest = Vec::new();
        if self.whole_lines && std::mem::take(&mut self.is_in_line) {
            rest.push(Piece { stream: Stream::Out, bytes: b"\n".to_vec() });
        }
        for stream in [Stream::Out, Stream::Err] {
            let Unfinished { at_ms, bytes } = std::mem::take(self.of(stream));
            match form {
                // Part of a character was shown with the text before it.
                Form::Json { .. } => {}
                Form::Plain | Form::Timestamps(_) if bytes.is_empty() => {}
                Form::Plain | Form::Timestamps(_) => rest.push(shown(&form, stream, at_ms, bytes)),
            }
        }
        rest
    }

    fn of(&mut self, stream: Stream) -> &mut Unfinished {
        match stream {
            Stream::Out => &mut self.out,
            Stream::Err => &mut self.err,
        }
    }

    fn output(&mut self, pid: Pid, chunk: &Chunk) -> Value {
        let name = match chunk.stream {
            Stream::Out => "stdout",
            Stream::Err => "stderr",
        };
        let text = self.of(chunk.stream).characters(&chunk.bytes);
        let (id, at) = (chunk.offset.to_string(), moment(chunk.at_ms));
        json!({ "id": id, "at": at, "pid": pid, "kind": "output", "stream": name, "text": text })
    }
}

fn object(mut object: Value, node: Option<&str>) -> Piece {
    if let Some(node) = node {
        object["node"] = node.into();
    }
    Piece { stream: Stream::Out, bytes: format!("{object}\n").into_bytes() }
}

impl Unfinished {
    /// Returns the lines that this completes, each with the time of its beginning.
    fn lines(&mut self, chunk: &Chunk) -> Vec<(u64, Vec<u8>)> {
        let mut lines = Vec::new();
        for part in chunk.bytes.split_inclusive(|byte| *byte == b'\n') {
            if self.bytes.is_empty() {
                self.at_ms = chunk.at_ms;
            }
            self.bytes.extend_from_slice(part);
            if part.ends_with(b"\n") || self.bytes.len() >= LINE_MAX {
                lines.push((self.at_ms, std::mem::take(&mut self.bytes)));
            }
        }
        lines
    }

    /// Returns the text that this completes; a partial character waits for its rest.
    fn characters(&mut self, bytes: &[u8]) -> String {
        self.bytes.extend_from_slice(bytes);
        let cut = match std::str::from_utf8(&self.bytes) {
            Ok(_) => self.bytes.len(),
            Err(_) => self.bytes.len() - unfinished_character(&self.bytes),
        };
        let rest = self.bytes.split_off(cut);
        let text = String::from_utf8_lossy(&self.bytes).into_owned();
        self.bytes = rest;
        text
    }
}

/// Returns how many bytes at the end are an incomplete character.
fn unfinished_character(bytes: &[u8]) -> usize {
    const LONGEST: usize = 4;
    let last = &bytes[bytes.len().saturating_sub(LONGEST - 1)..];
    (1..=last.len())
        .find(|count| match std::str::from_utf8(&last[last.len() - count..]) {
            Ok(_) => false,
            Err(error) => error.valid_up_to() == 0 && error.error_len().is_none(),
        })
        .unwrap_or(0)
}

fn moment(at_ms: u64) -> Option<Timestamp> {
    Timestamp::from_millisecond(i64::try_from(at_ms).ok()?).ok()
}

fn shown(form: &Form, stream: Stream, at_ms: u64, line: Vec<u8>) -> Piece {
    let bytes = match form {
        Form::Plain | Form::Json { .. } => line,
        Form::Timestamps(clock) => {
            let at = moment(at_ms).map_or_else(|| "-".to_owned(), |at| clock.moment(at));
            let end = if line.ends_with(b"\n") { "" } else { "\n" };
            [at.as_bytes(), b" ", &line, end.as_bytes()].concat()
        }
    };
    Piece { stream, bytes }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk(stream: Stream, offset: u64, bytes: &[u8]) -> Item {
        let next = offset + bytes.len() as u64;
        Item::Chunk(Chunk { offset, next, at_ms: 1_700_000_000_000 + offset, stream, bytes: bytes.to_vec() })
    }

    fn check(mut printer: Printer, items: Vec<Item>, expected: &[&str]) {
        let mut pieces: Vec<Piece> = items.into_iter().flat_map(|item| printer.pieces(item)).collect();
        pieces.extend(printer.rest());
        let texts: Vec<String> = pieces.into_iter().map(|piece| String::from_utf8(piece.bytes).unwrap()).collect();
        assert_eq!(texts, expected);
    }

    #[test]
    fn plain_output_is_not_touched_and_can_be_counted_by_lines() {
        let items =
            || vec![chunk(Stream::Out, 0, b"a\nb"), chunk(Stream::Err, 5, b"oh\n"), chunk(Stream::Out, 9, b"c\nd")];
        check(Printer::new(Form::Plain), items(), &["a\nb", "oh\n", "c\nd"]);
        check(Printer::by_lines(Form::Plain), items(), &["a\n", "oh\n", "bc\n", "d"]);
    }

    #[test]
    fn a_line_has_the_time_of_its_beginning() {
        let items = vec![chunk(Stream::Out, 0, b"a"), chunk(Stream::Out, 7, b"b\nc")];
        check(
            Printer::new(Form::Timestamps(Clock::utc())),
            items,
            &["2023-11-14T22:13:20.000Z ab\n", "2023-11-14T22:13:20.007Z c\n"],
        );
    }

    #[test]
    fn json_output_is_one_object_per_piece_without_split_characters() {
        let euro = "\u{20ac}".as_bytes();
        let items = vec![
            chunk(Stream::Out, 0, &euro[..2]),
            chunk(Stream::Out, 2, &[&euro[2..], b"\xff!"].concat()),
            Item::Gap { from: 5, to: 9 },
        ];
        check(
            Printer::new(Form::Json { pid: Pid(5), node: None }),
            items,
            &[
                "{\"id\":\"0\",\"at\":\"2023-11-14T22:13:20Z\",\"pid\":5,\"kind\":\"output\",\"stream\":\"stdout\",\"text\":\"\"}\n",
                "{\"id\":\"2\",\"at\":\"2023-11-14T22:13:20.002Z\",\"pid\":5,\"kind\":\"output\",\"stream\":\"stdout\",\"text\":\"\u{20ac}\u{fffd}!\"}\n",
                "{\"id\":\"5\",\"at\":null,\"pid\":5,\"kind\":\"gap\",\"to\":\"9\"}\n",
            ],
        );
    }
}
