//! Opening a data directory.
//!
//! Two things never keep it from being opened: one process whose files cannot be read, and a full disk. What a full disk
//! keeps a start from doing is pending, and done before anything is built on it.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use relive_core::{Pid, Uuid};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use super::pids::{Pids, noted};
use super::pulse::PulseFile;
use super::space::relieved;
use super::{DataDirectory, OpenError, SpaceRules};
use crate::disk::{DiskFile, is_full};
use crate::info::ProcInfo;
use crate::regular;
use crate::writer::Io;

/// What a full disk kept a start from doing.
#[derive(Debug, Default)]
pub(super) struct Pending {
    /// Entries of `steps/` may not be on the disk.
    steps: bool,
    /// Entries of `live/` may not be on the disk.
    live: bool,
    /// There was no room for `live/`: the processes that would be marked in it.
    pub(super) unmarked: Option<Vec<Uuid>>,
}

/// What the histories say where `live/` or `pids` is gone.
struct Histories {
    highest: Pid,
    unfinished: Vec<Uuid>,
}

impl DataDirectory {
    /// Opens the directory, making it if need be, for as long as the returned value lives.
    pub fn open(root: &Path, io: Io, space: SpaceRules) -> Result<Self, OpenError> {
        let failed = |source| OpenError::Io { path: root.to_owned(), source };
        make_root(&io, root).map_err(failed)?;
        let lock_path = root.join("lock");
        let failed_lock = |source| OpenError::Io { path: lock_path.clone(), source };
        let lock = relieved(&io.disk, root, || io.disk.open_or_create(&lock_path)).map_err(failed_lock)?;
        if !io.disk.try_lock(&lock).map_err(failed_lock)? {
            return Err(OpenError::Held { path: root.to_owned(), holder: read_holder(lock.file()) });
        }
        for name in ["pids", "clock", "pulse"] {
            // A directory is not replaced by a file. One that is not empty is somebody's.
            let path = root.join(name);
            if path.is_dir() {
                fs::remove_dir(&path).map_err(|source| OpenError::Io { path, source })?;
            }
        }
        let pending = prepare(root, &io, &lock)?;
        let data = Self {
            root: root.to_owned(),
            pids: Mutex::new(Pids::read(root)),
            io,
            _lock: lock,
            pid_log: Mutex::default(),
            tombstones: Mutex::default(),
            clock: Mutex::default(),
            pending: Mutex::new(pending),
            pulse: PulseFile::read(root),
            space,
        };
        data.rebuild_what_is_missing().map_err(failed)?;
        // Without a reserve there is only less room for the last records.
        let _ = data.restore_reserve();
        Ok(data)
    }

    pub(super) fn lock_pending(&self) -> MutexGuard<'_, Pending> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes `live/` and the PID high-water anew, from the histories, if either is gone.
    fn rebuild_what_is_missing(&self) -> io::Result<()> {
        let live = self.root.join("live");
        let (has_live, pids_missing) = (live.is_dir(), self.lock_pids().is_missing());
        if has_live {
            // A marker that is here is taken as being on the disk from now on.
            self.lock_pending().live = is_left_undone(self.io.disk.sync_dir(&live))?;
        }
        if has_live && !pids_missing {
            return Ok(());
        }
        let Histories { highest, unfinished } = self.read_histories()?;
        if pids_missing {
            // Where there is no room, the next PID finds that out.
            is_left_undone(self.lock_pids().raise(&self.io.disk, &self.root, highest))?;
        }
        if !has_live && is_left_undone(self.make_live(&unfinished))? {
            self.lock_pending().unmarked = Some(unfinished);
        }
        Ok(())
    }

    fn read_histories(&self) -> io::Result<Histories> {
        let mut highest = noted(&self.root).into_iter().fold(Pid::RUNTIME, |highest, (pid, _)| highest.max(pid));
        let mut unfinished = Vec::new();
        for uuid in self.uuids()? {
            match ProcInfo::read_from(&self.io.disk, &self.directory(uuid)) {
                Ok(Some(info)) => {
                    highest = info.pids.into_iter().fold(highest, Pid::max);
                    if info.dead_at.is_none() {
                        unfinished.push(uuid);
                    }
                }
                Ok(None) => {}
                // A directory without a journal is no history, and no reason not to start.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                // It may not have ended: with a marker, whoever asks for what is live is told that it cannot be read.
                Err(_) => unfinished.push(uuid),
            }
        }
        Ok(Histories { highest: highest.max(self.highest_collected()?), unfinished })
    }

