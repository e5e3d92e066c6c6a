//! Opens a data directory.
//!
//! Neither an unreadable process nor a full disk prevents it from being opened. The work that a full disk prevents is
//! pending, and done before anything depends on it.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use relive_core::{Pid, Uuid};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use super::pids::{Pids, noted};
use super::pulse::PulseFile;
use super::space::relieved;
use super::{BESIDE, DataDirectory, OpenError, SpaceRules, uuids_in, uuids_named};
use crate::disk::{DiskFile, is_full};
use crate::info::ProcInfo;
use crate::regular;
use crate::writer::Io;

/// The work that a full disk prevented.
#[derive(Debug, Default)]
pub(super) struct Pending {
    /// Entries of `steps/` may not be on the disk.
    steps: bool,
    /// Entries of `live/` may not be on the disk.
    live: bool,
    /// Set if there was no space for `live/`: the processes that it should mark.
    pub(super) unmarked: Option<Vec<Uuid>>,
}

/// The content of the journals, for a missing `live/` or `pids`.
struct Histories {
    highest: Pid,
    unfinished: Vec<Uuid>,
}

impl DataDirectory {
    /// Opens the directory, and creates it if necessary. It is locked until the returned value is dropped.
    pub fn open(root: &Path, io: Io, space: SpaceRules) -> Result<Self, OpenError> {
        let failed = |source| OpenError::Io { path: root.to_owned(), source };
        make_root(&io, root).map_err(failed)?;
        let lock_path = root.join("lock");
        let failed_lock = |source| OpenError::Io { path: lock_path.clone(), source };
        let lock = relieved(&io.disk, root, || io.disk.open_or_create(&lock_path)).map_err(failed_lock)?;
        if !io.disk.try_lock(&lock).map_err(failed_lock)? {
            let holder = read_holder(lock.file());
            let socket = holder.and_then(|os_pid| socket_of(root, os_pid));
            return Err(OpenError::Held { path: root.to_owned(), holder, socket });
        }
        for name in ["pids", "clock", "pulse"] {
            // A file does not replace a directory. A directory that is not empty belongs to somebody else.
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
            lock,
            pid_log: Mutex::default(),
            tombstones: Mutex::default(),
            clock: Mutex::default(),
            pending: Mutex::new(pending),
            pulse: PulseFile::read(root),
            space,
        };
        data.rebuild_what_is_missing().map_err(failed)?;
        // Without a reserve there is only less space for the last records.
        let _ = data.restore_reserve();
        Ok(data)
    }

    pub(super) fn lock_pending(&self) -> MutexGuard<'_, Pending> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Rebuilds `live/` and the highest PID from the journals, if either is missing.
    fn rebuild_what_is_missing(&self) -> io::Result<()> {
        let live = self.root.join("live");
        let (has_live, pids_missing) = (live.is_dir(), self.lock_pids().is_missing());
        if has_live {
            let unmarked = self.mark_again()?;
            let mut pending = self.lock_pending();
            // An existing marker counts as being on the disk from now on.
            pending.live = is_left_undone(self.io.disk.sync_dir(&live))?;
            pending.unmarked = unmarked;
        }
        if has_live && !pids_missing {
            return Ok(());
        }
        let Histories { highest, unfinished } = self.read_histories()?;
        if pids_missing {
            // On a full disk, assigning the next PID reports the problem.
            is_left_undone(self.lock_pids().raise(&self.io.disk, &self.root, highest))?;
        }
        if !has_live && is_left_undone(self.make_live(&unfinished))? {
            self.lock_pending().unmarked = Some(unfinished);
        }
        Ok(())
    }

    /// Marks processes that only have the marker next to their journal: a power cut may have lost the other. Returns all
    /// processes to mark if there is no space for it.
    fn mark_again(&self) -> io::Result<Option<Vec<Uuid>>> {
        for uuid in uuids_named(&self.root.join("steps"), BESIDE)? {
            if self.is_marked(uuid) {
                continue;
            }
            let made = self.relieved(|| self.io.disk.create(&self.marker(uuid)).map(drop));
            if is_left_undone(made)? {
                let mut all: BTreeSet<Uuid> = uuids_in(&self.root.join("live"))?.into_iter().collect();
                all.extend(uuids_named(&self.root.join("steps"), BESIDE)?);
                return Ok(Some(all.into_iter().collect()));
            }
        }
        Ok(None)
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
                // A directory without a journal is not a process, and does not prevent the start.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                // It may not have ended: with a marker, listing the living processes reports that it cannot be read.
                Err(_) => unfinished.push(uuid),
            }
        }
        Ok(Histories { highest: highest.max(self.highest_collected()?), unfinished })
    }

    /// Creates `live/` elsewhere and renames it, so that an incomplete one is never visible.
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

    /// Does the work that a full disk prevented at the start; otherwise costs nothing. Called before anything is
    /// acknowledged, moved or removed.
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

