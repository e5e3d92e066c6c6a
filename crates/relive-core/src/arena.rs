//! Where the entries live, and the tree that links them.
//!
//! Entries stay in their slot while they are in the table, so the links of the tree are plain indices: attaching,
//! detaching and stepping are O(1), and a walk is as fast as memory. Children are in the order in which they came.
//! Slot 0 is PID 0. A slot number is only ever had from the table's index or from a link, so it is always taken;
//! a free slot holds a vacant entry that nothing links to. Nothing here recurses.

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
    /// With PID 0 and nothing else.
    pub(crate) fn new() -> Self {
        Self { entries: vec![vacant()], free: Vec::new() }
    }

    /// Put it under its parent, after its siblings.
    pub(crate) fn insert(&mut self, entry: Entry, parent: Slot) -> Slot {
        let slot = match self.free.pop() {
            Some(slot) => {
                self[slot] = entry;
                slot
            }
            None => {
                self.entries.push(entry);
                // PIDs are 32 bits and never used twice, so slots cannot run out before they do.
                Slot(u32::try_from(self.entries.len() - 1).unwrap_or(u32::MAX))
            }
        };
        self.attach(slot, parent);
        slot
    }

    /// Take it out of the tree and the arena. It has no children any more.
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

    /// The parent, PID 0 included. PID 0 has none.
    pub(crate) fn parent(&self, slot: Slot) -> Option<Slot> {
        self[slot].links.parent.some()
    }

    /// The parent, unless that is PID 0.
    pub(crate) fn above(&self, slot: Slot) -> Option<Slot> {
        self.parent(slot).filter(|parent| *parent != Slot::RUNTIME)
    }

    /// Parent, grandparent and so on; PID 0 is not among them.
    pub(crate) fn ancestors(&self, slot: Slot) -> impl Iterator<Item = Slot> {
        std::iter::successors(self.above(slot), |slot| self.above(*slot))
    }

    /// In the order in which they came.
    pub(crate) fn children(&self, slot: Slot) -> impl Iterator<Item = Slot> {
        std::iter::successors(self[slot].links.first_child.some(), |slot| self[*slot].links.next.some())
    }

    /// The root and everything below it, parents before their children.
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

/// What a free slot holds, and slot 0.
fn vacant() -> Entry {
    let machine = Machine::new(Incarnation { pid: Pid::RUNTIME, generation: Generation(0) }, Stopwatch::default());
    let now = Moment { at: Timestamp::UNIX_EPOCH, up_ms: 0 };
    let spec = Spec::new(Pid::RUNTIME, Uuid::nil(), Pid::RUNTIME, now);
    Entry::new(Facts::new(spec, None), machine, 0)
}
