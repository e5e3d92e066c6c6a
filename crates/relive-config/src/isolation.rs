//! What the programs of agents may reach.

use relive_types::Isolation;
use serde::{Deserialize, Serialize};

/// The isolation of agents' commands, and additions to the lists of `docs/isolation.md`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct IsolationSettings {
    /// What the commands of agents may reach, unless the command or the agent says otherwise; `none` if absent.
    pub agents: Option<Isolation>,
    /// Further directories that isolated programs may write: absolute, or beginning with `~/`.
    pub writable: Vec<String>,
    /// Further files and directories that they do not see.
    pub hidden: Vec<String>,
    pub git_config: GitConfig,
}

/// Whether isolated programs may change the configuration of the repository they work in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GitConfig {
    /// No: Git executes what its configuration names.
    #[default]
    ReadOnly,
    Writable,
}
