//! What the dashboard knows and shows. Pure: inputs come in, effects go out, the clock is an argument.

use std::collections::{BTreeSet, HashMap, VecDeque};

use relive_api::{Answer, Change, Item, Process};
use relive_core::State as Life;
use relive_types::{Generation, Timestamp, Uuid};

use crate::content::{Line, Part, Tab};
use crate::draft::Draft;
use crate::elsewhere::OwnCommands;
use crate::key::Key;
pub use crate::overlay::{Overlay, Prompt};
pub use crate::results::{Finished, Output};
use crate::rows::{ListSource, Row, RowKind};
use crate::selection::Selection;
use crate::status::{STOPPED, Silence};

/// How long an item has to be shown before a key can answer it.
pub(crate) const SEEN_AFTER_MS: u64 = 300;
/// How many processes that have ended are shown.
const ENDED_MAX: usize = 500;
/// How many lines of a tab are kept.
const LINES_MAX: usize = 5_000;

/// What the terminal can show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Look {
    pub color: bool,
    /// Whether only ASCII is shown.
    pub ascii: bool,
}

/// Something that happened.
#[derive(Debug)]
pub enum Input {
    /// Everything that is known of processes is out of date, and follows anew.
    Reset,
    Change(Box<Change>),
    /// Everything was sent that there was.
    Ready {
        /// Whether processes that have ended may be missing.
        incomplete: bool,
    },
    /// The daemon is gone; it is looked for.
    Disconnected {
        /// Whether somebody stopped it: then nobody but a person starts it again.
        stopped: bool,
    },
    /// The daemon accepts connections, and does not answer.
    Silent {
        os_pid: Option<u32>,
    },
    /// It answers again, or is gone.
    Answers,
    Key(Key),
    /// Keys that came at once: pasted, unless they only move.
    Keys {
        keys: Vec<Key>,
        batch: Batch,
    },
    /// Text that the terminal has marked as pasted.
    Paste(String),
    /// Lines of a tab.
    Lines {
        uuid: Uuid,
        tab: Tab,
        part: Part,
    },
    /// A command has ended.
    Finished(Finished),
    /// How an item was answered elsewhere.
    Outcome {
        id: String,
        text: String,
    },
    /// What an item would change in a file, where there is something to compare with.
    Compared {
        id: String,
        lines: Option<Vec<String>>,
    },
}

/// Whether what came at once is all that came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Batch {
    Whole,
    /// It is longer than what is taken in at once: its rest may follow.
    Cut,
}

/// Something to be done.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// Leave; the processes continue.
    Quit,
    /// Run commands of Relive one after the other, until one fails.
    Run { commands: Vec<Vec<String>>, output: Output },
    /// Stop, as Ctrl-Z stops any program of a shell.
    Suspend,
    /// Give the terminal to a command of Relive until that ends.
    Attach { words: Vec<String> },
    /// Read a tab.
    Load { uuid: Uuid, tab: Tab },
    /// Put a text on the clipboard.
    Copy(String),
    /// Find out how an item was answered elsewhere.
    FindOutcome { item: Box<Item>, generation: Generation },
    /// Compare what an item asks to write with what is on the disk.
    Compare { id: String, process: Box<Process> },
}

/// What is known of a process.
#[derive(Debug)]
pub(crate) struct Known {
    pub(crate) process: Process,
    pub(crate) item: Option<Item>,
    /// When it was heard of, on the clock of the inputs, and how long it was to wait by itself then.
    heard_ms: u64,
    waits_ms: Option<u64>,
    /// Whether it was heard of since the last reset.
    fresh: bool,
}

impl Known {
    /// Returns how long it is still to wait until it continues by itself.
    pub(crate) fn waits_ms(&self, now_ms: u64) -> Option<u64> {
        Some(self.waits_ms?.saturating_sub(now_ms.saturating_sub(self.heard_ms)))
    }

