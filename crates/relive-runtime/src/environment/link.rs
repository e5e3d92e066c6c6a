//! The connection to the keeper with a copy of the environments, and its replacement when the keeper is gone.

use std::io;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use relive_core::Uuid;
use relive_keeper::{Error, Keeper, Key};

use super::Environments;

/// The shortest time between two starts of a keeper.
const START_AGAIN: Duration = Duration::from_secs(1);
/// How often a keeper that is stopped is looked for.
const LOOK_AGAIN: Duration = Duration::from_millis(500);
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
    /// Whether that of an earlier daemon is there and does not run. Another one would take its place, and with that what
    /// it keeps.
    is_stopped: bool,
}

/// What became of the keys of a keeper.
#[derive(Debug, PartialEq, Eq)]
struct TakenOver {
    /// Those that nothing was kept for here.
    taken: Vec<Key>,
    /// Those of processes that are gone.
    unknown: Vec<Key>,
}

impl Environments {
    pub(super) fn link(&self) -> MutexGuard<'_, Link> {
        self.link.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Connects to the keeper of an earlier daemon, and takes over its environments.
    pub(super) fn find_keeper(self: &Arc<Self>) {
        if self.program.is_none() {
            return;
        }
        match self.find_with_groups() {
            Ok(None) => {}
            Ok(Some((groups, keeper))) => {
                let mut link = self.link();
                let TakenOver { unknown, .. } = self.take_over(groups);
                self.attach(&mut link, keeper);
                self.tell_removed(&mut link, &unknown);
            }
            Err(Error::Stopped { os_pid }) => {
                self.warnings.warn(format!(
                    "the keeper of environments is stopped (OS process {os_pid}); a process that needs a key waits as \
                     needs_credentials and continues when the keeper does: kill -CONT {os_pid}"
                ));
                self.link().is_stopped = true;
                self.wait_for_stopped();
            }
            Err(error) => self.warnings.warn(format!(
                "{error}; a process whose environment is lost waits as needs_credentials when it needs a key"
            )),
        }
    }

    /// Finds the keeper of an earlier daemon, with what it keeps.
    fn find_with_groups(&self) -> Result<Option<(Vec<relive_keeper::Group>, Keeper)>, Error> {
        let found = Keeper::find(self.data.root(), self.data.lock_descriptor())?;
        found.map(|mut keeper| Ok((keeper.list()?, keeper))).transpose()
    }

    /// Adds what a keeper kept for an earlier daemon.
    fn take_over(&self, groups: Vec<relive_keeper::Group>) -> TakenOver {
        let (mut taken, mut unknown) = (Vec::new(), Vec::new());
        for (keys, value) in groups {
            // Of some the processes were removed while it could not be told.
            let (gone, keys): (Vec<Key>, Vec<Key>) = keys.into_iter().partition(|key| self.is_unknown(*key));
            unknown.extend(gone);
            let mut store = self.store();
            // What was kept since counts.
            let keys: Vec<Key> = keys.into_iter().filter(|key| store.get(*key).is_none()).collect();
            // It has the same limits.
            if store.insert_all(&keys, &value).is_ok() {
                taken.extend(keys);
            }
        }
        // Those of processes that are just being created have no directory yet.
        let store = self.store();
        unknown.retain(|key| store.get(*key).is_none());
        TakenOver { taken, unknown }
    }

    /// Looks for a keeper that is stopped in a thread, until it runs again or is gone.
    fn wait_for_stopped(self: &Arc<Self>) {
        let environments = Arc::downgrade(self);
        let look = move || {
            while let Some(environments) = environments.upgrade() {
                if environments.is_back() {
                    return;
                }
                drop(environments);
                std::thread::sleep(LOOK_AGAIN);
            }
        };
        let started = std::thread::Builder::new().name("relive-keeper".to_owned()).stack_size(STACK_BYTES).spawn(look);
        if let Err(error) = started {
            self.link().is_stopped = false;
            self.warn_of(&Error::Io(io::Error::other(format!("its return cannot be waited for: {error}"))));
        }
    }

    /// Takes over from a keeper that was stopped, if it runs again; `false` if it does not.
    fn is_back(self: &Arc<Self>) -> bool {
        let found = self.find_with_groups();
        let mut link = self.link();
        match found {
            Err(Error::Stopped { .. }) => return false,
            Ok(Some((groups, mut keeper))) => {
                // What was kept here since it was stopped.
                for (value, keys) in self.store().groups() {
                    if let Err(error) = keeper.put(&keys, &value) {
                        self.warn_of(&error);
                    }
                }
                let TakenOver { taken, unknown } = self.take_over(groups);
                tracing::info!("the keeper of environments runs again, with {} environments", taken.len());
                self.attach(&mut link, keeper);
                self.tell_removed(&mut link, &unknown);
                self.returned.send_replace(taken.into_iter().map(Uuid::from_u128).collect());
            }
            Ok(None) => {}
            Err(error) => self.warn_of(&error),
        }
        link.is_stopped = false;
        if link.keeper.is_none() {
            self.replace(&mut link);
        }
        true
    }

    pub(super) fn tell_put(self: &Arc<Self>, link: &mut Link, key: Key, value: &[u8]) {
        let told = link.keeper.as_mut().map(|keeper| keeper.put(&[key], value));
        match told {
            Some(Ok(())) => {}
            Some(Err(Error::Refused(refusal))) => self.warn_of(&Error::Refused(refusal)),
            Some(Err(Error::Io(_) | Error::Stopped { .. })) | None => self.replace(link),
        }
    }

    pub(super) fn tell_removed(&self, link: &mut Link, keys: &[Key]) {
        if let Some(keeper) = link.keeper.as_mut().filter(|_| !keys.is_empty())
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
        let Some(program) = self.program.as_ref().filter(|_| !link.is_stopped) else { return };
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

#[cfg(test)]
mod tests {
    use super::super::tests::{environment, place};
    use super::*;

    #[test]
    fn a_keeper_gives_back_nothing_of_processes_that_were_removed() {
        let (_directory, environments) = place();
        let (here, newer, removed) = (Uuid::from_u128(1), Uuid::from_u128(2), Uuid::from_u128(3));
        let disk = relive_journal::Disk::new();
        for uuid in [here, newer] {
            disk.mkdir(environments.data.directory(uuid).path()).unwrap();
        }
        environments.put(newer, &environment("KEY", "newer")).unwrap();
        let value = serde_json::to_vec(&environment("KEY", "old")).unwrap();
        let keys = [here, newer, removed].map(|uuid| uuid.as_u128());
        let expect = TakenOver { taken: vec![here.as_u128()], unknown: vec![removed.as_u128()] };
        assert_eq!(environments.take_over(vec![(keys.to_vec(), value)]), expect);
        assert_eq!(environments.of(here), environment("KEY", "old"));
        assert_eq!(environments.of(newer), environment("KEY", "newer"));
        assert!(environments.of(removed).is_empty());
    }
}
