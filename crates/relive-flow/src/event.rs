//! What happens to a tree, and what is decided about it.

use relive_types::{Limits, Uuid};
use serde::{Deserialize, Serialize};

/// A change of a tree. The journal of the tree has its events in their order, and every decision depends on them alone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// A process is about to be started. It is recorded before the start, so that a crash does not start it twice.
    Starting { slot: String, uuid: Uuid, start: Start },
    /// The process of a slot has started. It is recorded only where another node waits for the start.
    #[serde(rename = "created")]
    Started { slot: String, uuid: Uuid },
    /// The process of a slot has ended.
    Ended {
        slot: String,
        uuid: Uuid,
        outcome: Outcome,
        at_ms: u64,
        /// What it said last, where another node asks for it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        result: Option<String>,
        /// Why it failed, or could not be started.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        note: Option<String>,
        #[serde(default, skip_serializing_if = "AtEnd::is_usual")]
        at_end: AtEnd,
    },
    /// A person stopped a slot whose process had ended and was to be started again.
    Stopped {
        slot: String,
        uuid: Uuid,
        /// Who stopped it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        note: Option<String>,
    },
    /// A person resumed a node, or forked it; or a child of a supervisor.
    Redo { slot: String, origin: Origin, run: u32 },
    /// A person, or the supervisor above, resumed a tree that had ended.
    Reopened {
        /// The last generation that ended before.
        run: u32,
    },
}

fn has_none(limits: &Limits) -> bool {
    *limits == Limits::default()
}

/// How a process is started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "how", rename_all = "snake_case")]
pub enum Start {
    /// As a new process.
    New,
    /// From its journal.
    Resume {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        input: Option<String>,
        /// New limits of its process; those absent stay as they are.
        #[serde(default, skip_serializing_if = "has_none")]
        limits: Limits,
    },
    /// As a fork of the process that ran before.
    Fork {
        from: Uuid,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        from_step: Option<u32>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        input: Option<String>,
        /// New limits of its process; those absent stay as they are.
        #[serde(default, skip_serializing_if = "has_none")]
        limits: Limits,
    },
}

impl Start {
    /// Returns a resume without a message and new limits.
    #[must_use]
    pub fn resume() -> Self {
        Self::Resume { input: None, limits: Limits::default() }
    }
}

/// The state that a resumed node continues from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "origin", rename_all = "snake_case")]
pub enum Origin {
    /// The end of its journal.
    End {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        input: Option<String>,
        /// New limits of its process; those absent stay as they are.
        #[serde(default, skip_serializing_if = "has_none")]
        limits: Limits,
    },
    /// A step of its journal, in a fork of its process.
    Fork {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        from_step: Option<u32>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        input: Option<String>,
        /// New limits of its process; those absent stay as they are.
        #[serde(default, skip_serializing_if = "has_none")]
        limits: Limits,
    },
}

/// How a process ended, in the detail that decisions need.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum Outcome {
    Succeeded,
    Failed {
        code: i32,
    },
    /// A person ended it.
    Stopped,
    /// It was ended together with the tree, or by the tree itself.
    Halted,
    /// It was never created.
    NeverRan,
}

/// What held of a process at its end and decides, beside its outcome, how it is started again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct AtEnd {
    /// A limit has ended it, and would end it again at once if it were resumed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub limit: bool,
    /// A person had paused it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub paused: bool,
}

impl AtEnd {
    fn is_usual(&self) -> bool {
        *self == Self::default()
    }
}

/// An action that the driver of a tree has to take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// Record [`Event::Starting`], then start it.
    Start { slot: String, start: Start },
    /// End this process. The decision is repeated until the process has ended.
    Stop { slot: String, uuid: Uuid },
    /// Decide again at this time.
    Wait { until_ms: u64 },
    /// End the tree.
    Finish(Verdict),
}

/// How a tree ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    Succeeded,
    /// These nodes failed, or were stopped; of a supervisor, these children reached a limit.
    Failed {
        slots: Vec<String>,
    },
    /// This child was to be restarted once too often.
    Escalated {
        slot: String,
    },
}

impl Verdict {
    /// Returns the exit code of the tree.
    #[must_use]
    pub fn code(&self) -> i32 {
        match self {
            Self::Succeeded => 0,
            Self::Failed { .. } | Self::Escalated { .. } => 1,
        }
    }

    /// Says why, for people.
    #[must_use]
    pub fn reason(&self) -> Option<String> {
        /// How many names are listed.
        const LISTED: usize = 5;
        match self {
            Self::Succeeded => None,
            Self::Failed { slots } => {
                let more = slots.len().saturating_sub(LISTED);
                let names = slots.iter().take(LISTED).map(String::as_str).collect::<Vec<_>>().join(", ");
                Some(if more == 0 { format!("failed: {names}") } else { format!("failed: {names} and {more} more") })
            }
            Self::Escalated { slot } => Some(format!("{slot} was restarted too often")),
        }
    }
}
