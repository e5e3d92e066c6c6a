//! The data folder: all histories, and what is needed to find them again.
//!
//! ```text
//! lock              held for the daemon's life; names its OS pid
//! pids              the highest PID that may have been given out
//! live/<uuid>       one empty file for each process that has not ended
//! steps/<uuid>/     the histories
//! tmp/              folders that are being made or removed; emptied at the start
//! tombstones.jsonl  what was collected
//! clock             when the collector last looked
//! reserve           blocks that are given back when the disk is full
//! ```
//!
//! What always holds: a folder under `steps/` is whole from the moment it has its name; a process that has not ended has
//! its marker. So a start reads what is live, however much history there is. `lock`, `live/`, `pids` and `reserve` can
//! all be rebuilt; only `steps/` and `tombstones.jsonl` are history.

mod collect;
mod fork;
mod lineage;
mod pids;
mod space;
mod spawn;
mod tombstones;

use std::fs;
use std::io::{self, Read as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

pub use collect::{Candidate, ClockReading, CollectError, Collected, GcReason, GcRules, Survey};
pub use fork::{ForkError, ForkPoint, ForkRequest};
pub use lineage::{Ancestor, LINEAGE_MAX, LineageError};
pub use space::{Space, SpaceRules};
pub use spawn::{SpawnError, SpawnRequest};
pub use tombstones::Tombstone;

use pids::Pids;
use relive_core::{Generation, Pid, Uuid};

use crate::checkpoint;
use crate::disk::DiskFile;
use crate::folder::{Folder, uuid_of_name};
use crate::git;
use crate::history::History;
use crate::info::ProcInfo;
use crate::opening::{Acquired, Epoch, OpenFailure, Opening};
use crate::profile;
use crate::record::{Body, Git};
use crate::scan::Health;
use crate::writer::{Io, WriteError, Writer};

/// Why a data folder cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Somebody else has it.
    #[error("{path}: in use by {holder}", path = path.display(), holder = holder_text(*holder))]
    Held {
        /// The data folder.
        path: PathBuf,
        /// The OS pid of the one who has it, if it could be read.
        holder: Option<u32>,
    },
    /// It cannot be read or written.
    #[error("{path}: {source}", path = path.display())]
    Io {
        /// The data folder.
        path: PathBuf,
        /// The system's word for it.
        source: io::Error,
    },
}

fn holder_text(holder: Option<u32>) -> String {
    holder.map_or_else(|| "another daemon".to_owned(), |pid| format!("the daemon with OS pid {pid}"))
}

/// An open data folder. While it is open nobody else can open it.
#[derive(Debug)]
pub struct DataFolder {
    root: PathBuf,
    io: Io,
    _lock: DiskFile,
    pids: Mutex<Pids>,
    /// Held while tombstones are added; whether this daemon has made sure that their file has its name.
    tombstones_named: Mutex<bool>,
    space: SpaceRules,
}

/// What is known of a UUID.
#[derive(Debug, Clone, PartialEq)]
pub enum Known {
    /// Its history is here.
    Here(Folder),
    /// Its history was collected.
    Collected(Box<Tombstone>),
    /// There never was such a process.
    Never,
}

/// A process that has not ended, as a start finds it.
#[derive(Debug)]
pub struct Live {
    /// Which.
    pub uuid: Uuid,
    /// What its journal amounts to.
    pub history: History,
    /// Whether its journal can be written.
    pub health: Health,
}

impl DataFolder {
    /// Opens the folder, making it if need be, for as long as the returned value lives.
    pub fn open(root: &Path, io: Io, space: SpaceRules) -> Result<Self, OpenError> {
        let failed = |source| OpenError::Io { path: root.to_owned(), source };
        make_root(&io, root).map_err(failed)?;
        let lock = io.disk.open_or_create(&root.join("lock")).map_err(failed)?;
        if !io.disk.try_lock(&lock).map_err(failed)? {
            return Err(OpenError::Held { path: root.to_owned(), holder: read_holder(&lock) });
        }
        Self::prepare(root, &io, &lock).map_err(failed)?;
        let pids = Pids::read(root).map_err(failed)?;
        let (pids, tombstones_named) = (Mutex::new(pids), Mutex::default());
        let data = Self { root: root.to_owned(), io, _lock: lock, pids, tombstones_named, space };
        data.rebuild_what_is_missing().map_err(failed)?;
        data.restore_reserve().map_err(failed)?;
        Ok(data)
    }

