//! Signals: to one process, to a tree, and the landing of pending ones.
//!
//! Every signal, whoever sends it, goes through `deliver`. A process is *changed* when its life or its pending set
//! did, or its handler was called; only those are counted. The zombies and the dead are never reached.
//!
//! Choices the design leaves open: a process that has not been started has no body to ask, so TERM, INT and KILL end
//! it at once and PAUSE is kept until it starts. The grace of TERM runs also where a handler takes it. A RESUME takes
//! a pending PAUSE away even when it is not blocked itself, and the other way round, so that the last word counts.
//! Once a process has been told to end, it is not paused any more. A handled RESUME also wakes, because a stopped
//! process runs no handler.

use jiff::Timestamp;

use crate::arena::{Slot, Visit};
use crate::effect::{Effect, Effects, Reached};
use crate::ids::{Incarnation, Pid};
use crate::process::{Ending, Entry, Life, Pending, Urgency};
use crate::refusal::Refusal;
use crate::signal::{Disposition, Signal, SignalSet, disposition};
use crate::status::{Cause, End, ProcessStatus, SuspendReason};
use crate::table::{Found, Table, add, after};

/// What a delivery did to the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Delivery {
    Unchanged,
    Changed,
    Paused,
    Resumed,
}

impl Delivery {
    /// By how much the number of paused processes went up.
    fn paused(self) -> i64 {
        match self {
            Self::Paused => 1,
            Self::Resumed => -1,
            Self::Unchanged | Self::Changed => 0,
        }
    }
}

/// A signal on its way.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sent {
    pub(super) signal: Signal,
    pub(super) cause: Cause,
    pub(super) urgency: Urgency,
    pub(super) now: Timestamp,
}

impl Table {
    /// To one process. The ended are left alone: success, and nothing changed.
    pub fn signal(&mut self, pid: Pid, signal: Signal, cause: Cause, now: Timestamp) -> Result<Reached, Refusal> {
        self.signal_one(pid, Sent { signal, cause, urgency: Urgency::Boundary, now })
    }

    /// To a process and every living one below it. Each kill is attributed to `pid` as its root.
    pub fn signal_tree(&mut self, pid: Pid, signal: Signal, cause: Cause, now: Timestamp) -> Result<Reached, Refusal> {
        self.signal_below(pid, Sent { signal, cause, urgency: Urgency::Boundary, now })
    }

    /// Block these signals and no others. Pending ones that are not blocked any more land, in their order.
    pub fn set_mask(&mut self, pid: Pid, mask: SignalSet, now: Timestamp) -> Result<Effects, Refusal> {
        match self.find(pid)? {
            Found::Living(slot) => {
                self.arena[slot].mask = mask;
                Ok(self.land(slot, now))
            }
            Found::Ended(_) => Ok(Effects::new()),
        }
    }

    /// Let the process handle these signals itself, and no others.
    pub fn set_handlers(&mut self, pid: Pid, handlers: SignalSet) -> Result<(), Refusal> {
        if let Found::Living(slot) = self.find(pid)? {
            self.arena[slot].handlers = handlers;
        }
        Ok(())
    }

    /// The signals that wait to be unblocked.
    #[must_use]
    pub fn pending(&self, pid: Pid) -> SignalSet {
        let pending = self.by_pid.get(&pid).and_then(|slot| self.arena[*slot].pending.as_deref());
        pending.map_or(SignalSet::EMPTY, Pending::signals)
    }

    /// The grace of a TERM is over: what has not ended by now is killed. Stale timers change nothing.
    pub fn grace_expired(&mut self, of: Incarnation, now: Timestamp) -> Result<Effects, Refusal> {
        let Some(slot) = self.reporting(of)? else { return Ok(Effects::new()) };
        let termed = self.arena[slot].running().and_then(|running| running.ending);
        let Some(Ending { signal: Signal::Term, cause }) = termed else { return Ok(Effects::new()) };
        let mut effects = Effects::new();
        self.deliver(slot, Sent { signal: Signal::Kill, cause, urgency: Urgency::Boundary, now }, &mut effects);
        Ok(effects)
    }

    pub(super) fn signal_one(&mut self, pid: Pid, sent: Sent) -> Result<Reached, Refusal> {
        match self.find(pid)? {
            Found::Living(slot) => {
                self.check_resumable(slot, sent.signal)?;
                Ok(self.send(&[Visit { slot, parent: 0 }], sent))
            }
            Found::Ended(_) => Ok(Reached::default()),
        }
    }

