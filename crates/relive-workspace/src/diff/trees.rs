//! Reads trees of the store.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use crate::error::Result;
use crate::object::{EntryKind, ObjectId};
use crate::path::FilePath;
use crate::store::Store;

/// A cache of trees.
#[derive(Debug)]
pub(super) struct Trees<'a> {
    store: &'a Store,
    read: HashMap<ObjectId, Arc<Tree>>,
}

type Tree = BTreeMap<Box<[u8]>, (EntryKind, ObjectId)>;

impl<'a> Trees<'a> {
    pub(super) fn new(store: &'a Store) -> Self {
        Self { store, read: HashMap::new() }
    }

    fn tree(&mut self, id: ObjectId) -> Result<Arc<Tree>> {
        if let Some(known) = self.read.get(&id) {
            return Ok(known.clone());
        }
        let entries = self.store.tree(id)?.into_iter();
        let tree: Arc<Tree> = Arc::new(entries.map(|entry| (entry.name, (entry.kind, entry.id))).collect());
        self.read.insert(id, tree.clone());
        Ok(tree)
    }

    /// Returns the entry of a path; the root is not an entry.
    pub(super) fn find(&mut self, root: ObjectId, path: &FilePath) -> Result<Option<(EntryKind, ObjectId)>> {
        let mut found = (EntryKind::Directory, root);
        for name in path.as_bytes().split(|&byte| byte == b'/') {
            if found.0 != EntryKind::Directory {
                return Ok(None);
            }
            match self.tree(found.1)?.get(name) {
                Some(entry) => found = *entry,
                None => return Ok(None),
            }
        }
        Ok(Some(found))
    }

    /// Adds every path below a tree.
    pub(super) fn all(&mut self, root: ObjectId, paths: &mut BTreeSet<FilePath>) -> Result<()> {
        let mut open = vec![(FilePath::root(), root)];
        while let Some((path, id)) = open.pop() {
            for (name, (kind, id)) in &*self.tree(id)? {
                let path = path.join(name);
                if *kind == EntryKind::Directory {
                    open.push((path.clone(), *id));
                }
                paths.insert(path);
            }
        }
        Ok(())
    }
}

/// Adds every path at which two trees differ. Equal subtrees are not read.
pub(super) fn differing(
    trees: &mut Trees<'_>,
    one: ObjectId,
    two: ObjectId,
    paths: &mut BTreeSet<FilePath>,
) -> Result<()> {
    let mut open = vec![(FilePath::root(), one, two)];
    while let Some((directory, one, two)) = open.pop() {
        if one == two {
            continue;
        }
        let (one, two) = (trees.tree(one)?, trees.tree(two)?);
        let names: BTreeSet<&[u8]> = one.keys().chain(two.keys()).map(|name| &**name).collect();
        for name in names {
            let path = directory.join(name);
            let pair = [one.get(name).copied(), two.get(name).copied()];
            match pair {
                [Some(one), Some(two)] if one == two => continue,
                [Some((EntryKind::Directory, one)), Some((EntryKind::Directory, two))] => {
                    open.push((path, one, two));
                    continue;
                }
                _ => {}
            }
            for (_, id) in pair.into_iter().flatten().filter(|(kind, _)| *kind == EntryKind::Directory) {
                let mut below = BTreeSet::new();
                trees.all(id, &mut below)?;
                paths.extend(below.iter().map(|below| path.join(below.as_bytes())));
            }
            paths.insert(path);
        }
    }
    Ok(())
}