    fn prepare(root: &Path, io: &Io, lock: &DiskFile) -> io::Result<()> {
        let disk = &io.disk;
        disk.truncate(lock, 0)?;
        disk.append(lock, format!("{}\n", std::process::id()).as_bytes())?;
        let mut made = Vec::new();
        for path in [root.join("steps"), root.join("tmp")] {
            if !path.is_dir() {
                disk.mkdir(&path)?;
                made.push(path);
            }
        }
        if !made.is_empty() {
            disk.sync_dir(root).inspect_err(|_| {
                // Whoever tries next makes them anew: a sync that failed is not made good by another.
                for path in &made {
                    let _ = disk.remove_tree(path);
                }
            })?;
        }
        // One who was killed may have renamed and not synced: nothing is built on that, and nothing removed because of
        // it, before it is on the disk.
        disk.sync_dir(&root.join("steps"))?;
        for entry in fs::read_dir(root.join("tmp"))? {
            disk.remove_tree(&entry?.path())?;
        }
        Ok(())
    }

    /// Makes `live/` and the PID high-water anew, from the histories, if either is gone.
    fn rebuild_what_is_missing(&self) -> io::Result<()> {
        let live = self.root.join("live");
        let pids_missing = self.lock_pids().is_missing();
        if live.is_dir() {
            // A marker that is here is taken as being on the disk from now on.
            self.io.disk.sync_dir(&live)?;
            if !pids_missing {
                return Ok(());
            }
        }
        let mut highest = Pid::RUNTIME;
        let mut unfinished = Vec::new();
        for uuid in self.uuids()? {
            let info = match ProcInfo::read(&self.folder(uuid)) {
                Ok(Some(info)) => info,
                Ok(None) => continue,
                // A folder without a journal is no history, and no reason not to start.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(error),
            };
            highest = info.pids.into_iter().fold(highest, Pid::max);
            if info.dead_at.is_none() {
                unfinished.push(uuid);
            }
        }
        for tombstone in self.tombstones()? {
            highest = tombstone.pids.into_iter().fold(highest, Pid::max);
        }
        if pids_missing {
            self.lock_pids().raise(&self.io.disk, &self.root, highest)?;
        }
        // Only a complete `live/` may be seen: it is made aside and renamed.
        if !live.is_dir() {
            let aside = self.root.join("tmp").join("live");
            self.io.disk.mkdir(&aside)?;
            for uuid in unfinished {
                self.io.disk.create(&aside.join(uuid.to_string()))?;
            }
            self.io.disk.sync_dir(&aside)?;
            self.io.disk.rename(&aside, &live)?;
            self.io.disk.sync_dir(&self.root)?;
        }
        Ok(())
    }

    fn lock_pids(&self) -> std::sync::MutexGuard<'_, Pids> {
        self.pids.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next PID. It was never given out before and never will be again.
    pub fn next_pid(&self) -> io::Result<Pid> {
        self.lock_pids().next(&self.io.disk, &self.root)
    }

    /// The folder of a process, whether or not it exists.
    #[must_use]
    pub fn folder(&self, uuid: Uuid) -> Folder {
        Folder::new(self.root.join("steps").join(uuid.to_string()))
    }

    fn marker(&self, uuid: Uuid) -> PathBuf {
        self.root.join("live").join(uuid.to_string())
    }

    /// What its files go through.
    #[must_use]
    pub fn io(&self) -> &Io {
        &self.io
    }

    /// Every history there is, in no order.
    pub fn uuids(&self) -> io::Result<Vec<Uuid>> {
        uuids_in(&self.root.join("steps"))
    }

    /// What is known of a UUID.
    pub fn known(&self, uuid: Uuid) -> io::Result<Known> {
        let folder = self.folder(uuid);
        if folder.steps().is_file() {
            return Ok(Known::Here(folder));
        }
        let tombstone = self.tombstone(uuid)?;
        Ok(tombstone.map_or(Known::Never, |tombstone| Known::Collected(Box::new(tombstone))))
    }

    /// A history, read whole.
    pub fn history(&self, uuid: Uuid) -> io::Result<(History, Health)> {
        let folder = self.folder(uuid);
        checkpoint::load(&folder, &fs::File::open(folder.steps())?)
    }

    /// The processes that have not ended, in the order of their UUIDs.
    pub fn live(&self) -> io::Result<Vec<Live>> {
        let mut found = Vec::new();
        self.for_each_live(|live| found.push(live))?;
        found.sort_unstable_by_key(|live| live.uuid);
        Ok(found)
    }

