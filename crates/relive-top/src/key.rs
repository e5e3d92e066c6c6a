//! Keys, as the state knows them.

use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

/// A key that was pressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Key {
    Char(char),
    Enter,
    Escape,
    Backspace,
    Tab,
    BackTab,
    Up,
    Down,
    PageUp,
    PageDown,
    Home,
    End,
    /// Ctrl-U and Ctrl-W, in a text.
    Erase(Erase),
    /// Ctrl-C.
    Interrupt,
    /// Ctrl-Z.
    Suspend,
}

/// What is removed from the end of a text, as in the line of a shell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Erase {
    /// All of it.
    Line,
    Word,
}

impl Erase {
    pub(crate) fn shorten(self, text: &mut String) {
        let rest = match self {
            Self::Line => "",
            Self::Word => text.trim_end().trim_end_matches(|c: char| !c.is_whitespace()),
        };
        text.truncate(rest.len());
    }
}

impl Key {
    /// Returns the letter, if it is one.
    pub(crate) fn letter(self) -> Option<char> {
        match self {
            Self::Char(c) => Some(c),
            Self::Enter
            | Self::Escape
            | Self::Backspace
            | Self::Tab
            | Self::BackTab
            | Self::Up
            | Self::Down
            | Self::PageUp
            | Self::PageDown
            | Self::Home
            | Self::End
            | Self::Erase(_)
            | Self::Interrupt
            | Self::Suspend => None,
        }
    }

    /// Returns the key of an event of the terminal, if it is one that the dashboard knows.
    #[must_use]
    pub fn of(event: KeyEvent) -> Option<Self> {
        if event.kind == KeyEventKind::Release {
            return None;
        }
        if event.modifiers.contains(KeyModifiers::CONTROL) {
            let known = [
                ('c', Self::Interrupt),
                ('z', Self::Suspend),
                ('u', Self::Erase(Erase::Line)),
                ('w', Self::Erase(Erase::Word)),
            ];
            return known.into_iter().find(|(c, _)| event.code == KeyCode::Char(*c)).map(|(_, key)| key);
        }
        if let KeyCode::Char(c) = event.code {
            return Some(Self::Char(c));
        }
        let known = [
            (KeyCode::Enter, Self::Enter),
            (KeyCode::Esc, Self::Escape),
            (KeyCode::Backspace, Self::Backspace),
            (KeyCode::Tab, Self::Tab),
            (KeyCode::BackTab, Self::BackTab),
            (KeyCode::Up, Self::Up),
            (KeyCode::Down, Self::Down),
            (KeyCode::PageUp, Self::PageUp),
            (KeyCode::PageDown, Self::PageDown),
            (KeyCode::Home, Self::Home),
            (KeyCode::End, Self::End),
        ];
        known.into_iter().find(|(code, _)| *code == event.code).map(|(_, key)| key)
    }
}
