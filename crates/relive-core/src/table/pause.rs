//! Pause and resume, and the boundary between them.
//!
//! Paused is not a state: the process stays Running. The clock of a pause starts when it takes hold in the table, that
//! is when it was asked for, or when a blocked PAUSE landed; the body goes on to its boundary and only then stands
//! still. The first reason stays until the pause is over. A pause for a reason of the kernel's own is not a signal:
//! no mask holds it up.

use jiff::Timestamp;

use crate::arena::{Slot, Visit};
use crate::effect::{Effect, Effects, Reached};
use crate::ids::{Incarnation, Pid};
use crate::process::{Life, Pause, Urgency, millis_between};
use crate::refusal::Refusal;
use crate::signal::Signal;
use crate::status::{Cause, SuspendReason, Why};
use crate::table::signal::{Delivery, Sent};
use crate::table::{Found, Table};

/// Does only a decision end a pause for this reason? A resume is none.
fn is_parked(reason: SuspendReason) -> bool {
    match reason {
        SuspendReason::InDoubt | SuspendReason::Approval => true,
        SuspendReason::User
        | SuspendReason::BudgetExceeded
        | SuspendReason::DiskFull
        | SuspendReason::IoError
        | SuspendReason::CrashLoop
        | SuspendReason::Quota
        | SuspendReason::NeedsCredentials
        | SuspendReason::DaemonStop => false,
    }
}

fn asked(signal: Signal, urgency: Urgency, now: Timestamp) -> Sent {
    Sent { signal, cause: Cause::kernel(Why::User), urgency, now }
}

impl Table {
    /// Pause one process: the user's pause, SIGPAUSE. One that is paused already stays as it is.
    pub fn pause(&mut self, pid: Pid, urgency: Urgency, now: Timestamp) -> Result<Reached, Refusal> {
        self.signal_one(pid, asked(Signal::Pause, urgency, now))
    }

    /// Pause a process and everything below it.
    pub fn pause_subtree(&mut self, pid: Pid, urgency: Urgency, now: Timestamp) -> Result<Reached, Refusal> {
        self.signal_below(pid, asked(Signal::Pause, urgency, now))
    }

    /// Resume one process, and every ancestor that the user paused. One that runs stays as it is.
    pub fn resume(&mut self, pid: Pid, now: Timestamp) -> Result<Reached, Refusal> {
        self.signal_one(pid, asked(Signal::Resume, Urgency::Boundary, now))
    }

    /// Resume a process and everything below it that does not wait for a decision, and every ancestor that the user
    /// paused.
    pub fn resume_subtree(&mut self, pid: Pid, now: Timestamp) -> Result<Reached, Refusal> {
        self.signal_below(pid, asked(Signal::Resume, Urgency::Boundary, now))
    }

    /// Pause one process for a reason of the kernel's own.
    pub fn suspend(
        &mut self,
        pid: Pid,
        reason: SuspendReason,
        urgency: Urgency,
        now: Timestamp,
    ) -> Result<Reached, Refusal> {
        let Found::Living(slot) = self.find(pid)? else { return Ok(Reached::default()) };
        match &self.arena[slot].life {
            Life::Created => return Err(Refusal::NotStarted { pid }),
            Life::Zombie(_) => return Ok(Reached::default()),
            Life::Running(running) if running.ending.is_some() => return Ok(Reached::default()),
            Life::Running(_) => {}
        }
        let mut effects = Effects::new();
        let delivery = self.begin_pause(slot, reason, urgency, now, &mut effects);
        Ok(self.settle(slot, delivery, reason, effects))
    }

    /// End a pause for exactly this reason, because the reason is gone or the decision was made. One that is paused
    /// for another reason, or not at all, stays as it is. No ancestor is woken.
    pub fn lift(&mut self, pid: Pid, reason: SuspendReason, now: Timestamp) -> Result<Reached, Refusal> {
        let Found::Living(slot) = self.find(pid)? else { return Ok(Reached::default()) };
        if self.arena[slot].paused().is_none_or(|(_, current)| current != reason) {
            return Ok(Reached::default());
        }
        let mut effects = Effects::new();
        let delivery = self.go_on(slot, now, &mut effects);
        Ok(self.settle(slot, delivery, reason, effects))
    }

