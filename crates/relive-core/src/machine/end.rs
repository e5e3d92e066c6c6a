//! Running to Zombie: a process ends.

use crate::effect::Effect;
use crate::machine::{Context, Life, Machine, Running, Zombie};
use crate::process::Outcome;
use crate::refusal::{Refusal, Transition};
use crate::signal::SignalSet;
use crate::status::{End, ProcessStatus};

impl Machine {
    /// Returns how the process ends if its body ends like this: what `Terminate` with the same outcome records.
    pub fn end_of(&self, outcome: &Outcome) -> Result<End, Refusal> {
        let pid = self.pid();
        let illegal = || Refusal::Illegal { pid, state: self.state(), transition: Transition::Terminate };
        let running = self.running().ok_or_else(illegal)?;
        let mut end = match (outcome, running.ending) {
            (Outcome::Recorded(end), _) => return Ok(end.clone()),
            (Outcome::Cancelled, Some((signal, _))) => End::of(ProcessStatus::Killed { signal: signal.into() }),
            (Outcome::Cancelled, None) => return Err(Refusal::NobodyAsked { pid }),
            (Outcome::Ended(end), _) => end.clone(),
        };
        end.cause = end.cause.or(running.ending.map(|(_, cause)| cause));
        end.while_paused = self.is_at_boundary();
        Ok(end)
    }

    /// Ends a process that was not started. It passes through Running all the same.
    pub(super) fn end_unstarted(&mut self, end: End, cx: &mut Context<'_>) {
        self.life = Life::Running(Running::since(cx.now.at));
        self.become_zombie(end, cx);
    }

    pub(super) fn become_zombie(&mut self, end: End, cx: &mut Context<'_>) {
        let Some(running) = self.running() else { return };
        let started_at = running.started_at;
        self.stopwatch.stop(cx.now.up_ms);
        self.life = Life::Zombie(Box::new(Zombie { started_at, ended_at: cx.now.at, end }));
        (self.mask, self.handlers, self.pending) = (SignalSet::EMPTY, SignalSet::EMPTY, None);
        cx.effects.push(Effect::Ended { of: self.incarnation });
    }
}