    pub(super) fn signal_below(&mut self, pid: Pid, mut sent: Sent) -> Result<Reached, Refusal> {
        sent.cause.root = Some(pid);
        match self.find(pid)? {
            Found::Living(slot) => {
                self.check_resumable(slot, sent.signal)?;
                let walk = self.arena.walk(slot);
                Ok(self.send(&walk, sent))
            }
            Found::Ended(_) => Ok(Reached::default()),
        }
    }

    /// Let pending signals land that nothing blocks.
    pub(super) fn land(&mut self, slot: Slot, now: Timestamp) -> Effects {
        let mut effects = Effects::new();
        for signal in Signal::LANDING_ORDER {
            let entry = &mut self.arena[slot];
            if entry.mask.contains(signal) || entry.running().is_none() {
                continue;
            }
            let urgency = entry.pending.as_ref().map_or(Urgency::Boundary, |pending| pending.urgency);
            let Some(cause) = take_pending(entry, signal) else { continue };
            let landed = self.send(&[Visit { slot, parent: 0 }], Sent { signal, cause, urgency, now });
            effects.extend(landed.effects);
        }
        effects
    }

    fn send(&mut self, walk: &[Visit], sent: Sent) -> Reached {
        let mut reached = Reached::default();
        let mut deliveries = Vec::with_capacity(walk.len());
        for visit in walk {
            let delivery = self.deliver(visit.slot, sent, &mut reached.effects);
            if delivery != Delivery::Unchanged {
                reached.pids.push(self.arena[visit.slot].pid());
            }
            deliveries.push(delivery);
        }
        if deliveries.iter().any(|delivery| delivery.paused() != 0) {
            self.tell_above(walk, &deliveries, SuspendReason::User, &mut reached.effects);
        }
        if let Some(root) = walk.first().filter(|_| deliveries.contains(&Delivery::Resumed)) {
            self.wake_above(root.slot, sent, &mut reached);
        }
        reached
    }

    /// The one place where a signal meets a process.
    pub(super) fn deliver(&mut self, slot: Slot, sent: Sent, effects: &mut Effects) -> Delivery {
        let entry = &mut self.arena[slot];
        match entry.life {
            Life::Zombie(_) => Delivery::Unchanged,
            Life::Created => self.deliver_unstarted(slot, sent, effects),
            Life::Running(_) => {
                let cancelled = sent.signal.opposite().and_then(|opposite| take_pending(entry, opposite)).is_some();
                let delivery = match disposition(sent.signal, entry.mask, entry.handlers) {
                    Disposition::Blocked if cancelled => Delivery::Changed,
                    Disposition::Blocked => keep(entry, sent),
                    Disposition::Handled => self.handle(slot, sent, effects),
                    Disposition::Default => self.act(slot, sent, effects),
                };
                if cancelled && delivery == Delivery::Unchanged { Delivery::Changed } else { delivery }
            }
        }
    }

    fn deliver_unstarted(&mut self, slot: Slot, sent: Sent, effects: &mut Effects) -> Delivery {
        let entry = &mut self.arena[slot];
        match sent.signal {
            Signal::Pause => keep(entry, sent),
            Signal::Resume if take_pending(entry, Signal::Pause).is_some() => Delivery::Changed,
            Signal::Resume => Delivery::Unchanged,
            Signal::Term | Signal::Int | Signal::Kill => {
                let status = ProcessStatus::Killed { signal: sent.signal.into() };
                self.end_unstarted(slot, End { cause: Some(sent.cause), ..End::of(status) }, sent.now, effects);
                Delivery::Changed
            }
        }
    }

    fn handle(&mut self, slot: Slot, sent: Sent, effects: &mut Effects) -> Delivery {
        let entry = &mut self.arena[slot];
        let of = entry.facts.incarnation;
        let Some(running) = entry.running_mut() else { return Delivery::Unchanged };
        let handler = Effect::Handle { of, signal: sent.signal };
        let is_paused = running.pause.asked().is_some();
        match (sent.signal, running.ending.map(|ending| ending.signal)) {
            (_, Some(Signal::Kill)) | (Signal::Term, Some(Signal::Term)) => Delivery::Unchanged,
            (Signal::Pause, _) if is_paused => Delivery::Unchanged,
            (Signal::Term, _) => {
                running.ending = Some(Ending { signal: Signal::Term, cause: sent.cause });
                effects.extend([handler, self.grace(of, sent.now)]);
                Delivery::Changed
            }
            (Signal::Resume, _) if is_paused => {
                let delivery = self.end_pause(slot, sent.now, effects);
                if delivery == Delivery::Resumed {
                    effects.push(handler);
                }
                delivery
            }
            (Signal::Resume | Signal::Int | Signal::Pause | Signal::Kill, _) => {
                effects.push(handler);
                Delivery::Changed
            }
        }
    }

