//! The directory of one session, which is its complete interface.
//!
//! | file | what |
//! |---|---|
//! | `lock` | locked by the creator, then by the shim that inherits it, until the shim is gone; contains the boot id |
//! | `ctl` | the shim's socket; made again when the shim is sent SIGCONT |
//! | `state` | the last state written by the shim; replaced as a whole, not synced |
//! | `log`, `log.N` | the output ([`crate::log`]) |
//! | `exit` | how it ended; replaced whole, and on the disk by a sync of its own or at the end of the log |
//!
//! **Invariant:** every file is reached through the directory's own descriptor, so later changes to its path have no
//! effect. [`SessionDirectory::look`] never says that nothing ran if something may have run.

mod ctl;

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use relive_sandbox::GuardedDirectory;
use rustix::fs::{CWD, FallocateFlags, FlockOperation, Mode, OFlags};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::exit::ExitRecord;
use crate::kernel_file;
use crate::stage::Snapshot;
use crate::tree::{Made, Rungs};

/// The version of [`State`].
pub const STATE_VERSION: u32 = 1;

const LOCK: &str = "lock";
const STATE: &str = "state";
const EXIT: &str = "exit";
/// The exit record while it is being written; space for it is reserved at the launch.
const EXIT_NEW: &str = "exit.new";
/// More than any exit record needs.
const EXIT_RESERVED_BYTES: u64 = 4096;
/// The limit for a state or an exit record; a longer file is not one.
const RECORD_MAX_BYTES: u64 = 1024 * 1024;
const FILE_MODE: Mode = Mode::RUSR.union(Mode::WUSR);

/// The directory of one session.
#[derive(Debug)]
pub struct SessionDirectory {
    path: PathBuf,
    dir: OwnedFd,
}

/// The last state written by a shim.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct State {
    pub version: u32,
    /// The id of the boot in which it was written.
    pub boot_id: String,
    /// The progress of the launch.
    pub stage: RecordedStage,
    /// The shim's OS pid.
    pub shim_pid: i32,
    /// The program's OS pid.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_pid: Option<i32>,
    /// The start time of `host_pid`, in clock ticks since the boot, which distinguishes a process from a later one with
    /// the same pid.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_time: Option<u64>,
    pub snapshot: Snapshot,
    /// The mechanism that keeps its process tree together.
    pub tree: Made,
    /// As `doctor` shows them.
    pub rungs: Rungs,
    /// The working directory in which a repository that the program plants is disabled, also if the shim is lost, but not
    /// if a power cut loses the state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guarded: Option<GuardedDirectory>,
}

/// The progress of a launch, as far as it matters after a crash: whether the program may have run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RecordedStage {
    /// The shim exists.
    Starting,
    /// The child waits at the gate.
    Ready,
    /// Written before the gate opens: the program may have run.
    Running,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lock {
    Held,
    Free,
    /// It says nothing about a shim: the program removed or replaced it.
    Removed,
}

/// The state of a session according to its directory. A program can change its directory: only [`Found::Alive`] is certain.
#[derive(Debug)]
pub enum Found {
    /// It ended, and its shim is gone.
    Ended(ExitRecord),
    /// Its shim lives; this is a connection to it.
    Alive(OwnedFd),
    /// The lock is held and nobody answers: it is starting or exiting. Look again.
    Starting,
    /// There is no shim, none will come, and the program never ran.
    NeverRan,
    /// The program may have run, and its shim is gone without an exit record; with its last state, if that can be read.
    ShimLost(Option<State>),
    /// It was created in another boot, or in an unknown one.
    OtherBoot(Option<State>),
}

impl Found {
    pub(crate) fn into_record(self) -> Option<ExitRecord> {
        match self {
            Self::Ended(record) => Some(record),
            Self::Alive(_) | Self::Starting | Self::NeverRan | Self::ShimLost(_) | Self::OtherBoot(_) => None,
        }
    }
}

impl SessionDirectory {
    /// Creates the directory, which must not exist, and its lock, held by the returned descriptor. The lock is free
    /// when the last copy of that descriptor is closed.
    pub fn create(path: impl Into<PathBuf>) -> io::Result<(Self, OwnedFd)> {
        let path = path.into();
        let begun = aside(&path);
        make_afresh(&begun)?;
        let mut directory = Self::open(begun.clone())?;
        let lock = directory.open_file(LOCK, OFlags::CREATE | OFlags::EXCL | OFlags::RDWR)?;
        rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
        let mut lock = File::from(lock);
        lock.write_all(boot_id()?.as_bytes())?;
        // It gets its name after it contains the boot id: a creator that dies before that has created nothing.
        match rustix::fs::renameat(CWD, &begun, CWD, &path) {
            Err(rustix::io::Errno::NOTEMPTY | rustix::io::Errno::EXIST | rustix::io::Errno::NOTDIR) => {
                remove(&begun)?;
                return Err(io::ErrorKind::AlreadyExists.into());
            }
            renamed => renamed?,
        }
        directory.path = path;
        Ok((directory, lock.into()))
    }

