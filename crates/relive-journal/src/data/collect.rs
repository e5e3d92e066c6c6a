//! Garbage collection: which histories go, and how one goes without a trace of half of it.
//!
//! A history goes in this order: its tombstone, synced; its directory out of `steps/`, synced; its files. Whatever of this
//! a crash cuts short leaves a history whole or gone. What has not ended is never a candidate, and the journal's lock
//! is held meanwhile, so a process that is being resumed is safe.

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

/// Which histories go. Either rule is enough; absent turns it off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GcRules {
    /// Those that ended more than so many days ago.
    pub retention_days: Option<u32>,
    /// Those that ended first, when more than so many have.
    pub max_entries: Option<usize>,
}

impl Default for GcRules {
    fn default() -> Self {
        Self { retention_days: Some(30), max_entries: Some(500) }
    }
}

/// Which rule a history goes by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum GcReason {
    /// It is too old.
    Retention,
    /// There are too many.
    MaxEntries,
}

/// A history that may go.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Candidate {
    /// The process whose history it is.
    pub uuid: Uuid,
    /// When it ended.
    pub dead_at: Timestamp,
    /// What its files hold.
    pub bytes: u64,
    /// Why.
    pub reason: GcReason,
}

/// What there is to collect.
#[derive(Debug, Default)]
pub struct Survey {
    /// The oldest first.
    pub candidates: Vec<Candidate>,
    /// Histories that were passed over because nobody can tell when they ended, each with what is wrong.
    pub warnings: Vec<(Uuid, String)>,
}

/// What became of a candidate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Collected {
    /// It is gone.
    Gone,
    /// It is not what it was: it was resumed, or is gone already.
    Spared,
}

/// The clocks, read at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockReading {
    /// The wall clock.
    pub wall: Timestamp,
    /// The time since the boot, sleep included.
    pub since_boot_ms: u64,
    /// Which boot.
    pub boot_id: String,
}

/// Why nothing is collected.
#[derive(Debug, thiserror::Error)]
pub enum CollectError {
    /// The wall clock cannot be trusted.
    #[error(
        "the wall clock has jumped by {hours} hours since the last look, so nobody knows how old a history is; \
         if the clock is right now, ask again"
    )]
    ClockJumped {
        /// Forward, or back if negative.
        hours: i64,
    },
    /// Something cannot be read or written.
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl DataDirectory {
    /// What there is to collect. Changes nothing, but remembers the clocks: if the wall clock has jumped by more than a
    /// day against the time since boot, the first survey after that refuses.
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
                Ok(Some(_)) => survey.warnings.push((uuid, "it has not ended, and is not live".to_owned())),
                Ok(None) => survey.warnings.push((uuid, "its journal does not say what it is".to_owned())),
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
            let reason = match (old, place < surplus) {
                (true, _) => GcReason::Retention,
                (false, true) => GcReason::MaxEntries,
                (false, false) => continue,
            };
            let bytes = match tree_bytes(self.directory(uuid).path()) {
                Ok(bytes) => bytes,
                // Another collection was quicker.
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

    /// Removes a candidate's history, if it is still one. With a full disk the reserve makes room for its tombstone, and
    /// is taken again afterwards, if there is room for it by then; without a reserve, the files of the history that its
    /// journal does without.
    pub fn collect(&self, candidate: &Candidate, now: Timestamp) -> io::Result<Collected> {
        let settled = match self.settle() {
            // The history itself may make room for that.
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
        let aside = self.root.join("tmp").join(uuid.to_string());
        let disk = &self.io.disk;
        self.relieved_by(&directory, || {
            disk.rename(directory.path(), &aside)?;
            disk.sync_dir(&self.root.join("steps")).inspect_err(|_| {
                // Nobody knows where it is on the disk, so it stays whole.
                let _ = disk.rename(&aside, directory.path());
            })
        })?;
        // It is gone. What cannot be removed now the next start removes.
        let _ = disk.remove_tree(&aside);
        self.compact_tombstones(now);
        let _ = self.restore_reserve();
        Ok(Collected::Gone)
    }

    /// Does something that makes room: if the disk is full also without the reserve, once more without the files that
    /// are made from the journal, and then without the events.
    fn relieved_by<T>(&self, history: &ProcessDirectory, mut act: impl FnMut() -> io::Result<T>) -> io::Result<T> {
        let derived = [history.previous_checkpoint(), history.checkpoint(), history.ctx_profile(), history.proc_info()];
        let mut done = self.relieved(&mut act);
        for files in [&derived[..], &[history.events()]] {
            if !done.as_ref().is_err_and(is_full) {
                break;
            }
            for file in files {
                // Whatever cannot be removed makes no room.
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
            // Collecting makes room, so it must not need any.
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
            // Nobody knows how long the machine was off; but it was not off for less than nothing.
            wall_ms.min(0)
        };
        if jump_ms.abs() > DAY_MS {
            return Err(CollectError::ClockJumped { hours: jump_ms / (DAY_MS / 24) });
        }
        Ok(())
    }
}

/// What a directory's files hold. What goes away meanwhile holds nothing.
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
