//! Completion records of processes that have left the table.
//!
//! A record answers for its own PID only; if the process continued under a new PID, the record names it. It is kept
//! while somebody holds a handle to it, and at least for the retention time; the journal remembers longer.

use jiff::Timestamp;

use crate::arena::Slot;
use crate::ids::{Incarnation, Pid};
use crate::machine::Life;
use crate::process::{Facts, Spec};
use crate::refusal::Refusal;
use crate::status::End;
use crate::table::{Found, Table};
use crate::time::Moment;

/// The completion record of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) incarnation: Incarnation,
    pub(crate) facts: Facts,
    pub(crate) elapsed_ms: u64,
    pub(crate) parent: Pid,
    pub(crate) started_at: Timestamp,
    pub(crate) ended_at: Timestamp,
    pub(crate) end: End,
    pub(crate) successor: Option<Pid>,
    /// In milliseconds since boot.
    pub(crate) keep_until_ms: u64,
}

/// What the journal says about an incarnation that ended, or was interrupted, under an earlier daemon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Past {
    pub spec: Spec,
    pub started_at: Timestamp,
    pub ended_at: Timestamp,
    pub end: End,
    pub elapsed_ms: u64,
}

/// The answer to a wait. It is the same for every caller, every time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait<'a> {
    /// Not yet; `Effect::Ended` will report the end.
    NotEnded,
    Ended {
        end: &'a End,
        /// The PID under which the process continued.
        successor: Option<Pid>,
    },
}

impl Table {
    /// Returns whether and how a process ended. Asking changes nothing, and a process that ends at once is not missed.
    pub fn wait(&self, pid: Pid) -> Result<Wait<'_>, Refusal> {
        Ok(match self.find(pid)? {
            Found::Ended(record) => Wait::Ended { end: &record.end, successor: record.successor },
            Found::Living(slot) => match self.arena[slot].machine.end() {
                None => Wait::NotEnded,
                Some(end) => Wait::Ended { end, successor: None },
            },
        })
    }

    /// Adds the completion record of an incarnation from an earlier daemon. Call it before the successor is spawned.
    pub fn recall(&mut self, past: Past, now: Moment) -> Result<(), Refusal> {
        let Past { spec, started_at, ended_at, end, elapsed_ms } = past;
        let (pid, parent, parent_uuid) = (spec.pid, spec.parent, spec.parent_uuid);
        if pid > self.last_pid || self.find(pid).is_ok() {
            return Err(Refusal::PidUsed { pid, last: self.last_pid });
        }
        let incarnation = spec.incarnation();
        let facts = Facts::new(spec, parent_uuid);
        self.index_uuid(facts.uuid, pid);
        if let Some(name) = &facts.name {
            self.by_name.insert((name.clone(), pid));
        }
        let keep_until_ms = self.keep_until_ms(now);
        self.remember(Record {
            incarnation,
            facts,
            elapsed_ms,
            parent,
            started_at,
            ended_at,
            end,
            successor: None,
            keep_until_ms,
        });
        Ok(())
    }

    /// Drops the records without a handle whose retention time is over, and returns their PIDs.
    pub fn sweep(&mut self, now: Moment) -> Vec<Pid> {
        let mut swept = Vec::new();
        while let Some((_, pid)) =
            self.expiring.first().copied().filter(|(keep_until_ms, _)| *keep_until_ms <= now.up_ms)
        {
            self.expiring.pop_first();
            let Some(record) = self.records.remove(&pid) else { continue };
            self.forget_uuid(record.facts.uuid, pid);
            if let Some(name) = record.facts.name {
                self.by_name.remove(&(name, pid));
            }
            swept.push(pid);
        }
        swept
    }

    /// Takes a process out of the table: the last step of its release.
    pub(super) fn leave(&mut self, slot: Slot, now: Moment) {
        let parent = self.arena.parent(slot).map_or(Pid::RUNTIME, |parent| self.arena[parent].pid());
        let entry = self.arena.remove(slot);
        self.by_pid.remove(&entry.pid());
        let (incarnation, stopwatch) = (entry.machine.incarnation(), entry.machine.stopwatch());
        let Life::Zombie(zombie) = entry.machine.into_life() else { return };
        let keep_until_ms = self.keep_until_ms(now);
        self.remember(Record {
            incarnation,
            facts: entry.facts,
            elapsed_ms: stopwatch.elapsed_ms(now.up_ms),
            parent,
            started_at: zombie.started_at,
            ended_at: zombie.ended_at,
            end: zombie.end,
            successor: None,
            keep_until_ms,
        });
    }

    fn keep_until_ms(&self, now: Moment) -> u64 {
        now.up_ms.saturating_add(self.settings.retention_ms)
    }

    fn remember(&mut self, record: Record) {
        let pid = record.incarnation.pid;
        if !self.handles.has_target(pid) {
            self.expiring.insert((record.keep_until_ms, pid));
        }
        if let Some(parent) = record.facts.about.parent_uuid {
            self.descent.add(record.facts.uuid, parent);
        }
        self.records.insert(pid, Box::new(record));
    }
}
