//! What a process asks about itself, and handles.

use relive_core::Rights;
use relive_types::{Limits, Pid, Uuid};
use serde::{Deserialize, Serialize};

/// Answers a program whose `RELIVE_SELF` is not that of its own process: the same words whether there is such a process.
pub const FOREIGN_SELF: &str = "RELIVE_SELF names the socket of another process, or of one that has ended";
/// The hint of [`FOREIGN_SELF`].
pub const FOREIGN_SELF_HINT: &str = "unset RELIVE_SELF";

/// `relive self --json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SelfInfo {
    pub pid: Pid,
    pub uuid: Uuid,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The process that created it; absent where a person did.
    pub parent_uuid: Option<Uuid>,
    pub limits: Limits,
    /// What is left of its limits and of those of its ancestors.
    pub left: Limits,
    #[serde(default)]
    pub blocked: Vec<String>,
    /// The signals it handles itself.
    #[serde(default)]
    pub handled: Vec<String>,
    /// The signals that wait to be unblocked, in the order in which they land.
    #[serde(default)]
    pub pending: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "how", rename_all = "snake_case")]
pub enum EndSelfRequest {
    /// It is done, or failed, with this exit code.
    Exit {
        /// 0 is success.
        code: u8,
        /// Why, for people.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// It could not do its work.
    Fault { fault: String },
    /// It gives itself up.
    Abandon,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Handle {
    /// The PID of the process that has it.
    pub holder: Pid,
    pub holder_uuid: Uuid,
    /// The PID of the process that it is to.
    pub target: Pid,
    pub target_uuid: Uuid,
    #[serde(rename = "as")]
    pub rights: Rights,
}

/// `handle list --json`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct HandleList {
    /// All that the caller may see.
    pub handles: Vec<Handle>,
}

/// A handle to be given away.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GrantRequest {
    /// To which process the handle is.
    pub target: String,
    pub to: String,
    /// `observer` or `controller`.
    #[serde(rename = "as")]
    pub rights: Rights,
}

/// A handle to be given up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReleaseRequest {
    /// To which process the handle is.
    pub target: String,
    /// The process that holds the handle; the caller if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of: Option<String>,
}
