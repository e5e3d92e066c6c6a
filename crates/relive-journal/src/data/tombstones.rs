//! `tombstones.jsonl`: what stays of a history that was collected.
//!
//! A tombstone is kept for [`KEPT_DAYS`] days, and the newest [`KEPT_MAX`] are. The file is compacted when it has doubled
//! since the last time, so no start reads it and each tombstone is copied a bounded number of times. A compacted file
//! begins with a line that says how many are gone, and the highest PID among them: no PID is given out twice, also if
//! `pids` is lost.
//!
//! What cannot be such a file (a pipe, a directory, a loop of links, terabytes) is set aside under another name, and a new
//! one is begun: what was collected is only said, and nothing waits for it.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{MutexGuard, PoisonError};

use relive_core::{End, Origin, Pid, Timestamp, Uuid};
use serde::{Deserialize, Serialize};

use super::DataDirectory;
use crate::events::whole_lines;
use crate::history::Spent;
use crate::info::ProcInfo;
use crate::line;
use crate::regular;

/// How many tombstones are kept.
pub const KEPT_MAX: usize = 100_000;
/// For how many days a tombstone is kept.
pub const KEPT_DAYS: i64 = 365;
/// A shorter file is never compacted.
const COMPACT_MIN_BYTES: u64 = 1 << 20;
/// How many times something is set aside.
const ASIDE_MAX: u32 = 100;
const DAY_MS: i64 = 24 * 60 * 60 * 1000;

/// What is known of the file. Held while it is changed.
#[derive(Debug, Default)]
pub(super) struct TombstoneLog {
    /// Whether this daemon has made sure that the file has its name.
    named: bool,
    /// The file's length when it was last compacted, or could not be.
    compacted_bytes: u64,
    /// After a power cut the file may be the one from before it was compacted, so nothing is appended to it.
    unsure: bool,
    /// What was set aside and is not told yet.
    set_aside: Option<SetAside>,
}

/// Something that stood in the place of `tombstones.jsonl` and was set aside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetAside {
    /// The place.
    pub path: PathBuf,
    /// Where it is now.
    pub to: PathBuf,
    /// What is wrong with it.
    pub problem: String,
}

/// The first line of a compacted file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Dropped {
    dropped: u64,
    highest_pid: Pid,
}

/// What stays of a history.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the names are those of `ps --json`")]
pub struct Tombstone {
    pub uuid: Uuid,
    pub name: Option<String>,
    #[serde(flatten)]
    pub origin: Option<Origin>,
    /// The process whose budget it drew from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget_uuid: Option<Uuid>,
    /// What it has spent, which counts in that budget for as long as this is kept; absent where an older Relive
    /// collected it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spent: Option<Spent>,
    pub pids: Vec<Pid>,
    #[serde(flatten)]
    pub end: Option<End>,
    pub dead_at: Timestamp,
    pub collected_at: Timestamp,
}

impl Tombstone {
    pub(super) fn of(info: ProcInfo, dead_at: Timestamp, collected_at: Timestamp) -> Self {
        let budget_uuid = info.payer();
        let ProcInfo { uuid, name, origin, pids, end, spent, .. } = info;
        Self { uuid, name, origin, budget_uuid, spent: Some(spent), pids, end, dead_at, collected_at }
    }
}

impl DataDirectory {
    fn tombstones_path(&self) -> PathBuf {
        self.root.join("tombstones.jsonl")
    }

    fn lock_tombstones(&self) -> MutexGuard<'_, TombstoneLog> {
        self.tombstones.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Every tombstone, oldest first. A process collected, resumed and collected again has two.
    pub fn tombstones(&self) -> io::Result<Vec<Tombstone>> {
        let bytes = self.read_tombstones()?;
        Ok(lines(&bytes).filter_map(parse).collect())
    }

    /// The last tombstone of a process.
    pub(super) fn tombstone(&self, uuid: Uuid) -> io::Result<Option<Tombstone>> {
        let bytes = self.read_tombstones()?;
        let name = uuid.to_string();
        // Most lines are of others: looking for the name first spares parsing them.
        let named = lines(&bytes).filter(|line| memchr::memmem::find(line, name.as_bytes()).is_some());
        Ok(named.filter_map(parse).filter(|tombstone| tombstone.uuid == uuid).last())
    }

    /// The highest PID of a process that was collected.
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
            // Once more with nobody else who sets it aside.
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

    /// Returns what was set aside since the last time, for whoever can say so.
    pub fn take_set_aside(&self) -> Option<SetAside> {
        self.lock_tombstones().set_aside.take()
    }

    fn set_tombstones_aside(&self, log: &mut TombstoneLog, problem: &io::Error) -> io::Result<()> {
        let (disk, path) = (&self.io.disk, self.tombstones_path());
        let names = (1..=ASIDE_MAX).map(|number| self.root.join(format!("tombstones.jsonl.aside-{number}")));
        let to = names.into_iter().find(|to| fs::symlink_metadata(to).is_err());
        let to = to.ok_or_else(|| {
            at(&path, &io::Error::other(format!("{problem}; and {ASIDE_MAX} such were set aside before")))
        })?;
        self.relieved(|| disk.rename(&path, &to)).map_err(|error| at(&path, &error))?;
        (log.named, log.unsure) = (false, false);
        log.set_aside = Some(SetAside { path, to, problem: problem.to_string() });
        Ok(())
    }

    /// Sets aside what cannot be the file of tombstones, before something is appended to it.
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
            // What a failed sync gave up would be a hole before the next one.
            let _ = if is_new { disk.unlink(&path) } else { disk.truncate(&file, whole) };
        })
    }

    /// Drops what need not be kept, if the file has grown. A failure costs room and nothing else.
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

/// Tells whether an error says that something else is in the file's place.
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

/// An error that names its file.
fn at(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

/// What is kept of a file, with the line for what is not.
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
        // Of a process that has two, the newer answers.
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
