//! The pulse of the daemon: while a body runs, a file records that each second.
//!
//! If this daemon is killed, the next one reads it, and so knows how long each process executed after its last record.
//! While nothing runs there is no task and no timer.

use std::sync::Arc;
use std::time::Duration;

use relive_journal::data::Beat;

use crate::runtime::{Published, Runtime};

const BEAT_EVERY: Duration = Duration::from_secs(1);

impl Published {
    fn has_running_body(&self) -> bool {
        let machines = self.bodies.keys().filter_map(|pid| self.table.machine(*pid));
        machines.into_iter().any(|machine| machine.stopwatch().is_running())
    }
}

impl Runtime {
    /// Writes the pulse from now on, until no body runs any more.
    pub(crate) fn start_heartbeat(self: &Arc<Self>) {
        if std::mem::replace(&mut self.lock().has_heartbeat, true) {
            return;
        }
        let runtime = Arc::downgrade(self);
        tokio::spawn(async move {
            while let Some(runtime) = runtime.upgrade().filter(|runtime| runtime.keeps_beating()) {
                runtime.beat().await;
                drop(runtime);
                tokio::time::sleep(BEAT_EVERY).await;
            }
        });
    }

    /// Returns whether a body runs. If none does, the next started body has to start the heartbeat.
    fn keeps_beating(&self) -> bool {
        let mut state = self.lock();
        state.has_heartbeat = state.has_running_body();
        state.has_heartbeat
    }

    /// Returns whether the pulse is being written, for tests: it must not be while nothing runs.
    #[doc(hidden)]
    #[must_use]
    pub fn has_heartbeat(&self) -> bool {
        self.lock().has_heartbeat
    }

    async fn beat(&self) {
        let beat = Beat { boot_id: self.clock.boot_id(), from_ms: self.started_ms, up_ms: self.clock.moment().up_ms };
        if let Ok(Err(error)) = self.on_journal(move |data| data.beat(&beat)).await {
            self.warn_once(format!("after a crash, times may be too short: {error}"));
        }
    }
}
