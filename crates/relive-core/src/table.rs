//! The process table: every living process, their tree, and the completion records of the ended ones.
//!
//! Each verb is a method in a file of its own. It returns effects, or a refusal that left the table unchanged. The cost
//! of an operation on one process does not grow with the size of the table, and an operation on a subtree costs as much
//! as the subtree; nothing recurses. The driver carries the effects out. A [`Machine`](crate::Machine) decides what an
//! event does to one process; the table holds its current state.

pub mod authority;
pub mod completion;
mod descent;
pub mod look_up;
mod progress;
mod publish;
pub mod release;
mod spawn;
mod tree;
pub mod view;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::sync::Arc;

use relive_types::short_id;

use crate::arena::{Arena, Slot};
use crate::ids::{Incarnation, Pid, Uuid};
use crate::process::Facts;
use crate::refusal::Refusal;
use authority::Handles;
use completion::Record;
use descent::Descent;

/// The time limits of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Time from the delivery of TERM to KILL.
    pub grace_ms: u64,
    /// How long a completion record without a handle is kept.
    pub retention_ms: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self { grace_ms: 10_000, retention_ms: 3_600_000 }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    settings: Settings,
    arena: Arena,
    by_pid: BTreeMap<Pid, Slot>,
    /// Living processes and completion records; the highest PID of a UUID is its current incarnation.
    by_uuid: BTreeSet<(Uuid, Pid)>,
    /// The same by the last eight digits, backwards: people type the last ones. The rest is compared with the UUID.
    by_end: BTreeSet<(u32, Pid)>,
    by_name: BTreeSet<(Arc<str>, Pid)>,
    records: BTreeMap<Pid, Box<Record>>,
    /// Records without a handle, by the moment (since boot) from which they may be dropped.
    expiring: BTreeSet<(u64, Pid)>,
    handles: Handles,
    descent: Descent,
    last_pid: Pid,
    /// Unused PIDs below the last one: two processes that are created at the same time may arrive in either order.
    passed_over: BTreeSet<Pid>,
}

enum Found<'a> {
    Living(Slot),
    Ended(&'a Record),
}

impl Table {
    /// Returns an empty table. No PID up to `last_pid` is used again.
    #[must_use]
    pub fn new(settings: Settings, last_pid: Pid) -> Self {
        Self {
            settings,
            arena: Arena::new(),
            by_pid: BTreeMap::new(),
            by_uuid: BTreeSet::new(),
            by_end: BTreeSet::new(),
            by_name: BTreeSet::new(),
            records: BTreeMap::new(),
            expiring: BTreeSet::new(),
            handles: Handles::default(),
            descent: Descent::default(),
            last_pid,
            passed_over: BTreeSet::new(),
        }
    }

    /// Returns the highest PID ever used.
    #[must_use]
    pub fn last_pid(&self) -> Pid {
        self.last_pid
    }

    /// Returns the number of processes in the table.
    #[must_use]
    pub fn len(&self) -> usize {
        self.by_pid.len()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_pid.is_empty()
    }

    /// Returns the incarnation of a PID, living or ended.
    #[must_use]
    pub fn incarnation(&self, pid: Pid) -> Option<Incarnation> {
        Some(match self.find(pid).ok()? {
            Found::Living(slot) => self.arena[slot].machine.incarnation(),
            Found::Ended(record) => record.incarnation,
        })
    }

    /// Returns the PID of the current incarnation of a process, living or remembered.
    #[must_use]
    pub fn current_pid(&self, uuid: Uuid) -> Option<Pid> {
        self.latest(uuid).map(|(pid, _)| pid)
    }

    /// Returns the parent of a process; for one that ended, its last parent.
    #[must_use]
    pub fn parent(&self, pid: Pid) -> Option<Pid> {
        match self.find(pid).ok()? {
            Found::Living(slot) => self.arena.parent(slot).map(|parent| self.arena[parent].pid()),
            Found::Ended(record) => Some(record.parent),
        }
    }

    /// Returns the children of a process in the table, or of PID 0, in order of arrival.
    pub fn children(&self, pid: Pid) -> impl Iterator<Item = Pid> {
        let slot = if pid == Pid::RUNTIME { Some(Slot::RUNTIME) } else { self.by_pid.get(&pid).copied() };
        slot.into_iter().flat_map(|slot| self.arena.children(slot)).map(|slot| self.arena[slot].pid())
    }

    /// Returns the parent, the grandparent and so on of a process in the table, without PID 0.
    pub fn ancestors(&self, pid: Pid) -> impl Iterator<Item = Pid> {
        let slot = self.by_pid.get(&pid).copied();
        slot.into_iter().flat_map(|slot| self.arena.ancestors(slot)).map(|slot| self.arena[slot].pid())
    }

    /// Returns the number of paused descendants.
    #[must_use]
    pub fn suspended_below(&self, pid: Pid) -> u32 {
        self.by_pid.get(&pid).map_or(0, |slot| self.arena[*slot].suspended_below)
    }

    /// Has a process found by its UUID, or by the beginning or end of it.
    fn index_uuid(&mut self, uuid: Uuid, pid: Pid) {
        self.by_uuid.insert((uuid, pid));
        self.by_end.insert((end_of(short_id::backwards(uuid)), pid));
    }

    fn forget_uuid(&mut self, uuid: Uuid, pid: Pid) {
        self.by_uuid.remove(&(uuid, pid));
        self.by_end.remove(&(end_of(short_id::backwards(uuid)), pid));
        let by_uuid = &self.by_uuid;
        self.descent.remove(uuid, |uuid| by_uuid.range(all_of(uuid)).next().is_some());
    }

    fn find(&self, pid: Pid) -> Result<Found<'_>, Refusal> {
        if let Some(slot) = self.by_pid.get(&pid) {
            return Ok(Found::Living(*slot));
        }
        match self.records.get(&pid) {
            Some(record) => Ok(Found::Ended(record)),
            None => Err(Refusal::unknown(pid)),
        }
    }

    fn facts(&self, pid: Pid) -> Option<&Facts> {
        match self.find(pid).ok()? {
            Found::Living(slot) => Some(&self.arena[slot].facts),
            Found::Ended(record) => Some(&record.facts),
        }
    }

    /// Returns the slot of exactly this incarnation, if it is in the table. A report from another one is stale.
    fn current(&self, of: Incarnation) -> Option<Slot> {
        let slot = *self.by_pid.get(&of.pid)?;
        (self.arena[slot].machine.incarnation() == of).then_some(slot)
    }

    /// Like [`Self::current`]: a stale report returns `None`. A PID that was never used is refused.
    fn reporting(&self, of: Incarnation) -> Result<Option<Slot>, Refusal> {
        self.find(of.pid)?;
        Ok(self.current(of))
    }

    /// Adds `change` to the counts of paused descendants of all ancestors.
    fn count_above(&mut self, slot: Slot, change: i64) {
        if change == 0 {
            return;
        }
        let mut here = slot;
        while let Some(parent) = self.arena.above(here) {
            let below = &mut self.arena[parent].suspended_below;
            *below = u32::try_from(i64::from(*below) + change).unwrap_or(0);
            here = parent;
        }
    }
}

/// Returns the first eight digits of a UUID whose digits are backwards.
fn end_of(backwards: Uuid) -> u32 {
    u32::try_from(backwards.as_u128() >> 96).unwrap_or(u32::MAX)
}

/// Returns the range of the incarnations of a process among UUIDs with PIDs.
fn all_of(uuid: Uuid) -> RangeInclusive<(Uuid, Pid)> {
    (uuid, Pid(0))..=(uuid, Pid(u32::MAX))
}
