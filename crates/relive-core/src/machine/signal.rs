//! Signals: their delivery, now or once they are unblocked.
//!
//! Every signal from every sender goes through `deliver`. A process *changes* when its life or its pending set changes,
//! or when its handler is called. A process that has ended receives no signals.
//!
//! Choices the design leaves open: a process that has not been started has no body to ask, so TERM, INT and KILL end it
//! at once and PAUSE is kept until it starts. The grace period of TERM runs even if a handler receives it. A RESUME
//! removes a pending PAUSE even when RESUME itself is not blocked, and vice versa, so that the last one counts. A
//! process that was asked to end is no longer paused. A handled RESUME also ends the pause, because a stopped process
//! runs no handler. A PAUSE for a process whose pause ends without a RESUME, such as one that waits for an answer, is kept
//! until that pause ends. It pauses the process then, without running in between, and does not call its handler.

use crate::effect::Effect;
use crate::machine::{Aim, Context, Life, Machine};
use crate::process::Urgency;
use crate::refusal::Refusal;
use crate::signal::{Disposition, Signal, SignalSet, disposition};
use crate::status::{Cause, End, ProcessStatus};

#[derive(Debug, Clone, Copy)]
pub(super) struct Sent {
    pub(super) signal: Signal,
    pub(super) cause: Cause,
    pub(super) urgency: Urgency,
}

impl Machine {
    /// Refuses a RESUME that was sent to this process but has nothing to resume.
    pub(super) fn check_aim(&self, signal: Signal, aim: Aim) -> Result<(), Refusal> {
        match (signal, aim) {
            (Signal::Resume, Aim::Process) => self.check_resumable(),
            (Signal::Resume, Aim::Subtree) | (Signal::Term | Signal::Kill | Signal::Int | Signal::Pause, _) => Ok(()),
        }
    }

    /// Delivers a signal and returns whether it changed anything. This is the only place that does.
    pub(super) fn deliver(&mut self, sent: Sent, cx: &mut Context<'_>) -> bool {
        match self.life {
            Life::Zombie(_) => false,
            Life::Created => self.deliver_unstarted(sent, cx),
            Life::Running(_) => {
                let cancelled = sent.signal.opposite().and_then(|opposite| self.take_pending(opposite)).is_some();
                let changed = match disposition(sent.signal, self.mask, self.handlers) {
                    Disposition::Blocked if cancelled => true,
                    Disposition::Blocked => self.keep(sent),
                    Disposition::Handled => self.handle(sent, cx),
                    Disposition::Default => self.act(sent, cx),
                };
                cancelled || changed
            }
        }
    }

    /// Delivers the pending signals that are not blocked, and returns whether there were any.
    pub(super) fn land(&mut self, cx: &mut Context<'_>) -> bool {
        let mut landed = false;
        for signal in Signal::LANDING_ORDER {
            let is_kept = signal == Signal::Pause && self.kept_pause().is_some();
            if self.mask.contains(signal) || is_kept || self.running().is_none() {
                continue;
            }
            let Some(sent) = self.take_pending(signal) else { continue };
            self.deliver(sent, cx);
            landed = true;
        }
        landed
    }

    pub(super) fn set_mask(&mut self, mask: SignalSet, cx: &mut Context<'_>) -> bool {
        match self.life {
            Life::Zombie(_) => false,
            Life::Created | Life::Running(_) => {
                let differs = std::mem::replace(&mut self.mask, mask) != mask;
                let landed = self.land(cx);
                differs || landed
            }
        }
    }

    pub(super) fn set_handlers(&mut self, handlers: SignalSet) -> bool {
        match self.life {
            Life::Zombie(_) => false,
            Life::Created | Life::Running(_) => std::mem::replace(&mut self.handlers, handlers) != handlers,
        }
    }

    pub(super) fn expire_grace(&mut self, cx: &mut Context<'_>) -> bool {
        match self.ending() {
            Some((signal @ Signal::Term, cause)) => {
                let is_killed = self.deliver(Sent { signal: Signal::Kill, cause, urgency: Urgency::Boundary }, cx);
                if let Some(running) = self.running_mut().filter(|_| is_killed) {
                    running.outlasted = Some(signal);
                }
                is_killed
            }
            Some((Signal::Kill | Signal::Int | Signal::Pause | Signal::Resume, _)) | None => false,
        }
    }

    fn deliver_unstarted(&mut self, sent: Sent, cx: &mut Context<'_>) -> bool {
        match sent.signal {
            Signal::Pause => self.keep(sent),
            Signal::Resume => self.take_pending(Signal::Pause).is_some(),
            Signal::Term | Signal::Int | Signal::Kill => {
                let status = ProcessStatus::Killed { signal: sent.signal.into() };
                self.end_unstarted(End { cause: Some(sent.cause), ..End::of(status) }, cx);
                true
            }
        }
    }

    fn handle(&mut self, sent: Sent, cx: &mut Context<'_>) -> bool {
        let handler = Effect::Handle { of: self.incarnation, signal: sent.signal };
        let grace = self.grace(cx);
        let (is_paused, keeps_pause) = (self.pause().is_some(), self.keeps_pause());
        let Some(running) = self.running_mut() else { return false };
        match (sent.signal, running.ending.map(|(signal, _)| signal)) {
            (_, Some(Signal::Kill)) | (Signal::Term, Some(Signal::Term)) => false,
            (Signal::Pause, _) if keeps_pause => self.keep(sent),
            (Signal::Pause, _) if is_paused => false,
            (Signal::Term, _) => {
                running.ending = Some((Signal::Term, sent.cause));
                cx.effects.extend([handler, grace]);
                true
            }
            (Signal::Resume, _) if is_paused => {
                let resumed = self.resume(cx);
                if resumed {
                    cx.effects.push(handler);
                }
                resumed
            }
            (Signal::Resume | Signal::Int | Signal::Pause | Signal::Kill, _) => {
                cx.effects.push(handler);
                true
            }
        }
    }

    fn act(&mut self, sent: Sent, cx: &mut Context<'_>) -> bool {
        let of = self.incarnation;
        let grace = self.grace(cx);
        let Some(running) = self.running_mut() else { return false };
        match (sent.signal, running.ending.map(|(signal, _)| signal)) {
            (Signal::Pause, None) => self.pause_for_user(sent, cx),
            (Signal::Resume, _) => self.resume(cx),
            // A second request to end that is not stronger changes nothing.
            (Signal::Pause | Signal::Int, Some(_))
            | (Signal::Term, Some(Signal::Term | Signal::Kill))
            | (Signal::Kill, Some(Signal::Kill)) => false,
            (signal @ (Signal::Term | Signal::Int | Signal::Kill), _) => {
                running.ending = Some((signal, sent.cause));
                match signal {
                    Signal::Kill => cx.effects.push(Effect::Kill { of }),
                    Signal::Term => cx.effects.extend([Effect::AskToEnd { of, signal }, grace]),
                    Signal::Int | Signal::Pause | Signal::Resume => cx.effects.push(Effect::AskToEnd { of, signal }),
                }
                true
            }
        }
    }

    fn grace(&self, cx: &Context<'_>) -> Effect {
        Effect::ArmGrace { of: self.incarnation, grace_ms: cx.settings.grace_ms }
    }
}
