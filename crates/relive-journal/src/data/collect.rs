//! Garbage collection: which journals are deleted, and how a journal is deleted completely or not at all.
//!
//! A journal is deleted in this order: its tombstone is written and synced; its directory is moved out of `steps/`,
//! synced; its files are deleted. A crash at any point leaves the journal complete or gone. A process that has not
//! ended is never a candidate, and the journal's lock is held in the meantime, so a process that is being resumed is
//! safe.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::PoisonError;

use relive_core::{Timestamp, Uuid};
use serde::{Deserialize, Serialize};

use super::{DataDirectory, Tombstone};
use crate::directory::ProcessDirectory;
use crate::disk::is_full;
use crate::info::ProcInfo;
use crate::line;
use crate::opening::lock;
use crate::regular;
use crate::writer::WriteError;

const DAY_MS: i64 = 24 * 60 * 60 * 1000;
const CLOCK_MAX: u64 = 64 << 10;

/// The rules of garbage collection. Either rule is enough; an absent one is off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GcRules {
    /// Collects processes that ended more than this many days ago.
    pub retention_days: Option<u32>,
    /// Collects the processes that ended first, if more than this many have ended.
    pub max_entries: Option<usize>,
    /// Collects processes that ended longer ago than this, in milliseconds.
    pub older_than_ms: Option<u64>,
}

impl Default for GcRules {
    fn default() -> Self {
        Self { retention_days: Some(30), max_entries: Some(500), older_than_ms: None }
    }
}

/// The rule by which a process is collected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum GcReason {
    /// It ended too long ago.
    Retention,
    /// There are too many.
    MaxEntries,
    /// A user asked for it.
    Asked,
}

/// A process that may be collected.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Candidate {
    pub uuid: Uuid,
    pub dead_at: Timestamp,
    /// The size of its files.
    pub bytes: u64,
    pub reason: GcReason,
}

/// The result of a survey.
#[derive(Debug, Default)]
pub struct Survey {
    /// Oldest first.
    pub candidates: Vec<Candidate>,
    /// Processes that were skipped because the time of their end is not known, each with the reason.
    pub warnings: Vec<(Uuid, String)>,
}

/// What became of a candidate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Collected {
    Gone,
    /// It changed: it was resumed, or is gone already.
    Spared,
}

/// The clocks, read at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockReading {
    pub wall: Timestamp,
    /// The time since the boot, including sleep.
    pub since_boot_ms: u64,
    pub boot_id: String,
}

