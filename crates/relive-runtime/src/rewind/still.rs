//! Pauses a process before its files are changed.

use std::sync::Arc;
use std::time::Duration;

use relive_core::{Cause, ErrorCode, Pid, Signal, Urgency, Uuid};

use super::refuse::resumed_meanwhile;
use crate::error::{Error, Result};
use crate::runtime::Runtime;
use crate::signal::{PauseFor, SignalOrder};

/// How long processes may take to stand still.
const STILL_WITHIN: Duration = Duration::from_secs(20);

impl Runtime {
    /// Pauses a process that runs, with all below it, and waits until nothing of them does. Returns those that had to be
    /// paused.
    pub(super) async fn stand_still(self: &Arc<Self>, cause: Cause, uuid: Uuid) -> Result<Vec<Pid>> {
        let Some(machine) = self.machine_of(uuid) else { return Ok(Vec::new()) };
        let mut paused = Vec::new();
        // While it waits for an answer, the pause is kept: its next call was chosen for other files.
        if machine.pause().is_none_or(|(_, reason)| reason.awaits_answer()) {
            let (urgency, pause_for) = (Urgency::Now, PauseFor::Rewind);
            let sent = SignalOrder { urgency, cause, pause_for, ..SignalOrder::new(Signal::Pause, None) };
            paused = self.deliver(&uuid.to_string(), sent, true).await?.pids;
        }
        let below: Vec<Uuid> = paused.iter().filter_map(|pid| self.uuid_of(*pid)).filter(|of| *of != uuid).collect();
        let stopped = async {
            let has_body = || self.owners.find(uuid).is_some_and(|owner| owner.has_body());
            self.await_stopped(uuid, || {
                let is_resumed = self.machine_of(uuid).is_some_and(|machine| machine.pause().is_none());
                match has_body() {
                    true if is_resumed => Err(resumed_meanwhile(&uuid.to_string())),
                    has_body => Ok(!has_body),
                }
            })
            .await?;
            // What is below may work in the same directory. A program stops where it is, and keeps its body.
            for uuid in below {
                let is_pausing = || self.machine_of(uuid).is_some_and(|machine| machine.urgency().is_some());
                self.await_stopped(uuid, || Ok(!is_pausing())).await?;
            }
            Ok(())
        };
        match tokio::time::timeout(STILL_WITHIN, stopped).await {
            Ok(stopped) => stopped.map(|()| paused),
            Err(_) => {
                // A client takes a timeout for work that continues, and asks again.
                Err(Error::new(ErrorCode::Conflict, format!("process {uuid} is paused and has not stopped yet")))
            }
        }
    }

    /// Waits until a process has stopped.
    async fn await_stopped(&self, uuid: Uuid, is_stopped: impl Fn() -> Result<bool>) -> Result<()> {
        let mut bell = self.follow(uuid);
        loop {
            let changed = self.bodies_changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            bell.borrow_and_update();
            if is_stopped()? {
                return Ok(());
            }
            tokio::select! {
                () = changed => {}
                Ok(()) = bell.changed() => {}
            }
        }
    }
}
