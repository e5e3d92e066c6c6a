//! How many CLI agents run, and how they are kept while nobody needs them.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The settings of CLI agents.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Pool {
    /// How many run at the same time; 0: any number. Others wait.
    pub max_running: u32,
    /// How much memory they use together, in MB, before others wait; 0: any amount.
    pub max_memory_mb: u64,
    /// How long an agent may be idle before it is ended, as [`relive_types::duration::parse`] reads it; `0s`: for ever.
    pub idle_timeout: String,
}

impl Default for Pool {
    fn default() -> Self {
        Self { max_running: 8, max_memory_mb: 0, idle_timeout: "30m".to_owned() }
    }
}

impl Pool {
    /// Returns how long an agent may be idle; zero for ever.
    #[must_use]
    pub fn idle_timeout(&self) -> Duration {
        relive_types::duration::parse(&self.idle_timeout).unwrap_or_default()
    }
}
