//! The records of handles, in the journal of the process that holds them. Older readers skip both kinds.

use relive_core::{Rights, Uuid};
use serde::{Deserialize, Serialize};

/// A handle that the process got: from a person, from another process, or because it spawned the target.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Granted {
    /// The process that the handle is to.
    pub target: Uuid,
    #[serde(rename = "as")]
    pub rights: Rights,
    /// The process that gave it; absent where a person did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<Uuid>,
    /// The id of the request that asked for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub req: Option<String>,
}

/// A handle that the process has no more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Released {
    /// The process that the handle was to.
    pub target: Uuid,
    /// The id of the request that asked for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub req: Option<String>,
}
