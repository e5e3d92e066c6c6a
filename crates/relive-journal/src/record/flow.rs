//! The records of a tree of processes, in the journal of the process that drives it.

use serde::{Deserialize, Serialize};

use crate::payload::Json;

/// What a tree consists of, or something that happened to it. Its meaning is its driver's: here it is carried.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FlowRecord {
    /// Present in the first one of a journal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub definition: Option<Json>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event: Option<Json>,
    /// The id of the request that asked for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub req: Option<String>,
}
