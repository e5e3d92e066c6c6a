//! Faults on purpose, for tests: stop at the n-th change, fail it, or cut the power.
//!
//! [`Faults`] counts every change that goes through [`crate::Disk`] and keeps a model of what a disk would still hold
//! after a power cut: a file's bytes as of its last sync, and a directory's entries as of its own. Nothing is really
//! synced, so that a sweep over every point of a script takes seconds.

mod model;

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::hook::{Op, Verdict};
use model::{Dice, Model};

/// Parts of the protocol that a `faults` build can skip, to prove that the tests notice.
#[derive(Debug, Clone, Copy, Default)]
pub struct Switches {
    /// Files are never synced.
    pub no_sync: bool,
    /// Directories are never synced.
    pub no_dir_sync: bool,
    /// A torn tail is not cut off before appending.
    pub no_repair: bool,
    /// Locks are always granted.
    pub no_lock: bool,
    /// The order in which names reach the disk.
    pub names: Names,
}

/// The order in which the names in a directory reach the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Names {
    /// Any order, and each only when its directory is synced, as in POSIX.
    #[default]
    Apart,
    /// The order of their creation, and that of a new file with its sync; Relive knows that this disk does so.
    InOrder,
    /// Any order, but Relive assumes that the disk keeps it.
    WronglyTrusted,
}

/// The fault at the chosen change. Changes are counted from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Injection {
    None,
    /// This change and all later ones do not happen, as if the process had been killed before it.
    Stop(u64),
    /// Like [`Self::Stop`], but half of a write happens.
    StopHalfway(u64),
    /// This change fails with this error number, and has no effect.
    Fail(u64, i32),
    /// Like [`Self::Fail`], but half of a write happens.
    FailHalfway(u64, i32),
    /// This write to files of this name fails with this error number, whatever else is changed between.
    FailWriteTo(&'static str, u64, i32),
    /// Like [`Self::Fail`], and some changes later everything stops.
    FailThenStop {
        fail: u64,
        errno: i32,
        stop: u64,
    },
}

/// A full disk: changes that need space fail with `ENOSPC`. Files can be opened, read, truncated and removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Full {
    /// Until the file `reserve` is removed.
    UntilRelieved,
    /// Until a file of this name is removed.
    UntilRemoved(&'static str),
    /// Whatever is removed.
    Always,
}

/// How much unsynced data a power cut leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PowerCut {
    Strict,
    /// Some of it, chosen by this seed: a part of each file's end, some of it zeros; some of each directory's entries.
    Mixed(u64),
}

/// The faults of one [`crate::Disk`].
#[derive(Debug)]
pub struct Faults {
    root: PathBuf,
    switches: Switches,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    injection: Injection,
    count: u64,
    stopped: bool,
    /// A description of the change that was stopped or failed.
    injected: Option<String>,
    /// The error for the rest of a halved write.
    rest_fails: Option<i32>,
    full: Option<Full>,
    /// Files that cannot be read, each with the error number.
    unreadable: Vec<(PathBuf, i32)>,
    model: Model,
}

const ENOSPC: i32 = 28;
const STOPPED: i32 = 125; // ECANCELED: nothing else here gives it.

/// Returns whether a change needs space. Syncs of files do not: the space was taken when they were written.
fn needs_room(op: &Op<'_>) -> bool {
    match op {
        Op::Create { .. }
        | Op::Write { .. }
        | Op::Overwrite { .. }
        | Op::Allocate
        | Op::SyncDir { .. }
        | Op::Rename { .. }
        | Op::Mkdir { .. } => true,
        Op::Truncate { .. } | Op::Sync { .. } | Op::Unlink { .. } => false,
    }
}

fn errno(number: i32) -> io::Error {
    io::Error::from_raw_os_error(number)
}

