//! The modes that a full-screen program enables in the terminal: leaving disables them, and returning enables them
//! again.

use std::collections::BTreeSet;
use std::fmt::Write as _;

/// Modes that outlast the program's output and that a shell does not expect: application cursor keys, the mouse, focus
/// events, the alternate screen, bracketed paste, and an origin within the scrolling region.
const FOLLOWED: [u16; 16] = [1, 6, 9, 47, 1000, 1001, 1002, 1003, 1004, 1005, 1006, 1007, 1015, 1047, 1049, 2004];
/// The origin of the cursor's position is that of the scrolling region.
const ORIGIN: u16 = 6;
/// Long lines continue on the next one: on by default.
const WRAP: u16 = 7;
/// The visible cursor: on by default.
const CURSOR: u16 = 25;
/// Those that show the alternate screen; leaving it puts the cursor where it was.
const ALTERNATE: [u16; 3] = [47, 1047, 1049];
/// Text is inserted instead of overwritten. A mode without a question mark.
const INSERT: u16 = 4;
/// More keyboard protocols than any program enables at once.
const KEYBOARDS_MAX: usize = 16;
/// Longer than any sequence of modes.
const SEQUENCE_MAX: usize = 64;

/// The modes that were enabled so far.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Modes {
    on: BTreeSet<u16>,
    cursor_hidden: bool,
    keypad: bool,
    wrap_off: bool,
    insert: bool,
    line_drawing: bool,
    /// The scrolling region, if it is not the whole screen.
    region: Option<String>,
    /// The keyboard protocols that were enabled on top of each other.
    keyboards: Vec<String>,
    /// The beginning of an incomplete sequence.
    begun: Vec<u8>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Switch {
    On,
    Off,
}

