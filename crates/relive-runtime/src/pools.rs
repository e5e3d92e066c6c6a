//! The classes of blocking work. Each has threads and a bound of its own, so that journal writes never wait behind tools,
//! keys, searches or streams.

use std::time::Duration;

use relive_journal::{DataDirectory, JobLost, Pool};

use crate::runtime::Runtime;

/// How long a file of the user's may take: a key, instructions, a script.
pub(crate) const FILE_WITHIN: Duration = Duration::from_secs(5);

/// The threads of each class of work.
#[derive(Debug, Clone)]
pub struct Pools {
    /// Writes to journals, and the reads that a verb decides by.
    pub journal: Pool,
    /// Tools of agents.
    pub tools: Pool,
    /// Reads and searches of agents that take long.
    pub slow_tools: Pool,
    /// Files that users and agents control: keys, instructions, scripts, Git facts.
    pub files: Pool,
    /// Look-ups, views and streams.
    pub reads: Pool,
    /// Work that may take long: garbage collection and forks.
    pub bulk: Pool,
    /// Snapshots of the directories that agents work in.
    pub snapshots: Pool,
}

impl Default for Pools {
    fn default() -> Self {
        Self {
            journal: Pool::new("relive-journal", 64, 1024),
            tools: Pool::new("relive-tools", 16, 256),
            slow_tools: Pool::new("relive-slow", 4, 256),
            files: Pool::new("relive-files", 4, 64),
            reads: Pool::new("relive-reads", 8, 256),
            bulk: Pool::new("relive-bulk", 2, 16),
            snapshots: Pool::new("relive-snapshot", 2, 256),
        }
    }
}

impl Runtime {
    /// Does something with journals that a verb waits for.
    pub(crate) async fn on_journal<T: Send + 'static>(
        &self,
        job: impl FnOnce(&DataDirectory) -> T + Send + 'static,
    ) -> Result<T, JobLost> {
        self.run_in(&self.pools.journal, job).await
    }

    /// Reads what only a look-up or a view wants to know.
    pub(crate) async fn on_disk<T: Send + 'static>(
        &self,
        job: impl FnOnce(&DataDirectory) -> T + Send + 'static,
    ) -> Result<T, JobLost> {
        self.run_in(&self.pools.reads, job).await
    }

    /// Does something that may take long.
    pub(crate) async fn in_bulk<T: Send + 'static>(
        &self,
        job: impl FnOnce(&DataDirectory) -> T + Send + 'static,
    ) -> Result<T, JobLost> {
        self.run_in(&self.pools.bulk, job).await
    }

    async fn run_in<T: Send + 'static>(
        &self,
        pool: &Pool,
        job: impl FnOnce(&DataDirectory) -> T + Send + 'static,
    ) -> Result<T, JobLost> {
        let data = std::sync::Arc::clone(&self.data);
        pool.run(move || job(&data)).await
    }
}
