//! The files of a process, for a stream of them.

use std::sync::Arc;

use relive_core::{Rights, Uuid};
use relive_journal::ProcessDirectory;

use super::Access;
use crate::error::Result;
use crate::pools::Pools;
use crate::runtime::Runtime;

/// The files of a process that a caller may see, for as long as that is so.
#[derive(Debug)]
pub struct Readable {
    access: Access,
    uuid: Uuid,
}

impl Access {
    /// Returns the files of a process, if the caller may see it.
    pub async fn readable(&self, id: &str) -> Result<Readable> {
        let uuid = self.runtime.process_in_brief(&self.find(id, Rights::Observer).await?).await?.uuid;
        Ok(Readable { access: self.clone(), uuid })
    }
}

impl Readable {
    fn runtime(&self) -> &Arc<Runtime> {
        &self.access.runtime
    }

    /// Returns where the files are.
    #[must_use]
    pub fn directory(&self) -> ProcessDirectory {
        self.runtime().directory(self.uuid)
    }

    /// Returns a bell that rings when the files may have changed.
    #[must_use]
    pub fn bell(&self) -> tokio::sync::watch::Receiver<()> {
        self.runtime().follow(self.uuid)
    }

    /// Tells whether nothing more will be written to the files.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.runtime().is_over(self.uuid)
    }

    /// Returns the end of the journal's records that are on the disk, while something may be written to it.
    #[must_use]
    pub fn synced_end(&self) -> Option<u64> {
        self.runtime().synced_end(self.uuid)
    }

    /// Returns the threads that may block.
    #[must_use]
    pub fn pools(&self) -> &Pools {
        self.runtime().pools()
    }

    /// Tells whether the caller may still see the process: a handle may be released while a stream is read.
    #[must_use]
    pub fn is_seen(&self) -> bool {
        self.access.still_sees(self.uuid)
    }

    /// Waits until the caller may not see the process any more.
    pub async fn loses_sight(&self) {
        self.access.loses_sight(self.uuid).await;
    }
}