impl Modes {
    /// Processes output to the terminal.
    pub(crate) fn see(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.see_one(*byte);
        }
    }

    fn see_one(&mut self, byte: u8) {
        match (self.begun.as_slice(), byte) {
            (_, 0x1b) => self.begun = vec![byte],
            ([], _) => {}
            ([0x1b], b'=' | b'>') => {
                self.keypad = byte == b'=';
                self.begun.clear();
            }
            // A complete reset.
            ([0x1b], b'c') => *self = Self::default(),
            ([0x1b], b'[' | b'(') => self.begun.push(byte),
            ([0x1b, b'('], _) => {
                self.line_drawing = byte == b'0';
                self.begun.clear();
            }
            ([0x1b, b'[', ..], b' '..=b'?') if self.begun.len() < SEQUENCE_MAX => self.begun.push(byte),
            ([0x1b, b'[', parameters @ ..], b'@'..=b'~') => {
                let parameters = String::from_utf8_lossy(parameters).into_owned();
                self.begun.clear();
                self.control(&parameters, byte);
            }
            (_, _) => self.begun.clear(),
        }
    }

    fn control(&mut self, parameters: &str, last: u8) {
        let numbers = |text: &str| text.split(';').filter_map(|number| number.parse().ok()).collect::<Vec<u16>>();
        let switch = if last == b'h' { Switch::On } else { Switch::Off };
        let (kind, rest) = match parameters.strip_prefix(['?', '>', '<']) {
            Some(rest) => (parameters.chars().next(), rest),
            None => (None, parameters),
        };
        match (kind, last) {
            (Some('?'), b'h' | b'l') => numbers(rest).into_iter().for_each(|number| self.switch(number, switch)),
            (Some('>'), b'u') if self.keyboards.len() < KEYBOARDS_MAX => self.keyboards.push(rest.to_owned()),
            (Some('<'), b'u') => {
                let left = self.keyboards.len().saturating_sub(rest.parse().unwrap_or(1));
                self.keyboards.truncate(left);
            }
            (None, b'h' | b'l') if numbers(rest).contains(&INSERT) => self.insert = switch == Switch::On,
            (None, b'r') => self.region = (!rest.is_empty()).then(|| rest.to_owned()),
            (_, _) => {}
        }
    }

    fn switch(&mut self, number: u16, switch: Switch) {
        match (number, switch) {
            (CURSOR, _) => self.cursor_hidden = switch == Switch::Off,
            (WRAP, _) => self.wrap_off = switch == Switch::Off,
            (_, _) if !FOLLOWED.contains(&number) => {}
            (_, Switch::On) => drop(self.on.insert(number)),
            (_, Switch::Off) => drop(self.on.remove(&number)),
        }
    }

    /// Returns the sequences that reset the terminal for a shell; empty if it is reset already.
    pub(crate) fn undo(&self) -> String {
        let mut text = String::new();
        if !self.keyboards.is_empty() {
            let _ = write!(text, "\x1b[<{}u", self.keyboards.len());
        }
        for (is_set, reset) in [
            (self.region.is_some(), "\x1b[r"),
            (self.wrap_off, "\x1b[?7h"),
            (self.insert, "\x1b[4l"),
            (self.line_drawing, "\x1b(B"),
        ] {
            text.push_str(if is_set { reset } else { "" });
        }
        for number in &self.on {
            let _ = write!(text, "\x1b[?{number}l");
        }
        let moved_cursor = self.region.is_some() || self.on.contains(&ORIGIN);
        if moved_cursor && !ALTERNATE.iter().any(|number| self.on.contains(number)) {
            // Resetting these has put the cursor in the first line, where a prompt would overwrite the screen.
            text.push_str("\x1b[999;1H");
        }
        if self.cursor_hidden {
            let _ = write!(text, "\x1b[?{CURSOR}h");
        }
        if self.keypad {
            text.push_str("\x1b>");
        }
        if !text.is_empty() {
            text.push_str("\x1b[0m");
        }
        text
    }

    /// Returns the sequences that enable these modes.
    pub(crate) fn redo(&self) -> String {
        let mut text = String::new();
        for number in self.on.iter().rev() {
            let _ = write!(text, "\x1b[?{number}h");
        }
        if self.cursor_hidden {
            let _ = write!(text, "\x1b[?{CURSOR}l");
        }
        if self.keypad {
            text.push_str("\x1b=");
        }
        if let Some(region) = &self.region {
            let _ = write!(text, "\x1b[{region}r");
        }
        for (is_set, set) in [(self.wrap_off, "\x1b[?7l"), (self.insert, "\x1b[4h"), (self.line_drawing, "\x1b(0")] {
            text.push_str(if is_set { set } else { "" });
        }
        for keyboard in &self.keyboards {
            let _ = write!(text, "\x1b[>{keyboard}u");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(printed: &[&str], undo: &str, redo: &str) {
        let mut modes = Modes::default();
        printed.iter().for_each(|part| modes.see(part.as_bytes()));
        assert_eq!((modes.undo().as_str(), modes.redo().as_str()), (undo, redo), "{printed:?}");
        let mut again = Modes::default();
        again.see(modes.redo().as_bytes());
        assert_eq!(again.redo(), modes.redo());
        again.see(modes.undo().as_bytes());
        assert_eq!(again, Modes::default());
    }

    #[test]
    fn only_enabled_modes_are_disabled() {
        check(&["plain \x1b[31mred\x1b[0m text\x1b[?7h\x1b[2J"], "", "");
        check(&["\x1b[?1049h\x1b[?25l\x1b="], "\x1b[?1049l\x1b[?25h\x1b>\x1b[0m", "\x1b[?1049h\x1b[?25l\x1b=");
        check(
            &["\x1b[?1000;1006h", "\x1b[?2004h", "\x1b[?1000l"],
            "\x1b[?1006l\x1b[?2004l\x1b[0m",
            "\x1b[?2004h\x1b[?1006h",
        );
        check(&["\x1b[?10", "49h", "\x1b", "[?1049", "l\x1b[?25l\x1b[?25h"], "", "");
        check(&["\x1b[?", &"1;".repeat(100), "h\x1b[?1h\x1b[?1l"], "", "");
    }

    #[test]
    fn modes_that_are_not_private_are_undone_as_well() {
        check(&["\x1b[?7l"], "\x1b[?7h\x1b[0m", "\x1b[?7l");
        check(&["\x1b[4h\x1b(0"], "\x1b[4l\x1b(B\x1b[0m", "\x1b[4h\x1b(0");
        check(&["\x1b[2;10r\x1b[?6h"], "\x1b[r\x1b[?6l\x1b[999;1H\x1b[0m", "\x1b[?6h\x1b[2;10r");
        check(&["\x1b[?1049h\x1b[2;10r"], "\x1b[r\x1b[?1049l\x1b[0m", "\x1b[?1049h\x1b[2;10r");
        check(&["\x1b[>1u\x1b[>5u"], "\x1b[<2u\x1b[0m", "\x1b[>1u\x1b[>5u");
        check(&["\x1b[>1u\x1b[<u\x1b[4h\x1b[4l\x1b(0\x1b(B\x1b[1;5r\x1b[r\x1b[?7l\x1b[?7h"], "", "");
        check(&["\x1b[?1049h\x1b[4h\x1b[>1u\x1bc"], "", "");
    }
}
