//! Running to Zombie: a process ends.

use crate::effect::Effect;
use crate::machine::{Context, Life, Machine, Running, Zombie};
use crate::process::Outcome;
use crate::refusal::{Refusal, Transition};
use crate::signal::{Signal, SignalSet};
use crate::status::{Cause, End, ProcessStatus, Why};

impl Machine {
    /// Returns the end that `Terminate` with the same outcome records.
    pub fn end_of(&self, outcome: &Outcome) -> Result<End, Refusal> {
        let pid = self.pid();
        let illegal = || Refusal::Illegal { pid, state: self.state(), transition: Transition::Terminate };
        let running = self.running().ok_or_else(illegal)?;
        if let (Some(own), Outcome::Cancelled | Outcome::Ended(_)) = (&running.own_end, outcome) {
            // However its body was made to end: it is what it asked for.
            return Ok(End::clone(own));
        }
        let mut end = match (outcome, running.ending) {
            (Outcome::Recorded(end), _) => return Ok(end.clone()),
            (Outcome::Cancelled, Some((signal, _))) => End::of(ProcessStatus::Killed { signal: signal.into() }),
            (Outcome::Cancelled, None) => return Err(Refusal::NobodyAsked { pid }),
            (Outcome::Ended(end), _) => end.clone(),
        };
        if let Some((signal, cause)) = running.ending.filter(|_| end.cause.is_none()) {
            end.cause = Some(cause);
            let was_killed = matches!(end.status, ProcessStatus::Killed { .. });
            end.sent_signal = if was_killed { running.outlasted } else { Some(running.outlasted.unwrap_or(signal)) };
        }
        end.while_paused = self.is_at_boundary();
        Ok(end)
    }

    /// Begins to end a process as it asks for: its body, from which it asks, is ended like by a KILL.
    pub(super) fn end_self(&mut self, mut end: End, cx: &mut Context<'_>) -> Result<bool, Refusal> {
        let (of, pid) = (self.incarnation, self.pid());
        let running = match &mut self.life {
            Life::Created => return Err(Refusal::NotStarted { pid }),
            Life::Zombie(_) => return Ok(false),
            Life::Running(running) => running,
        };
        match running.ending {
            Some((Signal::Kill, _)) => return Ok(false),
            Some((signal, cause)) if end.cause.is_none() => {
                (end.cause, end.sent_signal) = (Some(cause), Some(signal));
            }
            Some(_) | None => {}
        }
        running.ending = Some((Signal::Kill, Cause::process(Why::User, pid)));
        running.own_end = Some(Box::new(end));
        cx.effects.push(Effect::Kill { of });
        Ok(true)
    }

    /// Ends a process that was not started. It still passes through Running.
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
