//! Tells keys from text that a terminal hands over at once: pasted text is never a key.
//!
//! A terminal that knows bracketed paste marks pasted text. One that does not know it hands over several characters at a time,
//! and nobody presses several keys within a few milliseconds.

use std::time::Duration;

use relive_top::AT_ONCE;

/// How long a terminal may pause within a pasted text. A single key after a longer silence ends it: its end mark was lost.
const PASTE_SILENCE_MAX: Duration = Duration::from_secs(5);

/// Asks the terminal to mark pasted text.
pub(crate) const MARK: &[u8] = b"\x1b[?2004h";
/// Asks the terminal to mark pasted text no more.
pub(crate) const UNMARK: &[u8] = b"\x1b[?2004l";
const BEGIN: &[u8] = b"\x1b[200~";
const END: &[u8] = b"\x1b[201~";
const ESCAPE: u8 = 0x1b;

/// What was typed at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Typed {
    Key(u8),
    /// A key that types no character, such as an arrow.
    NoCharacter,
    /// Several characters, or one that has several bytes.
    Text(Vec<u8>),
    /// Text that the terminal has marked as pasted.
    Pasted(Vec<u8>),
}

/// Tells keys from text in the bytes of a terminal, however it splits them.
#[derive(Debug, Default)]
pub(crate) struct Parser {
    /// Whether a pasted text has begun and not ended.
    is_within: bool,
    /// How many bytes of the next mark were read.
    matched: usize,
    /// How many of those were not passed on.
    held: usize,
}

impl Parser {
    /// Returns what bytes that came together stand for; `silence` is the time before them.
    pub(crate) fn parse(&mut self, bytes: &[u8], silence: Duration) -> Vec<Typed> {
        if self.is_within && silence >= PASTE_SILENCE_MAX && is_one_key(bytes) {
            // The end mark was lost. The key only ends the paste: it may still be a part of it.
            *self = Self::default();
            return vec![Typed::Pasted(bytes.to_vec())];
        }
        let mut found = Vec::new();
        let mut part = self.mark()[self.matched - self.held..self.matched].to_vec();
        for byte in bytes {
            part.push(*byte);
            let mark = self.mark();
            self.matched = match *byte {
                byte if byte == mark[self.matched] => self.matched + 1,
                // Only its first byte is an Escape.
                ESCAPE => 1,
                _ => 0,
            };
            if self.matched == mark.len() {
                // The Escape may have been passed on as a key.
                part.truncate(part.len().saturating_sub(mark.len()));
                found.extend(self.typed(std::mem::take(&mut part), silence));
                (self.is_within, self.matched) = (!self.is_within, 0);
            }
        }
        // Escape alone is a key. More of a mark is none: the next byte tells whether it is one.
        let is_key = !self.is_within && self.matched == 1;
        self.held = if is_key { 0 } else { self.matched.min(part.len()) };
        part.truncate(part.len() - self.held);
        found.extend(self.typed(part, silence));
        found
    }

    /// Returns the mark that comes next.
    fn mark(&self) -> &'static [u8] {
        if self.is_within { END } else { BEGIN }
    }

    fn typed(&self, bytes: Vec<u8>, silence: Duration) -> Option<Typed> {
        match bytes.as_slice() {
            [] => None,
            _ if self.is_within => Some(Typed::Pasted(bytes)),
            // It belongs to what was read before.
            [_] if silence < AT_ONCE => Some(Typed::Text(bytes)),
            bytes => unmarked(bytes),
        }
    }
}

/// Tells whether bytes are what a terminal sends for one key.
fn is_one_key(bytes: &[u8]) -> bool {
    match bytes {
        [_] => true,
        [ESCAPE, after @ ..] => bytes != END && sequence(after) == Some(after.len()),
        _ => std::str::from_utf8(bytes).is_ok_and(|text| text.chars().count() == 1),
    }
}

fn unmarked(bytes: &[u8]) -> Option<Typed> {
    match bytes {
        [] => return None,
        [key] => return Some(Typed::Key(*key)),
        _ => {}
    }
    let (mut text, mut rest) = (Vec::new(), bytes);
    while let Some((byte, after)) = rest.split_first() {
        rest = match (*byte, sequence(after)) {
            (ESCAPE, Some(length)) => &after[length..],
            (ESCAPE, None) => after,
            (byte, _) => {
                text.push(byte);
                after
            }
        };
    }
    Some(if text.is_empty() { Typed::NoCharacter } else { Typed::Text(text) })
}