    /// Hands over each process that has not ended, so that nobody need hold all histories at once. Markers of those that
    /// have ended, or never began, are removed. What it reads is bounded by the number of markers.
    pub fn for_each_live(&self, mut each: impl FnMut(Live)) -> io::Result<()> {
        for uuid in uuids_in(&self.root.join("live"))? {
            match self.history(uuid) {
                Ok((history, _)) if history.ended().is_some() => {
                    // Its writer may have been killed before its last sync.
                    let disk = &self.io.disk;
                    disk.sync(&disk.open_append(&self.folder(uuid).steps())?)?;
                    self.retire(uuid, &history)?;
                }
                Ok((history, health)) => each(Live { uuid, history, health }),
                Err(error) if error.kind() == io::ErrorKind::NotFound => self.io.disk.unlink(&self.marker(uuid))?,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Opens a journal to write to it, with the records that `decide` asks for: one write and one sync for a verb and the
    /// incarnation it starts.
    ///
    /// - Where `generation` is that of the last record, and its incarnation has not ended and has left no torn end, the
    ///   incarnation continues: nothing is appended but what `decide` returns.
    /// - Where it is the next one, or absent, an incarnation begins: `opened`, and `repair` after a torn end, come first.
    ///   Its marker is on the disk before them.
    /// - Any other generation is [`WriteError::Misplaced`].
    ///
    /// `decide` is shown what the journal says before that. If it refuses, the journal and the marker stay as they were.
    pub fn open_journal<E>(
        &self,
        uuid: Uuid,
        opening: &Opening,
        generation: Option<Generation>,
        decide: impl FnOnce(&History) -> Result<Vec<Body>, E>,
    ) -> Result<Writer, OpenFailure<E>> {
        let folder = self.folder(uuid);
        let failed = |source| WriteError::Io { path: folder.steps(), source };
        let acquired = Acquired::new(&self.io, folder.clone())?;
        let epoch = acquired.epoch_of(generation)?;
        let records = decide(acquired.history()).map_err(OpenFailure::Refused)?;
        let marked = match epoch {
            Epoch::Same => false,
            Epoch::New => self.mark(uuid).map_err(failed)?,
        };
        let writer = acquired.open(&self.io, opening, epoch, records);
        // It was dead before, and still is: nothing was written.
        if marked && matches!(writer, Err(WriteError::Misplaced { .. } | WriteError::TooLong { .. })) {
            self.io.disk.unlink(&self.marker(uuid)).map_err(failed)?;
        }
        Ok(writer?)
    }

    /// `true` if it was not marked before.
    fn mark(&self, uuid: Uuid) -> io::Result<bool> {
        let disk = &self.io.disk;
        let marker = self.marker(uuid);
        match disk.create(&marker) {
            Ok(_) => disk.sync_dir(&self.root.join("live")).map(|()| true).inspect_err(|_| {
                // So that whoever tries next makes it anew, and syncs it.
                let _ = disk.unlink(&marker);
            }),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// After `ended` is on the disk: the snapshot is written and the marker goes. If this is cut short the next start
    /// does it.
    pub fn retire(&self, uuid: Uuid, history: &History) -> io::Result<()> {
        if let Some(info) = ProcInfo::of(history) {
            info.write(&self.io.disk, &self.folder(uuid))?;
        }
        self.io.disk.unlink(&self.marker(uuid))
    }

    /// Writes `ctx-profile.json` of an agent; for what is none nothing happens. It is on the disk with the next snapshot.
    pub fn write_profile(&self, uuid: Uuid) -> io::Result<()> {
        profile::write(&self.io.disk, &self.folder(uuid))
    }

    /// How the repository stood at the end of this step, as far as the journal says.
    pub fn git_after(&self, uuid: Uuid, step: u32) -> io::Result<Option<Git>> {
        git::after(&self.folder(uuid), step)
    }
}

/// Makes the folder and those above it, each on the disk in the one above.
fn make_root(io: &Io, root: &Path) -> io::Result<()> {
    let missing: Vec<&Path> = root.ancestors().take_while(|folder| !folder.exists()).collect();
    fs::DirBuilder::new().recursive(true).mode(0o700).create(root)?;
    missing.into_iter().filter_map(Path::parent).try_for_each(|above| {
        let above = if above.as_os_str().is_empty() { Path::new(".") } else { above };
        io.disk.sync_dir(above)
    })
}

fn uuids_in(folder: &Path) -> io::Result<Vec<Uuid>> {
    let names = fs::read_dir(folder)?.map(|entry| Ok(entry?.file_name()));
    let uuids = names.filter_map(|name: io::Result<_>| match name {
        Ok(name) => name.to_str().and_then(uuid_of_name).map(Ok),
        Err(error) => Some(Err(error)),
    });
    uuids.collect()
}

fn read_holder(lock: &DiskFile) -> Option<u32> {
    let mut text = String::new();
    lock.file().take(32).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}
