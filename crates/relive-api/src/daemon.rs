//! The daemon itself.

use relive_types::Timestamp;
use serde::{Deserialize, Serialize};

/// The state of the daemon.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DaemonStatus {
    pub api: u32,
    pub version: String,
    pub os_pid: u32,
    pub data_dir: String,
    pub socket: String,
    pub started_at: Timestamp,
    pub running: usize,
    pub suspended: usize,
    pub free_bytes: u64,
    /// Things a person should know: damaged journals, a full disk, a config that could not be read.
    pub warnings: Vec<String>,
}

/// Options of a stop of the daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct StopQuery {
    /// Whether no other daemon is about to start: then, if no process is alive, nothing is kept in memory for one.
    #[serde(default)]
    pub for_good: bool,
}

/// The daemon will stop; so many agents are being paused first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stopping {
    pub os_pid: u32,
    pub pausing: usize,
}