    /// Creates it together with the directory of sessions that it is to be in: an empty one shows that sessions were removed.
    pub(crate) fn create_first(path: &Path) -> io::Result<(Self, OwnedFd)> {
        let (Some(sessions), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(io::ErrorKind::NotFound.into());
        };
        let begun = aside(sessions);
        make_afresh(&begun)?;
        let (directory, lock) = Self::create(begun.join(name))?;
        rustix::fs::renameat(CWD, &begun, CWD, sessions)?;
        Ok((Self { path: path.to_owned(), ..directory }, lock))
    }

    /// Creates it in the place of one whose program never ran, and whose lock the caller holds. That one is renamed first,
    /// because a partial one would be misread.
    pub(crate) fn create_again(path: &Path) -> io::Result<(Self, OwnedFd)> {
        let old = aside(path).with_extension("old");
        remove(&old)?;
        rustix::fs::renameat(CWD, path, CWD, &old)?;
        let created = Self::create(path)?;
        remove(&old)?;
        Ok(created)
    }

    /// Opens an existing directory.
    pub fn open(path: impl Into<PathBuf>) -> io::Result<Self> {
        let path = path.into();
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let dir = rustix::fs::openat(CWD, &path, flags, Mode::empty())?;
        Ok(Self { path, dir })
    }

    /// Returns another handle to it, which does not depend on its path.
    pub(crate) fn again(&self) -> io::Result<Self> {
        Ok(Self { path: self.path.clone(), dir: rustix::io::fcntl_dupfd_cloexec(&self.dir, 3)? })
    }

    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the name of the session, unique within the data directory: its own number, and its process. The number
    /// alone would be the same for the first session of every process, and so would their cgroups and markers.
    #[must_use]
    pub(crate) fn name(&self) -> String {
        name_of(&self.path)
    }

    /// Replaces the state. Not synced: after another boot only [`State::guarded`] matters, and a power cut may lose that.
    pub fn write_state(&self, state: &State) -> io::Result<()> {
        self.replace(STATE, state)
    }

    /// Returns the last state written by the shim.
    pub fn read_state(&self) -> io::Result<Option<State>> {
        self.read_record(STATE)
    }

