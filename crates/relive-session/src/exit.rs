//! How a session ended: the record that its shim writes to the disk.

use serde::{Deserialize, Serialize};

use crate::stage::SessionResult;

/// The version of [`ExitRecord`].
pub const VERSION: u32 = 1;

/// How a session ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ExitRecord {
    pub version: u32,
    pub result: SessionResult,
    /// What ended it, if it was not the program itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<EndedBy>,
    /// The sender of the signal that ended it, or who aborted it, where its owner named one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<u32>,
    /// The last signal that its owner was asked to send, if the program exited later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_signal: Option<LastSignal>,
    /// The OS pid; absent if it never had one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_pid: Option<i32>,
    /// The pid in its own namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub child_pid: Option<i32>,
    /// Milliseconds since 1970.
    pub at_ms: u64,
    /// Milliseconds since the boot of its directory; absent if the time of the end is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub up_ms: Option<u64>,
    /// The end of the log.
    pub log_end: u64,
    pub used: Used,
    /// Whether output is missing from the log because it could not be written to the disk; or may be, because whoever would have
    /// written it was lost.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub output_lost: bool,
    /// Whether it reached its time limit while it had no owner.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub timed_out: bool,
    /// The number of its processes that the kernel killed for lack of memory.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub oom_kills: u64,
    /// Processes of its tree that could not be killed in time: the kernel blocks them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left: Vec<i32>,
}

/// The last signal sent to a program that then exited. Only the program knows whether it exited because of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastSignal {
    pub number: i32,
    /// The sender, where its owner named one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<u32>,
    /// The time from the signal to the end.
    pub before_end_ms: u64,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// What ended a session, as far as its shim knows. Only the owner knows who asked the shim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EndedBy {
    /// The kernel, for lack of memory.
    Oom,
    /// `abort` at the gate.
    Abort,
    /// `kill` of the whole tree.
    Kill,
    /// A signal the owner sent.
    Signal,
    /// Its shim was lost, and the remaining processes were killed by the owner that noticed.
    ShimLost,
    /// The machine went down.
    HostLost,
    /// A program that is not a shim answered on its socket.
    Version,
}

/// The resources that a tree used, as far as the machine counts them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Used {
    pub user_ms: u64,
    pub system_ms: u64,
    /// Of its largest process.
    pub max_rss_kb: u64,
}
