//! The daemon's end: agents stop at their boundary, and go on at the next start.

use std::sync::Arc;
use std::time::Duration;

use relive_api::Stopping;
use relive_core::{SuspendReason, Urgency};

use crate::runtime::Runtime;

/// How long a model call under way may take before it is cancelled.
const PATIENCE: Duration = Duration::from_secs(10);

impl Runtime {
    /// Begins to stop: nothing new is begun, and every agent is told to stop at its boundary.
    pub fn begin_stop(self: &Arc<Self>) -> Stopping {
        let mut state = self.lock();
        state.stopping = true;
        self.suspend_all(&mut state, Urgency::Boundary);
        Stopping { os_pid: std::process::id(), pausing: self.agents_with_a_body(&state).len() }
    }

    /// Programs do not stop with the daemon: they go on in their sessions, and are found again.
    fn agents_with_a_body(&self, state: &crate::runtime::State) -> Vec<relive_core::Pid> {
        let is_agent = |pid: &relive_core::Pid| {
            state.table.view(*pid, self.now()).is_none_or(|view| view.body != relive_core::Body::Exec)
        };
        state.bodies.keys().copied().filter(is_agent).collect()
    }

    fn suspend_all(self: &Arc<Self>, state: &mut crate::runtime::State, urgency: Urgency) {
        for pid in self.agents_with_a_body(state) {
            if let Ok(reached) = state.table.suspend(pid, SuspendReason::DaemonStop, urgency, self.now()) {
                self.carry_out(state, reached.effects);
            }
        }
    }

    /// Waits until every body has put its journal down; those that take too long are stopped now.
    pub async fn all_stopped(self: &Arc<Self>) {
        if tokio::time::timeout(PATIENCE, self.no_bodies()).await.is_ok() {
            return;
        }
        self.suspend_all(&mut self.lock(), Urgency::Now);
        // What has not stopped by then is recovered at the next start, as after a crash.
        let _ = tokio::time::timeout(PATIENCE, self.no_bodies()).await;
    }

    async fn no_bodies(&self) {
        loop {
            let changed = self.bodies_changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if self.agents_with_a_body(&self.lock()).is_empty() {
                return;
            }
            changed.await;
        }
    }
}
