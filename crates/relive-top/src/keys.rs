//! What each key does, by the place where it is pressed.

use crate::content::Tab;
use crate::key::Key;
use crate::state::{Effect, Focus, Overlay, Prompt, State};

/// How far a page goes.
const PAGE: usize = 10;

/// The keys of the list and what they do, for the help.
pub(crate) const KEYS: [(&str, &str); 19] = [
    ("j k", "move"),
    ("Enter", "open; again: attach"),
    ("Esc", "back"),
    ("Tab", "next tab"),
    ("a n 1-9", "answer the item"),
    ("p", "pause or resume, with everything below"),
    ("f", "fork, at the step of the Timeline"),
    ("r", "rewind the files to the step"),
    ("d", "diff, of the step in the Timeline"),
    ("s", "send a message"),
    ("K", "signals"),
    ("l S c", "log, events, context"),
    ("Space", "tag"),
    ("t", "tree or list"),
    ("+ - *", "unfold, fold, unfold all"),
    ("/ :", "filter, type a command"),
    ("y", "copy the id"),
    ("?", "this help"),
    ("q", "quit; the processes continue"),
];

impl State {
    pub(crate) fn press(&mut self, key: Key) -> Vec<Effect> {
        if key == Key::Interrupt {
            return vec![Effect::Quit];
        }
        match self.overlay.take() {
            None => self.press_plain(key),
            Some(Overlay::Help) => Vec::new(),
            Some(Overlay::Signals) => match key {
                Key::Char(c) => self.signal(c),
                Key::Enter
                | Key::Escape
                | Key::Backspace
                | Key::Tab
                | Key::BackTab
                | Key::Up
                | Key::Down
                | Key::PageUp
                | Key::PageDown
                | Key::Home
                | Key::End
                | Key::Interrupt => Vec::new(),
            },
            Some(Overlay::Text { title, lines, from }) => {
                if let Some(from) = moved(key, from, lines.len()) {
                    self.overlay = Some(Overlay::Text { title, lines, from });
                }
                Vec::new()
            }
            Some(Overlay::Typing { prompt, typed }) => self.type_key(key, prompt, typed),
        }
    }

    fn type_key(&mut self, key: Key, prompt: Prompt, mut typed: String) -> Vec<Effect> {
        match key {
            Key::Char(c) => typed.push(c),
            Key::Backspace => drop(typed.pop()),
            Key::Enter => return self.typed(prompt, &typed),
            Key::Escape => {
                if prompt == Prompt::Filter {
                    self.filter.clear();
                    self.refresh();
                }
                return Vec::new();
            }
            Key::Tab
            | Key::BackTab
            | Key::Up
            | Key::Down
            | Key::PageUp
            | Key::PageDown
            | Key::Home
            | Key::End
            | Key::Interrupt => {}
        }
        if prompt == Prompt::Filter {
            self.filter = typed.to_lowercase();
            self.refresh();
        }
        self.overlay = Some(Overlay::Typing { prompt, typed });
        Vec::new()
    }

    fn typed(&mut self, prompt: Prompt, typed: &str) -> Vec<Effect> {
        if typed.trim().is_empty() {
            return Vec::new();
        }
        match prompt {
            Prompt::Filter => Vec::new(),
            Prompt::Command => self.type_in(typed),
            Prompt::Send(uuid) => self.send(uuid, typed),
            Prompt::Answer(uuid) => self.answer_with(uuid, typed),
        }
    }

    fn press_plain(&mut self, key: Key) -> Vec<Effect> {
        if self.moves(key) {
            return Vec::new();
        }
        match key {
            Key::Char(c) => return self.letter(c),
            Key::Tab => self.show(self.tab.turned(1)),
            Key::BackTab => self.show(self.tab.turned(Tab::ALL.len() - 1)),
            Key::Enter => match self.focus {
                Focus::List => self.focus = Focus::Detail,
                Focus::Detail => return self.attach(),
            },
            Key::Escape => {
                if self.focus == Focus::Detail {
                    self.focus = Focus::List;
                    self.line = None;
                } else if !self.filter.is_empty() {
                    self.filter.clear();
                    self.refresh();
                } else {
                    self.tagged.clear();
                }
            }
            Key::Backspace
            | Key::Up
            | Key::Down
            | Key::PageUp
            | Key::PageDown
            | Key::Home
            | Key::End
            | Key::Interrupt => {}
        }
        Vec::new()
    }

