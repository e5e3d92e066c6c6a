//! The connection to the keeper with a copy of the environments, and its replacement when the keeper is gone.

use std::io;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use relive_keeper::{Error, Keeper, Key};

use super::Environments;

/// The shortest time between two starts of a keeper.
const START_AGAIN: Duration = Duration::from_secs(1);
/// The thread that waits for the end of a keeper needs no more.
const STACK_BYTES: usize = 128 << 10;

/// The connection to the keeper.
#[derive(Debug, Default)]
pub(super) struct Link {
    keeper: Option<Keeper>,
    /// The number of the keeper, counted by this daemon.
    number: u64,
    /// When one was last started, or should have been.
    started: Option<Instant>,
}

impl Environments {
    fn link(&self) -> MutexGuard<'_, Link> {
        self.link.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Connects to the keeper of an earlier daemon, and takes over its environments.
    pub(super) fn find_keeper(self: &Arc<Self>) {
        if self.program.is_none() {
            return;
        }
        let found = Keeper::find(self.data.root(), self.data.lock_descriptor()).and_then(|found| {
            let Some(mut keeper) = found else { return Ok(None) };
            Ok(Some((keeper.list()?, keeper)))
        });
        match found {
            Ok(None) => {}
            Ok(Some((groups, keeper))) => {
                let mut store = self.store();
                for (keys, value) in groups {
                    // It has the same limits.
                    let _ = store.insert_all(&keys, &value);
                }
                drop(store);
                self.attach(&mut self.link(), keeper);
            }
            Err(error) => self.warnings.warn(format!(
                "{error}; a process whose environment is lost waits as needs_credentials when it needs a key"
            )),
        }
    }

    pub(super) fn tell_put(self: &Arc<Self>, key: Key, value: &[u8]) {
        let mut link = self.link();
        let told = link.keeper.as_mut().map(|keeper| keeper.put(&[key], value));
        match told {
            Some(Ok(())) => {}
            Some(Err(Error::Refused(refusal))) => self.warn_of(&Error::Refused(refusal)),
            Some(Err(Error::Io(_))) | None => self.replace(&mut link),
        }
    }

    pub(super) fn tell_removed(&self, keys: &[Key]) {
        let mut link = self.link();
        if let Some(keeper) = &mut link.keeper
            && let Err(error) = keeper.remove(keys)
        {
            // If it is gone, the thread that waits for its end starts another one, which gets exactly the stored
            // environments.
            self.warn_of(&error);
        }
    }

    fn warn_of(&self, error: &Error) {
        self.warnings
            .warn_once(format!("{error}; environments that it does not have are lost if the daemon is killed"));
    }

    /// Starts another keeper and sends it everything, unless that was just tried.
    fn replace(self: &Arc<Self>, link: &mut Link) {
        if let Some(gone) = link.keeper.take() {
            gone.end();
            tracing::warn!("the keeper of environments is gone");
        }
        let Some(program) = &self.program else { return };
        if link.started.is_some_and(|started| started.elapsed() < START_AGAIN) {
            return;
        }
        let groups = self.store().groups();
        if groups.is_empty() {
            return;
        }
        link.started = Some(Instant::now());
        let started = Keeper::start(program, self.data.root(), self.data.lock_descriptor()).and_then(|mut keeper| {
            for (value, keys) in &groups {
                keeper.put(keys, value)?;
            }
            Ok(keeper)
        });
        match started {
            Ok(keeper) => self.attach(link, keeper),
            Err(error) => self.warn_of(&error),
        }
    }

    /// Uses a keeper, and waits for its end in a thread.
    fn attach(self: &Arc<Self>, link: &mut Link, keeper: Keeper) {
        link.number += 1;
        let (number, environments) = (link.number, Arc::downgrade(self));
        let watched = keeper.hang_up().and_then(|hang_up| {
            let watch = move || {
                hang_up.wait();
                if let Some(environments) = environments.upgrade() {
                    environments.keeper_is_gone(number);
                }
            };
            std::thread::Builder::new().name("relive-keeper".to_owned()).stack_size(STACK_BYTES).spawn(watch)
        });
        if let Err(error) = watched {
            self.warn_of(&Error::Io(io::Error::other(format!("its end cannot be watched for: {error}"))));
        }
        tracing::debug!("the keeper of environments has the OS pid {:?}", keeper.os_pid());
        link.keeper = Some(keeper);
    }

    fn keeper_is_gone(self: &Arc<Self>, number: u64) {
        let started = self.link().started;
        // A keeper that cannot run is not restarted in a loop.
        let wait = started.map_or(Duration::ZERO, |started| START_AGAIN.saturating_sub(started.elapsed()));
        std::thread::sleep(wait);
        let mut link = self.link();
        if link.number == number {
            self.replace(&mut link);
        }
    }
}
