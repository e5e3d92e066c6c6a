//! The data directory: all histories, and what is needed to find them again.
//!
//! ```text
//! lock              held for the daemon's life; names its OS pid
//! pids              the highest PID that may have been given out
//! live/<uuid>       one empty file for each process that has not ended
//! steps/<uuid>/     the histories
//! steps/<uuid>.live a marker like the one in `live/`, on the disk with the name of the history that began
//! tmp/              directories that are being made or removed; emptied at the start
//! tombstones.jsonl  what was collected
//! clock             when the collector last looked
//! pulse             when bodies last ran
//! reserve           blocks that are given back when the disk is full
//! ```
//!
//! What always holds: a directory under `steps/` is whole from the moment it has its name; a process that has not ended has
//! its marker. So a start reads the journals of what is live, however much history there is; of everything else it lists
//! the names. `lock`, `live/`, `pids`, `pulse` and `reserve` can be lost or rebuilt; only `steps/` and `tombstones.jsonl`
//! are history.

mod annotate;
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
pub use fork::{ForkError, ForkPoint, ForkRequest, ForkWorkspace};
pub use lineage::{Ancestor, LINEAGE_MAX, LineageError};
pub use live::{Live, Unreadable};
pub use pids::NOTED_MAX;
pub use pulse::Beat;
pub use space::{Space, SpaceRules};
pub use spawn::{SpawnError, SpawnRequest};
pub use start::{has_locked, has_made_its_socket, holder, socket_of};
pub use tombstones::{KEPT_DAYS, KEPT_MAX, SetAside, Tombstone};

use pids::{PidLog, Pids};
use pulse::PulseFile;
use relive_core::{Generation, Moment, Pid, Uuid};
use start::Pending;
use tombstones::TombstoneLog;

use crate::checkpoint;
use crate::directory::{ProcessDirectory, uuid_of_name};
use crate::disk::{DiskFile, is_full};
use crate::events::EventLog;
use crate::git;
use crate::history::{History, Place};
use crate::info::ProcInfo;
use crate::opening::{Acquired, Epoch, OpenFailure, Opening};
use crate::profile;
use crate::record::{Acked, Body, Call, Git, Renamed};
use crate::scan::Health;
use crate::writer::{Durability, Io, WriteError, Writer};

/// Why a data directory cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another daemon has it.
    #[error("{path}: in use by {holder}", path = path.display(), holder = holder_text(*holder, socket.as_deref()))]
    Held {
        path: PathBuf,
        /// The OS pid of the one who has it, if it could be read.
        holder: Option<u32>,
        /// The socket at which it listens, if it could be read.
        socket: Option<PathBuf>,
    },
    /// The data directory cannot be read or written.
    #[error("{path}: {source}", path = path.display())]
    Io { path: PathBuf, source: io::Error },
}

/// The suffix of the marker beside a process's directory.
const BESIDE: &str = ".live";

fn holder_text(holder: Option<u32>, socket: Option<&Path>) -> String {
    let who = holder.map_or_else(|| "another daemon".to_owned(), |pid| format!("the daemon with OS pid {pid}"));
    match socket {
        Some(socket) => format!("{who}, and its socket is {}", socket.display()),
        None => who,
    }
}

/// An open data directory. While it is open nobody else can open it.
#[derive(Debug)]
pub struct DataDirectory {
    root: PathBuf,
    io: Io,
    lock: DiskFile,
    pids: Mutex<Pids>,
    pid_log: Mutex<PidLog>,
    tombstones: Mutex<TombstoneLog>,
    /// The last reading of the clocks, for a disk that has no room for it.
    clock: Mutex<Option<ClockReading>>,
    pending: Mutex<Pending>,
    pulse: PulseFile,
    space: SpaceRules,
}

/// How a journal is opened.
#[derive(Debug)]
struct Surveyed {
    /// The generation that writes; the next one where it is absent.
    generation: Option<Generation>,
    /// The fold of the journal when a start read it.
    read: Option<History>,
    /// Whether its first records are on the disk on return.
    durability: Durability,
}

