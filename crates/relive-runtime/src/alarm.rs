//! Processes that are suspended until a moment.
//!
//! The moment is in their journal; here it is only remembered, so that a suspended process needs no task of its own.

use std::sync::Arc;

use relive_core::{Pid, SuspendReason, Timestamp, Uuid};
use relive_journal::record::ResumedBy;

use crate::runtime::{Published, Runtime};
use crate::signal::RETRY_EVERY;

/// When a process is resumed without being asked.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Alarm {
    resume_at: Timestamp,
    /// Since when it is suspended: a later suspension is another one.
    asked_at: Timestamp,
}

impl Published {
    /// Notes when a process that is suspended since `asked_at` is resumed.
    pub(crate) fn set_alarm(&mut self, pid: Pid, resume_at: Timestamp, asked_at: Timestamp) {
        self.alarms.insert(pid, Alarm { resume_at, asked_at });
    }

    /// Returns when a process that is suspended since `paused_at` is resumed without being asked, if it is.
    pub(crate) fn resume_at(&self, pid: Pid, paused_at: Option<Timestamp>) -> Option<Timestamp> {
        let alarm = self.alarms.get(&pid)?;
        (paused_at == Some(alarm.asked_at)).then_some(alarm.resume_at)
    }
}

impl Runtime {
    /// Resumes those whose moment has come.
    pub(crate) fn ring_alarms(self: &Arc<Self>) {
        let now = self.moment();
        let due: Vec<Uuid> = {
            let mut state = self.lock();
            let due: Vec<(Pid, Alarm)> = state.alarms.extract_if(|_, alarm| alarm.resume_at <= now.at).collect();
            // Somebody may have been quicker.
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