    fn act(&mut self, slot: Slot, sent: Sent, effects: &mut Effects) -> Delivery {
        let entry = &mut self.arena[slot];
        let of = entry.facts.incarnation;
        let Some(running) = entry.running_mut() else { return Delivery::Unchanged };
        let told = running.ending.map(|ending| ending.signal);
        match (sent.signal, told) {
            (Signal::Pause, None) => self.begin_pause(slot, SuspendReason::User, sent.urgency, sent.now, effects),
            (Signal::Resume, _) => self.end_pause(slot, sent.now, effects),
            // Being told to end again, and no more strongly, is nothing new.
            (Signal::Pause | Signal::Int, Some(_))
            | (Signal::Term, Some(Signal::Term | Signal::Kill))
            | (Signal::Kill, Some(Signal::Kill)) => Delivery::Unchanged,
            (Signal::Term | Signal::Int | Signal::Kill, _) => {
                running.ending = Some(Ending { signal: sent.signal, cause: sent.cause });
                match sent.signal {
                    Signal::Kill => effects.push(Effect::Kill { of }),
                    Signal::Term => {
                        effects.extend([Effect::AskToEnd { of, signal: sent.signal }, self.grace(of, sent.now)])
                    }
                    Signal::Int | Signal::Pause | Signal::Resume => {
                        effects.push(Effect::AskToEnd { of, signal: sent.signal });
                    }
                }
                Delivery::Changed
            }
        }
    }

    fn grace(&self, of: Incarnation, now: Timestamp) -> Effect {
        Effect::ArmGrace { of, deadline: after(now, self.settings.grace_ms) }
    }

    /// Keep the counts of the paused right, and tell every ancestor that was not just paused itself of those paused
    /// below it: one effect for each ancestor, however many were paused.
    pub(super) fn tell_above(
        &mut self,
        walk: &[Visit],
        deliveries: &[Delivery],
        reason: SuspendReason,
        effects: &mut Effects,
    ) {
        let mut changes: Vec<(i64, Option<Pid>)> = vec![(0, None); walk.len()];
        let mut total = (0, None);
        for (at, (visit, delivery)) in walk.iter().zip(deliveries).enumerate().rev() {
            let (below, first) = changes[at];
            let entry = &mut self.arena[visit.slot];
            entry.suspended_below = add(entry.suspended_below, below);
            if *delivery != Delivery::Paused {
                tell(entry, below, first, reason, effects);
            }
            let own = delivery.paused();
            let first = if own > 0 { Some(entry.pid()) } else { first };
            let above = if at == 0 { &mut total } else { &mut changes[visit.parent] };
            *above = (above.0 + below + own, first.or(above.1));
        }
        let Some(root) = walk.first() else { return };
        self.count_above(root.slot, total.0);
        for ancestor in self.arena.ancestors(root.slot) {
            tell(&self.arena[ancestor], total.0, total.1, reason, effects);
        }
    }

    /// Something below was resumed: ancestors that the user paused go on too, those stopped otherwise do not.
    fn wake_above(&mut self, slot: Slot, sent: Sent, reached: &mut Reached) {
        let mut woken = 0;
        let mut here = slot;
        while let Some(parent) = self.arena.above(here) {
            let entry = &mut self.arena[parent];
            entry.suspended_below = add(entry.suspended_below, -woken);
            let by_user = matches!(entry.paused(), Some((_, SuspendReason::User)));
            if by_user {
                let delivery = self.deliver(parent, sent, &mut reached.effects);
                woken -= delivery.paused();
                if delivery != Delivery::Unchanged {
                    reached.pids.push(self.arena[parent].pid());
                }
            }
            here = parent;
        }
    }
}

fn tell(ancestor: &Entry, count: i64, first: Option<Pid>, reason: SuspendReason, effects: &mut Effects) {
    if let (Ok(count @ 1..), Some(of)) = (u32::try_from(count), first) {
        effects.push(Effect::SuspendedBelow { ancestor: ancestor.pid(), of, count, reason });
    }
}

/// Into the pending set, once.
fn keep(entry: &mut Entry, sent: Sent) -> Delivery {
    let is_new = entry.pending.get_or_insert_default().add(sent.signal, sent.cause, sent.urgency);
    if is_new { Delivery::Changed } else { Delivery::Unchanged }
}

fn take_pending(entry: &mut Entry, signal: Signal) -> Option<Cause> {
    let pending = entry.pending.as_mut()?;
    let cause = pending.take(signal);
    if pending.is_empty() {
        entry.pending = None;
    }
    cause
}
