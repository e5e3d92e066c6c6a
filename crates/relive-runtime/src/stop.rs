//! The daemon's end: agents stop at their boundary, and are resumed at the next start.

use std::sync::Arc;
use std::time::Duration;

use relive_api::Stopping;
use relive_core::{Event, Pid, State, SuspendReason, Urgency, Uuid};

use crate::error::Result;
use crate::owner::{Change, Lane};
use crate::records::RecordDetails;
use crate::runtime::Runtime;

/// How long a model call under way may take before it is cancelled.
const PATIENCE: Duration = Duration::from_secs(10);

impl Runtime {
    /// Begins to stop: nothing new is created, and every agent is told to stop at its boundary.
    pub fn begin_stop(self: &Arc<Self>) -> Stopping {
        self.lock().stopping = true;
        self.workspaces.stop();
        let stopping = self.bodies_to_stop();
        let pausing = stopping.len();
        self.suspend_all(stopping, SuspendReason::DaemonStop, Urgency::Boundary);
        Stopping { os_pid: std::process::id(), pausing }
    }

    /// Those whose body stops with the daemon; programs run on in their sessions.
    fn bodies_to_stop(&self) -> Vec<Uuid> {
        let running: Vec<(Pid, Uuid)> = self.lock().bodies.iter().map(|(pid, owner)| (*pid, owner.uuid)).collect();
        let stops = |pid| self.body_of(pid).is_some_and(|body| body.stops_with_daemon());
        running.into_iter().filter(|(pid, _)| stops(*pid)).map(|(_, uuid)| uuid).collect()
    }

    fn suspend_all(self: &Arc<Self>, all: Vec<Uuid>, reason: SuspendReason, urgency: Urgency) {
        for uuid in all {
            let runtime = Arc::clone(self);
            tokio::spawn(async move {
                if let Err(error) = runtime.suspend(uuid, reason, urgency).await {
                    runtime.warn(format!("{uuid} cannot be suspended: {error}"));
                }
            });
        }
    }

    /// Waits until every body has put its journal down; those that take too long are stopped now.
    pub async fn all_stopped(self: &Arc<Self>) {
        if tokio::time::timeout(PATIENCE, self.no_bodies()).await.is_ok() {
            return;
        }
        self.suspend_all(self.bodies_to_stop(), SuspendReason::DaemonStop, Urgency::Now);
        // What has not stopped by then is recovered at the next start, as after a crash.
        let _ = tokio::time::timeout(PATIENCE, self.no_bodies()).await;
    }

    /// Says that nothing more will happen: the next start then need not look for what it was not told.
    pub async fn close(&self) {
        let workspaces = self.workspaces.clone();
        let _ = self.in_bulk(move |_| workspaces.save_caches()).await;
        self.catalog.close().await;
        let environments = Arc::clone(&self.environments);
        let _ = self.in_bulk(move |_| environments.close()).await;
    }

    async fn no_bodies(&self) {
        loop {
            let changed = self.bodies_changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if self.bodies_to_stop().is_empty() {
                return;
            }
            changed.await;
        }
    }

    /// Suspends everything, because nothing may run unrecorded, and frees the reserve for the records that say so.
    pub(crate) async fn disk_full(self: &Arc<Self>) {
        let _ = self.on_journal(|data| data.release_reserve()).await;
        let running: Vec<Uuid> = self.lock().bodies.values().map(|owner| owner.uuid).collect();
        self.suspend_all(running, SuspendReason::DiskFull, Urgency::Boundary);
    }

    /// Suspends a process for a reason of the runtime's own.
    pub(crate) async fn suspend(self: &Arc<Self>, uuid: Uuid, reason: SuspendReason, urgency: Urgency) -> Result<()> {
        let mut turn = self.turn(uuid, Lane::Own).await?;
        let Some(machine) = turn.machine() else { return Ok(()) };
        let mut change = Change::of(machine, RecordDetails::default());
        if change.draft().state() == State::Created {
            change.apply(Event::Start, self)?;
        }
        change.apply(Event::Suspend { reason, urgency }, self)?;
        if change.changed() { turn.commit(change).await } else { Ok(()) }
    }
}
