//! Limits on spawning agents: the depth, the children of one agent, and the descendants of an agent that a person
//! started.
//!
//! A tree is counted by descent, not by the parents in the table: a child whose parent has ended is a child of PID 0
//! there, and would start a tree of its own. A place is taken before the child is created, so that parents that spawn
//! at the same moment cannot exceed the limit together.

use std::collections::HashMap;

use relive_core::Uuid;
use relive_journal::record::Spawned;

use crate::error::{Advice, Error, Result};

#[derive(Debug, Clone, Copy)]
pub(crate) struct TreeLimits {
    pub(crate) depth_max: u32,
    pub(crate) children_max: usize,
    pub(crate) tree_max: usize,
}

/// The place of a spawned agent in its tree.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TreePlace {
    uuid: Uuid,
    parent: Uuid,
    root: Uuid,
    depth: u32,
}

impl TreePlace {
    /// Returns `None` for an agent that a person started.
    pub(crate) fn of(spawned: &Spawned) -> Option<Self> {
        let parent = spawned.parent_uuid?;
        Some(Self { uuid: spawned.uuid, parent, root: spawned.root_uuid.unwrap_or(parent), depth: spawned.depth })
    }
}

/// The command that raises a limit of trees.
const EDIT: &str = "relive config edit";

/// The living agents that were spawned by another one.
#[derive(Debug, Default)]
pub(crate) struct Trees {
    /// By root, each with its parent.
    members: HashMap<Uuid, HashMap<Uuid, Uuid>>,
    roots: HashMap<Uuid, Uuid>,
}

impl Trees {
    /// Takes a place for a child that is about to be created. A child that has a place keeps it.
    pub(crate) fn take(&mut self, child: TreePlace, limits: TreeLimits) -> Result<()> {
        let tree = self.members.get(&child.root);
        if tree.is_some_and(|tree| tree.contains_key(&child.uuid)) {
            return Ok(());
        }
        let living = tree.map_or(0, HashMap::len);
        let siblings = tree.map_or(0, |tree| tree.values().filter(|parent| **parent == child.parent).count());
        if child.depth > limits.depth_max {
            let (depth, max) = (child.depth, limits.depth_max);
            let why = format!("it would be {depth} levels deep, and limits.max_depth is {max}");
            let hint = EDIT.to_owned();
            return Err(Error::NoPlace { why, advice: Advice::Alone, hint });
        }
        let refused = if siblings >= limits.children_max {
            Some((format!("there are {siblings} living children"), limits.children_max, "max_children"))
        } else if living >= limits.tree_max {
            Some((format!("the tree has {living} living processes"), limits.tree_max, "max_tree"))
        } else {
            None
        };
        if let Some((what, limit, key)) = refused {
            let why = format!("{what}, and limits.{key} is {limit}");
            let hint = EDIT.to_owned();
            return Err(Error::NoPlace { why, advice: Advice::AloneOrWait, hint });
        }
        self.join(child);
        Ok(())
    }

    /// Adds an existing agent, whatever the limits are.
    pub(crate) fn join(&mut self, child: TreePlace) {
        self.members.entry(child.root).or_default().insert(child.uuid, child.parent);
        self.roots.insert(child.uuid, child.root);
    }

    /// Returns the living agents of a tree, each with its parent.
    pub(crate) fn members(&self, root: Uuid) -> impl Iterator<Item = (Uuid, Uuid)> {
        self.members.get(&root).into_iter().flatten().map(|(uuid, parent)| (*uuid, *parent))
    }

    /// Removes an agent that has ended, or was not created.
    pub(crate) fn leave(&mut self, uuid: Uuid) {
        let Some(root) = self.roots.remove(&uuid) else { return };
        if let Some(tree) = self.members.get_mut(&root) {
            tree.remove(&uuid);
            if tree.is_empty() {
                self.members.remove(&root);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(uuid: u128, parent: u128, depth: u32) -> TreePlace {
        TreePlace { uuid: Uuid::from_u128(uuid), parent: Uuid::from_u128(parent), root: Uuid::from_u128(1), depth }
    }

    #[test]
    fn each_limit_is_named_in_its_refusal_and_an_end_frees_a_place() {
        let limits = TreeLimits { depth_max: 2, children_max: 2, tree_max: 3 };
        let mut trees = Trees::default();
        let mut check = |child: TreePlace, refused: Option<&str>| {
            let answer = trees.take(child, limits).map_err(|error| error.to_string());
            assert_eq!(answer.is_err(), refused.is_some(), "{answer:?}");
            assert!(answer.err().unwrap_or_default().contains(refused.unwrap_or_default()));
        };
        check(place(2, 1, 1), None);
        check(place(2, 1, 1), None);
        check(place(9, 8, 3), Some("max_depth is 2"));
        check(place(3, 1, 1), None);
        check(place(4, 1, 1), Some("max_children is 2"));
        check(place(5, 2, 2), None);
        check(place(6, 3, 2), Some("max_tree is 3"));
        trees.leave(Uuid::from_u128(5));
        trees.leave(Uuid::from_u128(5));
        assert!(trees.take(place(6, 3, 2), limits).is_ok());
        for uuid in [2, 3, 6] {
            trees.leave(Uuid::from_u128(uuid));
        }
        assert!(trees.members.is_empty() && trees.roots.is_empty());
    }
}