    fn show(&mut self, tab: Tab) {
        self.tab = tab;
        self.line = None;
    }

    /// Moves the cursor of the pane that has the keys; `true` if the key is one that moves.
    fn moves(&mut self, key: Key) -> bool {
        match self.focus {
            Focus::List => match moved(key, self.cursor, self.rows.len()) {
                Some(cursor) if is_move(key) => self.select(cursor),
                Some(_) | None => return false,
            },
            Focus::Detail => {
                let at = self.line.unwrap_or(self.lines.len().saturating_sub(1));
                match moved(key, at, self.lines.len()) {
                    // At the end it follows what is added.
                    Some(line) if is_move(key) => {
                        self.line = Some(line).filter(|line| line + 1 < self.lines.len() || !self.tab.follows());
                    }
                    Some(_) | None => return false,
                }
            }
        }
        true
    }

    fn letter(&mut self, c: char) -> Vec<Effect> {
        if self.focus == Focus::List && self.has_answer(c) {
            return self.answer(c);
        }
        match c {
            'q' => return vec![Effect::Quit],
            '?' => self.overlay = Some(Overlay::Help),
            'p' => return self.pause_or_resume(),
            'f' => return self.fork(),
            'r' => return self.rewind(),
            'd' => return self.diff(),
            'K' => self.overlay = Some(Overlay::Signals),
            'l' => self.show(Tab::Log),
            'S' => self.show(Tab::Events),
            'c' => self.show(Tab::Context),
            't' => {
                self.tree = !self.tree;
                self.refresh();
            }
            '+' | '-' | '*' => self.fold(c),
            ' ' => {
                if let Some(uuid) = self.selected_uuid()
                    && !self.tagged.remove(&uuid)
                {
                    self.tagged.insert(uuid);
                }
            }
            '/' => self.overlay = Some(Overlay::Typing { prompt: Prompt::Filter, typed: self.filter.clone() }),
            ':' => self.overlay = Some(Overlay::Typing { prompt: Prompt::Command, typed: String::new() }),
            's' => {
                if let Some(uuid) = self.selected_uuid() {
                    self.overlay = Some(Overlay::Typing { prompt: Prompt::Send(uuid), typed: String::new() });
                }
            }
            'y' => {
                if let Some(id) = self.process().map(|process| process.short.clone()) {
                    self.status = format!("copied {id}");
                    return vec![Effect::Copy(id)];
                }
            }
            answer => return self.answer(answer),
        }
        Vec::new()
    }

    fn fold(&mut self, key: char) {
        match (key, self.selected_uuid()) {
            ('*', _) => self.folded.clear(),
            ('+', Some(uuid)) => drop(self.folded.remove(&uuid)),
            ('-', Some(uuid)) => drop(self.folded.insert(uuid)),
            (_, _) => {}
        }
        self.refresh();
    }
}

fn is_move(key: Key) -> bool {
    match key {
        Key::Char('j' | 'k' | 'g' | 'G') | Key::Up | Key::Down | Key::PageUp | Key::PageDown | Key::Home | Key::End => {
            true
        }
        Key::Char(_) | Key::Enter | Key::Escape | Key::Backspace | Key::Tab | Key::BackTab | Key::Interrupt => false,
    }
}

/// Returns where a key moves a cursor among so many lines; `None` if it does not move it.
fn moved(key: Key, at: usize, count: usize) -> Option<usize> {
    let last = count.saturating_sub(1);
    let to = match key {
        Key::Char('j') | Key::Down => at.saturating_add(1),
        Key::Char('k') | Key::Up => at.saturating_sub(1),
        Key::PageDown => at.saturating_add(PAGE),
        Key::PageUp => at.saturating_sub(PAGE),
        Key::Char('g') | Key::Home => 0,
        Key::Char('G') | Key::End => last,
        Key::Char(_) | Key::Enter | Key::Escape | Key::Backspace | Key::Tab | Key::BackTab | Key::Interrupt => {
            return None;
        }
    };
    Some(to.min(last))
}
