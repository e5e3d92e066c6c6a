//! The parts of a [`super::History`].

use relive_core::{End, Generation, Pid, Timestamp, Usd};
use serde::{Deserialize, Serialize};

use crate::record::Spawned;
use crate::recovery::Recovery;

/// The position of a record in `steps.jsonl`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "(u64, u64, u32)", into = "(u64, u64, u32)")]
pub struct Place {
    pub seq: u64,
    /// The offset of its first byte.
    pub offset: u64,
    /// The length of the line, including its newline.
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

/// The identity of a process, according to its last `spawned` record.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Identity {
    pub spawned: Spawned,
    pub created_at: Timestamp,
}

/// One incarnation: the time of one writer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Incarnation {
    pub pid: Pid,
    pub generation: Generation,
    pub at: Timestamp,
    /// The id of the boot in which it ran.
    pub boot_id: String,
    /// Absent while it lives and if it was interrupted.
    pub ended: Option<(Timestamp, End)>,
}

/// A call without an outcome.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenCall {
    /// The number of the call within the step.
    pub call: u32,
    /// The number of its record; together with the UUID it is the call's key.
    pub seq: u64,
    pub at: Timestamp,
    pub name: String,
    /// How to find out what happened to it.
    pub recovery: Recovery,
}

/// The position of the journal within a step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Between steps.
    Boundary,
    /// A model is being asked, or was when the writer was lost.
    Asking {
        /// The most tokens the call may have used.
        reserved_tokens: u64,
        /// The most it may have cost; absent if the price is not known.
        reserved_cost_usd: Option<Usd>,
    },
    /// The model answered and its calls are being run.
    Calling { calls: Vec<CallState> },
}

/// The state of a call of the current step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallState {
    Waiting,
    Open(OpenCall),
    /// The outcome is recorded.
    Settled,
}

/// The spending of a process. A fork begins at zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Spent {
    pub tokens_in: u64,
    pub tokens_out: u64,
    /// Absent as soon as the price of one call is not known.
    pub cost_usd: Option<Usd>,
    /// Whether some of it is an estimate.
    pub estimated: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Summary {
    pub(crate) seq: u64,
    /// The last record that it covers.
    pub(crate) through: u64,
}