    /// The body stands still at its boundary. Stale reports, and those after a resume, change nothing.
    pub fn boundary_reached(&mut self, of: Incarnation) -> Result<Effects, Refusal> {
        let Some(slot) = self.reporting(of)? else { return Ok(Effects::new()) };
        let Some(running) = self.arena[slot].running_mut() else { return Ok(Effects::new()) };
        match running.pause {
            Pause::Pausing { asked_at, reason, urgency: _ } => {
                running.pause = Pause::Suspended { asked_at, reason };
                Ok(vec![Effect::Suspended { of }])
            }
            Pause::None | Pause::Suspended { .. } => Ok(Effects::new()),
        }
    }

    /// A resume aimed at a process that it cannot help is refused; one that meets it in a tree passes it by.
    pub(super) fn check_resumable(&self, slot: Slot, signal: Signal) -> Result<(), Refusal> {
        let entry = &self.arena[slot];
        if signal != Signal::Resume {
            return Ok(());
        }
        match (&entry.life, entry.paused()) {
            (Life::Created, _) if entry.pending.is_none() => Err(Refusal::NotStarted { pid: entry.pid() }),
            (Life::Running(_), Some((_, reason))) if is_parked(reason) => Err(Refusal::Parked { pid: entry.pid() }),
            (Life::Created | Life::Running(_) | Life::Zombie(_), _) => Ok(()),
        }
    }

    pub(super) fn begin_pause(
        &mut self,
        slot: Slot,
        reason: SuspendReason,
        urgency: Urgency,
        now: Timestamp,
        effects: &mut Effects,
    ) -> Delivery {
        let entry = &mut self.arena[slot];
        let of = entry.facts.incarnation;
        let Some(running) = entry.running_mut() else { return Delivery::Unchanged };
        match &mut running.pause {
            Pause::None => {
                running.pause = Pause::Pausing { asked_at: now, reason, urgency };
                running.stalled = false;
                effects.push(Effect::Stop { of, urgency });
                Delivery::Paused
            }
            Pause::Pausing { urgency: current, .. } if urgency > *current => {
                *current = urgency;
                effects.push(Effect::Stop { of, urgency });
                Delivery::Changed
            }
            Pause::Pausing { .. } | Pause::Suspended { .. } => Delivery::Unchanged,
        }
    }

    /// By a resume, which ends every pause but those that wait for a decision.
    pub(super) fn end_pause(&mut self, slot: Slot, now: Timestamp, effects: &mut Effects) -> Delivery {
        match self.arena[slot].paused() {
            Some((_, reason)) if !is_parked(reason) => self.go_on(slot, now, effects),
            Some(_) | None => Delivery::Unchanged,
        }
    }

    fn go_on(&mut self, slot: Slot, now: Timestamp, effects: &mut Effects) -> Delivery {
        let entry = &mut self.arena[slot];
        let of = entry.facts.incarnation;
        let Life::Running(running) = &mut entry.life else { return Delivery::Unchanged };
        let Some((asked_at, _)) = running.pause.asked() else { return Delivery::Unchanged };
        entry.facts.paused_total_ms += millis_between(asked_at, now);
        running.pause = Pause::None;
        running.last_progress = now;
        effects.push(Effect::GoOn { of });
        Delivery::Resumed
    }

    fn settle(&mut self, slot: Slot, delivery: Delivery, reason: SuspendReason, mut effects: Effects) -> Reached {
        self.tell_above(&[Visit { slot, parent: 0 }], &[delivery], reason, &mut effects);
        match delivery {
            Delivery::Unchanged => Reached::default(),
            Delivery::Changed | Delivery::Paused | Delivery::Resumed => {
                Reached { pids: vec![self.arena[slot].pid()], effects }
            }
        }
    }
}
