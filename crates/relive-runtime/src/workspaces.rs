//! The files that processes work on: snapshots of their directories, in one store for the whole data directory.
//!
//! A component: [`Workspaces`] is a handle, cheap to clone, and every method that touches a disk blocks and belongs on a
//! thread of its own class. What a snapshot means to a process is in its journal; this knows directories only.

mod activity;
mod change;
mod errors;
#[cfg(feature = "faults")]
mod faulty;
mod looks;
mod open;
mod own;
mod path_locks;
mod process;
mod settle;
mod starts;
mod take;
mod target;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, Weak};
use std::time::{Duration, Instant};

use relive_config::Snapshots as Wanted;
use relive_core::Uuid;
use relive_journal::record::{FilesId, Grade as RecordedGrade};
use relive_journal::{Hash, Pool};
#[cfg(not(feature = "faults"))]
use relive_workspace::Disk;
use relive_workspace::{Collected, Control, Grade, ObjectId, Removal, Settings, Snapshot, Store};
use tokio::sync::watch;

use crate::clock::Clock;
use crate::error::Result;
use crate::isolation::Isolations;
use crate::pools::Pools;
use activity::Activities;
use open::OpenDirectories;
use path_locks::PathLocks;
use starts::Starts;

pub(crate) use change::{Changed, Lacks, OnInterrupted, Planned, RestoreOrder};
pub(crate) use errors::{check_no_link, count_files, named, no_copy};
pub(crate) use looks::{Awaited, Look};
pub(crate) use process::ProcessFiles;
pub(crate) use take::{Take, Taken, Whose};

/// How long a snapshot counts as needed although no journal names it yet.
const RECENT: Duration = Duration::from_secs(900);
/// How many such snapshots are remembered.
const RECENT_MAX: usize = 50_000;

/// What the component works with.
#[derive(Debug)]
pub(crate) struct Options {
    /// Where the store is.
    pub(crate) store: PathBuf,
    /// Where workspaces of their own are.
    pub(crate) own: PathBuf,
    /// Directories of Relive's that no snapshot has.
    pub(crate) private: Vec<PathBuf>,
    /// The configuration at the start.
    pub(crate) config: relive_config::Workspace,
    /// What is hidden from isolated programs at the start, by its real path.
    pub(crate) hidden: Vec<PathBuf>,
    pub(crate) home: Option<PathBuf>,
    pub(crate) free_floor_bytes: u64,
    /// The class of threads for it.
    pub(crate) pool: Pool,
    pub(crate) clock: Clock,
}

impl Options {
    /// The options of a daemon with this data directory.
    pub(crate) fn of(
        data: &Path,
        settings: &crate::settings::Settings,
        isolations: &Isolations,
        pools: &Pools,
        clock: Clock,
    ) -> Self {
        Self {
            hidden: isolations.hidden(),
            store: data.join("snapshots"),
            own: own_workspaces(data),
            private: vec![data.to_owned()],
            config: settings.workspace.clone(),
            home: std::env::home_dir(),
            free_floor_bytes: settings.space.floor_bytes,
            pool: pools.snapshots.clone(),
            clock,
        }
    }
}

/// The handle.
#[derive(Debug, Clone)]
pub(crate) struct Workspaces(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    options: Options,
    /// What holds for new snapshots.
    rules: RwLock<Rules>,
    /// Opened when it is first needed: a daemon whose agents change nothing makes none.
    store: Mutex<Option<Store>>,
    open: Mutex<OpenDirectories>,
    /// Directories that get no snapshots, and why.
    refused: Mutex<HashMap<PathBuf, String>>,
    activities: Activities,
    /// Whether the processes of an earlier daemon have started: until then nobody looks at files in advance.
    recovered: watch::Sender<bool>,
    /// Directories that are being opened or closed: two handles would write the same files of the store.
    opening: PathLocks,
    /// Copies that are being removed: nobody else removes what is left of one.
    removing: PathLocks,
    /// Processes that are being created.
    starts: Mutex<Starts>,
    recent: Mutex<VecDeque<(Instant, Snapshot)>>,
    /// Directories in which a change is half done and could not be rolled back, and why.
    half_done: Mutex<BTreeMap<PathBuf, settle::HalfDone>>,
    /// What running processes have seen of their files.
    looks: Mutex<HashMap<Uuid, Arc<looks::Looks>>>,
    /// The processes that run.
    running: Mutex<Vec<Weak<Mutex<process::State>>>>,
    /// Held for reading while a snapshot is taken and not remembered yet, for writing by the garbage collector.
    collecting: RwLock<()>,
    /// Set while garbage is to be removed and a dry run may be in the way.
    removal_waits: Arc<AtomicBool>,
    /// Set when the daemon stops.
    stops: Arc<AtomicBool>,
}

