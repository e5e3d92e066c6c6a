//! Zombie to Dead: releases the resources of a process in a fixed order.
//!
//! First the orphans, then cancel, join, debug channel, context, Dead, out of the table. Each step is one effect,
//! returned once; the next step follows when the answer has arrived. An early answer is remembered and a repeated one
//! is ignored, so the order of the effects never depends on the order of the answers.

use crate::arena::Slot;
use crate::effect::{Effect, Effects};
use crate::ids::{Incarnation, Pid};
use crate::process::State;
use crate::refusal::{Refusal, Transition};
use crate::table::{Found, Table};
use crate::time::Moment;

/// The driver's answer to a step of the release.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ReleaseEvent {
    /// Everything that was left has been cancelled.
    Cancelled,
    /// The body has been joined; its descriptors are closed.
    Joined,
    /// The debug channel has been closed.
    Closed,
    /// The context has been freed.
    Freed,
}

impl ReleaseEvent {
    /// Every answer, in the order of the steps.
    pub const ALL: [Self; 4] = [Self::Cancelled, Self::Joined, Self::Closed, Self::Freed];

    fn bit(self) -> u8 {
        1 << (self as u8)
    }
}

/// The step whose answer is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Step {
    #[default]
    Unreaped,
    Cancel,
    Join,
    Close,
    Free,
    Done,
}

/// The progress of a release.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Release {
    step: Step,
    answers: u8,
}

impl Release {
    pub(crate) fn is_under_way(self) -> bool {
        self.step != Step::Unreaped
    }

    fn begin(&mut self, of: Incarnation, effects: &mut Effects) {
        self.step = Step::Cancel;
        effects.push(Effect::Cancel { of });
        self.advance(of, effects);
    }

    fn answer(&mut self, event: ReleaseEvent, of: Incarnation, effects: &mut Effects) {
        self.answers |= event.bit();
        self.advance(of, effects);
    }

    fn has(self, event: ReleaseEvent) -> bool {
        self.answers & event.bit() != 0
    }

    fn advance(&mut self, of: Incarnation, effects: &mut Effects) {
        loop {
            self.step = match self.step {
                Step::Cancel if self.has(ReleaseEvent::Cancelled) => {
                    effects.push(Effect::Join { of });
                    Step::Join
                }
                Step::Join if self.has(ReleaseEvent::Joined) => {
                    effects.extend([Effect::TakeDebugChannel { of }, Effect::CloseDebugChannel { of }]);
                    Step::Close
                }
                Step::Close if self.has(ReleaseEvent::Closed) => {
                    effects.push(Effect::FreeContext { of });
                    Step::Free
                }
                Step::Free if self.has(ReleaseEvent::Freed) => {
                    effects.extend([Effect::Dead { of }, Effect::Left { of }]);
                    Step::Done
                }
                Step::Unreaped | Step::Cancel | Step::Join | Step::Close | Step::Free | Step::Done => return,
            };
        }
    }
}

impl Table {
    /// Releases a zombie. Reaping it again during the release changes nothing.
    pub fn reap(&mut self, pid: Pid, now: Moment) -> Result<Effects, Refusal> {
        let illegal = |state| Refusal::Illegal { pid, state, transition: Transition::Reap };
        let slot = match self.find(pid)? {
            Found::Living(slot) => slot,
            Found::Ended(_) => return Err(illegal(State::Dead)),
        };
        let entry = &self.arena[slot];
        if entry.is_living() {
            return Err(illegal(entry.machine.state()));
        }
        if entry.release.is_under_way() {
            return Ok(Effects::new());
        }
        let mut effects = Effects::new();
        self.give_up_children(slot, &mut effects);
        self.step_release(slot, now, &mut effects, Release::begin);
        Ok(effects)
    }

    /// Records the answer to a step of the release.
    pub fn released(&mut self, of: Incarnation, event: ReleaseEvent, now: Moment) -> Result<Effects, Refusal> {
        let Some(slot) = self.reporting(of)? else { return Ok(Effects::new()) };
        let entry = &self.arena[slot];
        if entry.is_living() {
            return Err(Refusal::NotEnded { pid: of.pid, state: entry.machine.state() });
        }
        let mut effects = Effects::new();
        self.step_release(slot, now, &mut effects, |release, of, effects| release.answer(event, of, effects));
        Ok(effects)
    }

    fn step_release(
        &mut self,
        slot: Slot,
        now: Moment,
        effects: &mut Effects,
        step: impl FnOnce(&mut Release, Incarnation, &mut Effects),
    ) {
        let entry = &mut self.arena[slot];
        step(&mut entry.release, entry.machine.incarnation(), effects);
        if entry.release.step == Step::Done {
            self.leave(slot, now);
        }
    }

    /// Gives living children to PID 0 and zombies to the reaper.
    fn give_up_children(&mut self, slot: Slot, effects: &mut Effects) {
        let (from, parent) = (self.arena[slot].pid(), self.arena[slot].facts.uuid);
        let below = std::mem::take(&mut self.arena[slot].suspended_below);
        if below > 0 {
            self.count_above(slot, -i64::from(below));
        }
        let children: Vec<Slot> = self.arena.children(slot).collect();
        for child in children {
            self.arena.move_under(child, Slot::RUNTIME);
            let orphan = &self.arena[child];
            self.descent.add(orphan.facts.uuid, parent);
            let of = orphan.machine.incarnation();
            effects.push(if orphan.is_living() { Effect::Reparented { of, from } } else { Effect::Reap { of } });
        }
    }
}
