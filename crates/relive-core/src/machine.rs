//! The part of a process that its owner controls.
//!
//! [`Machine::apply`] is a pure function of the process, an event and the time. The owner clones the machine, applies
//! events to this draft, writes the records, and publishes the draft with [`Table::publish`](crate::Table::publish);
//! a draft that could not be recorded is dropped. The table holds everything that changes without the owner: the tree,
//! the progress, the limits, the release.

mod end;
mod life;
mod pause;
mod pending;
mod recovered;
mod signal;

use jiff::Timestamp;

use crate::effect::{Effect, Effects};
use crate::ids::{Incarnation, Pid};
use crate::process::{Outcome, State, Urgency};
use crate::refusal::{Refusal, Transition};
use crate::signal::{Signal, SignalSet};
use crate::status::{Cause, End, SuspendReason};
use crate::table::Settings;
use crate::time::{Moment, Stopwatch};
use signal::Sent;

pub(crate) use life::{Life, Pause, Running, Zombie};
use pending::Pending;
pub use recovered::{Recovered, Suspension};

/// The target that the sender of a signal named.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Aim {
    /// This process itself. A RESUME that has nothing to resume is refused.
    Process,
    /// Another process: this one is its descendant, or an ancestor that is resumed with it. A RESUME that has nothing
    /// to resume changes nothing.
    Subtree,
}

/// An event in the life of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// Moves the process from Created to Running before its body is launched. A pause requested in the meantime takes
    /// effect.
    Start,
    /// Delivers a signal. A process that has ended ignores it.
    Signal {
        signal: Signal,
        /// Says who sent it and why. The sender of a signal to a subtree sets its `root`.
        cause: Cause,
        /// How soon a PAUSE takes effect; the other signals ignore it.
        urgency: Urgency,
        aim: Aim,
    },
    /// Pauses the process for a reason of the runtime. This is not a signal, so the mask does not delay it.
    Suspend { reason: SuspendReason, urgency: Urgency },
    /// Ends a pause for exactly this reason, because the reason is gone or the answer has arrived.
    EndPause { reason: SuspendReason },
    /// Reports that the body has stopped at its boundary. Changes nothing if the pause is over.
    BoundaryReached,
    /// Reports that the body waits for a place in which to execute. No time counts until it has one.
    Queue,
    /// Reports that the body has its place. Changes nothing if it did not wait.
    Admit,
    /// Lets a program pass its gate: its time counts from now on. Changes nothing for a process that is not at a gate.
    Proceed,
    /// Replaces the set of blocked signals. Pending signals that are no longer blocked are delivered, in their order.
    SetMask(SignalSet),
    /// Replaces the set of signals that the process handles itself.
    SetHandlers(SignalSet),
    /// Ends it by its own wish, like this. What somebody asked for before is the cause, if it is not a KILL: then that
    /// counts.
    EndSelf(Box<End>),
    /// Ends the grace period of a TERM and kills the process. Changes nothing if no TERM was delivered.
    GraceExpired,
    /// Reports that the body has ended, or could not be launched.
    Terminate(Outcome),
}

/// The result of an event that was not refused.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Applied {
    /// Whether the process changed, or its own handler is called.
    pub changed: bool,
    /// The effects to carry out, in this order, once the change is published.
    pub effects: Effects,
}

/// The part of a process that its owner controls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Machine {
    incarnation: Incarnation,
    mask: SignalSet,
    handlers: SignalSet,
    pending: Option<Box<Pending>>,
    stopwatch: Stopwatch,
    /// Whether the body waits for a place in which to execute.
    is_queued: bool,
    life: Life,
}

/// The inputs of one event, and the effects so far.
struct Context<'a> {
    settings: &'a Settings,
    now: Moment,
    effects: Effects,
}

impl Machine {
    /// Returns a process that has not been started. Its elapsed time already counts if `stopwatch` runs, because it
    /// includes the launch.
    #[must_use]
    pub fn new(incarnation: Incarnation, stopwatch: Stopwatch) -> Self {
        Self {
            incarnation,
            mask: SignalSet::EMPTY,
            handlers: SignalSet::EMPTY,
            pending: None,
            stopwatch,
            is_queued: false,
            life: Life::Created,
        }
    }

    /// Applies one event. A refusal changes nothing.
    pub fn apply(&mut self, event: Event, settings: &Settings, now: Moment) -> Result<Applied, Refusal> {
        let mut cx = Context { settings, now, effects: Effects::new() };
        let changed = match event {
            Event::Start => {
                self.start(&mut cx)?;
                true
            }
            Event::Signal { signal, cause, urgency, aim } => {
                self.check_aim(signal, aim)?;
                self.deliver(Sent { signal, cause, urgency }, &mut cx)
            }
            Event::Suspend { reason, urgency } => self.suspend(reason, urgency, &mut cx)?,
            Event::EndPause { reason } => self.end_pause(reason, &mut cx),
            Event::BoundaryReached => self.reach_boundary(&mut cx),
            Event::Queue => self.queue(&cx),
            Event::Admit => self.admit(&cx),
            Event::Proceed => self.proceed(&cx),
            Event::SetMask(mask) => self.set_mask(mask, &mut cx),
            Event::SetHandlers(handlers) => self.set_handlers(handlers),
            Event::EndSelf(end) => self.end_self(*end, &mut cx)?,
            Event::GraceExpired => self.expire_grace(&mut cx),
            Event::Terminate(outcome) => {
                let end = self.end_of(&outcome)?;
                self.become_zombie(end, &mut cx);
                true
            }
        };
        Ok(Applied { changed, effects: cx.effects })
    }

