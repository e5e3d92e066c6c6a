//! `tombstones.jsonl`: records of collected processes.
//!
//! A tombstone is kept for [`KEPT_DAYS`] days, and at most the newest [`KEPT_MAX`] are kept. The file is compacted when
//! it has doubled since the last time, so no start reads it and each tombstone is copied a bounded number of times. A
//! compacted file begins with a line with the number of dropped ones and their highest PID: no PID is reused, even if
//! `pids` is lost.
//!
//! Anything else in its place (a pipe, a directory, a loop of links, terabytes) is renamed, and a new file is created:
//! without a tombstone a process looks as if it never was, and its ancestors lose sight of what it spawned.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{MutexGuard, PoisonError};

use relive_core::{End, Origin, Pid, Timestamp, Uuid};
use serde::{Deserialize, Serialize};

use super::DataDirectory;
use crate::events::whole_lines;
use crate::history::{LedgerEntry, Spent};
use crate::info::ProcInfo;
use crate::line;
use crate::regular;

/// How many tombstones are kept.
pub const KEPT_MAX: usize = 100_000;
/// For how many days a tombstone is kept.
pub const KEPT_DAYS: i64 = 365;
/// The size below which the file is never compacted.
const COMPACT_MIN_BYTES: u64 = 1 << 20;
/// How many files may be set aside.
const ASIDE_MAX: u32 = 100;
const DAY_MS: i64 = 24 * 60 * 60 * 1000;

/// The state of the file. Locked while it is changed.
#[derive(Debug, Default)]
pub(super) struct TombstoneLog {
    /// Whether this daemon has ensured that the directory entry is on the disk.
    named: bool,
    /// The file's length when it was last compacted, or could not be.
    compacted_bytes: u64,
    /// After a power cut the file may be the one before the compaction, so nothing is appended to it.
    unsure: bool,
    /// A file that was set aside and not reported yet.
    set_aside: Option<SetAside>,
}

/// Something in the place of `tombstones.jsonl` that was set aside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetAside {
    pub path: PathBuf,
    pub to: PathBuf,
    pub problem: String,
}

/// The first line of a compacted file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Dropped {
    dropped: u64,
    highest_pid: Pid,
}

/// The record of a collected process.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Tombstone {
    pub uuid: Uuid,
    pub name: Option<String>,
    #[serde(flatten)]
    pub origin: Option<Origin>,
    /// Its parent: who spawned it may name what it spawned, also when it is gone. Absent if an older Relive collected
    /// it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_uuid: Option<Uuid>,
    /// The process whose budget it drew from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget_uuid: Option<Uuid>,
    /// Its spending, which counts in that budget as long as this is kept; absent if an older Relive collected it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spent: Option<Spent>,
    /// The same by day and model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ledger: Option<Vec<LedgerEntry>>,
    /// The directory it worked in; absent where an older Relive collected it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    pub pids: Vec<Pid>,
    #[serde(flatten)]
    pub end: Option<End>,
    pub dead_at: Timestamp,
    pub collected_at: Timestamp,
}

impl Tombstone {
    pub(super) fn of(info: ProcInfo, dead_at: Timestamp, collected_at: Timestamp) -> Self {
        let budget_uuid = info.payer();
        let ProcInfo { uuid, name, origin, parent_uuid, pids, end, spent, ledger, cwd, .. } = info;
        let (spent, cwd) = (Some(spent), Some(cwd));
        Self { uuid, name, origin, parent_uuid, budget_uuid, spent, ledger, cwd, pids, end, dead_at, collected_at }
    }
}

impl DataDirectory {
    fn tombstones_path(&self) -> PathBuf {
        self.root.join("tombstones.jsonl")
    }

    fn lock_tombstones(&self) -> MutexGuard<'_, TombstoneLog> {
        self.tombstones.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns every tombstone, oldest first. A process that was collected, resumed and collected again has two.
    pub fn tombstones(&self) -> io::Result<Vec<Tombstone>> {
        let bytes = self.read_tombstones()?;
        Ok(lines(&bytes).filter_map(parse).collect())
    }

    /// Returns the last tombstone of a process.
    pub(super) fn tombstone(&self, uuid: Uuid) -> io::Result<Option<Tombstone>> {
        let bytes = self.read_tombstones()?;
        let name = uuid.to_string();
        // Most lines are about other processes: searching for the UUID first avoids parsing them.
        let named = lines(&bytes).filter(|line| memchr::memmem::find(line, name.as_bytes()).is_some());
        Ok(named.filter_map(parse).filter(|tombstone| tombstone.uuid == uuid).last())
    }

