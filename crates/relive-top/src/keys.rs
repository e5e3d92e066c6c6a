//! What each key does, by the place where it is pressed.

use crate::content::Tab;
use crate::key::Key;
use crate::rows::RowKind;
use crate::state::{Effect, Focus, Output, Overlay, Prompt, SEEN_AFTER_MS, State};

/// How far a page goes.
const PAGE: usize = 10;

/// Where a key is pressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// On an item of the inbox.
    Item,
    /// On a process of the list.
    Process,
    /// In the detail pane.
    Detail,
    /// In a list without a row.
    Nothing,
}

const LIST: &[Place] = &[Place::Item, Place::Process];
const PROCESS: &[Place] = &[Place::Process];
const DETAIL: &[Place] = &[Place::Detail];
const SELECTED: &[Place] = &[Place::Item, Place::Process, Place::Detail];
const ANYWHERE: &[Place] = &[Place::Item, Place::Process, Place::Detail, Place::Nothing];
const LIST_OR_NOTHING: &[Place] = &[Place::Item, Place::Process, Place::Nothing];

/// The keys, what they do, and where.
const KEYS: [(&str, &str, &[Place]); 23] = [
    ("j k g G PgUp PgDn Home End", "move", SELECTED),
    ("Enter", "open; a question is shown in full first", &[Place::Item]),
    ("Enter", "open", PROCESS),
    ("Enter", "attach", DETAIL),
    ("Esc", "clear the filter, then the tags", LIST_OR_NOTHING),
    ("Esc", "back to the list", DETAIL),
    ("Tab Shift-Tab", "next tab, tab before", SELECTED),
    ("p", "pause or resume it (or the tagged) and all below", SELECTED),
    ("K", "send a signal to it (or to the tagged)", SELECTED),
    ("f", "fork", LIST),
    ("f", "fork, at the step of the Timeline", DETAIL),
    ("r", "rewind to the step of the Timeline, after asking", SELECTED),
    ("d", "diff", LIST),
    ("d", "diff, of the step in the Timeline", DETAIL),
    ("s", "send a message", SELECTED),
    ("l S c", "log, events, context", SELECTED),
    ("Space", "tag", SELECTED),
    ("t + - *", "tree or list, unfold, fold, unfold all", SELECTED),
    ("/ :", "filter, type a command", ANYWHERE),
    ("Y", "copy the id", SELECTED),
    ("?", "this help", ANYWHERE),
    ("Ctrl-Z", "back to the shell; its fg comes back here", ANYWHERE),
    ("q Ctrl-C", "quit; the processes continue", ANYWHERE),
];

impl State {
    pub(crate) fn place(&self) -> Place {
        match (self.focus, self.row().map(|row| &row.kind)) {
            (_, None) => Place::Nothing,
            (Focus::Detail, Some(_)) => Place::Detail,
            (Focus::List, Some(RowKind::Item(_))) => Place::Item,
            (Focus::List, Some(RowKind::Process { .. })) => Place::Process,
        }
    }

    /// Returns the keys of this place, and what they do.
    pub(crate) fn help(&self) -> Vec<String> {
        let place = self.place();
        let item = self.item().filter(|_| place != Place::Detail);
        let answers = item.map(|item| {
            let (keys, does): (Vec<String>, Vec<&str>) = item.keys().into_iter().unzip();
            (keys.join(" "), format!("answer at once: {}", does.join(", ")))
        });
        // A key that answers does nothing else here.
        let answers_by = |keys: &str| item.is_some_and(|item| item.answers.iter().any(|by| by.key.to_string() == keys));
        let keys = KEYS.iter().filter(|(keys, _, places)| places.contains(&place) && !answers_by(keys));
        let keys = keys.map(|(keys, does, _)| ((*keys).to_owned(), (*does).to_owned()));
        answers.into_iter().chain(keys).map(|(keys, does)| format!("{keys:<27} {does}")).collect()
    }

