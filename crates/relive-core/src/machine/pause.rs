//! Pause and resume, and the boundary between them.
//!
//! Paused is not a state: the process stays Running. The clock stops when the pause takes effect, which is at the
//! request or at the delivery of a blocked PAUSE; the body continues to its boundary and stops there. The first reason
//! stays until the pause is over.

use crate::effect::Effect;
use crate::machine::signal::Sent;
use crate::machine::{Context, Life, Machine, Pause};
use crate::process::Urgency;
use crate::refusal::Refusal;
use crate::signal::Signal;
use crate::status::{Cause, SuspendReason};

impl Machine {
    /// Returns who asked for the pause that follows the present one, which ends without a RESUME. A PAUSE that the process
    /// blocks is pending and does not follow: it waits until it is unblocked. A process that was asked to end is not paused
    /// any more.
    #[must_use]
    pub fn kept_pause(&self) -> Option<Cause> {
        self.waiting_pause().filter(|_| !self.mask.contains(Signal::Pause))
    }

    /// Returns who sent the PAUSE that waits behind the present pause, kept or blocked. A RESUME takes it back.
    #[must_use]
    pub fn waiting_pause(&self) -> Option<Cause> {
        if !self.keeps_pause() {
            return None;
        }
        self.pending().find(|(signal, _)| *signal == Signal::Pause).map(|(_, cause)| cause)
    }

    /// Returns how soon the pause that is kept has to take effect.
    #[must_use]
    pub fn kept_urgency(&self) -> Option<Urgency> {
        self.kept_pause()?;
        self.pending.as_ref().map(|pending| pending.urgency())
    }

    /// Returns whether a PAUSE is kept until the present pause ends.
    pub(super) fn keeps_pause(&self) -> bool {
        self.ending().is_none() && self.pause().is_some_and(|(_, reason)| reason.ends_without_resume())
    }

    pub(super) fn check_resumable(&self) -> Result<(), Refusal> {
        match (&self.life, self.pause()) {
            (Life::Created, _) if self.pending.is_none() => Err(Refusal::NotStarted { pid: self.pid() }),
            (Life::Running(_), Some((_, reason))) if reason.awaits_answer() && self.waiting_pause().is_none() => {
                Err(Refusal::AwaitsAnswer { pid: self.pid() })
            }
            (Life::Created | Life::Running(_) | Life::Zombie(_), _) => Ok(()),
        }
    }

    pub(super) fn suspend(
        &mut self,
        reason: SuspendReason,
        urgency: Urgency,
        cx: &mut Context<'_>,
    ) -> Result<bool, Refusal> {
        match &self.life {
            Life::Created => Err(Refusal::NotStarted { pid: self.pid() }),
            Life::Zombie(_) => Ok(false),
            Life::Running(running) if running.ending.is_some() => Ok(false),
            Life::Running(_) => Ok(self.begin_pause(reason, None, urgency, cx)),
        }
    }

    pub(super) fn end_pause(&mut self, reason: SuspendReason, cx: &mut Context<'_>) -> bool {
        match self.pause() {
            Some((_, current)) if current == reason => match self.take_kept_pause() {
                Some(sent) => self.pause_on(sent, cx),
                None => self.leave_pause(cx),
            },
            Some(_) | None => false,
        }
    }

    /// Pauses the process for its user, or keeps the PAUSE while a pause lasts that ends without a RESUME.
    pub(super) fn pause_for_user(&mut self, sent: Sent, cx: &mut Context<'_>) -> bool {
        if self.keeps_pause() {
            return self.keep(sent);
        }
        self.begin_pause(SuspendReason::User, Some(sent.cause), sent.urgency, cx)
    }

    /// Takes the PAUSE that follows the present pause, unless it is blocked.
    fn take_kept_pause(&mut self) -> Option<Sent> {
        self.kept_pause()?;
        self.take_pending(Signal::Pause)
    }

    /// Replaces a pause by that of the user. The process does not run in between, and its clock does not either.
    fn pause_on(&mut self, sent: Sent, cx: &mut Context<'_>) -> bool {
        let of = self.incarnation;
        let Some(running) = self.running_mut() else { return false };
        let Sent { signal: _, cause, urgency } = sent;
        let (asked_at, reason) = (cx.now.at, SuspendReason::User);
        running.pause = Pause::Pausing { asked_at, reason, cause: Some(cause), urgency };
        cx.effects.push(Effect::Stop { of, urgency });
        true
    }

    pub(super) fn reach_boundary(&mut self, cx: &mut Context<'_>) -> bool {
        let of = self.incarnation;
        let Some(running) = self.running_mut() else { return false };
        match running.pause {
            Pause::Pausing { asked_at, reason, cause, urgency: _ } => {
                running.pause = Pause::Suspended { asked_at, reason, cause };
                cx.effects.push(Effect::Suspended { of });
                true
            }
            Pause::None | Pause::Suspended { .. } => false,
        }
    }

    pub(super) fn begin_pause(
        &mut self,
        reason: SuspendReason,
        cause: Option<Cause>,
        urgency: Urgency,
        cx: &mut Context<'_>,
    ) -> bool {
        let of = self.incarnation;
        let Some(running) = self.running_mut() else { return false };
        match &mut running.pause {
            Pause::None => {
                running.pause = Pause::Pausing { asked_at: cx.now.at, reason, cause, urgency };
                self.stopwatch.stop(cx.now.up_ms);
            }
            Pause::Pausing { urgency: current, .. } if urgency > *current => *current = urgency,
            Pause::Pausing { .. } | Pause::Suspended { .. } => return false,
        }
        cx.effects.push(Effect::Stop { of, urgency });
        true
    }

    pub(super) fn queue(&mut self, cx: &Context<'_>) -> bool {
        if self.is_queued || self.end().is_some() {
            return false;
        }
        self.is_queued = true;
        self.stopwatch.stop(cx.now.up_ms);
        true
    }

    pub(super) fn admit(&mut self, cx: &Context<'_>) -> bool {
        if !self.is_queued || self.end().is_some() {
            return false;
        }
        self.is_queued = false;
        self.start_time(cx);
        true
    }

    /// Starts the clock, unless there is another reason why the process does not execute.
    fn start_time(&mut self, cx: &Context<'_>) {
        if self.pause().is_none() && !self.is_queued {
            self.stopwatch.start(cx.now.up_ms);
        }
    }

    pub(super) fn proceed(&mut self, cx: &Context<'_>) -> bool {
        if !self.stopwatch.is_held() || matches!(self.life, Life::Zombie(_)) {
            return false;
        }
        self.stopwatch.release();
        self.start_time(cx);
        true
    }

    /// Ends a pause because of a RESUME, unless the pause waits for an answer.
    pub(super) fn resume(&mut self, cx: &mut Context<'_>) -> bool {
        match self.pause() {
            Some((_, reason)) if !reason.awaits_answer() => self.leave_pause(cx),
            Some(_) | None => false,
        }
    }

    fn leave_pause(&mut self, cx: &mut Context<'_>) -> bool {
        let Life::Running(running) = &mut self.life else { return false };
        if running.pause == Pause::None {
            return false;
        }
        running.pause = Pause::None;
        self.start_time(cx);
        cx.effects.push(Effect::Resume { of: self.incarnation });
        true
    }
}
