//! Collects one process at the request of a user.

use std::sync::Arc;
use std::time::Duration;

use relive_api::Removed;
use relive_core::{ErrorCode, Timestamp, Uuid};
use relive_journal::data::{Candidate, Collected};

use crate::error::{Error, Result};
use crate::lookup::LookedUp;
use crate::owner::Lane;
use crate::runtime::Runtime;

/// How long to wait for a process that has just ended: its last files are written after waiters are answered.
const RELEASED_WITHIN: Duration = Duration::from_secs(5);
const LOOK_EVERY: Duration = Duration::from_millis(10);

impl Runtime {
    /// Collects an ended process. A living one is refused.
    pub async fn remove(self: &Arc<Self>, id: &str) -> Result<Removed> {
        let (runtime, id) = (Arc::clone(self), id.to_owned());
        self.to_the_end(async move {
            let found = runtime.look_up(&id).await?;
            if let LookedUp::Living { process, note } = &found {
                let pid = process.of.pid;
                let message = format!("PID {pid} has not ended, so it cannot be removed");
                let hint = format!("relive kill {pid}; relive wait {pid}; relive rm -y {pid}");
                let message = note.as_ref().map_or(message.clone(), |note| format!("{note}: {message}"));
                return Err(Error::new(ErrorCode::Conflict, message).with_hint(hint));
            }
            let (uuid, note) = runtime.identity_of(&found)?;
            let candidate = runtime.ended_candidate(uuid).await?;
            // Without the journal nothing could be merged any more.
            let own = runtime.workspace_to_remove(&relive_types::short_id::short(uuid), uuid).await?;
            let mut freed_bytes = candidate.bytes;
            let now = runtime.now();
            let _alone = runtime.collecting.lock().await;
            if matches!(runtime.collect_one(candidate, now).await??, Collected::Spared) {
                return Err(runtime.not_ended(uuid));
            }
            if let Some(own) = own {
                runtime.remove_merged(&own).await?;
                freed_bytes += own.bytes;
            }
            Ok(Removed { uuid, freed_bytes, note })
        })
        .await
    }

    /// Returns an ended process, as soon as its end is completely written.
    async fn ended_candidate(self: &Arc<Self>, uuid: Uuid) -> Result<Candidate> {
        let deadline = tokio::time::Instant::now() + RELEASED_WITHIN;
        loop {
            match self.in_bulk(move |data| data.candidate(uuid)).await? {
                Ok(Some(candidate)) => return Ok(candidate),
                Ok(None) if tokio::time::Instant::now() < deadline && self.living(uuid).is_none() => {
                    tokio::time::sleep(LOOK_EVERY).await;
                }
                Ok(None) => return Err(self.not_ended(uuid)),
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                    return Err(self.gone_error(uuid).await?);
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn not_ended(&self, uuid: Uuid) -> Error {
        let message = format!("process {uuid} has not ended, so it cannot be removed");
        Error::new(ErrorCode::Conflict, message).with_hint(format!("relive info {uuid}"))
    }

    /// Deletes the journal of a candidate, and updates the index. The caller holds the lock of the collector.
    pub(crate) async fn collect_one(
        self: &Arc<Self>,
        candidate: Candidate,
        now: Timestamp,
    ) -> Result<std::io::Result<Collected>> {
        let uuid = candidate.uuid;
        // Not while the process is being resumed, and vice versa.
        let _turn = self.turn(uuid, Lane::Verb).await?;
        let environments = Arc::clone(&self.environments);
        let collected = self.in_bulk(move |data| {
            let collected = data.collect(&candidate, now);
            if let Ok(Collected::Gone) = collected {
                environments.remove(uuid);
            }
            collected
        });
        let collected = collected.await?;
        if let Ok(Collected::Gone) = collected {
            self.catalog.tell_collected(uuid, now);
            self.keep_handles_to_removed(uuid).await;
            self.changes.ring(uuid);
        }
        Ok(collected)
    }
}
