//! The processes that an operation on several of them concerns.

use crate::arena::Slot;
use crate::ids::Pid;
use crate::status::SuspendReason;
use crate::table::Table;

impl Table {
    /// Moves a process that the table gave to PID 0 below the one that spawned it, which lives again. Returns whether it was
    /// moved.
    pub fn take_back(&mut self, child: Pid, parent: Pid) -> bool {
        let (Some(&child), Some(&parent)) = (self.by_pid.get(&child), self.by_pid.get(&parent)) else { return false };
        let spawner = self.arena[child].facts.about.parent_uuid;
        let is_orphan = self.arena.parent(child) == Some(Slot::RUNTIME) && self.arena[child].is_living();
        let is_its_own = spawner == Some(self.arena[parent].facts.uuid) && self.arena[parent].is_living();
        // A damaged journal may claim to descend from itself.
        let is_above = child == parent || self.arena.ancestors(parent).any(|above| above == child);
        if !is_orphan || !is_its_own || is_above {
            return false;
        }
        self.arena.move_under(child, parent);
        let paused = self.arena[child].machine.pause().is_some();
        self.count_above(child, i64::from(paused) + i64::from(self.arena[child].suspended_below));
        true
    }

    /// Returns the process and its descendants, parents before their children, without ended ones. Empty for a process
    /// that is not in the table.
    #[must_use]
    pub fn subtree(&self, pid: Pid) -> Vec<Pid> {
        let walk = self.by_pid.get(&pid).map(|slot| self.arena.walk(*slot)).unwrap_or_default();
        let entries = walk.into_iter().map(|slot| &self.arena[slot]);
        entries.filter(|entry| entry.is_living()).map(|entry| entry.pid()).collect()
    }

    /// Returns the ancestors that the user paused, also while they wait for an answer, nearest first. A RESUME resumes them too, after the process itself;
    /// so does a pending RESUME that is delivered by `Start` or `SetMask`. Both have `Effect::Resume` among their
    /// effects.
    #[must_use]
    pub fn ancestors_paused_by_user(&self, pid: Pid) -> Vec<Pid> {
        let is_by_user = |pid: &Pid| {
            let Some(machine) = self.machine(*pid) else { return false };
            match machine.pause() {
                Some((_, SuspendReason::User)) => true,
                // Only its pause is taken back then. For any other reason it would run.
                Some((_, reason)) => reason.awaits_answer() && machine.kept_pause().is_some(),
                None => false,
            }
        };
        self.ancestors(pid).filter(is_by_user).collect()
    }
}
