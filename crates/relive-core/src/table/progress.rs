//! Progress, limits and stalls.

use std::sync::Arc;

use crate::effect::{Effect, Effects};
use crate::ids::{Incarnation, Pid, Uuid};
use crate::limits::Limits;
use crate::process::{Body, UsageTotals};
use crate::refusal::Refusal;
use crate::table::{Found, Table};
use crate::time::Moment;

impl Table {
    /// Records progress and the usage so far. Stale reports change nothing.
    pub fn progress(&mut self, of: Incarnation, usage: UsageTotals, now: Moment) -> Result<(), Refusal> {
        let Some(slot) = self.reporting(of)? else { return Ok(()) };
        let entry = &mut self.arena[slot];
        if entry.machine.running().is_some() {
            entry.last_progress_ms = now.up_ms;
            entry.stalled = false;
            entry.facts.usage = usage;
        }
        Ok(())
    }

    /// Records a sign of life, which restarts the time until the process counts as stalled. Stale reports change
    /// nothing.
    pub fn alive(&mut self, of: Incarnation, now: Moment) {
        if let Some(slot) = self.current(of) {
            let entry = &mut self.arena[slot];
            entry.last_progress_ms = now.up_ms;
            entry.stalled = false;
        }
    }

    /// Returns the limits of a process, living or ended.
    #[must_use]
    pub fn limits(&self, pid: Pid) -> Option<Limits> {
        self.facts(pid).map(|facts| facts.about.limits)
    }

    /// Sets the limits from now on. An ended process does not change.
    pub fn set_limits(&mut self, pid: Pid, limits: Limits) -> Result<(), Refusal> {
        if let Found::Living(slot) = self.find(pid)? {
            self.arena[slot].facts.about.limits = limits;
        }
        Ok(())
    }

    /// It runs on this model from now on. The ended stay as they are.
    pub fn set_model(&mut self, pid: Pid, model: &str) -> Result<(), Refusal> {
        if let Found::Living(slot) = self.find(pid)? {
            self.arena[slot].facts.about.model = Some(model.into());
        }
        Ok(())
    }

    /// The process has this name from now on: its current incarnation, living or remembered.
    pub fn rename(&mut self, uuid: Uuid, name: &str) {
        let Some(pid) = self.current_pid(uuid) else { return };
        let name: Arc<str> = name.into();
        let facts = match self.by_pid.get(&pid) {
            Some(slot) => Some(&mut self.arena[*slot].facts),
            None => self.records.get_mut(&pid).map(|record| &mut record.facts),
        };
        let Some(facts) = facts else { return };
        if let Some(before) = facts.name.replace(name.clone()) {
            self.by_name.remove(&(before, pid));
        }
        self.by_name.insert((name, pid));
    }

    /// Reports each running process that made no progress for this long as stalled, once. Paused processes are skipped.
    pub fn check_stalled(&mut self, no_progress_ms: u64, now: Moment) -> Effects {
        let mut effects = Effects::new();
        for slot in self.by_pid.values() {
            let entry = &mut self.arena[*slot];
            // Nothing tells whether a program makes progress.
            if entry.facts.body == Body::Exec {
                continue;
            }
            let is_busy = entry.machine.running().is_some() && entry.machine.pause().is_none();
            let is_late = now.up_ms.saturating_sub(entry.last_progress_ms) >= no_progress_ms;
            if is_busy && is_late && !entry.stalled {
                entry.stalled = true;
                effects.push(Effect::Stalled { of: entry.machine.incarnation() });
            }
        }
        effects
    }
}
