//! The storage of the table's entries, and the tree that links them.
//!
//! Entries stay in their slot while they are in the table, so the links of the tree are plain indices: attaching,
//! detaching and stepping are O(1), and a walk is as fast as memory. Children are kept in order of arrival. Slot 0 is
//! PID 0. Slot numbers come only from the table's index or from a link, so they always point to a used slot; a free
//! slot holds a vacant entry that nothing links to. Nothing here recurses.

use std::ops::{Index, IndexMut};

use jiff::Timestamp;

use crate::ids::{Generation, Incarnation, Pid, Uuid};
use crate::machine::Machine;
use crate::process::{Entry, Facts, Spec};
use crate::time::{Moment, Stopwatch};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Slot(u32);

impl Slot {
    pub(crate) const RUNTIME: Self = Self(0);
    const NONE: Self = Self(u32::MAX);

    fn some(self) -> Option<Self> {
        (self != Self::NONE).then_some(self)
    }

    fn index(self) -> usize {
        self.0 as usize
    }
}

/// An entry's place in the tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Links {
    parent: Slot,
    first_child: Slot,
    last_child: Slot,
    previous: Slot,
    next: Slot,
}

impl Default for Links {
    fn default() -> Self {
        let none = Slot::NONE;
        Self { parent: none, first_child: none, last_child: none, previous: none, next: none }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Arena {
    entries: Vec<Entry>,
    free: Vec<Slot>,
}

impl Arena {
    /// Returns an arena with only PID 0.
    pub(crate) fn new() -> Self {
        Self { entries: vec![vacant()], free: Vec::new() }
    }

    /// Adds an entry under its parent, after its siblings.
    pub(crate) fn insert(&mut self, entry: Entry, parent: Slot) -> Slot {
        let slot = match self.free.pop() {
            Some(slot) => {
                self[slot] = entry;
                slot
            }
            None => {
                self.entries.push(entry);
                // Every entry has a PID of its own, PIDs are 32 bits and never reused: slots cannot run out before PIDs
                // do.
                Slot(u32::try_from(self.entries.len() - 1).unwrap_or(u32::MAX))
            }
        };
        self.attach(slot, parent);
        slot
    }

    /// Removes an entry that has no children from the tree and the arena.
    pub(crate) fn remove(&mut self, slot: Slot) -> Entry {
        self.detach(slot);
        self.free.push(slot);
        std::mem::replace(&mut self[slot], vacant())
    }

    pub(crate) fn move_under(&mut self, child: Slot, parent: Slot) {
        self.detach(child);
        self.attach(child, parent);
    }

    fn attach(&mut self, child: Slot, parent: Slot) {
        let last = self[parent].links.last_child;
        match last.some() {
            Some(last) => self[last].links.next = child,
            None => self[parent].links.first_child = child,
        }
        self[parent].links.last_child = child;
        let links = &mut self[child].links;
        (links.parent, links.previous, links.next) = (parent, last, Slot::NONE);
    }

    fn detach(&mut self, child: Slot) {
        let Links { parent, previous, next, .. } = self[child].links;
        match previous.some() {
            Some(previous) => self[previous].links.next = next,
            None => self[parent].links.first_child = next,
        }
        match next.some() {
            Some(next) => self[next].links.previous = previous,
            None => self[parent].links.last_child = previous,
        }
    }

    /// Returns the parent, which may be PID 0. PID 0 has none.
    pub(crate) fn parent(&self, slot: Slot) -> Option<Slot> {
        self[slot].links.parent.some()
    }

    /// Returns the parent, unless it is PID 0.
    pub(crate) fn above(&self, slot: Slot) -> Option<Slot> {
        self.parent(slot).filter(|parent| *parent != Slot::RUNTIME)
    }

    /// Returns the parent, the grandparent and so on, without PID 0.
    pub(crate) fn ancestors(&self, slot: Slot) -> impl Iterator<Item = Slot> {
        std::iter::successors(self.above(slot), |slot| self.above(*slot))
    }

    /// Returns the children in order of arrival.
    pub(crate) fn children(&self, slot: Slot) -> impl Iterator<Item = Slot> {
        std::iter::successors(self[slot].links.first_child.some(), |slot| self[*slot].links.next.some())
    }

    /// Returns the root and its descendants, parents before their children.
    pub(crate) fn walk(&self, root: Slot) -> Vec<Slot> {
        let mut visited = vec![root];
        let mut here = root;
        loop {
            if let Some(child) = self[here].links.first_child.some() {
                here = child;
            } else {
                loop {
                    if here == root {
                        return visited;
                    }
                    if let Some(sibling) = self[here].links.next.some() {
                        here = sibling;
                        break;
                    }
                    here = self[here].links.parent;
                }
            }
            visited.push(here);
        }
    }
}

impl Index<Slot> for Arena {
    type Output = Entry;

    fn index(&self, slot: Slot) -> &Entry {
        &self.entries[slot.index()]
    }
}

impl IndexMut<Slot> for Arena {
    fn index_mut(&mut self, slot: Slot) -> &mut Entry {
        &mut self.entries[slot.index()]
    }
}

/// Returns the entry that a free slot and slot 0 hold.
fn vacant() -> Entry {
    let machine = Machine::new(Incarnation { pid: Pid::RUNTIME, generation: Generation(0) }, Stopwatch::default());
    let now = Moment { at: Timestamp::UNIX_EPOCH, up_ms: 0 };
    let spec = Spec::new(Pid::RUNTIME, Uuid::nil(), Pid::RUNTIME, now);
    Entry::new(Facts::new(spec, None), machine, 0)
}
