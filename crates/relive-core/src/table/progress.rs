//! Progress, limits, and who has stalled.

use crate::effect::{Effect, Effects};
use crate::ids::{Incarnation, Pid};
use crate::limits::Limits;
use crate::process::{Body, Usage};
use crate::refusal::Refusal;
use crate::table::{Found, Table};
use crate::time::Moment;

impl Table {
    /// It got on, and has used this much so far. Stale reports change nothing.
    pub fn progress(&mut self, of: Incarnation, usage: Usage, now: Moment) -> Result<(), Refusal> {
        let Some(slot) = self.reporting(of)? else { return Ok(()) };
        let entry = &mut self.arena[slot];
        if entry.machine.running().is_some() {
            entry.last_progress_ms = now.up_ms;
            entry.stalled = false;
            entry.facts.usage = usage;
        }
        Ok(())
    }

    /// Notes a sign of life that is no progress: it does not owe any now. Stale reports change nothing.
    pub fn alive(&mut self, of: Incarnation, now: Moment) {
        if let Some(slot) = self.current(of) {
            let entry = &mut self.arena[slot];
            entry.last_progress_ms = now.up_ms;
            entry.stalled = false;
        }
    }

    /// Returns what a process may spend, in the table or ended.
    #[must_use]
    pub fn limits(&self, pid: Pid) -> Option<Limits> {
        self.facts(pid).map(|facts| facts.about.limits)
    }

    /// It may spend this much from now on. The ended stay as they are.
    pub fn set_limits(&mut self, pid: Pid, limits: Limits) -> Result<(), Refusal> {
        if let Found::Living(slot) = self.find(pid)? {
            self.arena[slot].facts.about.limits = limits;
        }
        Ok(())
    }

    /// The heartbeat monitor: each running process without progress for this long is stalled, and said so once. The
    /// paused are skipped.
    pub fn check_stalled(&mut self, no_progress_ms: u64, now: Moment) -> Effects {
        let mut effects = Effects::new();
        for slot in self.by_pid.values() {
            let entry = &mut self.arena[*slot];
            // Nobody knows what progress is to a program.
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
