//! The environments of processes.
//!
//! They hold keys, so they are in no file: they are in the memory of the daemon and in that of the keeper, a process of
//! its own that outlives the daemon ([`relive_keeper`]). Neither can be dumped. A power cut takes both, and whoever resumes
//! the process brings another. Whatever runs under a UUID, an agent or a program, has its environment here, until its
//! history is collected.

mod files;
mod link;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use relive_api::Environment;
use relive_core::Uuid;
use relive_journal::DataDirectory;
use relive_keeper::{ENTRIES_MAX, Full, Key, Store, VALUES_MAX_BYTES};

use tokio::sync::watch;

use crate::warnings::Warnings;
use link::Link;

/// Environments that were put last are not given up for others: their processes are just being created.
const YOUNG: usize = 1024;

/// The environments of all processes of a data directory.
#[derive(Debug)]
pub(crate) struct Environments {
    data: Arc<DataDirectory>,
    /// The program that becomes the keeper; without one they end with the daemon.
    program: Option<PathBuf>,
    store: Mutex<Store>,
    /// Held around each change of `store` and of what the keeper has, so that both see the changes in the same order.
    link: Mutex<Link>,
    /// The processes whose environments came back with a keeper that was stopped.
    returned: watch::Sender<Vec<Uuid>>,
    /// Whether they are needed only as long as a process is alive.
    ends: AtomicBool,
    warnings: Warnings,
}

impl Environments {
    pub(crate) fn new(data: Arc<DataDirectory>, program: Option<PathBuf>, warnings: Warnings) -> Self {
        let returned = watch::Sender::default();
        let ends = AtomicBool::new(false);
        Self { data, program, store: Mutex::default(), link: Mutex::default(), returned, ends, warnings }
    }

    /// Tells of processes whose environments come back after the start.
    pub(crate) fn returned(&self) -> watch::Receiver<Vec<Uuid>> {
        self.returned.subscribe()
    }

    fn store(&self) -> MutexGuard<'_, Store> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes over what earlier daemons left: in the keeper, and next to the socket, where there were files once. It
    /// blocks.
    pub(crate) fn recover(self: &Arc<Self>, socket: &Path) {
        self.find_keeper();
        files::move_from(&socket.with_file_name("env"), self);
        self.forget_unknown();
    }

    /// Forgets the environments of processes that a daemon was killed while it created or collected. No process may be
    /// created meanwhile.
    fn forget_unknown(&self) {
        let mut link = self.link();
        let keys = self.store().oldest(0);
        let unknown: Vec<Key> = keys.into_iter().filter(|key| self.is_unknown(*key)).collect();
        if unknown.is_empty() {
            return;
        }
        for key in &unknown {
            self.store().remove(*key);
        }
        self.tell_removed(&mut link, &unknown);
    }

    /// Returns whether there is no process with this environment.
    fn is_unknown(&self, key: Key) -> bool {
        let directory = self.data.directory(Uuid::from_u128(key));
        std::fs::symlink_metadata(directory.path()).is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
    }

    /// Keeps the environment of a process, in place of what was kept. An empty one is none. It blocks.
    pub(crate) fn put(self: &Arc<Self>, uuid: Uuid, environment: &Environment) -> io::Result<()> {
        if environment.is_empty() {
            self.remove(uuid);
            return Ok(());
        }
        self.put_encoded(uuid.as_u128(), &serde_json::to_vec(environment)?)
    }

    fn put_encoded(self: &Arc<Self>, key: Key, value: &[u8]) -> io::Result<()> {
        let mut link = self.link();
        let kept = {
            let mut store = self.store();
            if store.get(key).is_some_and(|kept| **kept == *value) {
                return Ok(());
            }
            store.insert(key, value)
        };
        let kept = match kept {
            Err(Full::NoRoom { .. }) => {
                self.make_room(&mut link);
                self.store().insert(key, value)
            }
            kept => kept,
        };
        kept.map_err(|full| io::Error::new(io::ErrorKind::StorageFull, full))?;
        self.tell_put(&mut link, key, value);
        Ok(())
    }

    /// Gives up environments of processes that have ended, oldest first: whoever resumes one brings another.
    fn make_room(&self, link: &mut Link) {
        let has_room = |store: &Store| store.len() < ENTRIES_MAX / 8 * 7 && store.bytes() < VALUES_MAX_BYTES / 8 * 7;
        let oldest = self.store().oldest(YOUNG);
        let mut given_up = Vec::new();
        for key in oldest {
            if has_room(&self.store()) {
                break;
            }
            let marker = self.data.root().join("live").join(Uuid::from_u128(key).to_string());
            if std::fs::symlink_metadata(marker).is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
                self.store().remove(key);
                given_up.push(key);
            }
        }
        tracing::info!("gave up the environments of {} ended processes", given_up.len());
        self.tell_removed(link, &given_up);
    }

    /// Says that no other daemon is about to start.
    pub(crate) fn end_with_the_daemon(&self) {
        self.ends.store(true, Ordering::Relaxed);
    }

    /// Forgets all of them at the end of the daemon, if that was said and no process is alive: the keeper then ends too. Only a
    /// process that continues by itself needs its own environment. It blocks.
    pub(crate) fn close(&self) {
        // One that cannot be read may be alive.
        let lives = |uuid: &Uuid| !matches!(self.data.read_live(*uuid), Ok(None));
        if !self.ends.load(Ordering::Relaxed) || self.data.marked().map_or(true, |marked| marked.iter().any(lives)) {
            return;
        }
        let mut link = self.link();
        let keys = self.store().oldest(0);
        for key in &keys {
            self.store().remove(*key);
        }
        self.tell_removed(&mut link, &keys);
    }

    /// Returns the environment of a process; an empty one if it is gone.
    pub(crate) fn of(&self, uuid: Uuid) -> Environment {
        let value = self.store().get(uuid.as_u128()).cloned();
        value.and_then(|value| serde_json::from_slice(&value).ok()).unwrap_or_default()
    }

    /// Forgets the environment of a process. It blocks.
    pub(crate) fn remove(&self, uuid: Uuid) {
        let (key, mut link) = (uuid.as_u128(), self.link());
        if self.store().remove(key) {
            self.tell_removed(&mut link, &[key]);
        }
    }
}