    /// Returns the execution time at a moment. It stands still while the process does.
    pub(crate) fn elapsed_ms(&self, now_ms: u64) -> u64 {
        let is_at_gate = self.process.display == "ready";
        let is_queued = self.process.agent.as_ref().is_some_and(|agent| !agent["queued"].is_null());
        let runs = self.process.state == Life::Running && !self.process.paused && !is_at_gate && !is_queued;
        let since = if runs { now_ms.saturating_sub(self.heard_ms) } else { 0 };
        self.process.elapsed_ms.saturating_add(since)
    }
}

/// What a screen has shown.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Drawn {
    /// What the selected item asks, if any of it was shown.
    pub(crate) asked: Option<DrawnItem>,
    /// How many lines a window has room for.
    pub(crate) page: usize,
    /// How many lines there are in the window that is open.
    pub(crate) lines: usize,
    /// How wide the line is that says what was done.
    pub(crate) width: usize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DrawnItem {
    pub(crate) id: String,
    /// Whether its last line was shown.
    pub(crate) to_the_end: bool,
}

/// Where keys go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Focus {
    List,
    Detail,
}

/// The dashboard.
#[derive(Debug)]
pub struct State {
    pub(crate) look: Look,
    pub(crate) known: HashMap<Uuid, Known>,
    /// Those that have ended, the first first.
    ended: VecDeque<Uuid>,
    /// The rows, as they were made last.
    pub(crate) rows: Vec<Row>,
    stale: bool,
    /// Whether a key has changed which rows there are.
    pub(crate) rearranged: bool,
    /// The row that is selected, by what it stands for: rows move.
    pub(crate) selected: Option<Selection>,
    pub(crate) cursor: usize,
    pub(crate) tree: bool,
    pub(crate) folded: BTreeSet<Uuid>,
    pub(crate) tagged: BTreeSet<Uuid>,
    pub(crate) filter: String,
    pub(crate) tab: Tab,
    pub(crate) focus: Focus,
    pub(crate) lines: Vec<Line>,
    /// The line of the detail pane that is selected; the last one if absent.
    pub(crate) line: Option<usize>,
    loaded: Option<(Uuid, Tab)>,
    pub(crate) overlay: Option<Overlay>,
    /// What was done last, or is being done.
    pub(crate) status: String,
    /// The message that is shown, and since when.
    pub(crate) status_since: Option<(String, u64)>,
    pub(crate) connected: bool,
    /// Set while the daemon does not answer.
    pub(crate) silence: Option<Silence>,
    pub(crate) ready: bool,
    /// Whether a key was pressed before everything was told.
    touched: bool,
    pub(crate) now_ms: u64,
    /// The selected item, and since when a person could have read all of it.
    seen: Option<(String, u64)>,
    /// The selected item, and since when some of it is shown.
    begun: Option<(String, u64)>,
    /// The item that was answered here, and the command: a key that is pressed twice answers once.
    pub(crate) answering: Option<(String, String)>,
    /// When the cursor moved because its row went away.
    pub(crate) moved_ms: Option<u64>,
    /// Why a key did nothing, which is shown until the next key.
    pub(crate) refusal: Option<&'static str>,
    /// What the last screen has shown.
    pub(crate) drawn: Drawn,
    /// Whether processes that have ended may be missing.
    pub(crate) incomplete: bool,
    /// The item that was compared with the disk last, and what it would change there.
    pub(crate) compared: Option<(String, Option<Vec<String>>)>,
    /// The time of day, for moments that the daemon names.
    wall: Timestamp,
    /// The commands of this dashboard that run or have just ended.
    pub(crate) own: OwnCommands,
    /// The item that was answered elsewhere last, as it is named.
    pub(crate) answered: Option<(String, String)>,
    /// The text that was sent last, until it is accepted.
    pub(crate) draft: Option<Draft>,
}

