//! Text that comes at once: it is typed where a text is expected, and is never a command or an answer.

use crate::key::Key;
use crate::keys::is_move;
use crate::state::{Batch, Effect, Overlay, Prompt, State};

/// The longest text. It becomes an argument of a command, of which Linux allows twice as much.
const TEXT_MAX: usize = 64 << 10;
const TOO_LONG: &str = "the text is longer than 64 KiB: the rest is left out";

impl State {
    /// Adds a character to the text that is being typed, if there is room.
    pub(crate) fn type_char(&mut self, typed: &mut String, c: char) {
        if typed.len() + c.len_utf8() > TEXT_MAX {
            self.refuse(TOO_LONG);
        } else {
            typed.push(c);
        }
    }

    /// Takes in keys that came at once. A terminal that does not mark pasted text hands it over like this.
    pub(crate) fn press_together(&mut self, keys: &[Key], batch: Batch) -> Vec<Effect> {
        if let Some(key) = keys.iter().find(|key| matches!(key, Key::Interrupt | Key::Suspend)) {
            return self.press(*key);
        }
        if matches!(self.overlay, Some(Overlay::Typing { .. })) {
            return self.type_together(keys, batch);
        }
        let is_harmless = |key: &Key| is_move(*key) || matches!(key, Key::Tab | Key::BackTab | Key::Escape);
        if !keys.iter().all(is_harmless) {
            self.refuse("several keys at once do nothing: press one");
            return Vec::new();
        }
        keys.iter().flat_map(|key| self.press(*key)).collect()
    }

    /// Only the last of several keys can be the Enter that sends the text, and only if no more can follow.
    fn type_together(&mut self, keys: &[Key], batch: Batch) -> Vec<Effect> {
        let (last, before) = match keys.split_last() {
            Some((last, before)) if batch == Batch::Whole => (Some(*last), before),
            Some(_) | None => (None, keys),
        };
        for key in before {
            if *key == Key::Enter {
                self.paste("\n");
            } else if *key != Key::Escape {
                drop(self.press(*key));
            }
        }
        last.map(|last| self.press(last)).unwrap_or_default()
    }

    /// Adds pasted text to the one that is being typed. Line breaks belong to it, and do not send it.
    pub(crate) fn paste(&mut self, text: &str) {
        let Some(Overlay::Typing { prompt, typed }) = &mut self.overlay else {
            self.refuse("pasted text is no key: nothing was done");
            return;
        };
        let is_one_line = matches!(prompt, Prompt::Filter | Prompt::Command);
        let line_break = if is_one_line { ' ' } else { '\n' };
        let text = text.replace("\r\n", "\n");
        let room = TEXT_MAX.saturating_sub(typed.len());
        let fits = text.floor_char_boundary(room);
        typed.extend(text[..fits].chars().map(|c| if matches!(c, '\r' | '\n') { line_break } else { c }));
        if *prompt == Prompt::Filter {
            self.filter = typed.to_lowercase();
            self.refresh();
        }
        if fits < text.len() {
            self.refuse(TOO_LONG);
        }
    }
}