    /// Reserves space for the exit record, so that it can be written on a full disk. If the file system does not
    /// support this, it is written like any other file.
    pub(crate) fn reserve_exit(&self) -> io::Result<()> {
        let file = self.open_file(EXIT_NEW, OFlags::CREATE | OFlags::WRONLY)?;
        match rustix::fs::fallocate(&file, FallocateFlags::KEEP_SIZE, 0, EXIT_RESERVED_BYTES) {
            Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSPC) | Ok(()) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Writes the exit record. It is on the disk when this returns.
    pub fn write_exit(&self, record: &ExitRecord) -> io::Result<()> {
        self.put_exit(record)?.sync_all()?;
        rustix::fs::renameat(&self.dir, EXIT_NEW, &self.dir, EXIT)?;
        Ok(rustix::fs::fsync(&self.dir)?)
    }

    /// Leaves an exit record that is on the disk already, at the end of the log.
    pub(crate) fn write_exit_unsynced(&self, record: &ExitRecord) -> io::Result<()> {
        self.put_exit(record)?;
        Ok(rustix::fs::renameat(&self.dir, EXIT_NEW, &self.dir, EXIT)?)
    }

    fn put_exit(&self, record: &ExitRecord) -> io::Result<File> {
        // Not truncated first: that would release the reserved space.
        let file = File::from(self.open_file(EXIT_NEW, OFlags::CREATE | OFlags::WRONLY)?);
        let mut bytes = serde_json::to_vec(record)?;
        bytes.push(b'\n');
        file.write_all_at(&bytes, 0)?;
        file.set_len(bytes.len() as u64)?;
        Ok(file)
    }

    /// Returns the exit record, if there is one.
    pub fn read_exit(&self) -> io::Result<Option<ExitRecord>> {
        self.read_record(EXIT)
    }

    /// The exit record at the end of the log. It counts when the shim has gone without leaving the other, or the power with
    /// which that one went.
    fn read_exit_in_log(&self) -> Option<ExitRecord> {
        let bytes = crate::log::read_exit(self).ok()??;
        serde_json::from_slice(&bytes).ok()
    }

    /// Returns whether there is no shim, and none is about to start, as far as the lock tells.
    pub fn lock_is_free(&self) -> io::Result<bool> {
        Ok(self.lock()? != Lock::Held)
    }

    /// Takes the lock of a session that has no shim, so that none is launched in its place meanwhile. Returns `None` if
    /// somebody else has it, or another directory has taken the place of this one.
    pub(crate) fn hold(&self) -> io::Result<Option<OwnedFd>> {
        let lock = match self.open_file(LOCK, OFlags::RDONLY) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            lock => lock?,
        };
        match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Err(rustix::io::Errno::WOULDBLOCK) => return Ok(None),
            locked => locked?,
        }
        let (held, named) = (rustix::fs::fstat(&self.dir)?, rustix::fs::lstat(&self.path));
        let is_in_place = named.is_ok_and(|named| (named.st_dev, named.st_ino) == (held.st_dev, held.st_ino));
        Ok(is_in_place.then_some(lock))
    }

    fn lock(&self) -> io::Result<Lock> {
        let lock = match self.open_file(LOCK, OFlags::RDONLY) {
            Ok(lock) => lock,
            Err(error) if is_missing_or_replaced(&error) => return Ok(Lock::Removed),
            Err(error) => return Err(error),
        };
        // Shared: a concurrent look is not mistaken for a shim.
        match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockShared) {
            Ok(()) => Ok(Lock::Free),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(Lock::Held),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns the state of the session, as seen from the boot `boot_id`.
    pub fn look(&self, boot_id: &str) -> io::Result<Found> {
        // A record counts when the shim is gone: before that, the program may have written it.
        if self.lock()? == Lock::Free
            && let Ok(Some(record)) = self.read_exit()
        {
            return Ok(Found::Ended(record));
        }
        match self.ctl_connect() {
            Ok(connection) => return Ok(Found::Alive(connection)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Found::Starting),
            Err(error) if is_nobody(&error) => {}
            Err(error) => return Err(error),
        }
        if !self.lock_is_free()? {
            return Ok(Found::Starting);
        }
        // The shim may have written its record, and exited, since the first look. Nobody writes after this one.
        let (exit, state) = (self.read_exit(), self.read_state());
        if !matches!(exit, Ok(Some(_)))
            && let Some(record) = self.read_exit_in_log()
        {
            return Ok(Found::Ended(record));
        }
        let lock_tells = self.made_in_boot()?.as_deref() == Some(boot_id);
        // The program may have replaced the lock in this boot.
        let state_tells = matches!(&state, Ok(Some(state)) if state.boot_id == boot_id);
        let of_this_boot = lock_tells || state_tells;
        // In another boot it may be what the power left of one that was not synced.
        if of_this_boot && (exit.as_ref().is_err_and(is_nonsense) || state.as_ref().is_err_and(is_nonsense)) {
            // No shim writes this: something ran.
            return Ok(Found::ShimLost(state.unwrap_or_default()));
        }
        let unless_spoilt = |error: io::Error| if of_this_boot { Err(error) } else { Ok(None) };
        if let Some(record) = exit.or_else(|error| unless_spoilt(error).map(|_: Option<()>| None))? {
            return Ok(Found::Ended(record));
        }
        let state = state.or_else(|error| unless_spoilt(error).map(|_| None))?;
        // The state is not synced: after another boot a missing or old one means nothing.
        if !of_this_boot || state.as_ref().is_some_and(|state| state.boot_id != boot_id) {
            return Ok(Found::OtherBoot(state));
        }
        Ok(match state {
            Some(state) if state.stage == RecordedStage::Running || !lock_tells => Found::ShimLost(Some(state)),
            Some(_) | None => Found::NeverRan,
        })
    }

    /// Opens a file of the directory, for this crate's own files.
    pub(crate) fn open_file(&self, name: &str, flags: OFlags) -> io::Result<OwnedFd> {
        // The program can put anything there: a pipe must not block.
        let careful = OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
        Ok(rustix::fs::openat(&self.dir, name, flags | careful, FILE_MODE)?)
    }

    pub(crate) fn dir(&self) -> BorrowedFd<'_> {
        self.dir.as_fd()
    }

    /// Returns the boot id of the directory; `None` if its creator died too early, the disk lost it, or the program replaced it.
    pub(crate) fn made_in_boot(&self) -> io::Result<Option<String>> {
        let bytes = self.read_file(LOCK).or_else(|error| if is_nonsense(&error) { Ok(None) } else { Err(error) })?;
        Ok(bytes.and_then(|bytes| String::from_utf8(bytes).ok()).filter(|boot| !boot.is_empty()))
    }

    fn replace(&self, name: &str, record: &impl Serialize) -> io::Result<()> {
        let temporary = format!("{name}.tmp");
        let flags = OFlags::CREATE | OFlags::TRUNC | OFlags::WRONLY;
        let mut file = File::from(self.open_file(&temporary, flags)?);
        let mut bytes = serde_json::to_vec(record)?;
        bytes.push(b'\n');
        file.write_all(&bytes)?;
        Ok(rustix::fs::renameat(&self.dir, &temporary, &self.dir, name)?)
    }

    fn read_record<T: DeserializeOwned>(&self, name: &str) -> io::Result<Option<T>> {
        let Some(bytes) = self.read_file(name)? else { return Ok(None) };
        let invalid = |error| io::Error::new(io::ErrorKind::InvalidData, format!("{name}: {error}"));
        serde_json::from_slice(&bytes).map(Some).map_err(invalid)
    }

    fn read_file(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        let file = match self.open_file(name, OFlags::RDONLY) {
            Ok(file) => File::from(file),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        if !file.metadata()?.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidData, format!("{name} is not a regular file")));
        }
        let mut bytes = Vec::new();
        file.take(RECORD_MAX_BYTES).read_to_end(&mut bytes)?;
        Ok(Some(bytes))
    }
}

