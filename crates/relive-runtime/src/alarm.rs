//! Processes that are suspended until a given moment.
//!
//! The moment is in their journal; this is only a copy in memory, so that a suspended process needs no task of its own.
//! One task waits for the earliest moment; without one there is no timer.

use std::sync::{Arc, Weak};
use std::time::Duration;

use relive_core::{Pid, SuspendReason, Timestamp, Uuid};
use relive_journal::record::ResumedBy;
use tokio::sync::Notify;

use crate::runtime::{Published, Runtime};
use crate::signal::RETRY_EVERY;

/// How long to wait before the clock is checked again: it may have been set in the meantime.
const LOOK_EVERY: Duration = Duration::from_secs(30);

/// When a process is resumed automatically.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Alarm {
    resume_at: Timestamp,
    /// Since when it is suspended: a later suspension is a different one.
    asked_at: Timestamp,
}

impl Published {
    /// Records when a process that is suspended since `asked_at` is resumed.
    pub(crate) fn set_alarm(&mut self, pid: Pid, resume_at: Timestamp, asked_at: Timestamp) {
        self.alarms.insert(pid, Alarm { resume_at, asked_at });
        self.alarm_set.notify_one();
    }

    /// Returns when a process that is suspended since `paused_at` is resumed automatically, if it is.
    pub(crate) fn resume_at(&self, pid: Pid, paused_at: Option<Timestamp>) -> Option<Timestamp> {
        let alarm = self.alarms.get(&pid)?;
        (paused_at == Some(alarm.asked_at)).then_some(alarm.resume_at)
    }
}

impl Runtime {
    /// Resumes each process at its moment, from now on. Ends with the runtime.
    pub(crate) fn watch_alarms(self: &Arc<Self>) {
        let (runtime, set) = (Arc::downgrade(self), Arc::clone(&self.lock().alarm_set));
        tokio::spawn(ring_when_due(runtime, set));
    }

    /// Returns the time until the next moment.
    fn until_next_alarm(&self) -> Option<Duration> {
        let now = self.now();
        let next = self.lock().alarms.values().map(|alarm| alarm.resume_at).min()?;
        Some(Duration::try_from(next.duration_since(now)).unwrap_or_default())
    }

    /// Resumes the processes whose moment has come.
    fn ring_alarms(self: &Arc<Self>) {
        let now = self.moment();
        let due: Vec<Uuid> = {
            let mut state = self.lock();
            let due: Vec<(Pid, Alarm)> = state.alarms.extract_if(|_, alarm| alarm.resume_at <= now.at).collect();
            // Another request may have been faster.
            let same = |(pid, alarm): (Pid, Alarm)| {
                state.table.view(pid, now).filter(|view| view.paused_at == Some(alarm.asked_at)).map(|view| view.uuid)
            };
            due.into_iter().filter_map(same).collect()
        };
        for uuid in due {
            let runtime = Arc::clone(self);
            tokio::spawn(async move {
                while let Err(error) = runtime.end_pause(uuid, SuspendReason::Quota, ResumedBy::Timer).await {
                    runtime.warn_once(format!("{uuid} could not be resumed: {error}"));
                    tokio::time::sleep(RETRY_EVERY).await;
                }
            });
        }
    }
}

async fn ring_when_due(runtime: Weak<Runtime>, set: Arc<Notify>) {
    loop {
        let next = {
            let Some(runtime) = runtime.upgrade() else { return };
            runtime.ring_alarms();
            runtime.until_next_alarm()
        };
        match next {
            Some(wait) => drop(tokio::time::timeout(wait.min(LOOK_EVERY), set.notified()).await),
            None => set.notified().await,
        }
    }
}
