//! How a session ended: the record its shim leaves on the disk.

use serde::{Deserialize, Serialize};

use crate::stage::SessionResult;

/// The version of [`ExitRecord`].
pub const VERSION: u32 = 1;

/// How a session ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ExitRecord {
    /// The version of this record.
    pub version: u32,
    /// How.
    pub result: SessionResult,
    /// What ended it, where it was not the program itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<EndedBy>,
    /// The pid it had on the host; absent where it never had one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_pid: Option<i32>,
    /// The pid it had in its own namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub child_pid: Option<i32>,
    /// Milliseconds since 1970.
    pub at_ms: u64,
    /// Milliseconds since the boot of its directory; absent where nobody knows when it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub up_ms: Option<u64>,
    /// How far the log reaches.
    pub log_end: u64,
    /// What it used.
    pub used: Used,
    /// Whether output is missing from the log because the disk did not take it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub output_lost: bool,
    /// Whether its time was up, and no owner was there to say so.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub timed_out: bool,
    /// How many of its processes the kernel killed for memory.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub oom_kills: u64,
    /// Processes of its tree that no kill could end in time: the kernel holds them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left: Vec<i32>,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// What ended a session, as far as its shim knows. Who asked the shim is the owner's to know.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EndedBy {
    /// The kernel, for memory.
    Oom,
    /// `abort` at the gate.
    Abort,
    /// `kill` of the whole tree.
    Kill,
    /// A signal the owner sent.
    Signal,
    /// Its shim was lost, and what was left of it ended by whoever found out.
    ShimLost,
    /// The machine went down.
    HostLost,
    /// Another program than a shim answered on its socket.
    Version,
}

/// What a tree used, as far as the machine counts it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[expect(missing_docs, reason = "each name says it")]
pub struct Used {
    pub user_ms: u64,
    pub system_ms: u64,
    /// Of its largest process.
    pub max_rss_kb: u64,
}