    pub(crate) fn press(&mut self, key: Key) -> Vec<Effect> {
        if self.refusal.take().is_some_and(|refusal| refusal == self.status) {
            self.status.clear();
        }
        match key {
            Key::Interrupt => return vec![Effect::Quit],
            Key::Suspend => return vec![Effect::Suspend],
            Key::Char(_)
            | Key::Enter
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
            | Key::Erase(_) => {}
        }
        match self.overlay.take() {
            None => self.press_plain(key),
            Some(Overlay::Help { from }) => {
                let count = self.help().len();
                self.overlay = self.paged(key, from, count).map(|from| Overlay::Help { from });
                Vec::new()
            }
            Some(Overlay::Signals { targets }) => key.letter().map(|c| self.signal(c, targets)).unwrap_or_default(),
            Some(Overlay::Asked { id, from }) => self.press_asked(key, id, from),
            Some(Overlay::Text { title, lines, from }) => {
                let to = self.paged(key, from, self.drawn.lines.max(lines.len()));
                self.overlay = to.map(|from| Overlay::Text { title, lines, from });
                Vec::new()
            }
            Some(Overlay::Confirm { lines, from, then, since_ms }) => {
                let is_read = self.now_ms.saturating_sub(since_ms) >= SEEN_AFTER_MS;
                if key == Key::Char('y') && is_read {
                    return self.command(then, Output::StatusLine);
                }
                let from = if key == Key::Char('y') {
                    Some(from)
                } else {
                    self.paged(key, from, self.drawn.lines.max(lines.len()))
                };
                match from {
                    Some(from) => self.overlay = Some(Overlay::Confirm { lines, from, then, since_ms }),
                    None => "nothing was changed".clone_into(&mut self.status),
                }
                Vec::new()
            }
            Some(Overlay::Typing { prompt, typed }) => self.type_key(key, prompt, typed),
        }
    }

    /// Says why a key did nothing.
    pub(crate) fn refuse(&mut self, why: &'static str) {
        why.clone_into(&mut self.status);
        // The same refusal is shown for its full time again.
        self.status_since = None;
        self.refusal = Some(why);
    }

    /// Returns the first line of a window after a key; `None` if the key closes it.
    fn paged(&self, key: Key, from: usize, count: usize) -> Option<usize> {
        // The last page is full.
        moved(key, from, count).map(|to| to.min(count.saturating_sub(self.drawn.page)))
    }

    fn press_asked(&mut self, key: Key, id: String, from: usize) -> Vec<Effect> {
        if let Some(from) = self.paged(key, from, self.drawn.lines) {
            self.overlay = Some(Overlay::Asked { id, from });
            return Vec::new();
        }
        if key == Key::Enter {
            self.focus = Focus::Detail;
        }
        let Some(c) = key.letter() else { return Vec::new() };
        let effects = self.answer(c, true);
        if effects.is_empty() && self.overlay.is_none() {
            self.overlay = Some(Overlay::Asked { id, from });
        }
        effects
    }

    fn type_key(&mut self, key: Key, prompt: Prompt, mut typed: String) -> Vec<Effect> {
        match key {
            Key::Char(c) => self.type_char(&mut typed, c),
            Key::Backspace => drop(typed.pop()),
            Key::Erase(erase) => erase.shorten(&mut typed),
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
            | Key::Interrupt
            | Key::Suspend => {}
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
            Prompt::Send(uuid) => {
                let effects = self.send(uuid, typed);
                self.keep_draft(Prompt::Send(uuid), typed, &effects);
                effects
            }
            Prompt::Answer { command, id } => {
                let effects = self.answer_with(&command, id.clone(), typed);
                self.keep_draft(Prompt::Answer { command, id }, typed, &effects);
                effects
            }
            Prompt::Withdrawn { .. } => Vec::new(),
        }
    }

