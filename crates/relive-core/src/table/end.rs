//! Running to Zombie: a process ends.
//!
//! Authority goes the moment execution ends: the handles the process held are closed here, not at the release.

use jiff::Timestamp;

use crate::arena::Slot;
use crate::effect::{Effect, Effects};
use crate::ids::Pid;
use crate::process::{Life, Outcome, Pause, Running, State, Zombie, millis_between};
use crate::refusal::{Refusal, Transition};
use crate::signal::SignalSet;
use crate::status::{End, ProcessStatus};
use crate::table::authority::Caller;
use crate::table::release::Release;
use crate::table::{Found, Table};

impl Table {
    /// The body has ended, or could not be launched.
    pub fn terminate(&mut self, pid: Pid, outcome: Outcome, now: Timestamp) -> Result<Effects, Refusal> {
        let illegal = |state| Refusal::Illegal { pid, state, transition: Transition::Terminate };
        let slot = match self.find(pid)? {
            Found::Living(slot) => slot,
            Found::Ended(_) => return Err(illegal(State::Dead)),
        };
        let entry = &self.arena[slot];
        let running = entry.running().ok_or_else(|| illegal(entry.state()))?;
        let mut end = match (outcome, running.ending) {
            (Outcome::Cancelled, Some(ending)) => End::of(ProcessStatus::Killed { signal: ending.signal.into() }),
            (Outcome::Cancelled, None) => return Err(Refusal::NobodyAsked { pid }),
            (Outcome::Ended(end), _) => end,
        };
        end.cause = end.cause.or(running.ending.map(|ending| ending.cause));
        end.while_paused = matches!(running.pause, Pause::Suspended { .. });
        let mut effects = Effects::new();
        self.become_zombie(slot, end, now, &mut effects);
        Ok(effects)
    }

    /// A process that is ended before it was started passes through Running all the same.
    pub(super) fn end_unstarted(&mut self, slot: Slot, end: End, now: Timestamp, effects: &mut Effects) {
        self.arena[slot].life = Life::Running(Running::since(now));
        self.become_zombie(slot, end, now, effects);
    }

    fn become_zombie(&mut self, slot: Slot, end: End, now: Timestamp, effects: &mut Effects) {
        let entry = &mut self.arena[slot];
        let of = entry.facts.incarnation;
        let Some(running) = entry.running() else { return };
        let (started_at, paused) = (running.started_at, running.pause.asked());
        if let Some((asked_at, _)) = paused {
            entry.facts.paused_total_ms += millis_between(asked_at, now);
        }
        entry.life = Life::Zombie(Box::new(Zombie { started_at, ended_at: now, end, release: Release::default() }));
        (entry.mask, entry.handlers, entry.pending) = (SignalSet::EMPTY, SignalSet::EMPTY, None);
        if paused.is_some() {
            self.count_above(slot, -1);
        }
        self.close_all(Caller::Process(of.pid));
        effects.extend([Effect::Ended { of }, Effect::Reap { of }]);
    }
}