/// Returns whether the disk was full; passes on any other error.
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
    // The OS pid is only for the error message of a second daemon.
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
                // The next attempt creates them again: a later sync does not repair a failed one.
                for path in &made {
                    let _ = disk.remove_tree(path);
                }
            })
            .map_err(failed(root))?;
    }
    // A killed daemon may have renamed without syncing: nothing may depend on that rename, and nothing may be removed
    // because of it, before it is on the disk.
    let steps = is_left_undone(disk.sync_dir(&steps_path)).map_err(failed(&steps_path))?;
    if !steps {
        for entry in fs::read_dir(&tmp).map_err(failed(&tmp))? {
            // The next start retries what cannot be removed now; this does not prevent running.
            let _ = disk.remove_tree(&entry.map_err(failed(&tmp))?.path());
        }
    }
    Ok(Pending { steps, ..Pending::default() })
}

/// Creates the directory and its missing parents, each synced in its parent.
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

/// The file with the OS pid of the daemon, the id of the socket file that it has made, and its socket.
pub(super) const LISTENING: &str = "listening";

/// Returns the socket of the daemon that uses the data directory `root`, as it says itself.
#[must_use]
pub fn socket_of(root: &Path, os_pid: u32) -> Option<PathBuf> {
    Some(listening(root, os_pid)?.socket)
}

/// Returns whether the socket file of the daemon is the one that it has made: another program may have put its own in that
/// place. What the daemon did not say is taken to be so.
#[must_use]
pub fn has_made_its_socket(root: &Path, os_pid: u32) -> bool {
    let said = listening(root, os_pid).and_then(|said| Some((said.file?, said.socket)));
    said.is_none_or(|(made, socket)| file_id(&socket).is_ok_and(|found| found == made))
}

/// What the daemon says of its socket.
struct Listening {
    socket: PathBuf,
    /// The id of the socket file.
    file: Option<(u64, u64)>,
}

fn listening(root: &Path, os_pid: u32) -> Option<Listening> {
    const LISTENING_MAX: u64 = 8 << 10;
    let text = String::from_utf8(regular::read(&root.join(LISTENING), LISTENING_MAX).ok()?).ok()?;
    let (first, socket) = text.trim_end_matches('\n').split_once('\n')?;
    let (pid, file) = first.split_once(' ').map_or((first, None), |(pid, file)| (pid, file.split_once(':')));
    let file = file.and_then(|(device, inode)| Some((device.parse().ok()?, inode.parse().ok()?)));
    // An earlier daemon may have left the file.
    (pid.parse() == Ok(os_pid) && socket.starts_with('/')).then(|| Listening { socket: PathBuf::from(socket), file })
}

/// Returns the device and the inode of a file.
pub(super) fn file_id(path: &Path) -> io::Result<(u64, u64)> {
    let found = fs::symlink_metadata(path)?;
    Ok((found.dev(), found.ino()))
}

/// Returns whether the kernel says that this process has locked the data directory `root`. The lock file alone may name a
/// process of another PID namespace.
#[must_use]
pub fn has_locked(root: &Path, os_pid: u32) -> bool {
    let Ok(lock) = regular::open(&root.join("lock")).and_then(|lock| lock.metadata()) else { return false };
    let locks = fs::read_to_string("/proc/locks").unwrap_or_default();
    locks.lines().any(|line| is_lock_of(line, os_pid, lock.ino()))
}

/// Returns whether a line of `/proc/locks` is the exclusive lock of a process on a file. Devices are not compared: some file
/// systems show another one there than to `stat`.
fn is_lock_of(line: &str, os_pid: u32, inode: u64) -> bool {
    let fields: Vec<&str> = line.split_ascii_whitespace().collect();
    let [_, "FLOCK", _, "WRITE", pid, file, ..] = fields[..] else { return false };
    pid.parse() == Ok(os_pid) && file.rsplit(':').next().is_some_and(|found| found.parse() == Ok(inode))
}

/// Returns the OS pid of the daemon that uses the data directory `root`, if there is one.
#[must_use]
pub fn holder(root: &Path) -> Option<u32> {
    let lock = regular::open(&root.join("lock")).ok()?;
    // Shared, and only for a moment: a daemon that starts at this moment tries again.
    match flock(&lock, FlockOperation::NonBlockingLockShared) {
        Err(Errno::WOULDBLOCK) => read_holder(&lock),
        Ok(()) | Err(_) => None,
    }
}