impl State {
    #[must_use]
    pub fn new(look: Look) -> Self {
        Self {
            look,
            known: HashMap::new(),
            ended: VecDeque::new(),
            rows: Vec::new(),
            stale: false,
            rearranged: false,
            selected: None,
            cursor: 0,
            tree: true,
            folded: BTreeSet::new(),
            tagged: BTreeSet::new(),
            filter: String::new(),
            tab: Tab::Log,
            focus: Focus::List,
            lines: Vec::new(),
            line: None,
            loaded: None,
            overlay: None,
            status: String::new(),
            status_since: None,
            connected: false,
            silence: None,
            ready: false,
            touched: false,
            now_ms: 0,
            seen: None,
            begun: None,
            refusal: None,
            answering: None,
            moved_ms: None,
            drawn: Drawn::default(),
            incomplete: false,
            compared: None,
            wall: Timestamp::UNIX_EPOCH,
            own: OwnCommands::default(),
            answered: None,
            draft: None,
        }
    }

    /// Tells the time of day.
    pub fn set_wall(&mut self, wall: Timestamp) {
        self.wall = wall;
    }

    /// Takes in that time has passed.
    pub fn tick(&mut self, now_ms: u64) {
        self.now_ms = now_ms;
    }

    /// Takes in what happened at a moment, in milliseconds of a clock that never goes back.
    pub fn apply(&mut self, input: Input, now_ms: u64) -> Vec<Effect> {
        self.now_ms = now_ms;
        match input {
            Input::Reset => {
                self.connected = true;
                self.known.values_mut().for_each(|known| known.fresh = false);
            }
            Input::Change(change) => {
                self.connected = true;
                return self.take(*change).into_iter().collect();
            }
            Input::Ready { incomplete } => {
                // The first row so far was that of whatever was told of first. The cursor begins with what waits.
                if self.is_loading() && !self.touched {
                    (self.selected, self.cursor) = (None, 0);
                }
                (self.connected, self.ready, self.stale) = (true, true, true);
                self.incomplete = incomplete;
                self.known.retain(|_, known| known.fresh);
            }
            Input::Disconnected { stopped } => {
                self.connected = false;
                if stopped {
                    STOPPED.clone_into(&mut self.status);
                }
            }
            Input::Silent { os_pid } => self.begin_silence(os_pid),
            Input::Answers => self.end_silence(),
            Input::Lines { uuid, tab, part } if self.loaded == Some((uuid, tab)) => self.take_lines(part),
            // Of a tab that is not shown any more.
            Input::Lines { .. } => {}
            Input::Finished(finished) => self.finished(finished),
            Input::Outcome { id, text } => self.told_outcome(&id, &text),
            Input::Compared { id, lines } => {
                if let Some((asked, compared)) = &mut self.compared
                    && *asked == id
                {
                    *compared = lines;
                }
            }
            Input::Key(key) => {
                self.touched |= self.is_loading();
                return self.press(key);
            }
            Input::Keys { keys, batch } => {
                self.touched |= self.is_loading();
                return self.press_together(&keys, batch);
            }
            Input::Paste(text) => self.paste(&text),
        }
        Vec::new()
    }

    /// Tells whether there may be more than was told so far.
    fn is_loading(&self) -> bool {
        !self.ready || self.incomplete
    }

    fn take(&mut self, change: Change) -> Option<Effect> {
        self.stale = true;
        let answered = self.answered_elsewhere(&change);
        let Some(process) = change.process else {
            self.known.remove(&change.uuid);
            return answered;
        };
        let waits_ms = process.resume_at.map(|at| {
            let left = at.duration_since(self.wall).as_millis();
            u64::try_from(left).unwrap_or(0)
        });
        let known = Known { process, item: change.item, heard_ms: self.now_ms, waits_ms, fresh: true };
        let is_over = known.process.dead_at.is_some();
        self.known.insert(change.uuid, known);
        if is_over {
            self.forget_oldest(change.uuid);
        }
        answered
    }

    /// Forgets processes that have ended and need nobody, the first first, so that a day of them costs no more than a few.
    fn forget_oldest(&mut self, uuid: Uuid) {
        self.ended.push_back(uuid);
        if self.ended.len() > ENDED_MAX
            && let Some(oldest) = self.ended.pop_front()
            && !self.ended.contains(&oldest)
            && self.known.get(&oldest).is_some_and(|known| known.process.dead_at.is_some() && known.item.is_none())
        {
            self.known.remove(&oldest);
        }
    }

