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

/// All open directories, the one used last first.
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

    fn close(self) {
        // Without its cache the next snapshot reads every file once.
        let _ = lock(&self.shared).save_cache();
    }
}

impl OpenDirectories {
    /// Takes a directory out of the list, unless other rules hold now and nobody uses it.
    fn take(&mut self, path: &Path, rules: u64) -> Option<OpenDirectory> {
        let at = self.0.iter().position(|known| known.path == path)?;
        let found = self.0.remove(at)?;
        if found.rules == rules || found.is_used() {
            return Some(found);
        }
        found.close();
        None
    }

    fn close_unused(&mut self) {
        while self.0.len() > OPEN_MAX
            && let Some(at) = self.0.iter().rposition(|known| !known.is_used())
            && let Some(unused) = self.0.remove(at)
        {
            unused.close();
        }
    }
}

impl Workspaces {
    /// Opens a directory, with its stat cache if it was open before.
    pub(crate) fn directory(&self, path: &Path) -> Result<SharedDirectory> {
        let store = self.store()?;
        let key = path.canonicalize().map_err(|error| errors::no_directory(path, &error))?;
        let (settings, rules) = {
            let rules = self.0.rules.read().unwrap_or_else(PoisonError::into_inner);
            (rules.settings.clone(), rules.number)
        };
        let mut open = lock(&self.0.open);
        let found = match open.take(&key, rules) {
            Some(found) => found,
            None => {
                let shared = Arc::new(Mutex::new(Workspace::open(&store, path, settings)?));
                OpenDirectory { path: key, shared, rules, used_at: Instant::now() }
            }
        };
        let shared = Arc::clone(&found.shared);
        open.0.push_front(OpenDirectory { used_at: Instant::now(), ..found });
        open.close_unused();
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
        let mut open = lock(&self.0.open);
        while let Some(at) = open.0.iter().position(|known| known.is_idle(after))
            && let Some(idle) = open.0.remove(at)
        {
            idle.close();
        }
    }

    /// Keeps the stat caches for the next daemon.
    pub(crate) fn save_caches(&self) {
        for known in &lock(&self.0.open).0 {
            if let Ok(directory) = known.shared.try_lock() {
                let _ = directory.save_cache();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use relive_journal::Pool;

    use super::*;
    use crate::clock::Clock;
    use crate::workspaces::Options;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a test's own files")]
    fn a_directory_that_is_in_use_has_one_handle() {
        let root = tempfile::tempdir().unwrap();
        let config = relive_config::Workspace::default();
        let workspaces = Workspaces::new(Options {
            store: root.path().join("snapshots"),
            own: root.path().join("own"),
            private: Vec::new(),
            config: config.clone(),
            hidden: Vec::new(),
            home: None,
            free_floor_bytes: 0,
            pool: Pool::new("test", 1, 8),
            clock: Clock::new().unwrap(),
        });
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
