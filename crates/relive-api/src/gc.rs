//! Collecting the journals of ended processes.

use relive_types::{Timestamp, Uuid};
use serde::{Deserialize, Serialize};

use crate::files::GcSnapshots;

/// Collect, or say what would be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct GcRequest {
    /// Change nothing.
    pub dry_run: bool,
    /// Collect only if there are at most so many; else say what there is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_most: Option<usize>,
    /// Those that ended longer ago than this, whatever the configuration says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub older_than_ms: Option<u64>,
}

/// What was, or would be, collected.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GcAnswer {
    pub collected: bool,
    /// What there was to collect.
    pub candidates: Vec<GcCandidate>,
    /// The removed processes.
    pub removed: Vec<Uuid>,
    pub freed_bytes: u64,
    /// What was passed over, and why.
    pub warnings: Vec<String>,
    /// What could not be removed, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failures: Vec<String>,
    /// How many are left for the next request, where there were more than one takes.
    #[serde(default)]
    pub left: usize,
    /// What became of the snapshots of files; absent where there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshots: Option<GcSnapshots>,
    /// Why snapshots that nothing needs any more are still there, although they were to be removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_freed: Option<String>,
}

/// An ended process that can be removed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GcCandidate {
    pub uuid: Uuid,
    pub dead_at: Timestamp,
    pub bytes: u64,
    pub reason: String,
}