/// What the programs of an agent's tools get of its environment: what programs need to run, and what the configuration
/// adds. A key is in neither.
pub(crate) fn for_tools(environment: &Environment, added: &[String]) -> Vec<(String, String)> {
    const USUAL: [&str; 11] = [
        "HOME",
        "LANG",
        "LANGUAGE",
        "LOGNAME",
        "PATH",
        "SHELL",
        "TMPDIR",
        "TZ",
        "USER",
        "XDG_CACHE_HOME",
        "XDG_RUNTIME_DIR",
    ];
    let passes =
        |name: &str| USUAL.contains(&name) || name.starts_with("LC_") || added.iter().any(|added| added == name);
    let kept = environment.variables().filter(|(name, _)| passes(name));
    let mut variables: Vec<_> = kept.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    if environment.get("PATH").is_none() {
        variables.push(("PATH".to_owned(), "/usr/local/bin:/usr/bin:/bin".to_owned()));
    }
    // There is no terminal.
    variables.push(("TERM".to_owned(), "dumb".to_owned()));
    variables
}

#[cfg(test)]
mod tests {
    use relive_journal::data::SpaceRules;
    use relive_journal::{Disk, Io};
    use tempfile::TempDir;

    use super::*;

    pub(super) fn environment(name: &str, value: &str) -> Environment {
        std::iter::once((name.to_owned(), value.to_owned())).collect()
    }

    pub(super) fn place() -> (TempDir, Arc<Environments>) {
        let directory = tempfile::tempdir().unwrap();
        let space = SpaceRules { floor_bytes: 0, ..SpaceRules::default() };
        let data = DataDirectory::open(&directory.path().join("data"), Io::new(Disk::new()), space).unwrap();
        (directory, Arc::new(Environments::new(Arc::new(data), None, Warnings::default())))
    }

    #[test]
    fn an_environment_is_returned_only_for_its_own_process() {
        let (_directory, environments) = place();
        let (one, two) = (Uuid::from_u128(1), Uuid::from_u128(2));
        assert!(environments.of(one).is_empty());
        environments.put(one, &environment("KEY", "old")).unwrap();
        environments.put(one, &environment("KEY", "new")).unwrap();
        assert_eq!(environments.of(one), environment("KEY", "new"));
        assert!(environments.of(two).is_empty());
        environments.put(one, &Environment::default()).unwrap();
        assert!(environments.of(one).is_empty());
        environments.remove(one);
    }

    #[test]
    fn without_space_environments_of_ended_processes_are_dropped_first() {
        let (directory, environments) = place();
        let live = directory.path().join("data/live");
        let disk = Disk::new();
        let long = "x".repeat(3 << 20);
        let count = (VALUES_MAX_BYTES / long.len()) as u128 - 1;
        // Those that are young stay.
        let young = u128::try_from(YOUNG).unwrap();
        for key in 0..count {
            environments.put(Uuid::from_u128(key), &environment("N", &format!("{key}{long}"))).unwrap();
            if key % 2 == 0 {
                disk.create(&live.join(Uuid::from_u128(key).to_string())).unwrap();
            }
        }
        for key in 1000..1000 + young {
            environments.put(Uuid::from_u128(key), &environment("N", "short")).unwrap();
        }
        let put = |key: u128| environments.put(Uuid::from_u128(key), &environment("N", &format!("{key}{long}")));
        let more = (5000..5100).take_while(|key| put(*key).is_ok()).count() as u128;
        let is_kept = |key: u128| !environments.of(Uuid::from_u128(key)).is_empty();
        assert!((0..count).all(|key| is_kept(key) == (key % 2 == 0)), "the living stay, the others go");
        assert!((1000 + more..1000 + young).chain(5000..5000 + more).all(is_kept), "the youngest stay");
        assert!(more >= count / 2, "{more}");
        let told = put(6000).unwrap_err();
        assert!(told.to_string().contains("for another environment"), "{told}");
    }

    /// Otherwise an environment that is put in between would be forgotten here, and not by the keeper, or the other way round.
    #[test]
    fn environments_are_forgotten_while_nobody_else_talks_to_the_keeper() {
        let forgets: [fn(&Environments); 2] = [|all| all.remove(Uuid::from_u128(1)), Environments::close];
        for forget in forgets {
            let (_directory, environments) = place();
            environments.put(Uuid::from_u128(1), &environment("KEY", "value")).unwrap();
            environments.end_with_the_daemon();
            let link = environments.link();
            let (tell, thread) = std::sync::mpsc::channel();
            let forgetting = std::thread::spawn({
                let environments = Arc::clone(&environments);
                move || {
                    tell.send(std::fs::read_link("/proc/thread-self").unwrap()).unwrap();
                    forget(&environments);
                }
            });
            let stat = std::path::Path::new("/proc").join(thread.recv().unwrap()).join("stat");
            let sleeps = || std::fs::read_to_string(&stat).is_ok_and(|stat| stat.contains(") S "));
            while !sleeps() {
                std::thread::yield_now();
            }
            assert_eq!(environments.of(Uuid::from_u128(1)), environment("KEY", "value"));
            drop(link);
            forgetting.join().unwrap();
            assert!(environments.of(Uuid::from_u128(1)).is_empty());
        }
    }
}
