//! PIDs: small integers that are never reused.
//!
//! The file `pids` contains the highest PID that may have been assigned. It is raised by [`BLOCK`] at a time, so most
//! PIDs cost no sync; after a crash the rest of the block is skipped, never reused. `pids.log` records the process of
//! each PID, which for a PID that was only assigned to a suspended process is recorded nowhere else. It is not synced.
//! It is compacted when it has doubled since the last time.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fs;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::PoisonError;

use relive_core::{Pid, Uuid};

use super::DataDirectory;
use crate::disk::Disk;
use crate::regular;

const BLOCK: u32 = 16;
const LOG: &str = "pids.log";
/// How many PIDs of a process a compacted log keeps.
pub const NOTED_MAX: usize = 16;
/// The size below which the log is never compacted.
const LOG_COMPACT_MIN_BYTES: u64 = 64 << 10;
const FILE_MAX: u64 = 4096;

/// The state of `pids.log`. Locked while it is changed.
#[derive(Debug, Default)]
pub(super) struct PidLog {
    /// Its length when it was last compacted, or could not be.
    compacted_bytes: u64,
}

#[derive(Debug)]
pub(super) struct Pids {
    last: u32,
    /// The content of the file; absent if it is missing or unreadable.
    reserved: Option<u32>,
}

impl Pids {
    /// Reads the file. If it is unreadable, the journals tell which PIDs were assigned.
    pub(super) fn read(root: &Path) -> Self {
        let text = regular::read(&root.join("pids"), FILE_MAX).unwrap_or_default();
        let reserved = String::from_utf8_lossy(&text).strip_suffix('\n').and_then(|number| number.parse().ok());
        Self { last: reserved.unwrap_or(0), reserved }
    }

    pub(super) fn last(&self) -> Pid {
        Pid(self.last)
    }

    pub(super) fn is_missing(&self) -> bool {
        self.reserved.is_none()
    }

    pub(super) fn next(&mut self, disk: &Disk, root: &Path) -> io::Result<Pid> {
        let next = self.last.checked_add(1).ok_or_else(|| io::Error::other("there are no PIDs left"))?;
        if self.reserved.is_none_or(|reserved| next > reserved) {
            self.reserve(disk, root, next.saturating_add(BLOCK - 1))?;
        }
        self.last = next;
        Ok(Pid(next))
    }

    /// Reserves this many PIDs at once.
    fn reserve_next(&mut self, disk: &Disk, root: &Path, count: usize) -> io::Result<()> {
        let wanted = self.last.saturating_add(u32::try_from(count).unwrap_or(u32::MAX));
        if self.reserved.is_some_and(|reserved| wanted <= reserved) { Ok(()) } else { self.reserve(disk, root, wanted) }
    }

    /// Ensures that no PID up to `highest` is assigned.
    pub(super) fn raise(&mut self, disk: &Disk, root: &Path, highest: Pid) -> io::Result<()> {
        self.last = self.last.max(highest.0);
        self.reserve(disk, root, self.last)
    }

    fn reserve(&mut self, disk: &Disk, root: &Path, reserved: u32) -> io::Result<()> {
        disk.replace(&root.join("pids"), format!("{reserved}\n").as_bytes())?;
        self.reserved = Some(reserved);
        Ok(())
    }
}

impl DataDirectory {
    /// Returns the highest PID that may have been assigned.
    #[must_use]
    pub fn last_pid(&self) -> Pid {
        self.lock_pids().last()
    }

    /// Reserves this many PIDs with one sync, for a caller that is about to need them.
    pub fn reserve_pids(&self, count: usize) -> io::Result<()> {
        self.lock_pids().reserve_next(&self.io.disk, &self.root, count)
    }

    /// Records the process of a PID.
    pub fn note_pid(&self, pid: Pid, uuid: Uuid) {
        self.note_pids([(pid, uuid)]);
    }

    /// Records the process of each PID.
    pub fn note_pids(&self, pids: impl IntoIterator<Item = (Pid, Uuid)>) {
        let lines: String = pids.into_iter().map(|(pid, uuid)| format!("{pid} {uuid}\n")).collect();
        let mut log = self.pid_log.lock().unwrap_or_else(PoisonError::into_inner);
        let Ok(length) = self.append_pids(&lines) else { return };
        if length >= LOG_COMPACT_MIN_BYTES.max(log.compacted_bytes.saturating_mul(2)) {
            log.compacted_bytes = self.compact_pids().unwrap_or(length);
        }
    }

    /// Appends lines to `pids.log` and returns its length.
    fn append_pids(&self, lines: &str) -> io::Result<u64> {
        let disk = &self.io.disk;
        let file = disk.open_or_create(&self.root.join(LOG))?;
        let length = file.file().metadata()?.len();
        let mut last = [b'\n'];
        if let Some(before_last) = length.checked_sub(1) {
            file.file().read_exact_at(&mut last, before_last)?;
        }
        // A truncated line must not corrupt the next one.
        let text = if last == *b"\n" { Cow::Borrowed(lines) } else { Cow::Owned(format!("\n{lines}")) };
        disk.append(&file, text.as_bytes())?;
        Ok(length + text.len() as u64)
    }

    /// Keeps the last [`NOTED_MAX`] PIDs of each process that has a journal. Returns the new length.
    fn compact_pids(&self) -> io::Result<u64> {
        let mut counts: HashMap<Uuid, usize> = HashMap::new();
        let mut kept: Vec<(Pid, Uuid)> = Vec::new();
        for (pid, uuid) in noted(&self.root).into_iter().rev() {
            let count = counts.entry(uuid).or_insert_with(|| {
                if fs::symlink_metadata(self.directory(uuid).path()).is_ok() { 0 } else { NOTED_MAX }
            });
            if *count < NOTED_MAX {
                *count += 1;
                kept.push((pid, uuid));
            }
        }
        let text: String = kept.into_iter().rev().map(|(pid, uuid)| format!("{pid} {uuid}\n")).collect();
        self.io.disk.replace(&self.root.join(LOG), text.as_bytes())?;
        Ok(text.len() as u64)
    }

    /// Returns the recorded PIDs, oldest first. Some are in no journal, because they were only assigned to a suspended
    /// process.
    #[must_use]
    pub fn noted_pids(&self) -> Vec<(Pid, Uuid)> {
        noted(&self.root)
    }
}

/// Reads `pids.log`; unreadable lines are dropped.
pub(super) fn noted(root: &Path) -> Vec<(Pid, Uuid)> {
    let bytes = regular::read(&root.join(LOG), regular::LARGE_MAX).unwrap_or_default();
    let parse = |line: &str| {
        let (pid, uuid) = line.split_once(' ')?;
        Some((Pid(pid.parse().ok()?), Uuid::try_parse(uuid).ok()?))
    };
    String::from_utf8_lossy(&bytes).lines().filter_map(parse).collect()
}
