//! Lists of processes, and where forks come from.

use relive_types::{Pid, ProcessStatus, Timestamp, Uuid};
use serde::{Deserialize, Serialize};

use crate::process::Process;

/// `ps --json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ProcessList {
    pub processes: Vec<Process>,
    /// The `cursor` of the next page; absent on the last one, and where no `limit` was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// Filters, order and page of a list. A listed process matches all filters that are present.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListQuery {
    /// Includes processes that have ended.
    #[serde(default)]
    pub all: bool,
    /// The state as `ps` shows it: `running`, `suspended`, `dead` and so on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// A pattern for the name: `*` is any text, `?` any one character. A process without a name never matches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// An absolute directory: processes that were begun in it or below it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// Only those that ended with an exit code other than 0.
    #[serde(default)]
    pub failed: bool,
    /// Only those that live, or ended at this moment or later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// The highest PID first.
    #[serde(default)]
    pub newest: bool,
    /// The size of a page; without it everything is listed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
    /// Where the page begins: `next` of the one before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}

/// `list-resumable --json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResumableList {
    pub processes: Vec<Resumable>,
    /// The `cursor` of the next page; absent on the last one, and where no `limit` was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// A process that can be resumed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resumable {
    pub uuid: Uuid,
    pub pid: Pid,
    pub name: Option<String>,
    pub intent: String,
    /// Whether the intent is longer.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub intent_cut: bool,
    pub display: String,
    pub step: u32,
    pub last_active: Timestamp,
    pub reason: Option<String>,
    /// The status of a process that has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<ProcessStatus>,
    /// The exit code of `wait`, if it has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<u8>,
}

/// Where a fork comes from, nearest first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lineage {
    pub uuid: Uuid,
    pub ancestors: Vec<Ancestor>,
    /// Says that the PID in the request continues as another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// One ancestor of a fork.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ancestor {
    pub uuid: Uuid,
    pub step: u32,
    pub gone: bool,
}
