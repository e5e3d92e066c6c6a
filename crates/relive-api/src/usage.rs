//! Requests and answers about spending and about managing many processes.

use relive_types::{Pid, Usd, Uuid};
use serde::{Deserialize, Serialize};

/// A request to rename a process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RenameRequest {
    pub name: String,
}

/// A process that was collected at the request of a user.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Removed {
    pub uuid: Uuid,
    pub freed_bytes: u64,
    /// Says that the requested PID continues as another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// A query for spending: the dimensions of its rows, and the first day.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UsageQuery {
    /// `day`, `model`, `project` and `process`, separated by commas; `day,model,project` if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// Only spending on this day or later: `2026-11-16`, in UTC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
}

/// The answer to `usage --json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UsageReport {
    pub rows: Vec<UsageRow>,
}

/// A sum. Dimensions that were not requested are null.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UsageRow {
    /// In UTC.
    pub day: Option<String>,
    /// Also null if it is no longer known.
    pub model: Option<String>,
    pub cwd: Option<String>,
    pub tokens_in: u64,
    pub tokens_out: u64,
    /// Whether some of it is an estimate, because a provider did not report it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub estimated: bool,
    /// Null if a price is not known.
    pub cost_usd: Option<Usd>,
    pub processes: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uuid: Option<Uuid>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub short: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<Pid>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}
