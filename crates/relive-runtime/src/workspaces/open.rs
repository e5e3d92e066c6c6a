//! The directories that are open, with their stat caches.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use relive_workspace::Workspace;

use super::{Workspaces, errors, lock};
use crate::error::Result;

/// How many directories are kept open. Those that are in use count too, and are never closed: a second handle to such a
/// directory would look at its files while the first one changes them.
const OPEN_MAX: usize = 32;

pub(super) type SharedDirectory = Arc<Mutex<Workspace>>;

/// All open directories, the one used last first. Its lock is never held while a file is touched: a file system that does not
/// answer would block everybody who uses another one.
#[derive(Debug, Default)]
pub(super) struct OpenDirectories(VecDeque<OpenDirectory>);

#[derive(Debug)]
struct OpenDirectory {
    path: PathBuf,
    shared: SharedDirectory,
    /// The number of the rules that it was opened with.
    rules: u64,
    used_at: Instant,
}

impl OpenDirectory {
    /// Tells whether somebody uses it. Nobody gets it without the lock of the list.
    fn is_used(&self) -> bool {
        Arc::strong_count(&self.shared) > 1
    }

    fn is_idle(&self, after: Duration) -> bool {
        !self.is_used() && self.used_at.elapsed() >= after
    }
}

/// A directory as the list has it.
enum Found {
    Open(SharedDirectory),
    /// Other rules hold now, and nobody uses it.
    Outdated(OpenDirectory),
    None,
}

impl OpenDirectories {
    /// Returns a directory that is open. One that nobody uses, and that was opened with other rules, is taken out.
    fn find(&mut self, path: &Path, rules: u64) -> Found {
        let at = self.0.iter().position(|known| known.path == path);
        let Some(found) = at.and_then(|at| self.0.remove(at)) else { return Found::None };
        if found.rules != rules && !found.is_used() {
            return Found::Outdated(found);
        }
        let shared = Arc::clone(&found.shared);
        self.0.push_front(OpenDirectory { used_at: Instant::now(), ..found });
        Found::Open(shared)
    }

    /// Takes out the directories that are too many and that nobody uses.
    fn take_unused(&mut self) -> Vec<OpenDirectory> {
        let mut closed = Vec::new();
        while self.0.len() > OPEN_MAX
            && let Some(at) = self.0.iter().rposition(|known| !known.is_used())
        {
            closed.extend(self.0.remove(at));
        }
        closed
    }

    /// Takes out the directories that nobody has used for some time.
    fn take_idle(&mut self, after: Duration) -> Vec<OpenDirectory> {
        let mut idle = Vec::new();
        while let Some(at) = self.0.iter().position(|known| known.is_idle(after)) {
            idle.extend(self.0.remove(at));
        }
        idle
    }
}

impl Workspaces {
    /// Opens a directory, with its stat cache if it was open before.
    pub(crate) fn directory(&self, path: &Path) -> Result<SharedDirectory> {
        let store = self.store()?;
        self.check_made(path)?;
        let key = path.canonicalize().map_err(|error| errors::no_directory(path, &error))?;
        let (settings, rules) = {
            let rules = self.0.rules.read().unwrap_or_else(PoisonError::into_inner);
            (rules.settings.clone(), rules.number)
        };
        let opening = self.0.opening.lock(&key);
        let found = lock(&self.0.open).find(&key, rules);
        match found {
            Found::Open(shared) => return Ok(shared),
            Found::Outdated(found) => save(&found.shared),
            Found::None => {}
        }
        let shared = Arc::new(Mutex::new(Workspace::open(&store, path, settings)?));
        let opened = OpenDirectory { path: key, shared: Arc::clone(&shared), rules, used_at: Instant::now() };
        let unused = {
            let mut open = lock(&self.0.open);
            open.0.push_front(opened);
            open.take_unused()
        };
        // Not with this one locked: somebody who opens one of those may be closing this one.
        drop(opening);
        self.close_all(unused);
        Ok(shared)
    }

    /// Forgets a directory that is to be removed.
    pub(crate) fn close(&self, path: &Path) {
        lock(&self.0.open).0.retain(|known| known.path != path);
    }

    /// Tells whether there are directories that nobody has used for some time.
    pub(crate) fn has_idle(&self, after: Duration) -> bool {
        lock(&self.0.open).0.iter().any(|known| known.is_idle(after))
    }

    /// Closes the directories that nobody has used for some time: a file system cannot be unmounted while one of its
    /// directories is open.
    pub(crate) fn close_idle(&self, after: Duration) {
        let idle = lock(&self.0.open).take_idle(after);
        self.close_all(idle);
    }

