//! The records of a tree of processes, in the journal of the process that drives it.

use serde::{Deserialize, Serialize};

use crate::payload::Json;

/// The definition of a tree, or an event of it. This crate only stores it; its body interprets it.
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
