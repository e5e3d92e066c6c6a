//! The modes that a full-screen program switches on in the terminal: whoever leaves it switches them off, and whoever comes back
//! switches them on again.

use std::collections::BTreeSet;
use std::fmt::Write as _;

/// Modes that outlast the program's output and that a shell does not want: application cursor keys, the mouse, focus events,
/// the alternate screen, bracketed paste.
const FOLLOWED: [u16; 15] = [1, 9, 47, 1000, 1001, 1002, 1003, 1004, 1005, 1006, 1007, 1015, 1047, 1049, 2004];
/// The cursor is shown. The only mode that is on before anybody switches it.
const CURSOR: u16 = 25;
/// More than any sequence of modes has.
const SEQUENCE_MAX: usize = 64;

/// What has been switched on so far.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Modes {
    on: BTreeSet<u16>,
    cursor_hidden: bool,
    keypad: bool,
    /// The beginning of a sequence whose end has not come yet.
    begun: Vec<u8>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Switch {
    On,
    Off,
}

impl Modes {
    /// Takes in what goes to the terminal.
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
            ([0x1b], b'[') | ([0x1b, b'['], b'?') => self.begun.push(byte),
            ([0x1b, b'[', b'?', ..], b'0'..=b'9' | b';') if self.begun.len() < SEQUENCE_MAX => self.begun.push(byte),
            ([0x1b, b'[', b'?', numbers @ ..], b'h' | b'l') => {
                let numbers = String::from_utf8_lossy(numbers).into_owned();
                for number in numbers.split(';').filter_map(|number| number.parse().ok()) {
                    self.switch(number, if byte == b'h' { Switch::On } else { Switch::Off });
                }
                self.begun.clear();
            }
            (_, _) => self.begun.clear(),
        }
    }

    fn switch(&mut self, number: u16, switch: Switch) {
        match (number, switch) {
            (CURSOR, _) => self.cursor_hidden = switch == Switch::Off,
            (_, _) if !FOLLOWED.contains(&number) => {}
            (_, Switch::On) => drop(self.on.insert(number)),
            (_, Switch::Off) => drop(self.on.remove(&number)),
        }
    }

    /// What puts the terminal back to what a shell expects; nothing where it is that already.
    pub(crate) fn undo(&self) -> String {
        let mut text = String::new();
        for number in &self.on {
            let _ = write!(text, "\x1b[?{number}l");
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

    /// What puts a usual terminal into these modes.
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
    fn what_was_switched_on_is_switched_off_and_nothing_else() {
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
}