/// Whether a UUID has, had or never had a journal.
#[derive(Debug, Clone, PartialEq)]
pub enum Known {
    /// Its journal is here.
    Here(ProcessDirectory),
    /// Its journal was collected.
    Collected(Box<Tombstone>),
    /// There never was such a process.
    Never,
}

impl DataDirectory {
    /// Returns the descriptor that holds the lock. Whoever can show it holds this data directory.
    #[must_use]
    pub fn lock_descriptor(&self) -> std::os::fd::BorrowedFd<'_> {
        std::os::fd::AsFd::as_fd(self.lock.file())
    }

    /// Tells a second daemon, and commands that look for the first one, at which socket it listens, and which file it has made
    /// for that. Nothing else depends on it, so a path that is no line of text is left out.
    pub fn tell_socket(&self, socket: &Path) -> io::Result<()> {
        match socket.to_str().filter(|path| !path.contains('\n')) {
            Some(path) => {
                let (device, inode) = start::file_id(socket)?;
                let text = format!("{} {device}:{inode}\n{path}\n", std::process::id());
                self.io.disk.put_unsynced(&self.root.join(start::LISTENING), text.as_bytes())
            }
            None => Ok(()),
        }
    }

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

    fn marker_beside(&self, uuid: Uuid) -> PathBuf {
        self.root.join("steps").join(format!("{uuid}{BESIDE}"))
    }

    /// Returns the access to its files.
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

    /// Returns whether a UUID has a journal. If it has none, all tombstones are read.
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

    /// Writes events of a process whose journal is not open. The caller keeps writers away.
    pub fn append_events(&self, uuid: Uuid, events: Vec<crate::journal::Event>) -> io::Result<()> {
        let Some(last) = events.last().map(|event| event.at) else { return Ok(()) };
        let (history, _) = self.history(uuid)?;
        let mut log = EventLog::new(self.io.disk.clone(), self.directory(uuid).events(), history.epoch);
        for crate::journal::Event { at, kind, body } in events {
            log.push(at, (history.seq, history.step), kind, &body, 1)?;
        }
        log.flush(last)
    }

    /// Reads a whole journal.
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
        self.open_known(uuid, opening, Surveyed { generation, read: None, durability: Durability::Synced }, decide)
    }

    /// Does the same for the next incarnation of a process that a start has read, without reading all of its journal
    /// again: nobody has written to it since then, if it is as long as it was.
    ///
    /// With [`Durability::Written`] its first records are in the file on return, and the caller has them synced soon. They
    /// are synced before anything that depends on them all the same: whatever is acknowledged, or done to the world, is
    /// recorded after them in the same file. A torn end and an open call are synced here.
    pub fn open_surveyed<E>(
        &self,
        uuid: Uuid,
        opening: &Opening,
        read: Option<History>,
        durability: Durability,
        decide: impl FnOnce(&History) -> Result<Vec<Body>, E>,
    ) -> Result<Writer, OpenFailure<E>> {
        self.open_known(uuid, opening, Surveyed { generation: None, read, durability }, decide)
    }

    fn open_known<E>(
        &self,
        uuid: Uuid,
        opening: &Opening,
        surveyed: Surveyed,
        decide: impl FnOnce(&History) -> Result<Vec<Body>, E>,
    ) -> Result<Writer, OpenFailure<E>> {
        let Surveyed { generation, read, durability } = surveyed;
        let directory = self.directory(uuid);
        let failed = |source| WriteError::Io { path: directory.steps(), source };
        self.settle().map_err(failed)?;
        // A start has found it by its marker, or the line above has made that.
        let is_marked = read.is_some();
        let acquired = Acquired::new(&self.io, directory.clone(), read)?;
        let epoch = acquired.epoch_of(generation)?;
        let records = decide(acquired.history()).map_err(OpenFailure::Refused)?;
        let ran_ms = self.pulse.ran_ms(acquired.history(), &opening.boot_id, opening.seen.as_ref());
        let marked = match epoch {
            Epoch::Same => false,
            Epoch::New if is_marked => false,
            Epoch::New => self.mark(uuid).map_err(failed)?,
        };
        let writer = acquired.open(&self.io, opening, epoch, ran_ms, records, durability);
        // It was dead before, and still is: nothing was written.
        if marked && matches!(writer, Err(WriteError::Misplaced { .. } | WriteError::TooLong { .. })) {
            self.unmark(uuid).map_err(failed)?;
        }
        Ok(writer?)
    }

    /// Reads the calls of a model's answer. Their arguments are whole, or name a blob.
    pub fn calls(&self, uuid: Uuid, answer: Place) -> io::Result<Vec<Call>> {
        let journal = self.io.disk.open_read(&self.directory(uuid).steps())?;
        crate::conversation::calls(&journal, answer)
    }

    /// Gives a process that has ended another name. Its journal is opened for that one record: no incarnation begins.
    pub fn rename_ended(&self, uuid: Uuid, renamed: Renamed, now: Moment) -> Result<History, WriteError> {
        self.annotate(uuid, now, vec![Body::Renamed(renamed)])
    }

    /// Notes that a person has seen how a process ended. Its journal is opened for that one record.
    pub fn ack_ended(&self, uuid: Uuid, acked: Acked, now: Moment) -> Result<History, WriteError> {
        self.annotate(uuid, now, vec![Body::Acked(acked)])
    }

    /// Marks a process that has a history, on the disk. `true` if it was not marked before.
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

    /// Marks a process whose history is about to get its name, so that the marker is on the disk no later than the name. Where
    /// names keep their order a second marker in the same directory does it, with the sync that the name has anyway; a start
    /// makes the first one again from it.
    fn mark_new(&self, uuid: Uuid) -> io::Result<()> {
        let disk = &self.io.disk;
        if !disk.keeps_names_in_order(&self.root) {
            return self.mark(uuid).map(drop);
        }
        let beside = self.marker_beside(uuid);
        disk.unlink(&beside)?;
        disk.create(&beside)?;
        match disk.create(&self.marker(uuid)) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            created => created.map(drop),
        }
    }

    /// Removes the markers of a process that has ended, or never began.
    fn unmark(&self, uuid: Uuid) -> io::Result<()> {
        self.io.disk.unlink(&self.marker_beside(uuid))?;
        self.io.disk.unlink(&self.marker(uuid))
    }

    /// After `ended` is on the disk: the snapshot is written, which needs no sync because it is derived, and the marker goes.
    /// If this is cut short the next start does it. With a full disk the marker goes without the snapshot, which is derived: a process that kept its marker
    /// could not be collected, and that is what makes room.
    pub fn retire(&self, uuid: Uuid, history: &History) -> io::Result<()> {
        if let Some(info) = ProcInfo::of(history) {
            match info.write_unsynced(&self.io.disk, &self.directory(uuid)) {
                Err(error) if is_full(&error) => {}
                other => other?,
            }
        }
        self.unmark(uuid)
    }

    /// Writes `ctx-profile.json` of an agent; for what is none nothing happens.
    pub fn write_profile(&self, uuid: Uuid) -> io::Result<()> {
        profile::write(&self.io.disk, &self.directory(uuid))
    }

    /// Returns the state of the repository at the end of this step, if the journal has it.
    pub fn git_after(&self, uuid: Uuid, step: u32) -> io::Result<Option<Git>> {
        git::after(&self.directory(uuid), step)
    }
}

fn uuids_in(directory: &Path) -> io::Result<Vec<Uuid>> {
    uuids_named(directory, "")
}

/// The UUIDs after which something in a directory is called, with this at the end.
fn uuids_named(directory: &Path, ending: &str) -> io::Result<Vec<Uuid>> {
    let names = fs::read_dir(directory)?.map(|entry| Ok(entry?.file_name()));
    let uuids = names.filter_map(|name: io::Result<_>| match name {
        Ok(name) => name.to_str().and_then(|name| uuid_of_name(name.strip_suffix(ending)?)).map(Ok),
        Err(error) => Some(Err(error)),
    });
    uuids.collect()
}
