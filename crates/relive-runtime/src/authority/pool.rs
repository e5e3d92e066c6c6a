//! The pool of CLI agents, as whoever asks may see it.

use relive_api::PoolReport;

use super::Access;
use crate::error::Result;

impl Access {
    /// Returns the CLI agents that run or wait, and the limits.
    pub async fn agent_pool(&self) -> Result<PoolReport> {
        self.person("the pool of all CLI agents")?;
        self.runtime.agent_pool().await
    }
}