    /// Returns the highest PID of a collected process.
    pub(super) fn highest_collected(&self) -> io::Result<Pid> {
        let bytes = self.read_tombstones()?;
        let highest = |line| match (parse_dropped(line), parse(line)) {
            (Some(dropped), _) => dropped.highest_pid,
            (None, Some(tombstone)) => highest_of(&tombstone),
            (None, None) => Pid::RUNTIME,
        };
        Ok(lines(&bytes).map(highest).fold(Pid::RUNTIME, Pid::max))
    }

    fn read_tombstones(&self) -> io::Result<Vec<u8>> {
        match self.try_to_read() {
            // Again while holding the lock, so that nobody else sets it aside.
            Err(error) if cannot_be_ours(&error) => self.read_locked(&mut self.lock_tombstones()),
            other => other.map_err(|error| at(&self.tombstones_path(), &error)),
        }
    }

    fn read_locked(&self, log: &mut TombstoneLog) -> io::Result<Vec<u8>> {
        match self.try_to_read() {
            Err(error) if cannot_be_ours(&error) => self.set_tombstones_aside(log, &error).map(|()| Vec::new()),
            other => other.map_err(|error| at(&self.tombstones_path(), &error)),
        }
    }

    fn try_to_read(&self) -> io::Result<Vec<u8>> {
        match regular::read(&self.tombstones_path(), regular::LARGE_MAX) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            other => other,
        }
    }

    /// Returns what was set aside since the last call, so that the caller can report it.
    pub fn take_set_aside(&self) -> Option<SetAside> {
        self.lock_tombstones().set_aside.take()
    }

    fn set_tombstones_aside(&self, log: &mut TombstoneLog, problem: &io::Error) -> io::Result<()> {
        let (disk, path) = (&self.io.disk, self.tombstones_path());
        let names = (1..=ASIDE_MAX).map(|number| self.root.join(format!("tombstones.jsonl.aside-{number}")));
        let to = names.into_iter().find(|to| fs::symlink_metadata(to).is_err());
        let to = to.ok_or_else(|| {
            at(&path, &io::Error::other(format!("{problem}, and {ASIDE_MAX} others were set aside before")))
        })?;
        self.relieved(|| disk.rename(&path, &to)).map_err(|error| at(&path, &error))?;
        (log.named, log.unsure) = (false, false);
        log.set_aside = Some(SetAside { path, to, problem: problem.to_string() });
        Ok(())
    }

    /// Sets aside anything else in the place of the tombstones, before appending.
    fn check_tombstones(&self, log: &mut TombstoneLog) -> io::Result<()> {
        let problem = match regular::open(&self.tombstones_path()).and_then(|file| file.metadata()) {
            Ok(metadata) if metadata.len() > regular::LARGE_MAX => too_long(),
            Err(error) if cannot_be_ours(&error) => error,
            Ok(_) | Err(_) => return Ok(()),
        };
        self.set_tombstones_aside(log, &problem)
    }

    /// Adds tombstones; on return they are on the disk.
    pub(super) fn add_tombstones(&self, tombstones: &[Tombstone]) -> io::Result<()> {
        let disk = &self.io.disk;
        let path = self.tombstones_path();
        let mut log = self.lock_tombstones();
        let mut bytes = Vec::new();
        for tombstone in tombstones {
            push(&mut bytes, tombstone)?;
        }
        if log.unsure {
            let mut all = self.read_locked(&mut log)?;
            all.truncate(memchr::memrchr(b'\n', &all).map_or(0, |end| end + 1));
            all.extend_from_slice(&bytes);
            disk.replace(&path, &all)?;
            (log.unsure, log.named) = (false, true);
            return Ok(());
        }
        self.check_tombstones(&mut log)?;
        let is_new = !path.exists();
        let file = disk.open_or_create(&path).map_err(|error| at(&path, &error))?;
        let length = file.file().metadata()?.len();
        let whole = whole_lines(file.file(), length, regular::LARGE_MAX)?;
        if whole < length {
            disk.truncate(&file, whole)?;
        }
        let added = disk.append(&file, &bytes).and_then(|()| disk.sync(&file));
        let added = if log.named { added } else { added.and_then(|()| disk.sync_dir(&self.root)) };
        log.named |= added.is_ok();
        added.inspect_err(|_| {
            // Data lost by a failed sync would be a hole before the next tombstone.
            let _ = if is_new { disk.unlink(&path) } else { disk.truncate(&file, whole) };
        })
    }

    /// Drops tombstones that need not be kept, if the file has grown. A failure costs only space.
    pub(super) fn compact_tombstones(&self, now: Timestamp) {
        let path = self.tombstones_path();
        let mut log = self.lock_tombstones();
        let length = std::fs::metadata(&path).map_or(0, |metadata| metadata.len());
        if length < COMPACT_MIN_BYTES.max(log.compacted_bytes.saturating_mul(2)) {
            return;
        }
        let compacted = self.read_locked(&mut log).and_then(|bytes| compacted(&bytes, now));
        log.compacted_bytes = match &compacted {
            Ok(bytes) => bytes.len() as u64,
            Err(_) => length,
        };
        let Ok(bytes) = compacted else { return };
        if self.io.disk.put(&path, &bytes).is_ok() {
            let named = self.io.disk.sync_dir(&self.root).is_ok();
            (log.named, log.unsure) = (named, !named);
        }
    }
}

