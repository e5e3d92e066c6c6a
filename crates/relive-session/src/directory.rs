//! The directory of one session: its whole outside.
//!
//! | file | what |
//! |---|---|
//! | `lock` | locked by the creator, then by the shim that inherits it, until the shim has gone; says of which boot it is |
//! | `ctl` | the shim's socket |
//! | `state` | what the shim last said of itself; replaced whole, not synced |
//! | `log`, `log.N` | the output ([`crate::log`]) |
//! | `exit` | how it ended; replaced whole, synced |
//!
//! What always holds: every file is reached through the directory's own descriptor, so nothing that is done to its path later
//! leads anywhere else. [`SessionDirectory::look`] never says that nothing ran where something may have run.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FallocateFlags, FlockOperation, Mode, OFlags};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::exit::ExitRecord;
use crate::protocol::CONNECTIONS_MAX;
use crate::stage::Snapshot;
use crate::tree::{Made, Rungs};

/// The version of [`State`].
pub const STATE_VERSION: u32 = 1;

const LOCK: &str = "lock";
const CTL: &str = "ctl";
const STATE: &str = "state";
const EXIT: &str = "exit";
/// The exit record until it is whole; room for it is set aside at the launch.
const EXIT_NEW: &str = "exit.new";
/// More than any exit record has.
const EXIT_RESERVED_BYTES: u64 = 4096;
/// A state or an exit record is far below this; what is longer is not one.
const RECORD_MAX_BYTES: u64 = 1024 * 1024;
const FILE_MODE: Mode = Mode::RUSR.union(Mode::WUSR);

/// The directory of one session.
#[derive(Debug)]
pub struct SessionDirectory {
    path: PathBuf,
    dir: OwnedFd,
}

/// What a shim last said of itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct State {
    /// [`STATE_VERSION`].
    pub version: u32,
    /// The boot it was written in.
    pub boot_id: String,
    /// How far the launch came.
    pub stage: RecordedStage,
    /// The shim's own pid.
    pub shim_pid: i32,
    /// The program's pid on the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_pid: Option<i32>,
    /// When `host_pid` began, in clock ticks since the boot: with it a pid can be told from its reuse.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_time: Option<u64>,
    /// Where it stood.
    pub snapshot: Snapshot,
    /// What holds its tree.
    pub tree: Made,
    /// In the words of `doctor`.
    pub rungs: Rungs,
}

/// How far a launch came, as far as it matters to those who find the directory: whether the program may have run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RecordedStage {
    /// There is a shim.
    Starting,
    /// The child waits at the gate.
    Ready,
    /// Written before the gate opens: the program may have run.
    Running,
}

/// What became of a session, as its directory has it.
#[derive(Debug)]
pub enum Found {
    /// It ended, and its shim has gone.
    Ended(ExitRecord),
    /// Its shim lives; this is a connection to it.
    Alive(OwnedFd),
    /// Somebody holds the lock and nobody answers: it begins, or is just leaving. Ask again.
    Starting,
    /// There is no shim, none will come, and the program never ran.
    NeverRan,
    /// The program may have run, and its shim has gone without a word; what it said before, if that can be read.
    ShimLost(Option<State>),
    /// It was made in another boot, or nothing shows that it was made in this one.
    OtherBoot(Option<State>),
}

impl SessionDirectory {
    /// Makes the directory, which must not exist, and its lock, held by the descriptor that is returned. The lock is free
    /// when the last copy of that descriptor is closed.
    pub fn create(path: impl Into<PathBuf>) -> io::Result<(Self, OwnedFd)> {
        let path = path.into();
        let begun = aside(&path);
        remove(&begun)?;
        rustix::fs::mkdirat(CWD, &begun, Mode::RWXU)?;
        let mut directory = Self::open(begun.clone())?;
        let lock = directory.open_file(LOCK, OFlags::CREATE | OFlags::EXCL | OFlags::RDWR)?;
        rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
        let mut lock = File::from(lock);
        lock.write_all(boot_id()?.as_bytes())?;
        // It has its name when it says of which boot it is: a maker that dies before that has made nothing.
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

    /// Removes one whose program never ran. It loses its name first: half of it would say something else.
    pub(crate) fn discard(path: &Path) -> io::Result<()> {
        let aside = aside(path);
        remove(&aside)?;
        rustix::fs::renameat(CWD, path, CWD, &aside)?;
        remove(&aside)
    }

    /// Opens one that is there.
    pub fn open(path: impl Into<PathBuf>) -> io::Result<Self> {
        let path = path.into();
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let dir = rustix::fs::openat(CWD, &path, flags, Mode::empty())?;
        Ok(Self { path, dir })
    }

    /// Where it was found.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What the session is called among all of one data directory's: its own number, and whose it is. The number alone would
    /// be the same for the first session of every process, and so would their cgroups and their marks.
    #[must_use]
    pub(crate) fn name(&self) -> String {
        let part = |path: Option<&Path>| path.and_then(Path::file_name).map(|name| name.to_string_lossy().into_owned());
        let owner = part(self.path.parent().and_then(Path::parent));
        [part(Some(&self.path)), owner].into_iter().flatten().collect::<Vec<_>>().join("-")
    }

    /// Replaces the state. Not synced: after another boot it does not matter what it said.
    pub fn write_state(&self, state: &State) -> io::Result<()> {
        self.replace(STATE, state)
    }

    /// What the shim last said of itself.
    pub fn read_state(&self) -> io::Result<Option<State>> {
        self.read_record(STATE)
    }

    /// Sets room aside for the exit record, so that a full disk does not keep it from being written. Where the file system
    /// cannot, it is written like any other file.
    pub(crate) fn reserve_exit(&self) -> io::Result<()> {
        let file = self.open_file(EXIT_NEW, OFlags::CREATE | OFlags::WRONLY)?;
        match rustix::fs::fallocate(&file, FallocateFlags::KEEP_SIZE, 0, EXIT_RESERVED_BYTES) {
            Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSPC) | Ok(()) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Leaves the exit record. It is on the disk when this returns.
    pub fn write_exit(&self, record: &ExitRecord) -> io::Result<()> {
        // Not cut to nothing first: that would give the room away that was set aside.
        let file = File::from(self.open_file(EXIT_NEW, OFlags::CREATE | OFlags::WRONLY)?);
        let mut bytes = serde_json::to_vec(record)?;
        bytes.push(b'\n');
        file.write_all_at(&bytes, 0)?;
        file.set_len(bytes.len() as u64)?;
        file.sync_all()?;
        rustix::fs::renameat(&self.dir, EXIT_NEW, &self.dir, EXIT)?;
        Ok(rustix::fs::fsync(&self.dir)?)
    }

    /// The exit record, where there is one.
    pub fn read_exit(&self) -> io::Result<Option<ExitRecord>> {
        self.read_record(EXIT)
    }

    /// The socket owners connect to, already listening.
    pub fn ctl_bind(&self) -> io::Result<OwnedFd> {
        let socket = ctl_socket()?;
        rustix::net::bind(&socket, &self.ctl_address()?)?;
        rustix::fs::chmodat(&self.dir, CTL, FILE_MODE, AtFlags::empty())?;
        rustix::net::listen(&socket, CONNECTIONS_MAX as i32)?;
        Ok(socket)
    }

    /// Nobody is to connect any more: the exit record says it all.
    pub(crate) fn ctl_remove(&self) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(&self.dir, CTL, AtFlags::empty())?)
    }

