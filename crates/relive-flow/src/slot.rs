//! One place in a tree, which one process at a time fills.

use std::sync::Arc;

use relive_types::Uuid;

use crate::event::{AtEnd, Start};

/// The state of one slot: a node of a compose file, or the child of a supervisor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SlotState {
    /// Not started yet.
    Waiting,
    /// Is to be started at this time.
    Due {
        start: Start,
        at_ms: u64,
    },
    Running {
        uuid: Uuid,
        start: Start,
        /// Counts the starts of the tree. A start that is carried out again after a crash has the same number.
        number: u64,
    },
    /// Runs, and is to be ended.
    ToStop {
        uuid: Uuid,
        then: Then,
    },
    Succeeded,
    Failed {
        code: i32,
    },
    /// A person ended it.
    Stopped,
    /// It ended with the tree.
    Halted,
    /// It can never start: a node that it depends on did not do what it waits for.
    Skipped,
}

/// What follows when a slot that is to be ended has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Then {
    Restart,
    Nothing,
}

impl SlotState {
    /// Tells whether it stays as it is until a person resumes it.
    #[must_use]
    pub fn is_over(&self) -> bool {
        match self {
            Self::Waiting | Self::Due { .. } | Self::Running { .. } | Self::ToStop { .. } => false,
            Self::Succeeded | Self::Failed { .. } | Self::Stopped | Self::Halted | Self::Skipped => true,
        }
    }

    /// Returns the process that runs.
    #[must_use]
    pub fn living(&self) -> Option<Uuid> {
        match self {
            Self::Running { uuid, .. } | Self::ToStop { uuid, .. } => Some(*uuid),
            Self::Waiting
            | Self::Due { .. }
            | Self::Succeeded
            | Self::Failed { .. }
            | Self::Stopped
            | Self::Halted
            | Self::Skipped => None,
        }
    }

    /// Returns when it is to be started.
    pub(crate) fn due_at(&self) -> Option<u64> {
        match self {
            Self::Due { at_ms, .. } => Some(*at_ms),
            Self::Waiting
            | Self::Running { .. }
            | Self::ToStop { .. }
            | Self::Succeeded
            | Self::Failed { .. }
            | Self::Stopped
            | Self::Halted
            | Self::Skipped => None,
        }
    }

    /// Returns its name in tables and JSON.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Due { .. } => "due",
            Self::Running { .. } => "running",
            Self::ToStop { .. } => "stopping",
            Self::Succeeded => "succeeded",
            Self::Failed { .. } => "failed",
            Self::Stopped => "stopped",
            Self::Halted => "halted",
            Self::Skipped => "skipped",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Slot {
    pub(crate) name: Arc<str>,
    pub(crate) state: SlotState,
    /// How often it was started since it last began anew.
    pub(crate) starts: u32,
    /// How often it was started in all.
    pub(crate) all_starts: u32,
    /// Whether a process of it has started since then. It is known only where another node waits for the start.
    pub(crate) has_started: bool,
    /// The process that it ran last.
    pub(crate) last: Option<Uuid>,
    pub(crate) result: Option<Arc<str>>,
    /// Why it failed, or could not be started.
    pub(crate) note: Option<Arc<str>>,
    /// When it was restarted, within the window.
    pub(crate) restarts: Vec<u64>,
    /// How its last process was at its end.
    pub(crate) at_end: AtEnd,
}

impl Slot {
    pub(crate) fn new(name: &str) -> Self {
        Self {
            name: name.into(),
            state: SlotState::Waiting,
            starts: 0,
            all_starts: 0,
            has_started: false,
            last: None,
            result: None,
            note: None,
            restarts: Vec::new(),
            at_end: AtEnd::default(),
        }
    }

    /// Forgets what it did, except for its last process and the number of its starts.
    pub(crate) fn begin_anew(&mut self, state: SlotState) {
        let (last, all_starts) = (self.last, self.all_starts);
        *self = Self { state, last, all_starts, ..Self::new(&self.name) };
    }
}

/// A slot as it is shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlotStatus<'a> {
    pub name: &'a str,
    pub state: &'a SlotState,
    pub uuid: Option<Uuid>,
    /// How often it was started in all.
    pub starts: u32,
    /// Whether its process has started, where another node waits for the start.
    pub has_started: bool,
    /// Why it failed, or could not be started.
    pub note: Option<&'a str>,
    /// How the last process that ended was at its end. One that was paused then is started paused.
    pub at_end: AtEnd,
}