/// Returns whether an error means that something else is in the file's place.
fn cannot_be_ours(error: &io::Error) -> bool {
    use io::ErrorKind;
    // A socket, or a device without a driver.
    let no_device = [rustix::io::Errno::NXIO, rustix::io::Errno::NODEV].map(rustix::io::Errno::raw_os_error);
    error
        .raw_os_error()
        .is_some_and(|number| no_device.contains(&number) || number == rustix::io::Errno::LOOP.raw_os_error())
        || matches!(error.kind(), ErrorKind::IsADirectory | ErrorKind::InvalidData | ErrorKind::FileTooLarge)
}

fn too_long() -> io::Error {
    io::Error::new(io::ErrorKind::FileTooLarge, format!("longer than {} bytes", regular::LARGE_MAX))
}

/// Adds the path to an error.
fn at(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

/// Returns the compacted content of a file, with the line for the dropped tombstones.
fn compacted(bytes: &[u8], now: Timestamp) -> io::Result<Vec<u8>> {
    let oldest_ms = now.as_millisecond().saturating_sub(KEPT_DAYS * DAY_MS);
    let mut gone = Dropped { dropped: 0, highest_pid: Pid::RUNTIME };
    let (mut kept, mut seen) = (Vec::new(), HashSet::new());
    for line in bytes.rsplit(|byte| *byte == b'\n') {
        if let Some(earlier) = parse_dropped(line) {
            gone.dropped += earlier.dropped;
            gone.highest_pid = gone.highest_pid.max(earlier.highest_pid);
        }
        let Some(tombstone) = parse(line) else { continue };
        let recent = tombstone.collected_at.as_millisecond() >= oldest_ms && kept.len() < KEPT_MAX;
        // Of two tombstones of one process the newer counts.
        if recent && seen.insert(tombstone.uuid) {
            kept.push(line);
        } else {
            gone.dropped += 1;
            gone.highest_pid = gone.highest_pid.max(highest_of(&tombstone));
        }
    }
    let mut out = Vec::new();
    push(&mut out, &gone)?;
    for line in kept.into_iter().rev() {
        out.extend_from_slice(line);
        out.push(b'\n');
    }
    Ok(out)
}

fn highest_of(tombstone: &Tombstone) -> Pid {
    tombstone.pids.iter().copied().fold(Pid::RUNTIME, Pid::max)
}

fn push(out: &mut Vec<u8>, line: &impl Serialize) -> io::Result<()> {
    let start = out.len();
    serde_json::to_writer(&mut *out, line)?;
    line::seal(out, start);
    Ok(())
}

fn lines(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    bytes.split(|byte| *byte == b'\n')
}

fn parse(line: &[u8]) -> Option<Tombstone> {
    if line::is_intact(line) { serde_json::from_slice(line).ok() } else { None }
}

fn parse_dropped(line: &[u8]) -> Option<Dropped> {
    let is_first = line.starts_with(br#"{"dropped":"#) && line::is_intact(line);
    if is_first { serde_json::from_slice(line).ok() } else { None }
}
