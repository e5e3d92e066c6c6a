//! The process table: every living process, the tree they form, and the completion records of those that ended.
//!
//! Each verb is a method in a file of its own. It returns effects, or a refusal after which the table is equal to
//! what it was. What concerns one process costs no more with many others in the table; what concerns a subtree costs
//! as much as the subtree; nothing recurses. The table carries nothing out: that is its driver's part. What happens
//! to one process is decided by its [`Machine`](crate::Machine), of which the table has the current state.

pub mod authority;
pub mod completion;
pub mod look_up;
mod progress;
mod publish;
pub mod release;
mod spawn;
mod tree;
pub mod view;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::arena::{Arena, Slot};
use crate::ids::{Incarnation, Pid, Uuid};
use crate::process::Facts;
use crate::refusal::Refusal;
use authority::Handles;
use completion::Record;

/// The times a table goes by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// From the delivery of TERM to KILL.
    pub grace_ms: u64,
    /// How long a completion record is kept that nobody has a handle to.
    pub retention_ms: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self { grace_ms: 10_000, retention_ms: 3_600_000 }
    }
}

/// The process table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    settings: Settings,
    arena: Arena,
    by_pid: BTreeMap<Pid, Slot>,
    /// Of the living and of the records; the highest PID of a UUID is its current incarnation.
    by_uuid: BTreeSet<(Uuid, Pid)>,
    by_name: BTreeSet<(Arc<str>, Pid)>,
    records: BTreeMap<Pid, Box<Record>>,
    /// Records that nobody has a handle to, by the moment (since boot) from which they may be dropped.
    expiring: BTreeSet<(u64, Pid)>,
    handles: Handles,
    last_pid: Pid,
    /// PIDs below the last one that nobody has had yet: two that are begun at once may arrive in either order.
    passed_over: BTreeSet<Pid>,
}

/// What a PID names.
enum Found<'a> {
    Living(Slot),
    Ended(&'a Record),
}

impl Table {
    /// An empty table. No PID up to `last_pid` is used again.
    #[must_use]
    pub fn new(settings: Settings, last_pid: Pid) -> Self {
        Self {
            settings,
            arena: Arena::new(),
            by_pid: BTreeMap::new(),
            by_uuid: BTreeSet::new(),
            by_name: BTreeSet::new(),
            records: BTreeMap::new(),
            expiring: BTreeSet::new(),
            handles: Handles::default(),
            last_pid,
            passed_over: BTreeSet::new(),
        }
    }

    /// The highest PID ever used.
    #[must_use]
    pub fn last_pid(&self) -> Pid {
        self.last_pid
    }

    /// How many processes are in the table.
    #[must_use]
    pub fn len(&self) -> usize {
        self.by_pid.len()
    }

    /// Is the table empty?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_pid.is_empty()
    }

    /// The incarnation of a PID, living or ended.
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

    /// The parent of a process in the table; of one that ended, the parent it had.
    #[must_use]
    pub fn parent(&self, pid: Pid) -> Option<Pid> {
        match self.find(pid).ok()? {
            Found::Living(slot) => self.arena.parent(slot).map(|parent| self.arena[parent].pid()),
            Found::Ended(record) => Some(record.parent),
        }
    }

    /// The children of a process in the table, or of PID 0, in the order in which they came.
    pub fn children(&self, pid: Pid) -> impl Iterator<Item = Pid> {
        let slot = if pid == Pid::RUNTIME { Some(Slot::RUNTIME) } else { self.by_pid.get(&pid).copied() };
        slot.into_iter().flat_map(|slot| self.arena.children(slot)).map(|slot| self.arena[slot].pid())
    }

    /// Parent, grandparent and so on of a process in the table, without PID 0.
    pub fn ancestors(&self, pid: Pid) -> impl Iterator<Item = Pid> {
        let slot = self.by_pid.get(&pid).copied();
        slot.into_iter().flat_map(|slot| self.arena.ancestors(slot)).map(|slot| self.arena[slot].pid())
    }

    /// How many processes below this one are paused.
    #[must_use]
    pub fn suspended_below(&self, pid: Pid) -> u32 {
        self.by_pid.get(&pid).map_or(0, |slot| self.arena[*slot].suspended_below)
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

    /// The slot of exactly this incarnation, if it is in the table. A report from another is stale.
    fn current(&self, of: Incarnation) -> Option<Slot> {
        let slot = *self.by_pid.get(&of.pid)?;
        (self.arena[slot].machine.incarnation() == of).then_some(slot)
    }

    /// As [`Self::current`], and nothing for a stale report, but a PID nobody ever had is refused.
    fn reporting(&self, of: Incarnation) -> Result<Option<Slot>, Refusal> {
        self.find(of.pid)?;
        Ok(self.current(of))
    }

    /// Adds to the counts of the paused that the ancestors keep.
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
