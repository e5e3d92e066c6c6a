//! The data directory: all histories, and what is needed to find them again.
//!
//! ```text
//! lock              held for the daemon's life; names its OS pid
//! pids              the highest PID that may have been given out
//! live/<uuid>       one empty file for each process that has not ended
//! steps/<uuid>/     the histories
//! tmp/              directories that are being made or removed; emptied at the start
//! tombstones.jsonl  what was collected
//! clock             when the collector last looked
//! pulse             when bodies last ran
//! reserve           blocks that are given back when the disk is full
//! ```
//!
//! What always holds: a directory under `steps/` is whole from the moment it has its name; a process that has not ended has
//! its marker. So a start reads what is live, however much history there is. `lock`, `live/`, `pids`, `pulse` and
//! `reserve` can be lost or rebuilt; only `steps/` and `tombstones.jsonl` are history.

mod collect;
mod fork;
mod lineage;
mod live;
mod pids;
mod pulse;
mod space;
mod spawn;
mod start;
mod tombstones;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

pub use collect::{Candidate, ClockReading, CollectError, Collected, GcReason, GcRules, Survey};
pub use fork::{ForkError, ForkPoint, ForkRequest};
pub use lineage::{Ancestor, LINEAGE_MAX, LineageError};
pub use live::{Live, Unreadable};
pub use pids::NOTED_MAX;
pub use pulse::Beat;
pub use space::{Space, SpaceRules};
pub use spawn::{SpawnError, SpawnRequest};
pub use start::holder;
pub use tombstones::{KEPT_DAYS, KEPT_MAX, SetAside, Tombstone};

use pids::{PidLog, Pids};
use pulse::PulseFile;
use relive_core::{Generation, Pid, Uuid};
use start::Pending;
use tombstones::TombstoneLog;

use crate::checkpoint;
use crate::directory::{ProcessDirectory, uuid_of_name};
use crate::disk::{DiskFile, is_full};
use crate::git;
use crate::history::History;
use crate::info::ProcInfo;
use crate::opening::{Acquired, Epoch, OpenFailure, Opening};
use crate::profile;
use crate::record::{Body, Git};
use crate::scan::Health;
use crate::writer::{Io, WriteError, Writer};

/// Why a data directory cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Somebody else has it.
    #[error("{path}: in use by {holder}", path = path.display(), holder = holder_text(*holder))]
    Held {
        /// The data directory.
        path: PathBuf,
        /// The OS pid of the one who has it, if it could be read.
        holder: Option<u32>,
    },
    /// It cannot be read or written.
    #[error("{path}: {source}", path = path.display())]
    Io {
        /// The data directory.
        path: PathBuf,
        /// The system's word for it.
        source: io::Error,
    },
}

fn holder_text(holder: Option<u32>) -> String {
    holder.map_or_else(|| "another daemon".to_owned(), |pid| format!("the daemon with OS pid {pid}"))
}

/// An open data directory. While it is open nobody else can open it.
#[derive(Debug)]
pub struct DataDirectory {
    root: PathBuf,
    io: Io,
    _lock: DiskFile,
    pids: Mutex<Pids>,
    pid_log: Mutex<PidLog>,
    tombstones: Mutex<TombstoneLog>,
    /// The last reading of the clocks, for a disk that has no room for it.
    clock: Mutex<Option<ClockReading>>,
    pending: Mutex<Pending>,
    pulse: PulseFile,
    space: SpaceRules,
}

/// What is known of a UUID.
#[derive(Debug, Clone, PartialEq)]
pub enum Known {
    /// Its history is here.
    Here(ProcessDirectory),
    /// Its history was collected.
    Collected(Box<Tombstone>),
    /// There never was such a process.
    Never,
}

impl DataDirectory {
    fn lock_pids(&self) -> std::sync::MutexGuard<'_, Pids> {
        self.pids.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next PID. It was never given out before and never will be again.
    pub fn next_pid(&self) -> io::Result<Pid> {
        self.lock_pids().next(&self.io.disk, &self.root)
    }

