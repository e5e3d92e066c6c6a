//! The processes that an operation on several of them concerns.

use crate::ids::Pid;
use crate::status::SuspendReason;
use crate::table::Table;

impl Table {
    /// Returns the process and its descendants, parents before their children, without ended ones. Empty for a process
    /// that is not in the table.
    #[must_use]
    pub fn subtree(&self, pid: Pid) -> Vec<Pid> {
        let walk = self.by_pid.get(&pid).map(|slot| self.arena.walk(*slot)).unwrap_or_default();
        let entries = walk.into_iter().map(|slot| &self.arena[slot]);
        entries.filter(|entry| entry.is_living()).map(|entry| entry.pid()).collect()
    }

    /// Returns the ancestors that the user paused, nearest first. A RESUME resumes them too, after the process itself;
    /// so does a pending RESUME that is delivered by `Start` or `SetMask`. Both have `Effect::Resume` among their
    /// effects.
    #[must_use]
    pub fn ancestors_paused_by_user(&self, pid: Pid) -> Vec<Pid> {
        let is_by_user = |pid: &Pid| {
            let pause = self.machine(*pid).and_then(|machine| machine.pause());
            matches!(pause, Some((_, SuspendReason::User)))
        };
        self.ancestors(pid).filter(is_by_user).collect()
    }
}
