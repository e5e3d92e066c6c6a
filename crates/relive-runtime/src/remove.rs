//! Collects one process at the request of a user.

use std::sync::Arc;
use std::time::Duration;

use relive_api::{OwnWorkspace, Removed};
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
            let mut found = runtime.look_up(&id).await?;
            if let LookedUp::Unrecovered(uuid) = found {
                match runtime.recover_again(uuid).await {
                    // It may have ended.
                    Ok(()) => found = runtime.look_up(&uuid.to_string()).await?,
                    Err(refusal) => return runtime.remove_damaged(uuid, refusal).await,
                }
            }
            if let LookedUp::Living { process, note } = &found {
                let pid = process.of.pid;
                let message = format!("PID {pid} has not ended, so it cannot be removed");
                let hint = format!("relive kill {pid}; relive wait {pid}; relive rm -y {pid}");
                let message = note.as_ref().map_or(message.clone(), |note| format!("{note}: {message}"));
                return Err(Error::new(ErrorCode::Conflict, message).with_hint(hint));
            }
            let (uuid, note) = runtime.identity_of(&found)?;
            runtime.refuse_earlier_pid(&found, uuid).await?;
            let candidate = runtime.ended_candidate(uuid).await?;
            // Without the journal nothing could be merged any more.
            let own = runtime.workspace_to_remove(&relive_types::short_id::short(uuid), uuid).await?;
            let mut freed_bytes = candidate.bytes;
            let now = runtime.now();
            let _alone = runtime.collecting.lock().await;
            if matches!(runtime.collect_with_own(candidate, now, own.as_ref()).await??, Collected::Spared) {
                return Err(runtime.not_ended(uuid));
            }
            if let Some(own) = own {
                runtime.remove_merged(&own).await.map_err(|error| removed_but(&id, error))?;
                freed_bytes += own.bytes;
            }
            Ok(Removed { uuid, freed_bytes, note })
        })
        .await
    }

    /// Removes a process whose journal is damaged, if nothing of it runs: it can never be resumed, and its end never recorded.
    /// Returns the refusal if it may be recovered.
    async fn remove_damaged(self: &Arc<Self>, uuid: Uuid, refusal: Error) -> Result<Removed> {
        let is_damaged = self.unrecovered.get(uuid).is_some_and(|failure| failure.is_damage());
        // What is only there could not be merged any more.
        if !is_damaged || self.workspaces.has_own(uuid) {
            return Err(refusal);
        }
        let (_alone, _turn) = (self.collecting.lock().await, self.turn(uuid, Lane::Verb).await?);
        // One whose parent could not be recovered has a good journal.
        if !self.has_damaged_journal(uuid).await? {
            return Err(refusal);
        }
        let sessions = self.data.directory(uuid).sessions();
        if !self.bodies.exec.sessions.running_in(&sessions).await?.is_empty() {
            let message = format!("process {uuid} has not ended, so it cannot be removed: its program runs");
            let hint = format!("relive kill -9 {uuid}; relive rm -y {uuid}");
            return Err(Error::new(ErrorCode::Conflict, message).with_hint(hint));
        }
        let (last, now) = (self.unrecovered.get(uuid).and_then(|failure| failure.info), self.now());
        let environments = Arc::clone(&self.environments);
        let discarded = self.in_bulk(move |data| {
            let freed_bytes = data.discard(uuid, last.map(|info| *info), now)?;
            environments.remove(uuid);
            Ok::<_, std::io::Error>(freed_bytes)
        });
        let freed_bytes = discarded.await??;
        self.unrecovered.remove(uuid);
        self.catalog.tell_collected(uuid, now);
        self.keep_handles_to_removed(uuid).await;
        self.changes.ring(uuid);
        Ok(Removed { uuid, freed_bytes, note: None })
    }

    /// Refuses the PID of an earlier incarnation, which names how that one ended: with it the process would lose what it
    /// did since.
    async fn refuse_earlier_pid(&self, found: &LookedUp, uuid: Uuid) -> Result<()> {
        let pid = match found {
            LookedUp::Remembered(pid) => *pid,
            LookedUp::OnDisk(found) => found.pid,
            LookedUp::Living { .. } | LookedUp::Unrecovered(_) => return Ok(()),
        };
        let row = self.current_row(uuid).await.ok().flatten();
        let Some(last) = row.and_then(|row| row.info.pids.last().copied()).filter(|last| *last > pid) else {
            return Ok(());
        };
        let message = format!("PID {pid} is an earlier run of PID {last}; nothing was removed");
        Err(Error::new(ErrorCode::Conflict, message).with_hint(format!("relive rm {last}")))
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
                Err(error) => return Err(self.unread_error(uuid, error).await?),
            }
        }
    }

    fn not_ended(&self, uuid: Uuid) -> Error {
        let message = format!("process {uuid} has not ended, so it cannot be removed");
        Error::new(ErrorCode::Conflict, message).with_hint(format!("relive info {uuid}"))
    }

    /// Collects a process whose own workspace is removed next, and forgets one that is gone. If a kill comes between, the next
    /// start does that.
    pub(crate) async fn collect_with_own(
        self: &Arc<Self>,
        candidate: Candidate,
        now: Timestamp,
        own: Option<&OwnWorkspace>,
    ) -> Result<std::io::Result<Collected>> {
        let uuid = candidate.uuid;
        let workspaces = self.workspaces.clone();
        let is_lost = own.is_none() && self.in_bulk(move |_| workspaces.has_lost_own(uuid)).await?.unwrap_or(false);
        if own.is_none() && !is_lost {
            return self.collect_one(candidate, now).await;
        }
        let workspaces = self.workspaces.clone();
        self.in_bulk(move |_| workspaces.disclaim_own(uuid)).await??;
        let collected = self.collect_one(candidate, now).await;
        let workspaces = self.workspaces.clone();
        if !matches!(collected, Ok(Ok(Collected::Gone))) {
            self.in_bulk(move |_| workspaces.claim_own(uuid)).await?;
        } else if is_lost {
            // What is left of it is a record of some kilobytes, which the next start removes.
            let _ = self.in_bulk(move |_| workspaces.remove_own(uuid)).await?;
        }
        collected
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

/// Says that a process is removed although its workspace could not be.
fn removed_but(id: &str, error: Error) -> Error {
    let said = Error::new(error.code(), format!("{id} was removed; {error}"));
    match error.hint() {
        Some(hint) => said.with_hint(hint),
        None => said,
    }
}