/// Returns whether no shim listens: its socket is gone, or something else is in its place.
fn is_nobody(error: &io::Error) -> bool {
    const OTHERS: [i32; 4] = [libc::EPROTOTYPE, libc::ENOTSOCK, libc::ELOOP, libc::EACCES];
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused)
        || error.raw_os_error().is_some_and(|code| OTHERS.contains(&code))
}

/// Returns whether a directory could not be opened because its program removed it, or put something else in its place.
pub(crate) fn is_missing_or_replaced(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || is_replaced(error)
}

/// Returns whether something else is in the place of a directory or file, or nobody may open it any more.
pub(crate) fn is_replaced(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOTDIR | libc::ELOOP | libc::EACCES | libc::ENXIO))
}

/// Returns whether a file is none that a shim has written.
fn is_nonsense(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::InvalidData || is_replaced(error)
}

/// Returns the name of the session in this directory, whether the directory exists or not.
pub(crate) fn name_of(path: &Path) -> String {
    let part = |path: Option<&Path>| path.and_then(Path::file_name).map(|name| name.to_string_lossy().into_owned());
    let owner = part(path.parent().and_then(Path::parent));
    [part(Some(path)), owner].into_iter().flatten().collect::<Vec<_>>().join("-")
}

/// Returns the directory of the session of this name, if it is one in this directory of sessions.
pub(crate) fn path_of(sessions: &Path, name: &str) -> Option<PathBuf> {
    let owner = sessions.parent()?.file_name()?.to_str()?;
    let number = name.strip_suffix(owner)?.strip_suffix('-')?;
    Some(sessions.join(number))
}

/// Returns the path of a directory while it is created or removed. No session has a name that begins with a dot.
fn aside(path: &Path) -> PathBuf {
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    path.with_file_name(format!(".{name}"))
}

/// Creates a directory in the place of one that somebody left there.
fn make_afresh(path: &Path) -> io::Result<()> {
    match rustix::fs::mkdirat(CWD, path, Mode::RWXU) {
        Err(rustix::io::Errno::EXIST) => {
            remove(path)?;
            Ok(rustix::fs::mkdirat(CWD, path, Mode::RWXU)?)
        }
        made => Ok(made?),
    }
}

fn remove(path: &Path) -> io::Result<()> {
    #[expect(clippy::disallowed_methods, reason = "a session's directory is its own, and nothing ran in it")]
    match std::fs::remove_dir_all(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// Returns the id of this boot.
pub fn boot_id() -> io::Result<String> {
    static KNOWN: OnceLock<String> = OnceLock::new();
    if let Some(known) = KNOWN.get() {
        return Ok(known.clone());
    }
    let bytes = kernel_file::read_once("/proc/sys/kernel/random/boot_id")?;
    let id = String::from_utf8(bytes).map_err(|_| io::ErrorKind::InvalidData)?;
    Ok(KNOWN.get_or_init(|| id.trim().to_owned()).clone())
}

#[cfg(test)]
mod tests;
