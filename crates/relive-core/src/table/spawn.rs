//! Processes come into the table: new, to be started, or paused since an earlier daemon.

use jiff::Timestamp;

use crate::arena::Slot;
use crate::effect::{Effect, Effects};
use crate::ids::{Generation, Pid, Uuid};
use crate::process::{Entry, Facts, Life, Pause, Running, Spec, State, Suspension};
use crate::refusal::{Refusal, Transition};
use crate::table::{Found, Table};

/// How many PIDs that were passed over may still be used. Those that never are, because their process could not be
/// begun, are forgotten in time.
const PASSED_OVER_MAX: u32 = 1024;

impl Table {
    /// A new process, in state Created.
    pub fn spawn(&mut self, spec: Spec) -> Result<(), Refusal> {
        let parent = self.check(&spec)?;
        self.admit(spec, Life::Created, parent);
        Ok(())
    }

    /// A process that an earlier daemon left paused: a new PID that is suspended from the beginning. Its parent, where
    /// that was restored too, comes first.
    pub fn restore(&mut self, spec: Spec, suspension: Suspension, now: Timestamp) -> Result<(), Refusal> {
        let parent = self.check(&spec)?;
        let Suspension { asked_at, reason, paused_total_ms } = suspension;
        let running = Running { pause: Pause::Suspended { asked_at, reason }, ..Running::since(now) };
        let slot = self.admit(spec, Life::Running(running), parent);
        self.arena[slot].facts.paused_total_ms = paused_total_ms;
        self.count_above(slot, 1);
        Ok(())
    }

    /// Created to Running, before the body is launched. A pause that was asked for meanwhile takes hold at once.
    pub fn start(&mut self, pid: Pid, now: Timestamp) -> Result<Effects, Refusal> {
        let illegal = |state| Refusal::Illegal { pid, state, transition: Transition::Start };
        let slot = match self.find(pid)? {
            Found::Living(slot) => slot,
            Found::Ended(_) => return Err(illegal(State::Dead)),
        };
        let entry = &mut self.arena[slot];
        match entry.state() {
            State::Created => {}
            state @ (State::Running | State::Zombie | State::Dead) => return Err(illegal(state)),
        }
        entry.life = Life::Running(Running::since(now));
        let mut effects = vec![Effect::Launch { of: entry.facts.incarnation }];
        effects.extend(self.land(slot, now));
        Ok(effects)
    }

    /// The parent's slot, if nothing speaks against the process.
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
        if spec.parent == Pid::KERNEL {
            return Ok(Slot::KERNEL);
        }
        let not_running = |state| Refusal::ParentNotRunning { pid: spec.parent, state };
        match self.find(spec.parent)? {
            Found::Living(slot) if self.arena[slot].running().is_some() => Ok(slot),
            Found::Living(slot) => Err(not_running(self.arena[slot].state())),
            Found::Ended(_) => Err(not_running(State::Dead)),
        }
    }

    fn admit(&mut self, spec: Spec, life: Life, parent: Slot) -> Slot {
        let (pid, uuid) = (spec.pid, spec.uuid);
        let before = self.latest(uuid);
        let parent_uuid = spec.parent_uuid.or_else(|| (parent != Slot::KERNEL).then(|| self.arena[parent].facts.uuid));
        let facts = Facts::new(spec, parent_uuid);
        if let Some(name) = &facts.name {
            self.by_name.insert((name.clone(), pid));
        }
        let slot = self.arena.insert(Entry::new(facts, life), parent);
        self.by_pid.insert(pid, slot);
        self.by_uuid.insert((uuid, pid));
        self.use_pid(pid);
        if let Some(record) = before.and_then(|(pid, _)| self.records.get_mut(&pid)) {
            record.successor = Some(pid);
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

    /// The current incarnation of a UUID.
    pub(super) fn latest(&self, uuid: Uuid) -> Option<(Pid, Generation)> {
        let (_, pid) = self.by_uuid.range((uuid, Pid(0))..=(uuid, Pid(u32::MAX))).next_back()?;
        self.incarnation(*pid).map(|incarnation| (*pid, incarnation.generation))
    }
}
