//! Publishes drafts, and updates everything else that a change of one process concerns.

use crate::arena::Slot;
use crate::effect::{Effect, Effects};
use crate::ids::Pid;
use crate::machine::{Applied, Event, Machine};
use crate::process::State;
use crate::refusal::{Refusal, Transition};
use crate::table::authority::Holder;
use crate::table::{Found, Table};
use crate::time::Moment;

impl Table {
    /// Returns the current state of a process in the table, as the base of a draft.
    #[must_use]
    pub fn machine(&self, pid: Pid) -> Option<&Machine> {
        self.by_pid.get(&pid).map(|slot| &self.arena[*slot].machine)
    }

    /// Makes a draft current. It updates the ancestors' counts of paused descendants, tells the running ancestors, and
    /// takes the authority of a process that ended: its handles are closed here, not at the release. The returned
    /// effects come after those of the events that made the draft. The cost grows with the depth of the process in the
    /// tree.
    ///
    /// Refuses a draft of another incarnation than the one in the table, a draft of a process that has left the table,
    /// and a draft that undoes a start or an end.
    pub fn publish(&mut self, machine: Machine, now: Moment) -> Result<Effects, Refusal> {
        let of = machine.incarnation();
        let slot = self.current(of).ok_or(Refusal::StaleDraft { of })?;
        let entry = &mut self.arena[slot];
        let has_ended = entry.machine.end().is_some();
        if machine.state() < entry.machine.state() || has_ended && machine != entry.machine {
            return Err(Refusal::StaleDraft { of });
        }
        let before = std::mem::replace(&mut entry.machine, machine);
        let (was_paused, is_paused) = (before.pause(), entry.machine.pause());
        let is_running = entry.machine.running().is_some();
        let starts = before.running().is_none() && is_running;
        if starts || was_paused.is_some() && was_paused != is_paused {
            entry.last_progress_ms = now.up_ms;
        }
        entry.stalled &= is_running && is_paused.is_none();
        let ends = !has_ended && entry.machine.end().is_some();

        let mut effects = Effects::new();
        if was_paused != is_paused {
            self.count_above(slot, i64::from(is_paused.is_some()) - i64::from(was_paused.is_some()));
            self.tell_above(slot, &mut effects);
        }
        if ends {
            self.close_all(Holder::Process(of.pid));
            effects.push(Effect::Reap { of });
        }
        Ok(effects)
    }

    /// Applies an event that needs no record, and publishes the result. An ended process that has left the table is
    /// treated like a zombie.
    pub fn apply(&mut self, pid: Pid, event: Event, now: Moment) -> Result<Applied, Refusal> {
        let slot = match self.find(pid)? {
            Found::Living(slot) => slot,
            Found::Ended(_) => return apply_to_dead(pid, &event),
        };
        let mut draft = self.arena[slot].machine.clone();
        let Applied { changed, mut effects } = draft.apply(event, &self.settings, now)?;
        effects.extend(self.publish(draft, now)?);
        Ok(Applied { changed, effects })
    }

    /// Tells the ancestors that a process was paused: the paused ones too, unless they were paused with it as a tree.
    fn tell_above(&self, slot: Slot, effects: &mut Effects) {
        let machine = &self.arena[slot].machine;
        let Some((_, reason)) = machine.pause() else { return };
        let of = machine.incarnation().pid;
        let of_tree = machine.paused_by().is_some_and(|cause| cause.root.is_some());
        for ancestor in self.arena.ancestors(slot).map(|slot| &self.arena[slot]) {
            if ancestor.machine.pause().is_none() || !of_tree {
                effects.push(Effect::SuspendedBelow { ancestor: ancestor.pid(), of, reason });
            }
        }
    }
}

fn apply_to_dead(pid: Pid, event: &Event) -> Result<Applied, Refusal> {
    let illegal = |transition| Err(Refusal::Illegal { pid, state: State::Dead, transition });
    match event {
        Event::Start => illegal(Transition::Start),
        Event::Terminate(_) => illegal(Transition::Terminate),
        Event::Signal { .. }
        | Event::Suspend { .. }
        | Event::EndPause { .. }
        | Event::BoundaryReached
        | Event::Queue
        | Event::Admit
        | Event::Proceed
        | Event::SetMask(_)
        | Event::SetHandlers(_)
        | Event::EndSelf(_)
        | Event::GraceExpired => Ok(Applied::default()),
    }
}
