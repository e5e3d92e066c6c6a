//! The removals of own workspaces that are under way: nobody else removes what is left of a copy meanwhile.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex, PoisonError};

use super::lock;

#[derive(Debug, Default)]
pub(super) struct Removals {
    under_way: Mutex<HashSet<PathBuf>>,
    ended: Condvar,
}

/// One removal; it ends when this is dropped.
#[derive(Debug)]
pub(super) struct Removal<'a> {
    all: &'a Removals,
    path: PathBuf,
}

impl Removals {
    /// Begins a removal when no other one of the same path is under way. The others do not matter: one may take minutes.
    pub(super) fn begin(&self, path: &Path) -> Removal<'_> {
        let mut under_way = lock(&self.under_way);
        while !under_way.insert(path.to_owned()) {
            under_way = self.ended.wait(under_way).unwrap_or_else(PoisonError::into_inner);
        }
        Removal { all: self, path: path.to_owned() }
    }

    /// Begins a removal unless one of the same path is under way.
    pub(super) fn try_begin(&self, path: &Path) -> Option<Removal<'_>> {
        lock(&self.under_way).insert(path.to_owned()).then(|| Removal { all: self, path: path.to_owned() })
    }
}

impl Drop for Removal<'_> {
    fn drop(&mut self) {
        lock(&self.all.under_way).remove(&self.path);
        self.all.ended.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_removal_waits_for_one_of_the_same_path_only() {
        let removals = Removals::default();
        let (one, other) = (Path::new("/one"), Path::new("/other"));
        let first = removals.begin(one);
        assert!(removals.try_begin(one).is_none());
        drop(removals.begin(other));
        std::thread::scope(|scope| {
            let second = scope.spawn(|| drop(removals.begin(one)));
            drop(first);
            second.join().unwrap();
        });
        assert!(removals.try_begin(one).is_some());
    }
}
