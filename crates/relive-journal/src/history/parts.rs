//! What a [`super::History`] is made of.

use relive_core::{End, Generation, Pid, Timestamp, Usd};
use serde::{Deserialize, Serialize};

use crate::record::Spawned;
use crate::recovery::Recovery;

/// Where a line is in `steps.jsonl`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "(u64, u64, u32)", into = "(u64, u64, u32)")]
pub struct Place {
    /// The record's place in the journal.
    pub seq: u64,
    /// Of the line's first byte.
    pub offset: u64,
    /// Of the line, with its newline.
    pub len: u32,
}

impl From<(u64, u64, u32)> for Place {
    fn from((seq, offset, len): (u64, u64, u32)) -> Self {
        Self { seq, offset, len }
    }
}

impl From<Place> for (u64, u64, u32) {
    fn from(place: Place) -> Self {
        (place.seq, place.offset, place.len)
    }
}

/// What a process is, as its last `spawned` record says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Identity {
    /// The record itself.
    pub spawned: Spawned,
    /// When it began.
    pub created_at: Timestamp,
}

/// One writer's time with the journal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Incarnation {
    /// Its PID.
    pub pid: Pid,
    /// Its epoch.
    pub generation: Generation,
    /// When it began.
    pub at: Timestamp,
    /// The boot it lived in.
    pub boot_id: String,
    /// How it ended; absent while it lives, and where it was interrupted.
    pub ended: Option<(Timestamp, End)>,
}

/// An intent without an outcome.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenCall {
    /// Which of the step's calls.
    pub call: u32,
    /// Of the intent's record; with the UUID it is the call's key.
    pub seq: u64,
    /// When it was begun.
    pub at: Timestamp,
    /// The tool.
    pub name: String,
    /// How to find out what became of it.
    pub recovery: Recovery,
}

/// Where in a step the journal is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Between steps.
    Boundary,
    /// A model is being asked, or was when the writer was lost.
    Asking {
        /// What the call may have cost.
        reserved_tokens: u64,
        /// What they cost; none where nobody knows.
        reserved_cost_usd: Option<Usd>,
    },
    /// The model answered and its calls are being run.
    Calling {
        /// What became of each.
        calls: Vec<CallState>,
    },
}

/// What became of a call of the current step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallState {
    /// It was not begun.
    Waiting,
    /// It was begun.
    Open(OpenCall),
    /// It has its outcome.
    Settled,
}

/// What the process has spent. A fork begins at nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[expect(missing_docs, reason = "each name says it")]
pub struct Spent {
    pub tokens_in: u64,
    pub tokens_out: u64,
    /// Absent as soon as one call's price was not known.
    pub cost_usd: Option<Usd>,
    /// Whether some of it is an estimate.
    pub estimated: bool,
}

/// A compaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Summary {
    /// Of its record.
    pub(crate) seq: u64,
    /// Of the last record it stands for.
    pub(crate) through: u64,
}
