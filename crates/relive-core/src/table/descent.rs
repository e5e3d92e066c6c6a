//! Who spawned whom, by UUID, where the tree of the living does not tell.
//!
//! The tree gives the children of an ended process to PID 0. Their descent does not change with that: an ancestor keeps
//! its authority over them when a process between the two has ended, and when the table has forgotten that one. What is
//! known of a forgotten process is kept only while somebody descends from it. A process below its living parent takes no
//! space here.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use crate::ids::Uuid;

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Descent {
    parents: BTreeMap<Uuid, Uuid>,
    /// The same from parent to child.
    children: BTreeSet<(Uuid, Uuid)>,
}

impl Descent {
    /// Notes the parent of a process. The first that is known stays.
    pub(super) fn add(&mut self, uuid: Uuid, parent: Uuid) {
        if let Entry::Vacant(entry) = self.parents.entry(uuid) {
            entry.insert(parent);
            self.children.insert((parent, uuid));
        }
    }

    /// Forgets a process that has left the table, unless somebody descends from it, and then whoever is remembered only
    /// for its sake.
    pub(super) fn remove(&mut self, uuid: Uuid, is_listed: impl Fn(Uuid) -> bool) {
        let mut here = uuid;
        while !is_listed(here) && !self.has_children(here) {
            let Some(parent) = self.parents.remove(&here) else { return };
            self.children.remove(&(parent, here));
            here = parent;
        }
    }

    pub(super) fn has_children(&self, uuid: Uuid) -> bool {
        self.children_of(uuid).next().is_some()
    }

    pub(super) fn parent(&self, uuid: Uuid) -> Option<Uuid> {
        self.parents.get(&uuid).copied()
    }

    pub(super) fn len(&self) -> usize {
        self.parents.len()
    }

    /// Returns the processes that somebody descends from and whose own parent is not known.
    pub(super) fn roots(&self) -> BTreeSet<Uuid> {
        let parents = self.parents.values().copied();
        parents.filter(|parent| !self.parents.contains_key(parent)).collect()
    }

    pub(super) fn children_of(&self, uuid: Uuid) -> impl Iterator<Item = Uuid> {
        self.children.range((uuid, Uuid::nil())..=(uuid, Uuid::max())).map(|(_, child)| *child)
    }
}
