//! A text that is typed or pasted key by key, and shown as it is typed.

use unicode_width::UnicodeWidthChar as _;

use super::without_controls;

/// The longest text. It becomes an argument of a command, of which Linux allows twice as much.
const TEXT_MAX: usize = 64 << 10;

const BACKSPACE: u8 = 0x08;
const DELETE: u8 = 0x7f;
const CTRL_U: u8 = 0x15;
const CTRL_W: u8 = 0x17;

/// A text that is being typed.
#[derive(Debug, Default)]
pub(crate) struct Line {
    text: String,
    /// The first bytes of a character whose others have not come yet.
    partial: Vec<u8>,
    /// Whether the last character was a carriage return: a line feed after it belongs to the same line break.
    is_after_return: bool,
}

impl From<String> for Line {
    fn from(text: String) -> Self {
        Self { text, ..Self::default() }
    }
}

impl Line {
    /// Adds what was typed, with its line breaks and without other control characters. Returns what is shown of it.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> String {
        let mut bytes = [std::mem::take(&mut self.partial).as_slice(), bytes].concat();
        let mut added = String::new();
        let is_begun = |from: &usize| {
            std::str::from_utf8(&bytes[*from..]).is_err_and(|e| e.valid_up_to() == 0 && e.error_len().is_none())
        };
        if let Some(from) = (bytes.len().saturating_sub(3)..bytes.len()).find(is_begun) {
            self.partial = bytes.split_off(from);
        }
        for c in String::from_utf8_lossy(&bytes).chars() {
            let is_after_return = std::mem::replace(&mut self.is_after_return, c == '\r');
            let c = match c {
                '\n' if is_after_return => continue,
                '\r' => '\n',
                c if c.is_control() && !matches!(c, '\n' | '\t') => continue,
                c => c,
            };
            if self.text.len() + c.len_utf8() > TEXT_MAX {
                self.partial.clear();
                let kib = TEXT_MAX >> 10;
                return format!("{}\r\nthe text is longer than {kib} KiB: the rest is left out\r\n", shown(&added));
            }
            self.text.push(c);
            added.push(c);
        }
        shown(&added)
    }

    /// Takes in keys that may also remove characters. Returns what is shown then.
    pub(crate) fn edit(&mut self, keys: &[u8], prompt: &str) -> String {
        let mut shown = String::new();
        for part in keys.chunk_by(|one, other| !is_erasing(*one) && !is_erasing(*other)) {
            if !is_erasing(part[0]) {
                shown.push_str(&self.push(part));
                continue;
            }
            let gone = self.erase(part[0]);
            if gone.contains('\n') {
                // The line before cannot be returned to.
                shown.push_str(&format!("\r\n{prompt}{}", self.shown()));
            } else {
                shown.push_str(&"\x08 \x08".repeat(gone.chars().map(width).sum()));
            }
        }
        shown
    }

    /// Removes what a key removes from the end, and returns it.
    fn erase(&mut self, key: u8) -> String {
        let rest = match key {
            CTRL_U => "",
            CTRL_W => self.text.trim_end().trim_end_matches(|c: char| !c.is_whitespace()),
            _ => return self.pop().map(String::from).unwrap_or_default(),
        };
        let kept = rest.len();
        self.partial.clear();
        self.is_after_return = false;
        self.text.split_off(kept)
    }

    /// Removes the last character. Bytes that are no character count as one.
    fn pop(&mut self) -> Option<char> {
        self.partial.clear();
        self.is_after_return = false;
        self.text.pop()
    }

    pub(crate) fn into_text(mut self) -> String {
        if !self.partial.is_empty() {
            self.text.push(char::REPLACEMENT_CHARACTER);
        }
        self.text
    }

    pub(crate) fn shown(&self) -> String {
        shown(&self.text)
    }
}

fn is_erasing(key: u8) -> bool {
    matches!(key, BACKSPACE | DELETE | CTRL_U | CTRL_W)
}