    /// Closes directories that were taken out of the list.
    fn close_all(&self, closed: Vec<OpenDirectory>) {
        for directory in closed {
            let _alone = self.0.opening.lock(&directory.path);
            // One that was opened again has a cache of its own.
            let is_open = lock(&self.0.open).0.iter().any(|known| known.path == directory.path);
            if !is_open {
                save(&directory.shared);
            }
        }
    }

    /// Keeps the stat caches for the next daemon.
    pub(crate) fn save_caches(&self) {
        let open: Vec<SharedDirectory> = lock(&self.0.open).0.iter().map(|known| Arc::clone(&known.shared)).collect();
        for shared in open {
            if let Ok(directory) = shared.try_lock() {
                let _ = directory.save_cache();
            }
        }
    }
}

/// Keeps the stat cache of a directory that nobody uses any more.
fn save(unused: &SharedDirectory) {
    // Without its cache the next snapshot reads every file once.
    let _ = lock(unused).save_cache();
}

#[cfg(test)]
mod tests {
    use relive_journal::Pool;

    use super::*;
    use crate::clock::Clock;
    use crate::workspaces::Options;

    fn workspaces(root: &Path, config: relive_config::Workspace) -> Workspaces {
        Workspaces::new(Options {
            store: root.join("snapshots"),
            own: root.join("own"),
            private: Vec::new(),
            config,
            hidden: Vec::new(),
            home: None,
            free_floor_bytes: 0,
            pool: Pool::new("test", 1, 8),
            clock: Clock::new().unwrap(),
        })
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a test's own files")]
    fn a_directory_that_many_open_at_once_has_one_handle() {
        const THREADS: usize = 8;
        let root = tempfile::tempdir().unwrap();
        let workspaces = workspaces(root.path(), relive_config::Workspace::default());
        for number in 0..50 {
            let path = root.path().join(format!("work{number}"));
            std::fs::create_dir(&path).unwrap();
            let all = std::sync::Barrier::new(THREADS);
            let open = || {
                all.wait();
                workspaces.directory(&path).unwrap()
            };
            let opened: Vec<SharedDirectory> = std::thread::scope(|scope| {
                let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(open)).collect();
                threads.into_iter().map(|thread| thread.join().unwrap()).collect()
            });
            assert!(opened.iter().all(|one| Arc::ptr_eq(one, &opened[0])));
        }
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a test's own files")]
    fn a_directory_that_is_being_opened_holds_up_no_other_one() {
        let root = tempfile::tempdir().unwrap();
        let workspaces = workspaces(root.path(), relive_config::Workspace::default());
        let directory = |name: &str| {
            let path = root.path().canonicalize().unwrap().join(name);
            std::fs::create_dir_all(&path).unwrap();
            path
        };
        let (slow, other) = (directory("slow"), directory("other"));
        // As if its file system did not answer.
        let opening = workspaces.0.opening.lock(&slow);
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| workspaces.directory(&slow).map(drop));
            workspaces.directory(&other).unwrap();
            assert!(workspaces.has_idle(Duration::ZERO));
            workspaces.close_idle(Duration::ZERO);
            drop(opening);
            waiting.join().unwrap().unwrap();
        });
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a test's own files")]
    fn a_directory_that_is_in_use_has_one_handle() {
        let root = tempfile::tempdir().unwrap();
        let config = relive_config::Workspace::default();
        let workspaces = workspaces(root.path(), config.clone());
        let directory = |name: &str| {
            let path = root.path().join(name);
            std::fs::create_dir_all(&path).unwrap();
            workspaces.directory(&path).unwrap()
        };
        let others = || (0..2 * OPEN_MAX).for_each(|number| drop(directory(&number.to_string())));
        let used = directory("used");
        // Somebody works on its files.
        let changing = lock(&used);
        others();
        workspaces.configure(relive_config::Workspace { max_files: 7, ..config }, Vec::new());
        others();
        assert!(Arc::ptr_eq(&used, &directory("used")));
        assert_eq!(lock(&workspaces.0.open).0.len(), OPEN_MAX);
        assert!(!workspaces.has_idle(Duration::from_secs(3600)) && workspaces.has_idle(Duration::ZERO));
        workspaces.close_idle(Duration::from_secs(3600));
        assert_eq!(lock(&workspaces.0.open).0.len(), OPEN_MAX);
        workspaces.close_idle(Duration::ZERO);
        assert_eq!(lock(&workspaces.0.open).0.len(), 1, "only the one that is in use stays open");
        drop(changing);
        let before = Arc::downgrade(&used);
        drop(used);
        let after = directory("used");
        assert!(before.upgrade().is_none_or(|before| !Arc::ptr_eq(&before, &after)), "the new rules hold");
    }
}