/// The configuration, and what it means for a directory.
#[derive(Debug)]
struct Rules {
    config: relive_config::Workspace,
    hidden: Vec<PathBuf>,
    settings: Settings,
    /// Grows with each change.
    number: u64,
}

impl Workspaces {
    pub(crate) fn new(options: Options) -> Self {
        let config = options.config.clone();
        let rules = Rules::new(&options, config, options.hidden.clone());
        Self(Arc::new(Inner {
            options,
            rules: RwLock::new(rules),
            store: Mutex::default(),
            open: Mutex::default(),
            refused: Mutex::default(),
            activities: Activities::default(),
            recovered: watch::Sender::new(false),
            opening: PathLocks::default(),
            removing: PathLocks::default(),
            starts: Mutex::default(),
            recent: Mutex::default(),
            half_done: Mutex::default(),
            looks: Mutex::default(),
            running: Mutex::default(),
            collecting: RwLock::default(),
            removal_waits: Arc::default(),
            stops: Arc::default(),
        }))
    }

    /// Notes that the processes of an earlier daemon have started.
    pub(crate) fn recovered(&self) {
        self.0.recovered.send_replace(true);
    }

    /// Waits until they have.
    async fn await_recovered(&self) {
        let _ = self.0.recovered.subscribe().wait_for(|recovered| *recovered).await;
    }

    /// The class of threads that its work belongs on.
    pub(crate) fn pool(&self) -> &Pool {
        &self.0.options.pool
    }

    /// Tells whether the configuration wants snapshots.
    pub(crate) fn are_wanted(&self) -> bool {
        self.0.rules.read().unwrap_or_else(PoisonError::into_inner).config.snapshots == Wanted::Auto
    }

    /// Applies another configuration to the snapshots that are taken from now on.
    pub(crate) fn configure(&self, config: relive_config::Workspace, hidden: Vec<PathBuf>) {
        let now = Rules::new(&self.0.options, config, hidden);
        let mut rules = self.0.rules.write().unwrap_or_else(PoisonError::into_inner);
        if (&rules.config, &rules.hidden) == (&now.config, &now.hidden) {
            return;
        }
        *rules = Rules { number: rules.number + 1, ..now };
        drop(rules);
        // A directory that was too large may be none now, and the reverse.
        lock(&self.0.refused).clear();
    }

    /// Tells whether there ever was a snapshot.
    pub(crate) fn exists(&self) -> bool {
        self.0.options.store.join("objects").is_dir()
    }

    pub(crate) fn store(&self) -> Result<Store> {
        let mut store = lock(&self.0.store);
        if let Some(store) = &*store {
            return Ok(store.clone());
        }
        #[cfg(feature = "faults")]
        let disk = faulty::disk();
        #[cfg(not(feature = "faults"))]
        let disk = Disk::new();
        let opened = Store::open(&self.0.options.store, disk, self.0.options.free_floor_bytes)?;
        Ok(store.insert(opened).clone())
    }

    fn remember(&self, snapshot: Snapshot) {
        let mut recent = lock(&self.0.recent);
        let is_old = |(at, _): &(Instant, Snapshot)| at.elapsed() > RECENT;
        while recent.front().is_some_and(is_old) || recent.len() >= RECENT_MAX {
            recent.pop_front();
        }
        recent.push_back((Instant::now(), snapshot));
    }

    /// Ends long work that would be refused when it is done, because the daemon stops.
    pub(crate) fn stop(&self) {
        self.0.stops.store(true, Ordering::SeqCst);
        self.0.removal_waits.store(true, Ordering::SeqCst);
        self.cancel_all_starts();
    }

