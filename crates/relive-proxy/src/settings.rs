//! What a proxy is told: at its start by the shim, and later by the daemon.

use relive_types::HostRule;
use serde::{Deserialize, Serialize};

/// What a proxy allows.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Settings {
    pub allow: Vec<HostRule>,
    #[serde(default)]
    pub unknown: Unknown,
    #[serde(default)]
    pub answers: Answers,
}

/// What becomes of a request for a host that no rule allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unknown {
    #[default]
    Refuse,
    /// It waits for a person's answer.
    Ask,
}

/// A person's answers about hosts so far.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Answers {
    #[serde(default)]
    pub allowed: Vec<String>,
    #[serde(default)]
    pub denied: Vec<String>,
}