/// The reason why nothing is collected.
#[derive(Debug, thiserror::Error)]
pub enum CollectError {
    /// The wall clock cannot be trusted.
    #[error(
        "the wall clock has jumped by {hours} hours since the last collection, so the age of processes is not known; \
         if the clock is right now, try again"
    )]
    ClockJumped {
        /// Forward, or backward if negative.
        hours: i64,
    },
    /// Something cannot be read or written.
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl DataDirectory {
    /// Finds the processes to collect. It deletes nothing, but remembers the clocks: if the wall clock has jumped by
    /// more than a day against the time since boot, the first survey after that refuses.
    pub fn survey(&self, rules: GcRules, clock: &ClockReading) -> Result<Survey, CollectError> {
        self.check_clock(clock)?;
        let mut survey = Survey::default();
        let mut ended = Vec::new();
        for uuid in self.uuids()? {
            if self.marker(uuid).exists() {
                continue;
            }
            match ProcInfo::read_from(&self.io.disk, &self.directory(uuid)) {
                Ok(Some(ProcInfo { dead_at: Some(dead_at), .. })) => ended.push((dead_at, uuid)),
                Ok(Some(_)) => {
                    survey.warnings.push((uuid, "it has not ended, but has no marker of a living process".to_owned()))
                }
                Ok(None) => survey.warnings.push((uuid, "its journal does not describe the process".to_owned())),
                // Collected since the directory was listed.
                Err(_) if !self.directory(uuid).path().exists() => {}
                Err(error) => survey.warnings.push((uuid, format!("its journal cannot be read: {error}"))),
            }
        }
        ended.sort_unstable();
        let surplus = rules.max_entries.map_or(0, |max| ended.len().saturating_sub(max));
        for (place, (dead_at, uuid)) in ended.into_iter().enumerate() {
            let age_ms = clock.wall.as_millisecond() - dead_at.as_millisecond();
            let old = rules.retention_days.is_some_and(|days| age_ms > i64::from(days) * DAY_MS);
            let asked = rules.older_than_ms.is_some_and(|older| u64::try_from(age_ms).is_ok_and(|age| age > older));
            let reason = match (asked, old, place < surplus) {
                (true, _, _) => GcReason::Asked,
                (false, true, _) => GcReason::Retention,
                (false, false, true) => GcReason::MaxEntries,
                (false, false, false) => continue,
            };
            let bytes = match tree_bytes(self.directory(uuid).path()) {
                Ok(bytes) => bytes,
                // Another collection was faster.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => {
                    survey.warnings.push((uuid, format!("its files cannot be counted: {error}")));
                    continue;
                }
            };
            survey.candidates.push(Candidate { uuid, dead_at, bytes, reason });
        }
        Ok(survey)
    }

    /// Returns a process as a candidate at the request of a user; `None` if it has not ended, or is being resumed.
    pub fn candidate(&self, uuid: Uuid) -> io::Result<Option<Candidate>> {
        if self.marker(uuid).exists() {
            return Ok(None);
        }
        let directory = self.directory(uuid);
        let Some(info) = ProcInfo::read_from(&self.io.disk, &directory)? else { return Ok(None) };
        let Some(dead_at) = info.dead_at else { return Ok(None) };
        Ok(Some(Candidate { uuid, dead_at, bytes: tree_bytes(directory.path())?, reason: GcReason::Asked }))
    }

    /// Deletes the journal of a candidate, if it still is one. On a full disk the reserve provides space for the
    /// tombstone, and is allocated again afterwards if possible; without a reserve, the derived files of the process
    /// are deleted first.
    pub fn collect(&self, candidate: &Candidate, now: Timestamp) -> io::Result<Collected> {
        let settled = match self.settle() {
            // Deleting the journal itself may provide the space.
            Err(error) if is_full(&error) => false,
            other => other.map(|()| true)?,
        };
        let uuid = candidate.uuid;
        let directory = self.directory(uuid);
        let _lock = match lock(&self.io.disk, &directory.steps()) {
            Ok(file) => file,
            Err(WriteError::Busy { .. } | WriteError::Absent { .. }) => return Ok(Collected::Spared),
            Err(WriteError::Io { source, .. }) => return Err(source),
            Err(error) => return Err(io::Error::other(error)),
        };
        let info = ProcInfo::read_from(&self.io.disk, &directory)?;
        let Some(info) = info.filter(|info| info.dead_at == Some(candidate.dead_at)) else {
            return Ok(Collected::Spared);
        };
        if !settled {
            self.relieved_by(&directory, || self.settle())?;
        }
        if self.marker(uuid).exists() {
            return Ok(Collected::Spared);
        }
        let tombstone = Tombstone::of(info, candidate.dead_at, now);
        self.relieved_by(&directory, || self.add_tombstones(std::slice::from_ref(&tombstone)))?;
        self.set_aside(uuid)?;
        self.compact_tombstones(now);
        let _ = self.restore_reserve();
        Ok(Collected::Gone)
    }

    /// Deletes a process whose journal is damaged, and returns the number of bytes freed. The caller makes sure that nothing of it
    /// runs. Leaves a tombstone only if `last`, its last known state, is given.
    pub fn discard(&self, uuid: Uuid, last: Option<ProcInfo>, now: Timestamp) -> io::Result<u64> {
        let directory = self.directory(uuid);
        let _lock = match lock(&self.io.disk, &directory.steps()) {
            Err(WriteError::Busy { .. }) => return Err(io::ErrorKind::ResourceBusy.into()),
            // What is there instead of a journal cannot be locked, and nobody writes to it.
            Err(WriteError::Absent { .. }) => None,
            Err(WriteError::Io { source, .. }) if regular::is_damage(&source) => None,
            Err(WriteError::Io { source, .. }) => return Err(source),
            locked => Some(locked.map_err(io::Error::other)?),
        };
        let bytes = tree_bytes(directory.path())?;
        if let Some(info) = last {
            let tombstone = Tombstone::of(info, now, now);
            self.relieved_by(&directory, || self.add_tombstones(std::slice::from_ref(&tombstone)))?;
        }
        self.set_aside(uuid)?;
        // The next start removes a marker without a directory.
        let _ = self.unmark(uuid);
        self.compact_tombstones(now);
        let _ = self.restore_reserve();
        Ok(bytes)
    }

    /// Removes the directory of a process: all of it or nothing.
    fn set_aside(&self, uuid: Uuid) -> io::Result<()> {
        let (directory, aside) = (self.directory(uuid), self.root.join("tmp").join(uuid.to_string()));
        let disk = &self.io.disk;
        self.relieved_by(&directory, || {
            disk.rename(directory.path(), &aside)?;
            disk.sync_dir(&self.root.join("steps")).inspect_err(|_| {
                // Its state on the disk is not known, so it stays whole.
                let _ = disk.rename(&aside, directory.path());
            })
        })?;
        // It is gone. The next start removes what cannot be removed now.
        let _ = disk.remove_tree(&aside);
        Ok(())
    }

    /// Runs an action that frees space: if the disk is full even without the reserve, again without the derived files,
    /// and then without the events.
    fn relieved_by<T>(&self, history: &ProcessDirectory, mut act: impl FnMut() -> io::Result<T>) -> io::Result<T> {
        let derived = [history.previous_checkpoint(), history.checkpoint(), history.ctx_profile(), history.proc_info()];
        let mut done = self.relieved(&mut act);
        for files in [&derived[..], &[history.events()]] {
            if !done.as_ref().is_err_and(is_full) {
                break;
            }
            for file in files {
                // A file that cannot be removed frees no space.
                let _ = self.io.disk.unlink(file);
            }
            done = act();
        }
        done
    }

    fn check_clock(&self, now: &ClockReading) -> Result<(), CollectError> {
        let path = self.root.join("clock");
        let mut last = self.clock.lock().unwrap_or_else(PoisonError::into_inner);
        let on_disk = || regular::read(&path, CLOCK_MAX).ok().and_then(|bytes| line::decode_file(&bytes));
        let before: Option<ClockReading> = last.take().or_else(on_disk);
        match self.io.disk.replace(&path, &line::encode_file(now).map_err(io::Error::from)?) {
            // Collecting frees space, so it must not need any.
            Err(error) if is_full(&error) => *last = Some(now.clone()),
            other => other?,
        }
        drop(last);
        let Some(before) = before else { return Ok(()) };
        let wall_ms = now.wall.as_millisecond() - before.wall.as_millisecond();
        let jump_ms = if before.boot_id == now.boot_id {
            wall_ms
                - (i64::try_from(now.since_boot_ms).unwrap_or(i64::MAX)).saturating_sub_unsigned(before.since_boot_ms)
        } else {
            // It is not known how long the machine was off, but not for a negative time.
            wall_ms.min(0)
        };
        if jump_ms.abs() > DAY_MS {
            return Err(CollectError::ClockJumped { hours: jump_ms / (DAY_MS / 24) });
        }
        Ok(())
    }
}

/// Returns the size of a directory's files. Files removed in the meantime do not count.
fn tree_bytes(path: &Path) -> io::Result<u64> {
    let gone = |error: &io::Error| error.kind() == io::ErrorKind::NotFound;
    let entries = match fs::read_dir(path) {
        Err(error) if gone(&error) => return Ok(0),
        other => other?,
    };
    let mut total = 0;
    for entry in entries {
        let entry = entry?;
        total += match entry.metadata() {
            Ok(metadata) if metadata.is_dir() => tree_bytes(&entry.path())?,
            Ok(metadata) => metadata.len(),
            Err(error) if gone(&error) => 0,
            Err(error) => return Err(error),
        };
    }
    Ok(total)
}
