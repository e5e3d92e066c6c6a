//! One process, as far as its owner decides on it.
//!
//! [`Machine::apply`] is a pure function of the process, an event and the time. The owner clones the machine, applies
//! events to this draft, writes the records, and publishes the draft with [`Table::publish`](crate::Table::publish);
//! a draft that could not be recorded is dropped. Everything that changes without the owner is in the table instead:
//! the tree, the progress, the limits, the release.

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

/// Where a signal was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Aim {
    /// At this process. A RESUME that cannot help it is refused.
    Process,
    /// At another process: this one is below it, or is an ancestor to be resumed with it. A RESUME that cannot help
    /// it changes nothing.
    Subtree,
}

/// One thing that happens to a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// Moves it from Created to Running, before its body is launched. A pause asked for meanwhile takes hold.
    Start,
    /// Delivers a signal. An ended process is left as it is.
    Signal {
        /// Which signal.
        signal: Signal,
        /// Who sent it and why. The sender of a signal to a subtree sets its `root`.
        cause: Cause,
        /// How soon a PAUSE takes hold; the other signals ignore it.
        urgency: Urgency,
        /// Whether this process was meant, or met in a tree.
        aim: Aim,
    },
    /// Pauses it for a reason of the runtime's own, which is no signal: the mask does not hold it up.
    Suspend {
        /// Why.
        reason: SuspendReason,
        /// How soon.
        urgency: Urgency,
    },
    /// Ends a pause for exactly this reason, because the reason is gone or the answer has come.
    EndPause {
        /// Which reason.
        reason: SuspendReason,
    },
    /// Reports that the body has stopped at its boundary. Changes nothing if the pause is over.
    BoundaryReached,
    /// Blocks these signals and no others. Pending ones that are not blocked any more land, in their order.
    SetMask(SignalSet),
    /// Lets the process handle these signals itself, and no others.
    SetHandlers(SignalSet),
    /// Ends the grace of a TERM: the process is killed. Changes nothing without a TERM that waits.
    GraceExpired,
    /// Reports that the body has ended, or could not be launched.
    Terminate(Outcome),
}

/// The result of an event that was not refused.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Applied {
    /// Whether the process changed, or its own handler is called.
    pub changed: bool,
    /// To carry out in this order, once the change is published.
    pub effects: Effects,
}

/// The part of a process that its owner decides on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Machine {
    incarnation: Incarnation,
    mask: SignalSet,
    handlers: SignalSet,
    pending: Option<Box<Pending>>,
    stopwatch: Stopwatch,
    life: Life,
}

/// What an event is applied with, and the effects so far.
struct Context<'a> {
    settings: &'a Settings,
    now: Moment,
    effects: Effects,
}

impl Machine {
    /// Returns a process that has not been started. Its time runs if `stopwatch` does: launching it is part of it.
    #[must_use]
    pub fn new(incarnation: Incarnation, stopwatch: Stopwatch) -> Self {
        Self {
            incarnation,
            mask: SignalSet::EMPTY,
            handlers: SignalSet::EMPTY,
            pending: None,
            stopwatch,
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
            Event::SetMask(mask) => self.set_mask(mask, &mut cx),
            Event::SetHandlers(handlers) => self.set_handlers(handlers),
            Event::GraceExpired => self.expire_grace(&mut cx),
            Event::Terminate(outcome) => {
                let end = self.end_of(&outcome)?;
                self.become_zombie(end, &mut cx);
                true
            }
        };
        Ok(Applied { changed, effects: cx.effects })
    }

    /// Returns the incarnation this is the state of.
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

    /// Returns when and why it was paused, from the moment this was asked for until the pause is over.
    #[must_use]
    pub fn pause(&self) -> Option<(Timestamp, SuspendReason)> {
        self.running().and_then(|running| running.pause.asked())
    }

    /// Returns whether its body stands still at its boundary: suspended, not only pausing.
    #[must_use]
    pub fn is_at_boundary(&self) -> bool {
        matches!(self.life, Life::Running(Running { pause: Pause::Suspended { .. }, .. }))
    }

    /// Returns how soon the body is to stop, while it is pausing.
    #[must_use]
    pub fn urgency(&self) -> Option<Urgency> {
        match self.running()?.pause {
            Pause::Pausing { urgency, .. } => Some(urgency),
            Pause::None | Pause::Suspended { .. } => None,
        }
    }

    /// Returns the strongest signal by which it was told to end, and its cause, while it has not ended.
    #[must_use]
    pub fn ending(&self) -> Option<(Signal, Cause)> {
        self.running()?.ending
    }

    /// Returns the signal by which its body is to end. A TERM that the process handles itself is none: it has its grace.
    #[must_use]
    pub fn told_to_end(&self) -> Option<(Signal, Cause)> {
        self.ending().filter(|(signal, _)| *signal != Signal::Term || !self.handlers.contains(Signal::Term))
    }

    /// Returns the signals that wait to be unblocked, in the order in which they land.
    pub fn pending(&self) -> impl Iterator<Item = (Signal, Cause)> {
        self.pending.iter().flat_map(|pending| pending.iter())
    }

    /// Returns the blocked signals.
    #[must_use]
    pub fn mask(&self) -> SignalSet {
        self.mask
    }

    /// Returns the signals it handles itself.
    #[must_use]
    pub fn handlers(&self) -> SignalSet {
        self.handlers
    }

    /// Returns the time in which it has executed.
    #[must_use]
    pub fn stopwatch(&self) -> Stopwatch {
        self.stopwatch
    }

    /// Returns how it ended.
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