impl Faults {
    /// Creates faults for everything below `root`, whose content counts as synced.
    pub fn new(root: &Path, injection: Injection, switches: Switches) -> io::Result<Self> {
        let model = Model::of(root, switches.names)?;
        let state = State {
            injection,
            count: 0,
            stopped: false,
            injected: None,
            rest_fails: None,
            full: None,
            unreadable: Vec::new(),
            model,
        };
        Ok(Self { root: root.to_owned(), switches, state: Mutex::new(state) })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[must_use]
    pub fn count(&self) -> u64 {
        self.lock().count
    }

    #[must_use]
    pub fn stopped(&self) -> bool {
        self.lock().stopped
    }

    /// Returns a description of the change that was stopped or failed.
    #[must_use]
    pub fn injected(&self) -> Option<String> {
        self.lock().injected.clone()
    }

    /// Simulates a restart of the process: nothing more is stopped or failed. Unsynced data is still only in the cache.
    pub fn restart(&self) {
        let mut state = self.lock();
        state.stopped = false;
        state.injection = Injection::None;
    }

    /// Injects a fault, counting changes from here.
    pub fn inject_from_here(&self, injection: Injection) {
        let mut state = self.lock();
        (state.injection, state.count) = (injection, 0);
    }

    /// Makes reading this file fail with this error number from now on.
    pub fn fail_reads(&self, path: &Path, errno: i32) {
        self.lock().unreadable.push((path.to_owned(), errno));
    }

    /// Makes the disk full from now on.
    pub fn fill_up(&self, full: Full) {
        self.lock().full = Some(full);
    }

    /// Ends the full disk.
    pub fn make_room(&self) {
        self.lock().full = None;
    }

    pub(crate) fn before_read(&self, path: &Path) -> io::Result<()> {
        let state = self.lock();
        let failing = state.unreadable.iter().find(|(unreadable, _)| unreadable == path);
        failing.map_or(Ok(()), |(_, error)| Err(errno(*error)))
    }

    pub(crate) fn switches(&self) -> Switches {
        self.switches
    }

    /// Writes the content of the disk after a power cut to the new directory `to`.
    pub fn power_cut(&self, to: &Path, cut: PowerCut) -> io::Result<()> {
        let dice = match cut {
            PowerCut::Strict => None,
            PowerCut::Mixed(seed) => Some(Dice(seed)),
        };
        self.lock().model.materialize(to, dice)
    }

    pub(crate) fn before(&self, op: &Op<'_>) -> io::Result<Verdict> {
        let mut state = self.lock();
        if state.full.is_some() && needs_room(op) {
            return Err(errno(ENOSPC));
        }
        // A change that cannot happen by half does not happen at all.
        let error = match state.step(|| self.describe(op)) {
            Ok(None) => {
                let is_sync = matches!(op, Op::Sync { .. } | Op::SyncDir { .. });
                return Ok(if is_sync { Verdict::Skip } else { Verdict::Proceed });
            }
            Ok(Some(error)) | Err(error) => error,
        };
        state.stopped |= error == STOPPED;
        if !state.stopped {
            match op {
                Op::Sync { file } => state.model.sync_failed(file),
                Op::SyncDir { path } => state.model.dir_sync_failed(path),
                Op::Create { .. }
                | Op::Write { .. }
                | Op::Overwrite { .. }
                | Op::Truncate { .. }
                | Op::Allocate
                | Op::Rename { .. }
                | Op::Unlink { .. }
                | Op::Mkdir { .. } => {}
            }
        }
        Err(errno(error))
    }

    pub(crate) fn offer<'a>(&self, file: &File, bytes: &'a [u8]) -> io::Result<&'a [u8]> {
        let mut state = self.lock();
        if state.full.is_some() {
            return Err(errno(ENOSPC));
        }
        let error = match state.rest_fails.take() {
            Some(error) => error,
            None => match state.step(|| self.describe(&Op::Write { file, bytes })) {
                Ok(None) => return Ok(bytes),
                Ok(Some(error)) if bytes.len() > 1 => {
                    state.rest_fails = Some(error);
                    return Ok(&bytes[..bytes.len() / 2]);
                }
                Ok(Some(error)) | Err(error) => error,
            },
        };
        state.stopped |= error == STOPPED;
        Err(errno(error))
    }

    pub(crate) fn after(&self, op: &Op<'_>) {
        let mut state = self.lock();
        let awaited = match state.full {
            Some(Full::UntilRelieved) => Some("reserve"),
            Some(Full::UntilRemoved(name)) => Some(name),
            Some(Full::Always) | None => None,
        };
        if awaited.is_some_and(|name| matches!(op, Op::Unlink { path } if path.ends_with(name))) {
            state.full = None;
        }
        let model = &mut state.model;
        match op {
            Op::Create { path } => model.created(path),
            Op::Write { file, bytes } => model.wrote(file, bytes),
            Op::Overwrite { file, bytes } => model.overwrote(file, bytes),
            Op::Truncate { file, len } => model.cut(file, *len),
            Op::Allocate => {}
            Op::Sync { file } if !self.switches.no_sync => model.synced(file),
            Op::SyncDir { path } if !self.switches.no_dir_sync => model.dir_synced(path),
            Op::Sync { .. } | Op::SyncDir { .. } => {}
            Op::Rename { from, to } => model.renamed(from, to),
            Op::Unlink { path } => model.unlinked(path),
            Op::Mkdir { path } => model.made_dir(path),
        }
    }

    fn describe(&self, op: &Op<'_>) -> String {
        let show = |path: &Path| match path.strip_prefix(&self.root) {
            Ok(below) if below.as_os_str().is_empty() => ".".to_owned(),
            Ok(below) => below.display().to_string(),
            Err(_) => path.display().to_string(),
        };
        let name =
            |file: &File| show(&fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).unwrap_or_default());
        match op {
            Op::Create { path } => format!("create {}", show(path)),
            Op::Write { file, bytes } => format!("write {} bytes to {}", bytes.len(), name(file)),
            Op::Overwrite { file, bytes } => format!("overwrite {} with {} bytes", name(file), bytes.len()),
            Op::Truncate { file, len } => format!("truncate {} to {len}", name(file)),
            Op::Allocate => "allocate".to_owned(),
            Op::Sync { file } => format!("sync {}", name(file)),
            Op::SyncDir { path } => format!("sync directory {}", show(path)),
            Op::Rename { from, to } => format!("rename {} to {}", show(from), show(to)),
            Op::Unlink { path } => format!("unlink {}", show(path)),
            Op::Mkdir { path } => format!("mkdir {}", show(path)),
        }
    }
}