    /// Removes what none of `live` needs, or says what would be removed. `since` is when the journals began to be read. A dry
    /// run gives way to a removal, and returns `None`.
    pub(crate) fn collect(
        &self,
        live: impl IntoIterator<Item = FilesId>,
        since: Instant,
        removal: Removal,
    ) -> Result<Option<Collected>> {
        let store = self.store()?;
        let Inner { collecting, removal_waits, stops, .. } = &*self.0;
        if removal == Removal::Remove {
            removal_waits.store(true, Ordering::Relaxed);
        }
        let _alone = collecting.write().unwrap_or_else(PoisonError::into_inner);
        if removal == Removal::Remove {
            removal_waits.store(false, Ordering::SeqCst);
            // `stop` sets `stops` first: either this sees it, or `stop` sets the other one again.
            if stops.load(Ordering::SeqCst) {
                removal_waits.store(true, Ordering::SeqCst);
            }
        }
        let cancel = match removal {
            Removal::DryRun => removal_waits,
            Removal::Remove => stops,
        };
        if since.elapsed() > RECENT {
            return Err(std::io::Error::other("the journals took too long to read").into());
        }
        let mut all: Vec<Snapshot> = live.into_iter().map(from_record).collect();
        all.extend(lock(&self.0.recent).iter().map(|(_, snapshot)| *snapshot));
        let running: Vec<_> = lock(&self.0.running).iter().filter_map(Weak::upgrade).collect();
        all.extend(running.iter().filter_map(|state| lock(state).last));
        match store.collect(&all, removal, &Control::default().with_cancel(Arc::clone(cancel))) {
            Err(relive_workspace::Error::Cancelled) if !stops.load(Ordering::Relaxed) => Ok(None),
            collected => Ok(Some(collected?)),
        }
    }
}

impl Rules {
    fn new(options: &Options, config: relive_config::Workspace, hidden: Vec<PathBuf>) -> Self {
        let settings = Settings { hidden: hidden.clone(), ..settings(options, &config) };
        Self { config, hidden, settings, number: 0 }
    }
}

fn settings(options: &Options, config: &relive_config::Workspace) -> Settings {
    let home = options.home.as_ref();
    Settings {
        max_file_bytes: config.max_file_mb << 20,
        max_files: config.max_files,
        max_total_bytes: config.max_total_mb << 20,
        include: config.include.clone(),
        exclude: config.exclude.clone(),
        home: home.cloned(),
        private: options.private.iter().chain([&options.own]).cloned().collect(),
        git_configs: home
            .map(|home| vec![home.join(".config/git/config"), home.join(".gitconfig")])
            .unwrap_or_default(),
        excludes_file: home.map(|home| home.join(".config/git/ignore")),
        ..Settings::default()
    }
}

fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A snapshot as a journal names it.
pub(crate) fn to_record(snapshot: &Snapshot) -> FilesId {
    let hash = |id: ObjectId| Hash::from_bytes(*id.as_bytes());
    let grade = match snapshot.grade {
        Grade::Exact => RecordedGrade::Exact,
        Grade::Partial => RecordedGrade::Partial,
        Grade::Moving => RecordedGrade::Moving,
    };
    FilesId { tree: hash(snapshot.tree), extras: snapshot.extras.map(hash), grade }
}

/// A snapshot as the store names it.
pub(crate) fn from_record(files: FilesId) -> Snapshot {
    let grade = match files.grade {
        RecordedGrade::Exact => Grade::Exact,
        RecordedGrade::Partial => Grade::Partial,
        RecordedGrade::Moving => Grade::Moving,
    };
    Snapshot { tree: to_id(files.tree), extras: files.extras.map(to_id), grade }
}

fn to_id(hash: Hash) -> ObjectId {
    ObjectId::from_array(*hash.as_bytes())
}

/// Own workspaces are beside the data directory and not in it: file tools keep out of that.
fn own_workspaces(data: &Path) -> PathBuf {
    let mut name = data.file_name().unwrap_or_default().to_owned();
    name.push("-workspaces");
    data.with_file_name(name)
}