/// Returns the length of a control sequence whose Escape was read: `[`, parameters and a last byte, or `O` and a byte.
fn sequence(after: &[u8]) -> Option<usize> {
    match after {
        [b'[', parameters @ ..] => Some(2 + parameters.iter().position(|byte| (b'@'..=b'~').contains(byte))?),
        [b'O', _, ..] => Some(2),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Duration = Duration::from_secs(1);

    fn text(text: &str) -> Typed {
        Typed::Text(text.into())
    }

    fn pasted(text: &str) -> Typed {
        Typed::Pasted(text.into())
    }

    #[test]
    fn pasted_text_is_no_key() {
        let check = |bytes: &str, expect: &[Typed]| {
            assert_eq!(Parser::default().parse(bytes.as_bytes(), SHORT), expect, "{bytes:?}")
        };
        check("y", &[Typed::Key(b'y')]);
        check("\x1b", &[Typed::Key(ESCAPE)]);
        check("yes", &[text("yes")]);
        check("é", &[text("é")]);
        check("\x1b[A", &[Typed::NoCharacter]);
        check("\x1bOP\x1b[5~", &[Typed::NoCharacter]);
        check("\x1b[Ay", &[text("y")]);
        check("\x1b[200~y\x1b[201~", &[pasted("y")]);
        check("\x1b[200~a\nb\x1b[201~y", &[pasted("a\nb"), Typed::Key(b'y')]);
        check("n\x1b[200~\x1b[201~\x1b[200~q", &[Typed::Key(b'n'), pasted("q")]);
        check("\x1b[200~\x1b[2\x1b[201~", &[pasted("\x1b[2")]);
    }

    /// Whatever is not within the marks is `q`, and whatever is within is not.
    #[test]
    fn a_paste_stays_one_however_its_bytes_are_split() {
        let stream = b"q\x1b[200~y1\x1b[20y\r\x1b[201~q\x1b[200~a\x1b[201~q";
        let check = |chunks: &[&[u8]]| {
            let mut parser = Parser::default();
            let found: Vec<Typed> = chunks.iter().flat_map(|chunk| parser.parse(chunk, SHORT)).collect();
            let (mut keys, mut all) = (Vec::new(), Vec::new());
            for typed in found {
                match typed {
                    Typed::Key(ESCAPE) | Typed::NoCharacter => {}
                    Typed::Key(key) => keys.push(key),
                    Typed::Pasted(bytes) => all.extend(bytes),
                    Typed::Text(bytes) => panic!("{bytes:?} of {chunks:?}"),
                }
            }
            assert_eq!((keys.as_slice(), all.as_slice()), (&b"qqq"[..], &b"y1\x1b[20y\ra"[..]), "{chunks:?}");
        };
        check(&stream.chunks(1).collect::<Vec<_>>());
        for first in 0..stream.len() {
            for second in first..stream.len() {
                // A key that comes together with the first bytes of a mark is a text.
                if stream[..first].ends_with(b"q\x1b") || stream[first..second].ends_with(b"q\x1b") {
                    continue;
                }
                check(&[&stream[..first], &stream[first..second], &stream[second..]]);
            }
        }
    }

    #[test]
    fn a_lost_end_mark_does_not_lock_the_keyboard() {
        let mut parser = Parser::default();
        let mut check = |bytes: &str, silence, expect: &[Typed]| {
            assert_eq!(parser.parse(bytes.as_bytes(), silence), expect, "{bytes:?}");
        };
        check("\x1b[200~abc", SHORT, &[pasted("abc")]);
        check("y", SHORT, &[pasted("y")]);
        check("yes", PASTE_SILENCE_MAX, &[pasted("yes")]);
        check("y", PASTE_SILENCE_MAX, &[pasted("y")]);
        check("q", SHORT, &[Typed::Key(b'q')]);
        check("\x1b[200~abc", SHORT, &[pasted("abc")]);
        check("\x1b[201~", PASTE_SILENCE_MAX, &[]);
        check("q", SHORT, &[Typed::Key(b'q')]);
    }

    #[test]
    fn the_rest_of_a_long_text_is_no_key() {
        assert_eq!(Parser::default().parse(b"y", Duration::ZERO), [text("y")]);
    }
}