impl State {
    /// Counts a change. Returns `Err` if it does not happen, and `Some` if half of a write happens before that error.
    fn step(&mut self, describe: impl Fn() -> String) -> Result<Option<i32>, i32> {
        if self.stopped {
            return Err(STOPPED);
        }
        if let Injection::FailWriteTo(file, ..) = self.injection {
            let change = describe();
            if !(change.starts_with("write") && change.ends_with(file)) {
                return Ok(None);
            }
        }
        self.count += 1;
        let count = self.count;
        let outcome = match self.injection {
            Injection::Stop(at) if at == count => Err(STOPPED),
            Injection::StopHalfway(at) if at == count => Ok(Some(STOPPED)),
            Injection::Fail(at, error) | Injection::FailWriteTo(_, at, error) if at == count => Err(error),
            Injection::FailHalfway(at, error) if at == count => Ok(Some(error)),
            Injection::FailThenStop { fail, errno, .. } if fail == count => Err(errno),
            Injection::FailThenStop { stop, .. } if stop == count => Err(STOPPED),
            Injection::None
            | Injection::Stop(_)
            | Injection::StopHalfway(_)
            | Injection::Fail(..)
            | Injection::FailWriteTo(..)
            | Injection::FailHalfway(..)
            | Injection::FailThenStop { .. } => Ok(None),
        };
        if outcome != Ok(None) {
            self.injected.get_or_insert_with(describe);
        }
        outcome
    }
}