    #[must_use]
    pub fn incarnation(&self) -> Incarnation {
        self.incarnation
    }

    /// Returns Created, Running or Zombie; a dead process has no machine.
    #[must_use]
    pub fn state(&self) -> State {
        match self.life {
            Life::Created => State::Created,
            Life::Running(_) => State::Running,
            Life::Zombie(_) => State::Zombie,
        }
    }

    /// Returns when and why the process was paused, from the request until the pause is over.
    #[must_use]
    pub fn pause(&self) -> Option<(Timestamp, SuspendReason)> {
        self.running().and_then(|running| running.pause.asked())
    }

    /// Returns who asked for the pause; nobody if the runtime had a reason of its own.
    #[must_use]
    pub fn paused_by(&self) -> Option<Cause> {
        self.running().and_then(|running| running.pause.cause())
    }

    /// Returns whether the body has stopped at its boundary: the process is suspended, not just pausing.
    #[must_use]
    pub fn is_at_boundary(&self) -> bool {
        matches!(self.life, Life::Running(Running { pause: Pause::Suspended { .. }, .. }))
    }

    /// Returns how soon the body has to stop, while the process is pausing.
    #[must_use]
    pub fn urgency(&self) -> Option<Urgency> {
        match self.running()?.pause {
            Pause::Pausing { urgency, .. } => Some(urgency),
            Pause::None | Pause::Suspended { .. } => None,
        }
    }

    /// Returns the strongest signal that asked the process to end, and its cause, until the process has ended.
    #[must_use]
    pub fn ending(&self) -> Option<(Signal, Cause)> {
        self.running()?.ending
    }

    /// Returns the signal by which the body has to end. A TERM that the process handles itself does not count: the
    /// process has its grace period.
    #[must_use]
    pub fn told_to_end(&self) -> Option<(Signal, Cause)> {
        self.ending().filter(|(signal, _)| *signal != Signal::Term || !self.handlers.contains(Signal::Term))
    }

    /// Returns how it wants to end, while it has not ended.
    #[must_use]
    pub fn own_end(&self) -> Option<&End> {
        self.running()?.own_end.as_deref()
    }

    /// Returns the blocked signals that wait, in their order of delivery.
    pub fn pending(&self) -> impl Iterator<Item = (Signal, Cause)> {
        self.pending.iter().flat_map(|pending| pending.iter())
    }

    /// Returns the blocked signals.
    #[must_use]
    pub fn mask(&self) -> SignalSet {
        self.mask
    }

    /// Returns the signals that the process handles itself.
    #[must_use]
    pub fn handlers(&self) -> SignalSet {
        self.handlers
    }

    /// Returns the execution time so far.
    #[must_use]
    pub fn stopwatch(&self) -> Stopwatch {
        self.stopwatch
    }

    /// Returns whether the body waits for a place in which to execute.
    #[must_use]
    pub fn is_queued(&self) -> bool {
        self.is_queued
    }

    #[must_use]
    pub fn end(&self) -> Option<&End> {
        match &self.life {
            Life::Zombie(zombie) => Some(&zombie.end),
            Life::Created | Life::Running(_) => None,
        }
    }

    pub(crate) fn life(&self) -> &Life {
        &self.life
    }

    pub(crate) fn into_life(self) -> Life {
        self.life
    }

    pub(crate) fn running(&self) -> Option<&Running> {
        match &self.life {
            Life::Running(running) => Some(running),
            Life::Created | Life::Zombie(_) => None,
        }
    }

    fn running_mut(&mut self) -> Option<&mut Running> {
        match &mut self.life {
            Life::Running(running) => Some(running),
            Life::Created | Life::Zombie(_) => None,
        }
    }

    fn pid(&self) -> Pid {
        self.incarnation.pid
    }

    fn start(&mut self, cx: &mut Context<'_>) -> Result<(), Refusal> {
        match self.state() {
            State::Created => {}
            state @ (State::Running | State::Zombie | State::Dead) => {
                return Err(Refusal::Illegal { pid: self.pid(), state, transition: Transition::Start });
            }
        }
        self.life = Life::Running(Running::since(cx.now.at));
        cx.effects.push(Effect::Launch { of: self.incarnation });
        self.land(cx);
        Ok(())
    }
}
