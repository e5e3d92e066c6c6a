//! Those that are suspended until a moment, and go on by themselves.
//!
//! The moment is in their journal; here it is only remembered, so that a suspended process needs no task of its own.

use std::sync::Arc;

use relive_core::{Pid, SuspendReason, Timestamp};

use crate::runtime::{Runtime, State};

/// When a process goes on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Alarm {
    resume_at: Timestamp,
    /// Since when it is suspended: a later suspension is another one.
    asked_at: Timestamp,
}

impl State {
    /// Notes when a process that is suspended since `asked_at` goes on.
    pub(crate) fn set_alarm(&mut self, pid: Pid, resume_at: Timestamp, asked_at: Timestamp) {
        self.alarms.insert(pid, Alarm { resume_at, asked_at });
    }

    /// When a process that is suspended since `paused_at` goes on by itself, if it does.
    pub(crate) fn resume_at(&self, pid: Pid, paused_at: Option<Timestamp>) -> Option<Timestamp> {
        let alarm = self.alarms.get(&pid)?;
        (paused_at == Some(alarm.asked_at)).then_some(alarm.resume_at)
    }
}

impl Runtime {
    /// Wakes those whose moment has come.
    pub(crate) fn ring_alarms(self: &Arc<Self>) {
        let mut state = self.lock();
        let now = self.now();
        let due: Vec<(Pid, Alarm)> = state.alarms.extract_if(|_, alarm| alarm.resume_at <= now).collect();
        for (pid, alarm) in due {
            // Somebody may have been quicker.
            let same = state.table.view(pid, now).is_some_and(|view| view.paused_at == Some(alarm.asked_at));
            if same && let Ok(reached) = state.table.lift(pid, SuspendReason::Quota, now) {
                self.carry_out(&mut state, reached.effects);
            }
        }
    }
}
