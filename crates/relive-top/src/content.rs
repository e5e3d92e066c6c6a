//! The detail pane: its tabs, and where their lines come from.

use std::future::Future;
use std::pin::Pin;

use relive_api::{Item, Process};
use relive_types::{Generation, Uuid};
use tokio::sync::mpsc;

/// A view of one process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Tab {
    Log,
    Timeline,
    Events,
    Context,
    Lineage,
}

impl Tab {
    pub const ALL: [Self; 5] = [Self::Log, Self::Timeline, Self::Events, Self::Context, Self::Lineage];

    /// Returns the title.
    #[must_use]
    pub fn title(self) -> &'static str {
        match self {
            Self::Log => "Log",
            Self::Timeline => "Timeline",
            Self::Events => "Events",
            Self::Context => "Context",
            Self::Lineage => "Lineage",
        }
    }

    /// Tells whether new lines come at the end while the process lives, so that the end is shown.
    #[must_use]
    pub fn follows(self) -> bool {
        match self {
            Self::Log | Self::Events => true,
            Self::Timeline | Self::Context | Self::Lineage => false,
        }
    }

    pub(crate) fn turned(self, by: usize) -> Self {
        let place = Self::ALL.iter().position(|tab| *tab == self).unwrap_or(0);
        Self::ALL[(place + by) % Self::ALL.len()]
    }
}

/// A line of a tab.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    pub text: String,
    /// The step that the line stands for, where it stands for one: what forks and rewinds are about.
    pub step: Option<u32>,
}

impl Line {
    #[must_use]
    pub fn plain(text: impl Into<String>) -> Self {
        Self { text: text.into(), step: None }
    }
}

/// Lines of a tab as they arrive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Part {
    /// These are all lines so far.
    All(Vec<Line>),
    /// These follow.
    More(Vec<Line>),
}

/// The lines of a change, each with its sign; `None` if there is nothing to compare with.
pub type Compared<'a> = Pin<Box<dyn Future<Output = Option<Vec<String>>> + 'a>>;

/// What became of an item, in words.
pub type Outcome<'a> = Pin<Box<dyn Future<Output = String> + 'a>>;

/// Reads the tabs of processes.
pub trait Content {
    /// Finds out how an item was answered that waits no more; the process is as it was when it waited.
    fn outcome(&self, item: Item, generation: Generation) -> Outcome<'_>;

    /// Compares the file that a process asks to write with what is on the disk.
    fn compare(&self, process: Process) -> Compared<'_>;

    /// Sends the lines of a tab, and those that follow, until the process has ended or nobody wants them any more.
    fn read<'a>(&'a self, uuid: Uuid, tab: Tab, lines: mpsc::Sender<Part>) -> Pin<Box<dyn Future<Output = ()> + 'a>>;
}
