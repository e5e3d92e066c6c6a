//! Garbage collection of snapshots: what no journal names goes.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Instant;

use relive_api::GcSnapshots;
use relive_core::{ErrorCode, Uuid};
use relive_journal::files::FileHistory;
use relive_workspace::{Collected, Removal};

use crate::error::{Error, Result};
use crate::runtime::Runtime;

impl Runtime {
    /// Removes snapshots that no journal names, or says how much that would give back if the journals of `without`
    /// were removed first, and the bytes that stay because the disk is too full. `None` where there are none.
    pub(crate) async fn collect_snapshots(
        self: &Arc<Self>,
        removal: Removal,
        without: HashSet<Uuid>,
    ) -> Result<Option<(GcSnapshots, u64)>> {
        if !self.workspaces.exists() {
            return Ok(None);
        }
        // A dry run begins again after a removal: what the journals name has changed.
        let collected = loop {
            if let Some(collected) = self.collect_unless_in_the_way(removal, without.clone()).await? {
                break collected;
            }
        };
        let Collected { bytes_before, bytes_after, blocked_bytes, .. } = collected;
        let freed_bytes = bytes_before.saturating_sub(bytes_after);
        Ok(Some((GcSnapshots { bytes: bytes_before, freed_bytes }, blocked_bytes)))
    }

    async fn collect_unless_in_the_way(
        self: &Arc<Self>,
        removal: Removal,
        without: HashSet<Uuid>,
    ) -> Result<Option<Collected>> {
        let workspaces = self.workspaces.clone();
        let collected = self.in_bulk(move |data| {
            let since = Instant::now();
            let mut live = Vec::new();
            let mut uuids: Vec<Uuid> = data.uuids()?.into_iter().filter(|uuid| !without.contains(uuid)).collect();
            // In one order, so that a dry run and the collection after it count the same deltas.
            uuids.sort_unstable();
            for uuid in uuids {
                match data.file_history(uuid) {
                    Ok(FileHistory { unread: Some(line), .. }) => {
                        let message = format!(
                            "line {line} of the journal of {uuid} cannot be read, and may name snapshots: relive info \
                             {uuid}"
                        );
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
        collected.await?
    }
}
