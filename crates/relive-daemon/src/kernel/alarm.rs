//! Those that are suspended until a moment, and go on by themselves.
//!
//! The moment is in their journal; here it is only remembered, so that a suspended process needs no task of its own.

use std::sync::Arc;

use relive_core::{Pid, SuspendReason, Timestamp};

use super::{Kernel, State};

impl Kernel {
    /// Notes when a process that is suspended since `asked_at` goes on.
    pub(super) fn set_alarm(state: &mut State, pid: Pid, resume_at: Timestamp, asked_at: Timestamp) {
        state.alarms.insert((resume_at, pid), asked_at);
    }

    /// Wakes those whose moment has come.
    pub(super) fn ring_alarms(self: &Arc<Self>) {
        let mut state = self.lock();
        let now = self.now();
        while let Some(entry) = state.alarms.first_entry()
            && entry.key().0 <= now
        {
            let ((_, pid), asked_at) = entry.remove_entry();
            // Somebody may have been quicker, and it may be suspended again since.
            let same = state.table.view(pid, now).is_some_and(|view| view.paused_at == Some(asked_at));
            if same && let Ok(reached) = state.table.lift(pid, SuspendReason::Quota, now) {
                self.carry_out(&mut state, reached.effects);
            }
        }
    }
}
