//! Adds processes to the table: new ones, and recovered ones.

use crate::arena::Slot;
use crate::ids::{Generation, Pid, Uuid};
use crate::machine::{Machine, Recovered};
use crate::process::{Entry, Facts, Spec, State};
use crate::refusal::Refusal;
use crate::table::{Found, Table};
use crate::time::Moment;

/// How many skipped PIDs may still be used. The oldest are forgotten, because the creation of their process may have
/// failed.
const PASSED_OVER_MAX: u32 = 1024;

impl Table {
    /// Adds a new process, in state Created.
    pub fn spawn(&mut self, spec: Spec) -> Result<(), Refusal> {
        let parent = self.check(&spec)?;
        let state = self.arena[parent].machine.state();
        if parent != Slot::RUNTIME && state != State::Running {
            return Err(Refusal::ParentNotRunning { pid: spec.parent, state });
        }
        let machine = Machine::new(spec.incarnation(), spec.stopwatch);
        // No progress is expected before the start, and its time begins then.
        self.admit(spec, machine, parent, 0);
        Ok(())
    }

    /// Adds a recovered process under a new PID. Its parent, if it was recovered too, has to be added first.
    /// [`Machine::recovered`] tells its state.
    pub fn recover(&mut self, spec: Spec, recovered: Recovered, now: Moment) -> Result<(), Refusal> {
        let parent = self.check(&spec)?;
        let machine = Machine::recovered(spec.incarnation(), spec.stopwatch, recovered, now);
        let is_paused = machine.pause().is_some();
        let slot = self.admit(spec, machine, parent, now.up_ms);
        self.count_above(slot, i64::from(is_paused));
        Ok(())
    }

    /// Returns the parent's slot if the process may be added.
    fn check(&self, spec: &Spec) -> Result<Slot, Refusal> {
        if spec.pid <= self.last_pid && !self.passed_over.contains(&spec.pid) {
            return Err(Refusal::PidUsed { pid: spec.pid, last: self.last_pid });
        }
        if let Some((pid, last)) = self.latest(spec.uuid) {
            if self.by_pid.contains_key(&pid) {
                return Err(Refusal::UuidInUse { uuid: spec.uuid, pid });
            }
            if spec.generation <= last {
                return Err(Refusal::OldGeneration { uuid: spec.uuid, generation: spec.generation, last });
            }
        }
        if spec.parent == Pid::RUNTIME {
            return Ok(Slot::RUNTIME);
        }
        let not_running = |state| Refusal::ParentNotRunning { pid: spec.parent, state };
        match self.find(spec.parent)? {
            // A recovered parent has its children before it is started.
            Found::Living(slot) if self.arena[slot].machine.end().is_none() => Ok(slot),
            Found::Living(slot) => Err(not_running(self.arena[slot].machine.state())),
            Found::Ended(_) => Err(not_running(State::Dead)),
        }
    }

    fn admit(&mut self, spec: Spec, machine: Machine, parent: Slot, last_progress_ms: u64) -> Slot {
        let (pid, uuid) = (spec.pid, spec.uuid);
        let before = self.latest(uuid);
        let parent_uuid = spec.parent_uuid.or_else(|| (parent != Slot::RUNTIME).then(|| self.arena[parent].facts.uuid));
        let facts = Facts::new(spec, parent_uuid);
        if let Some(name) = &facts.name {
            self.by_name.insert((name.clone(), pid));
        }
        let slot = self.arena.insert(Entry::new(facts, machine, last_progress_ms), parent);
        self.by_pid.insert(pid, slot);
        self.index_uuid(uuid, pid);
        if let Some(above) = parent_uuid.filter(|_| parent == Slot::RUNTIME) {
            self.descent.add(uuid, above);
        }
        self.use_pid(pid);
        if let Some((earlier, _)) = before {
            if let Some(record) = self.records.get_mut(&earlier) {
                record.successor = Some(pid);
            }
            self.move_handles(earlier, pid);
        }
        slot
    }

    fn use_pid(&mut self, pid: Pid) {
        if !self.passed_over.remove(&pid) {
            let first = self.last_pid.0.saturating_add(1).max(pid.0.saturating_sub(PASSED_OVER_MAX));
            self.passed_over.extend((first..pid.0).map(Pid));
            self.last_pid = pid;
        }
        while self.passed_over.len() > PASSED_OVER_MAX as usize {
            self.passed_over.pop_first();
        }
    }

    /// Returns the current incarnation of a UUID.
    pub(super) fn latest(&self, uuid: Uuid) -> Option<(Pid, Generation)> {
        let (_, pid) = self.by_uuid.range((uuid, Pid(0))..=(uuid, Pid(u32::MAX))).next_back()?;
        self.incarnation(*pid).map(|incarnation| (*pid, incarnation.generation))
    }
}
