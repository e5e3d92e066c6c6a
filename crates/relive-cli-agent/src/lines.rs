//! Splits a stream of bytes into lines in bounded memory, however the bytes arrive.

use std::mem;

/// The longest line that is read. The longest that was measured had 563 KB.
pub const MAX_LINE_BYTES: usize = 16 * 1024 * 1024;

/// How much of a line above the limit is kept, to show where it came from, and whether it ends a turn.
const HEAD_BYTES: usize = 4096;
/// A buffer that grew above this for one long line is given back after it.
const KEPT_BUFFER_BYTES: usize = 64 * 1024;
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// A line without its line ending.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Line<'a> {
    Whole(&'a [u8]),
    /// The line was longer than the limit: only its first bytes are left.
    TooLong {
        head: &'a [u8],
        bytes: u64,
    },
}

impl<'a> Line<'a> {
    /// Returns the kept bytes of the line.
    pub fn bytes(self) -> &'a [u8] {
        match self {
            Self::Whole(bytes) | Self::TooLong { head: bytes, .. } => bytes,
        }
    }
}

/// Splits at `\n`. A `\r` before it and a byte order mark at the start of the stream are removed.
#[derive(Debug)]
pub struct LineSplitter {
    max_bytes: usize,
    /// The start of the line that is not complete yet; only its head once the line is too long.
    pending: Vec<u8>,
    /// The length of the incomplete line, with the bytes that were dropped.
    pending_bytes: u64,
    place: LinePlace,
}

/// Where a line is in its stream. Only the first one may begin with a byte order mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LinePlace {
    First,
    Later,
}

impl Default for LineSplitter {
    fn default() -> Self {
        Self::new(MAX_LINE_BYTES)
    }
}

impl LineSplitter {
    pub fn new(max_bytes: usize) -> Self {
        Self { max_bytes, pending: Vec::new(), pending_bytes: 0, place: LinePlace::First }
    }

    /// Starts over for another stream.
    pub(crate) fn reset(&mut self) {
        *self = Self::new(self.max_bytes);
    }

    /// Takes the next bytes of the stream and calls `on_line` for each line that they complete.
    pub fn push(&mut self, mut chunk: &[u8], mut on_line: impl FnMut(Line<'_>)) {
        while let Some(end) = memchr::memchr(b'\n', chunk) {
            let (line, rest) = (&chunk[..end], &chunk[end + 1..]);
            if self.pending_bytes == 0 && line.len() <= self.max_bytes {
                // The usual case: the whole line is in the chunk, and is not copied.
                let line = trim(line, mem::replace(&mut self.place, LinePlace::Later));
                on_line(Line::Whole(line));
            } else {
                self.keep(line);
                self.complete(&mut on_line);
            }
            chunk = rest;
        }
        self.keep(chunk);
    }

    /// Ends the stream: bytes after the last line ending are a line too.
    pub fn finish(&mut self, mut on_line: impl FnMut(Line<'_>)) {
        if self.pending_bytes > 0 {
            self.complete(&mut on_line);
        }
    }

    fn keep(&mut self, bytes: &[u8]) {
        self.pending_bytes = self.pending_bytes.saturating_add(bytes.len() as u64);
        if self.is_whole() {
            self.pending.extend_from_slice(bytes);
            return;
        }
        self.pending.truncate(HEAD_BYTES);
        self.pending.shrink_to(HEAD_BYTES);
        let missing = HEAD_BYTES.saturating_sub(self.pending.len()).min(bytes.len());
        self.pending.extend_from_slice(&bytes[..missing]);
    }

    fn is_whole(&self) -> bool {
        self.pending_bytes <= self.max_bytes as u64
    }

    fn complete(&mut self, on_line: &mut impl FnMut(Line<'_>)) {
        let place = mem::replace(&mut self.place, LinePlace::Later);
        if self.is_whole() {
            on_line(Line::Whole(trim(&self.pending, place)));
        } else {
            on_line(Line::TooLong { head: &self.pending, bytes: self.pending_bytes });
        }
        self.pending.clear();
        self.pending.shrink_to(KEPT_BUFFER_BYTES);
        self.pending_bytes = 0;
    }
}

fn trim(line: &[u8], place: LinePlace) -> &[u8] {
    let line = match place {
        LinePlace::First => line.strip_prefix(BYTE_ORDER_MARK).unwrap_or(line),
        LinePlace::Later => line,
    };
    line.strip_suffix(b"\r").unwrap_or(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(max_bytes: usize, chunks: &[&[u8]]) -> Vec<String> {
        let mut splitter = LineSplitter::new(max_bytes);
        let mut lines = Vec::new();
        let mut on_line = |line: Line<'_>| {
            let text = String::from_utf8_lossy(line.bytes()).into_owned();
            lines.push(match line {
                Line::Whole(_) => text,
                Line::TooLong { bytes, .. } => format!("{bytes} bytes: {text}"),
            });
        };
        for chunk in chunks {
            splitter.push(chunk, &mut on_line);
        }
        splitter.finish(&mut on_line);
        lines
    }

    #[test]
    fn lines_are_the_same_in_one_chunk_and_in_many() {
        assert_eq!(lines(99, &[b"a\nb\r\n\nc"]), ["a", "b", "", "c"]);
        assert_eq!(lines(99, &[b"a", b"\n", b"b\r", b"\n\n", b"c"]), ["a", "b", "", "c"]);
        assert_eq!(lines(99, &[b""]), [""; 0]);
    }

    #[test]
    fn a_byte_order_mark_is_removed_once() {
        assert_eq!(lines(99, &[b"\xef\xbb", b"\xbfa\n\xef\xbb\xbfb\n"]), ["a", "\u{feff}b"]);
    }

    #[test]
    fn a_line_above_the_limit_is_counted_and_dropped() {
        assert_eq!(lines(3, &[b"abc\nabcd\ne\n"]), ["abc", "4 bytes: abcd", "e"]);
        assert_eq!(lines(3, &[b"ab", b"cd", b"ef", b"\ng"]), ["6 bytes: abcdef", "g"]);
        let long = [b'x'; 4000];
        let head = format!("8000 bytes: {}", "x".repeat(HEAD_BYTES));
        assert_eq!(lines(5000, &[&long, &long, b"\n"]), [head.as_str()]);
        assert_eq!(lines(5000, &[&[long, long].concat()]), [head.as_str()]);
    }
}