    /// The directory of a process, whether or not it exists.
    #[must_use]
    pub fn directory(&self, uuid: Uuid) -> ProcessDirectory {
        ProcessDirectory::new(self.root.join("steps").join(uuid.to_string()))
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

    /// Tells whether there is a history of a UUID.
    #[must_use]
    pub fn is_here(&self, uuid: Uuid) -> bool {
        // A journal that cannot be read is still a history: whoever reads it is told what is wrong with it.
        match fs::symlink_metadata(self.directory(uuid).steps()) {
            Err(error) => !matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory),
            Ok(_) => true,
        }
    }

    /// What is known of a UUID. Where there is no history, all tombstones are read.
    pub fn known(&self, uuid: Uuid) -> io::Result<Known> {
        if self.is_here(uuid) {
            return Ok(Known::Here(self.directory(uuid)));
        }
        let tombstone = self.tombstone(uuid)?;
        Ok(tombstone.map_or(Known::Never, |tombstone| Known::Collected(Box::new(tombstone))))
    }

    /// Tells whether a process has the marker of one that has not ended.
    #[must_use]
    pub fn is_marked(&self, uuid: Uuid) -> bool {
        fs::symlink_metadata(self.marker(uuid)).is_ok()
    }

    /// Returns when the list of histories last changed: one was begun, ended or collected.
    pub fn changed_at(&self) -> io::Result<std::time::SystemTime> {
        let changed_at = |name: &str| fs::metadata(self.root.join(name))?.modified();
        Ok(changed_at("steps")?.max(changed_at("live")?))
    }

    /// Returns the directory that all of this is in.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// A process at a glance: by its snapshot if that is current, else from its journal. `None` where neither says.
    pub fn info(&self, uuid: Uuid) -> io::Result<Option<ProcInfo>> {
        ProcInfo::read_from(&self.io.disk, &self.directory(uuid))
    }

    /// A history, read whole.
    pub fn history(&self, uuid: Uuid) -> io::Result<(History, Health)> {
        let directory = self.directory(uuid);
        checkpoint::load(&directory, &self.io.disk.open_read(&directory.steps())?)
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
        let directory = self.directory(uuid);
        let failed = |source| WriteError::Io { path: directory.steps(), source };
        self.settle().map_err(failed)?;
        let acquired = Acquired::new(&self.io, directory.clone())?;
        let epoch = acquired.epoch_of(generation)?;
        let records = decide(acquired.history()).map_err(OpenFailure::Refused)?;
        let ran_ms = self.pulse.ran_ms(acquired.history(), &opening.boot_id, opening.seen.as_ref());
        let marked = match epoch {
            Epoch::Same => false,
            Epoch::New => self.mark(uuid).map_err(failed)?,
        };
        let writer = acquired.open(&self.io, opening, epoch, ran_ms, records);
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
    /// does it. With a full disk the marker goes without the snapshot, which is derived: a process that kept its marker
    /// could not be collected, and that is what makes room.
    pub fn retire(&self, uuid: Uuid, history: &History) -> io::Result<()> {
        if let Some(info) = ProcInfo::of(history) {
            match info.write(&self.io.disk, &self.directory(uuid)) {
                Err(error) if is_full(&error) => {}
                other => other?,
            }
        }
        self.io.disk.unlink(&self.marker(uuid))
    }

    /// Writes `ctx-profile.json` of an agent; for what is none nothing happens. It is on the disk with the next snapshot.
    pub fn write_profile(&self, uuid: Uuid) -> io::Result<()> {
        profile::write(&self.io.disk, &self.directory(uuid))
    }

    /// How the repository stood at the end of this step, as far as the journal says.
    pub fn git_after(&self, uuid: Uuid, step: u32) -> io::Result<Option<Git>> {
        git::after(&self.directory(uuid), step)
    }
}

fn uuids_in(directory: &Path) -> io::Result<Vec<Uuid>> {
    let names = fs::read_dir(directory)?.map(|entry| Ok(entry?.file_name()));
    let uuids = names.filter_map(|name: io::Result<_>| match name {
        Ok(name) => name.to_str().and_then(uuid_of_name).map(Ok),
        Err(error) => Some(Err(error)),
    });
    uuids.collect()
}
