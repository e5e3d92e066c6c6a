//! Locks by path, for work on files that may take minutes: work on other paths does not wait for it.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex, PoisonError};

use super::lock;

#[derive(Debug, Default)]
pub(super) struct PathLocks {
    locked: Mutex<HashSet<PathBuf>>,
    unlocked: Condvar,
}

/// One locked path. It is unlocked when this is dropped.
#[derive(Debug)]
pub(super) struct PathLock<'a> {
    all: &'a PathLocks,
    path: PathBuf,
}

impl PathLocks {
    /// Locks a path, once nobody else has locked it.
    pub(super) fn lock(&self, path: &Path) -> PathLock<'_> {
        let mut locked = lock(&self.locked);
        while !locked.insert(path.to_owned()) {
            locked = self.unlocked.wait(locked).unwrap_or_else(PoisonError::into_inner);
        }
        PathLock { all: self, path: path.to_owned() }
    }

    /// Locks a path, unless somebody else has locked it.
    pub(super) fn try_lock(&self, path: &Path) -> Option<PathLock<'_>> {
        lock(&self.locked).insert(path.to_owned()).then(|| PathLock { all: self, path: path.to_owned() })
    }
}

impl Drop for PathLock<'_> {
    fn drop(&mut self) {
        lock(&self.all.locked).remove(&self.path);
        self.all.unlocked.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_waits_for_no_other_one() {
        let locks = PathLocks::default();
        let (one, other) = (Path::new("/one"), Path::new("/other"));
        let first = locks.lock(one);
        assert!(locks.try_lock(one).is_none());
        drop(locks.lock(other));
        std::thread::scope(|scope| {
            let second = scope.spawn(|| drop(locks.lock(one)));
            drop(first);
            second.join().unwrap();
        });
        assert!(locks.try_lock(one).is_some());
    }
}