    /// A connection to the shim; `WouldBlock` where too many wait for it already.
    pub fn ctl_connect(&self) -> io::Result<OwnedFd> {
        let socket = ctl_socket()?;
        rustix::net::connect(&socket, &self.ctl_address()?)?;
        Ok(socket)
    }

    /// Whether there is no shim, and none that is still to come.
    pub fn lock_is_free(&self) -> io::Result<bool> {
        let lock = match self.open_file(LOCK, OFlags::RDONLY) {
            Ok(lock) => lock,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(true),
            Err(error) => return Err(error),
        };
        // Shared: whoever else looks at this very moment is not taken for a shim.
        match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockShared) {
            Ok(()) => Ok(true),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// What became of the session, seen from the boot `boot_id`.
    pub fn look(&self, boot_id: &str) -> io::Result<Found> {
        // A record counts when the shim has gone: before that, the program may have written it.
        if self.lock_is_free()?
            && let Ok(Some(record)) = self.read_exit()
        {
            return Ok(Found::Ended(record));
        }
        match self.ctl_connect() {
            Ok(connection) => return Ok(Found::Alive(connection)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Found::Starting),
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) => {}
            Err(error) => return Err(error),
        }
        if !self.lock_is_free()? {
            return Ok(Found::Starting);
        }
        // The shim may have left its record, and gone, since the first look. Nobody will write after this one.
        let (exit, state) = (self.read_exit(), self.read_state());
        let is_nonsense = |error: Option<&io::Error>| error.is_some_and(|e| e.kind() == io::ErrorKind::InvalidData);
        if is_nonsense(exit.as_ref().err()) || is_nonsense(state.as_ref().err()) {
            // No shim writes this: something ran.
            return Ok(Found::ShimLost(state.unwrap_or_default()));
        }
        if let Some(record) = exit? {
            return Ok(Found::Ended(record));
        }
        let state = state?;
        // The state is not synced: after another boot a missing one, or an old one, says nothing.
        if self.made_in_boot()?.as_deref() != Some(boot_id) || state.as_ref().is_some_and(|s| s.boot_id != boot_id) {
            return Ok(Found::OtherBoot(state));
        }
        Ok(match state {
            Some(state) if state.stage == RecordedStage::Running => Found::ShimLost(Some(state)),
            Some(_) | None => Found::NeverRan,
        })
    }

    /// Opens a file of the directory, for this crate's own files.
    pub(crate) fn open_file(&self, name: &str, flags: OFlags) -> io::Result<OwnedFd> {
        // The program can put anything there: a pipe must not keep us waiting.
        let careful = OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
        Ok(rustix::fs::openat(&self.dir, name, flags | careful, FILE_MODE)?)
    }

    pub(crate) fn dir(&self) -> BorrowedFd<'_> {
        self.dir.as_fd()
    }

    /// The boot the directory was made in; none where its maker died too early to say, or the disk lost it.
    pub(crate) fn made_in_boot(&self) -> io::Result<Option<String>> {
        Ok(self.read_file(LOCK)?.and_then(|bytes| String::from_utf8(bytes).ok()).filter(|boot| !boot.is_empty()))
    }

    fn ctl_address(&self) -> io::Result<SocketAddrUnix> {
        // The address of a socket has room for 108 bytes; the directory's own path may be longer.
        Ok(SocketAddrUnix::new(format!("/proc/self/fd/{}/{CTL}", self.dir.as_raw_fd()))?)
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

/// Where a directory is while it is made or removed. The name of none begins with a dot.
fn aside(path: &Path) -> PathBuf {
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    path.with_file_name(format!(".{name}"))
}

fn remove(path: &Path) -> io::Result<()> {
    #[expect(clippy::disallowed_methods, reason = "a session's directory is its own, and nothing ran in it")]
    match std::fs::remove_dir_all(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// This boot's own id.
pub fn boot_id() -> io::Result<String> {
    Ok(std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_owned())
}

fn ctl_socket() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?)
}

#[cfg(test)]
mod tests;