    fn press_plain(&mut self, key: Key) -> Vec<Effect> {
        if self.place() == Place::Nothing && !is_for_nothing(key) && !self.is_for_tagged(key) {
            self.refuse("nothing is selected");
            return Vec::new();
        }
        if self.moves(key) {
            return Vec::new();
        }
        match key {
            Key::Char(c) => return self.letter(c),
            Key::Tab => self.show(self.tab.turned(1)),
            Key::BackTab => self.show(self.tab.turned(Tab::ALL.len() - 1)),
            Key::Enter => match self.focus {
                Focus::List => match self.item().map(|item| item.id.clone()).filter(|_| self.is_cut()) {
                    Some(id) => self.overlay = Some(Overlay::Asked { id, from: 0 }),
                    None if self.row().is_some() => self.focus = Focus::Detail,
                    None => {}
                },
                Focus::Detail => return self.attach(),
            },
            Key::Escape => {
                if self.place() == Place::Detail {
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
            | Key::Interrupt
            | Key::Erase(_)
            | Key::Suspend => {}
        }
        Vec::new()
    }

    /// Tells whether a key is about the tagged processes, wherever the cursor is.
    fn is_for_tagged(&self, key: Key) -> bool {
        matches!(key, Key::Char('p' | 'K')) && !self.tagged.is_empty()
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
            return self.answer(c, false);
        }
        if "pfrsK ".contains(c) && self.has_just_moved() {
            self.refuse("the cursor has just moved: look at what it is on now");
            return Vec::new();
        }
        match c {
            'q' => return vec![Effect::Quit],
            '?' => self.overlay = Some(Overlay::Help { from: 0 }),
            'p' => return self.pause_or_resume(),
            'f' => return self.fork(),
            'r' => return self.rewind(),
            'd' => return self.diff(),
            'K' => self.overlay = Some(Overlay::Signals { targets: self.target_ids() }),
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
                    self.type_for(Prompt::Send(uuid));
                }
            }
            'Y' => {
                if let Some(id) = self.process().map(|process| process.short.clone()) {
                    // Whether the terminal takes it, nobody is told.
                    self.status = format!("id {id}, sent to the clipboard of the terminal");
                    return vec![Effect::Copy(id)];
                }
            }
            answer => return self.answer(answer, false),
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

/// Tells whether a key does something where nothing is selected, or nowhere.
fn is_for_nothing(key: Key) -> bool {
    let name = match key {
        Key::Char(' ') => "Space".to_owned(),
        Key::Char(c) => c.to_string(),
        Key::Down => "j".to_owned(),
        Key::Up => "k".to_owned(),
        Key::PageUp => "PgUp".to_owned(),
        Key::PageDown => "PgDn".to_owned(),
        Key::Home => "Home".to_owned(),
        Key::End => "End".to_owned(),
        Key::Enter => "Enter".to_owned(),
        Key::Escape => "Esc".to_owned(),
        Key::Tab => "Tab".to_owned(),
        Key::BackTab => "Shift-Tab".to_owned(),
        Key::Backspace | Key::Interrupt | Key::Erase(_) | Key::Suspend => return true,
    };
    let mut places = KEYS.iter().filter(|(keys, ..)| keys.split(' ').any(|key| key == name)).peekable();
    places.peek().is_none() || places.any(|(_, _, places)| places.contains(&Place::Nothing))
}

pub(crate) fn is_move(key: Key) -> bool {
    match key {
        Key::Char('j' | 'k' | 'g' | 'G') | Key::Up | Key::Down | Key::PageUp | Key::PageDown | Key::Home | Key::End => {
            true
        }
        Key::Char(_)
        | Key::Enter
        | Key::Escape
        | Key::Backspace
        | Key::Tab
        | Key::BackTab
        | Key::Interrupt
        | Key::Erase(_)
        | Key::Suspend => false,
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
        Key::Char(_)
        | Key::Enter
        | Key::Escape
        | Key::Backspace
        | Key::Tab
        | Key::BackTab
        | Key::Interrupt
        | Key::Erase(_)
        | Key::Suspend => return None,
    };
    Some(to.min(last))
}