/// Returns how many columns a character takes as it is shown.
fn width(c: char) -> usize {
    shown(c.encode_utf8(&mut [0; 4])).chars().filter_map(|c| c.width()).sum()
}

/// Returns a text as the terminal shows it, which does not move to the first column by itself. Nothing in it controls the
/// terminal.
fn shown(text: &str) -> String {
    without_controls(text).replace('\t', "<TAB>").replace('\n', "\r\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_typed_text_keeps_its_line_breaks_and_loses_its_last_character() {
        let mut line = Line::default();
        assert_eq!(line.push("a\rb\x07\u{e9}".as_bytes()), "a\r\nb\u{e9}");
        assert_eq!(line.text, "a\nb\u{e9}");
        assert_eq!(
            [line.pop(), line.pop(), line.pop(), line.pop(), line.pop()],
            [Some('\u{e9}'), Some('b'), Some('\n'), Some('a'), None]
        );
        assert_eq!(line.edit(b"ab\x7f\x7f\x7fc", "? "), "ab\x08 \x08\x08 \x08c");
        assert_eq!(line.edit(b"\n\x7f", "? "), "\r\n\r\n? c");
        assert_eq!((line.edit(b"\x7f", "? "), line.text.as_str()), ("\x08 \x08".to_owned(), ""));
    }

    #[test]
    fn a_pasted_line_break_of_two_characters_is_one() {
        let mut line = Line::default();
        assert_eq!((line.push(b"a\r"), line.push(b"\nb\r\n\nc")), ("a\r\n".to_owned(), "b\r\n\r\nc".to_owned()));
        assert_eq!(line.into_text(), "a\nb\n\nc");
    }

    #[test]
    fn a_tab_belongs_to_the_text_and_is_shown_by_name() {
        let mut line = Line::default();
        assert_eq!(line.edit(b"a\tb", "? "), "a<TAB>b");
        assert_eq!(line.edit(b"\x7f\x7f", "? "), "\x08 \x08".repeat(6));
        line.push(b"\tc");
        assert_eq!(line.into_text(), "a\tc");
    }

    #[test]
    fn ctrl_u_and_ctrl_w_erase_as_in_a_shell() {
        let mut line = Line::default();
        assert_eq!(line.edit(b"to be  \x17", "? "), format!("to be  {}", "\x08 \x08".repeat(4)));
        assert_eq!((line.edit(b"\x15\x15\x17", "? "), line.text.as_str()), ("\x08 \x08".repeat(3), ""));
        assert_eq!(line.edit(b"a\nbc\x17", "? "), "a\r\nbc\x08 \x08\x08 \x08");
        assert_eq!((line.edit(b"\x15", "? "), line.text.as_str()), ("\r\n? ".to_owned(), ""));
    }

    #[test]
    fn bytes_that_are_no_character_count_as_one() {
        let mut line = Line::default();
        assert_eq!(line.push(b"\xffa\xc3"), "\u{fffd}a", "the last character is not complete");
        assert_eq!(line.push(b"\xa9"), "\u{e9}");
        assert_eq!(
            [line.pop(), line.pop(), line.pop(), line.pop()],
            [Some('\u{e9}'), Some('a'), Some('\u{fffd}'), None]
        );
        line.push(&[0xe9]);
        assert_eq!(line.into_text(), "\u{fffd}");
    }

    #[test]
    fn a_pasted_text_cannot_control_the_terminal() {
        let mut line = Line::default();
        assert_eq!(line.push("a\u{9b}31m\u{202e}b".as_bytes()), "a31m<U+202E>b");
        assert_eq!(line.edit(b"\x7f\x7f", "? "), "\x08 \x08".repeat(9));
        assert_eq!(line.into_text(), "a31m");
    }

    #[test]
    fn a_text_has_a_longest_length() {
        let mut line = Line::default();
        assert_eq!(line.push(&[b'x'; TEXT_MAX]).len(), TEXT_MAX);
        assert!(line.push(b"y").contains("longer than 64 KiB: the rest is left out"));
        assert_eq!(line.into_text(), "x".repeat(TEXT_MAX));
    }
}
