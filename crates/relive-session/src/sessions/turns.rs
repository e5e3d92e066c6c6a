//! One at a time: launching a session, and concluding that it never ran.
//!
//! A session that never ran may be launched again under the same name, and what a lost launch left of it is removed. Both
//! begin with a look at its directory. Without turns the second could remove what the first has just launched: its cgroup is
//! the same. A launch continues when its caller has given up, and keeps its turn until its shim has the lock of the
//! session.
//!
//! Turns are within one process: a data directory has one owner at a time, and a launch ends with its owner.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::OwnedMutexGuard;
use tokio::time::timeout;

/// How many sessions may be remembered before those that nobody uses are forgotten.
const REMEMBERED: usize = 64;
/// How long a turn may take to come: more than twice what it takes to end a session whose shim does not answer.
const TURN_PATIENCE: Duration = Duration::from_secs(120);

/// The turns of all sessions that somebody uses now.
#[derive(Debug, Default)]
pub(super) struct Turns {
    by_path: Mutex<HashMap<PathBuf, Weak<tokio::sync::Mutex<()>>>>,
}

/// Ends when the last copy is dropped. Work that continues when its caller is gone has one.
#[derive(Debug, Clone)]
pub(super) struct Turn {
    _guard: Arc<OwnedMutexGuard<()>>,
}

impl Turns {
    fn by_path(&self) -> MutexGuard<'_, HashMap<PathBuf, Weak<tokio::sync::Mutex<()>>>> {
        self.by_path.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for its turn with the session in this directory. Fails with `TimedOut` if it does not come.
    pub(super) async fn of(&self, path: &Path) -> io::Result<Turn> {
        timeout(TURN_PATIENCE, self.of_any_time(path)).await.map_err(|_| {
            let (path, waited) = (path.display(), TURN_PATIENCE.as_secs());
            io::Error::new(io::ErrorKind::TimedOut, format!("{path} is still being launched or ended after {waited} s"))
        })
    }

    /// Waits for its turn however long it takes.
    async fn of_any_time(&self, path: &Path) -> Turn {
        let turn = {
            let mut by_path = self.by_path();
            let used = by_path.get(path).and_then(Weak::upgrade);
            used.unwrap_or_else(|| {
                if by_path.len() >= REMEMBERED {
                    by_path.retain(|_, turn| turn.strong_count() > 0);
                }
                let turn = Arc::default();
                by_path.insert(path.to_owned(), Arc::downgrade(&turn));
                turn
            })
        };
        Turn { _guard: Arc::new(turn.lock_owned().await) }
    }

    /// Waits until nothing is under way that began before, with any session in this directory of sessions.
    pub(super) async fn pass_in(&self, sessions: &Path) {
        let is_used = |(path, turn): (&PathBuf, &Weak<_>)| {
            (turn.strong_count() > 0 && path.parent() == Some(sessions)).then(|| path.clone())
        };
        let used: Vec<PathBuf> = self.by_path().iter().filter_map(is_used).collect();
        for path in used {
            drop(self.of_any_time(&path).await);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns whether a turn comes at once.
    async fn is_free(turn: impl Future) -> bool {
        tokio::select! {
            biased;
            _ = turn => true,
            () = std::future::ready(()) => false,
        }
    }

    #[tokio::test]
    async fn a_session_has_one_turn_at_a_time_and_others_have_their_own() {
        let turns = Turns::default();
        let first = turns.of(Path::new("/s/1")).await.unwrap();
        assert!(!is_free(turns.of(Path::new("/s/1"))).await);
        assert!(is_free(turns.of(Path::new("/s/2"))).await);
        assert!(!is_free(turns.pass_in(Path::new("/s"))).await);
        assert!(is_free(turns.pass_in(Path::new("/t"))).await);
        drop(first);
        assert!(is_free(turns.pass_in(Path::new("/s"))).await);
        assert!(is_free(turns.of(Path::new("/s/1"))).await);
    }

    #[tokio::test]
    async fn sessions_that_nobody_uses_are_forgotten() {
        let turns = Turns::default();
        let _used = turns.of(Path::new("/s/used")).await.unwrap();
        for number in 0..1000 {
            drop(turns.of(&Path::new("/s").join(number.to_string())).await.unwrap());
        }
        assert!(turns.by_path().len() <= REMEMBERED);
        assert!(!is_free(turns.of(Path::new("/s/used"))).await);
    }
}