    fn take_lines(&mut self, part: Part) {
        match part {
            Part::All(lines) => self.lines = lines,
            Part::More(lines) => self.lines.extend(lines),
        }
        if self.lines.len() > LINES_MAX {
            let gone = self.lines.len() - LINES_MAX;
            self.lines.drain(..gone);
            self.line = self.line.map(|line| line.saturating_sub(gone));
        }
    }

    /// Brings the rows up to date, and returns the tab that has to be read for what is selected now.
    pub fn settle(&mut self) -> Vec<Effect> {
        self.expire_status();
        if std::mem::take(&mut self.stale) {
            let Self { known, filter, folded, tree, .. } = self;
            self.rows = ListSource { known, filter, tree: *tree, folded }.rows();
            self.keep_selection();
        }
        if self.item().map(|item| &item.id) != self.seen.as_ref().map(|(id, _)| id) {
            self.seen = None;
        }
        if self.item().map(|item| &item.id) != self.begun.as_ref().map(|(id, _)| id) {
            self.begun = None;
        }
        let item = self.item().map(|item| &item.id);
        if matches!(&self.overlay, Some(Overlay::Asked { id, .. }) if Some(id) != item) {
            self.overlay = None;
        }
        let mut effects: Vec<Effect> = self.compare().into_iter().collect();
        let wanted = self.selected_uuid().map(|uuid| (uuid, self.tab));
        if wanted != self.loaded {
            self.loaded = wanted;
            (self.lines, self.line) = (Vec::new(), None);
            effects.extend(wanted.map(|(uuid, tab)| Effect::Load { uuid, tab }));
        }
        effects
    }

    /// Takes in what a screen has shown.
    pub fn note_drawn(&mut self, drawn: Drawn) {
        if let Some(asked) = drawn.asked.as_ref()
            && self.begun.as_ref().is_none_or(|(id, _)| *id != asked.id)
        {
            self.begun = Some((asked.id.clone(), self.now_ms));
        }
        if let Some(asked) = drawn.asked.as_ref().filter(|asked| asked.to_the_end)
            && self.seen.as_ref().is_none_or(|(id, _)| *id != asked.id)
        {
            self.seen = Some((asked.id.clone(), self.now_ms));
        }
        self.drawn = drawn;
    }

    /// Tells whether more is asked than fits beside the list.
    pub(crate) fn is_cut(&self) -> bool {
        let id = self.item().map(|item| &item.id);
        self.drawn.asked.as_ref().is_some_and(|asked| !asked.to_the_end && Some(&asked.id) == id)
    }

    /// Tells whether an item was shown for long enough to be what a key is meant for: what is asked may change in the moment
    /// in which a person answers. All of it has to be shown, except for a refusal.
    pub(crate) fn was_seen(&self, item: &Item, answer: &Answer) -> bool {
        let since = if item.refuses(answer) { &self.begun } else { &self.seen };
        since.as_ref().is_some_and(|(id, since)| *id == item.id && self.now_ms.saturating_sub(*since) >= SEEN_AFTER_MS)
    }

    /// Has the rows made anew after a key.
    pub(crate) fn refresh(&mut self) {
        (self.stale, self.rearranged) = (true, true);
    }

    pub(crate) fn row(&self) -> Option<&Row> {
        self.rows.get(self.cursor)
    }

    /// Returns the process of the selected row.
    #[must_use]
    pub fn selected_uuid(&self) -> Option<Uuid> {
        self.row().map(|row| row.uuid)
    }

    pub(crate) fn process(&self) -> Option<&Process> {
        self.known.get(&self.selected_uuid()?).map(|known| &known.process)
    }

    /// Tells whether what is shown changes with time alone.
    #[must_use]
    pub fn ticks(&self) -> bool {
        self.known.values().any(|known| known.process.state == Life::Running && !known.process.paused)
            || self.rows.iter().any(|row| matches!(row.kind, RowKind::Item(_)))
            || self.status_expires()
    }
}

/// Tells whether a process waits for an answer: nobody has paused it, unless `pause_kept` says so.
pub(crate) fn asks(process: &Process) -> bool {
    matches!(process.display.as_str(), "approval" | "question" | "in_doubt")
}
