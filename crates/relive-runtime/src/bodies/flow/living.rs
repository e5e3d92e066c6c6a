//! A process of a tree that runs already when the tree is to start it: a person has resumed it.

use relive_core::{Holder, Rights, SuspendReason, Uuid};

use crate::runtime::{ProcessRef, Runtime};

impl Runtime {
    /// Tells whether nothing is to be done to have a process run: it does, or waits for an answer, or is being ended.
    pub(super) fn needs_no_resume(&self, uuid: Uuid) -> bool {
        self.machine_of(uuid).is_some_and(|machine| {
            let waits = machine.pause().is_none_or(|(_, reason)| reason.awaits_answer());
            machine.end().is_none() && (waits || machine.told_to_end().is_some())
        })
    }

    /// Returns whether a person paused a process that has not ended.
    pub(super) fn is_paused_by_user(&self, uuid: Uuid) -> bool {
        self.machine_of(uuid).is_some_and(|machine| {
            machine.end().is_none() && machine.pause().is_some_and(|(_, reason)| reason == SuspendReason::User)
        })
    }

    /// Has a tree take back a process that a person resumed while the tree was over.
    pub(super) fn take_back(&self, child: Uuid, parent: ProcessRef) {
        let mut state = self.lock();
        let Some(pid) = state.table.current_pid(child) else { return };
        if state.table.take_back(pid, parent.of.pid) {
            let _ = state.table.open(Holder::Process(parent.of.pid), pid, Rights::Owner);
            drop(state);
            self.changes.ring(child);
            self.changes.ring(parent.uuid);
        }
    }
}
