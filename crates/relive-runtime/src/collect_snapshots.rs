//! Garbage collection of snapshots: what no journal names goes.

use std::sync::Arc;
use std::time::Instant;

use relive_api::GcSnapshots;
use relive_core::ErrorCode;
use relive_journal::files::FileHistory;
use relive_workspace::{Collected, Removal};

use crate::error::{Error, Result};
use crate::runtime::Runtime;

impl Runtime {
    /// Removes snapshots that no journal names, or says how much that would give back. `None` where there are none.
    pub(crate) async fn collect_snapshots(self: &Arc<Self>, removal: Removal) -> Result<Option<GcSnapshots>> {
        if !self.workspaces.exists() {
            return Ok(None);
        }
        let workspaces = self.workspaces.clone();
        let collected = self.in_bulk(move |data| {
            let since = Instant::now();
            let mut live = Vec::new();
            for uuid in data.uuids()? {
                match data.file_history(uuid) {
                    Ok(FileHistory { unread: Some(line), .. }) => {
                        let message = format!("line {line} of the journal of {uuid} cannot be read, and may name some");
                        return Err(Error::new(ErrorCode::Conflict, message));
                    }
                    Ok(history) => live.extend(history.named),
                    Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                    // What it names is not known, so nothing may go.
                    Err(error) => return Err(Error::from(error)),
                }
            }
            workspaces.collect(live, since, removal)
        });
        let Collected { bytes_before, bytes_after, .. } = collected.await??;
        Ok(Some(GcSnapshots { bytes: bytes_before, freed_bytes: bytes_before.saturating_sub(bytes_after) }))
    }
}