    /// Only a complete `live/` may be seen: it is made aside and renamed.
    fn make_live(&self, unfinished: &[Uuid]) -> io::Result<()> {
        let disk = &self.io.disk;
        let (live, aside) = (self.root.join("live"), self.root.join("tmp").join("live"));
        disk.remove_tree(&aside)?;
        disk.mkdir(&aside)?;
        for uuid in unfinished {
            disk.create(&aside.join(uuid.to_string()))?;
        }
        disk.sync_dir(&aside)?;
        // Something else may have its name.
        disk.remove_tree(&live)?;
        disk.rename(&aside, &live)?;
        disk.sync_dir(&self.root)
    }

    /// Does what a full disk kept the start from doing; otherwise costs nothing. Called before anything is acknowledged,
    /// moved or removed.
    pub(super) fn settle(&self) -> io::Result<()> {
        let mut pending = self.lock_pending();
        if pending.steps {
            self.relieved(|| self.io.disk.sync_dir(&self.root.join("steps")))?;
            pending.steps = false;
        }
        if pending.live {
            self.relieved(|| self.io.disk.sync_dir(&self.root.join("live")))?;
            pending.live = false;
        }
        if let Some(unfinished) = &pending.unmarked {
            self.relieved(|| self.make_live(unfinished))?;
            pending.unmarked = None;
        }
        Ok(())
    }
}

/// Tells whether there was no room; any other error is one.
fn is_left_undone(done: io::Result<()>) -> io::Result<bool> {
    match done {
        Ok(()) => Ok(false),
        Err(error) if is_full(&error) => Ok(true),
        Err(error) => Err(error),
    }
}

fn prepare(root: &Path, io: &Io, lock: &DiskFile) -> Result<Pending, OpenError> {
    let disk = &io.disk;
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| OpenError::Io { path, source }
    };
    let (steps_path, tmp) = (root.join("steps"), root.join("tmp"));
    if !tmp.is_dir() {
        // Something else may have its name, and nothing in it is needed.
        disk.remove_tree(&tmp).map_err(failed(&tmp))?;
    }
    // The OS pid is only for the message that a second daemon gets.
    let _ = disk.truncate(lock, 0).and_then(|()| disk.append(lock, format!("{}\n", std::process::id()).as_bytes()));
    let mut made = Vec::new();
    for path in [&steps_path, &tmp] {
        if !path.is_dir() {
            if fs::symlink_metadata(path).is_ok() {
                return Err(failed(path)(io::ErrorKind::NotADirectory.into()));
            }
            relieved(disk, root, || disk.mkdir(path)).map_err(failed(path))?;
            made.push(path);
        }
    }
    if !made.is_empty() {
        disk.sync_dir(root)
            .inspect_err(|_| {
                // Whoever tries next makes them anew: a sync that failed is not made good by another.
                for path in &made {
                    let _ = disk.remove_tree(path);
                }
            })
            .map_err(failed(root))?;
    }
    // One who was killed may have renamed and not synced: nothing is built on that, and nothing removed because of it,
    // before it is on the disk.
    let steps = is_left_undone(disk.sync_dir(&steps_path)).map_err(failed(&steps_path))?;
    if !steps {
        for entry in fs::read_dir(&tmp).map_err(failed(&tmp))? {
            // What cannot be removed now the next start tries again; it is no reason not to run.
            let _ = disk.remove_tree(&entry.map_err(failed(&tmp))?.path());
        }
    }
    Ok(Pending { steps, ..Pending::default() })
}

/// Makes the directory and those above it, each on the disk in the one above.
fn make_root(io: &Io, root: &Path) -> io::Result<()> {
    let missing: Vec<&Path> = root.ancestors().take_while(|directory| !directory.exists()).collect();
    fs::DirBuilder::new().recursive(true).mode(0o700).create(root)?;
    missing.into_iter().filter_map(Path::parent).try_for_each(|above| {
        let above = if above.as_os_str().is_empty() { Path::new(".") } else { above };
        io.disk.sync_dir(above)
    })
}

fn read_holder(mut lock: &File) -> Option<u32> {
    let mut text = String::new();
    lock.by_ref().take(32).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}

/// Returns the OS pid of the daemon that has the data directory `root`, if one has.
#[must_use]
pub fn holder(root: &Path) -> Option<u32> {
    let lock = regular::open(&root.join("lock")).ok()?;
    // Shared, and only for a moment: a daemon that starts just now tries again.
    match flock(&lock, FlockOperation::NonBlockingLockShared) {
        Err(Errno::WOULDBLOCK) => read_holder(&lock),
        Ok(()) | Err(_) => None,
    }
}
