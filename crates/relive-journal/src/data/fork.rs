//! Forks: a new journal that begins as a prefix of another.
//!
//! The original is only read. The prefix is copied byte for byte, with the blobs it names, so the original may be
//! collected afterwards. A fork never begins inside a step: a call that is open in the original is the original's.

use std::fs::File;
use std::io;

use relive_core::{Limits, Moment, Origin, Uuid};

use super::{DataDirectory, SpawnError};
use crate::checkpoint;
use crate::directory::ProcessDirectory;
use crate::history::{History, Phase, Place};
use crate::opening::Opening;
use crate::payload::Blobs;
use crate::record::{Body, Input, OwnWorkspace, Record};
use crate::regular;
use crate::scan::{Health, Hole, Until, scan_until};
use crate::writer::{Durability, Take, WriteError, Writer};

/// The point at which a fork leaves its origin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ForkPoint {
    /// At its end, without a step that is still under way.
    End,
    /// At the end of this step. At 0 only what it was told at its start remains.
    Step(u32),
}

/// A fork that is asked for.
#[derive(Debug)]
pub struct ForkRequest {
    /// Its UUID, chosen by the caller.
    pub uuid: Uuid,
    pub opening: Opening,
    pub source: Uuid,
    pub point: ForkPoint,
    pub name: Option<String>,
    pub parent_uuid: Option<Uuid>,
    /// Its limits; those of the origin if absent.
    pub limits: Option<Limits>,
    /// Its first message.
    pub input: Option<Input>,
    /// The copy of the files that it works on; where its original works if absent.
    pub workspace: Option<ForkWorkspace>,
    /// A hash of the request, see [`crate::record::Spawned::request`].
    pub request: Option<String>,
    /// The end of what is synced of an original that is being written: nothing after it is copied. Without it nobody
    /// may be writing the original, which is then synced before it is copied.
    pub within: Option<u64>,
}

#[derive(Debug, Clone)]
pub struct ForkWorkspace {
    pub cwd: String,
    pub own: OwnWorkspace,
}

/// Why there is no fork. Nothing of it remains.
#[derive(Debug, thiserror::Error)]
pub enum ForkError {
    /// The original has not come that far.
    #[error("process {source_uuid} has no step {asked}: its last complete step is {last}")]
    NoSuchStep {
        source_uuid: Uuid,
        /// The step that was asked for.
        asked: u32,
        /// The last step of the origin.
        last: u32,
    },
    /// The prefix that was asked for has a hole.
    #[error("the journal of {source_uuid} is damaged at {hole}")]
    Damaged {
        source_uuid: Uuid,
        hole: Hole,
        /// Its last step before the hole: a fork from there works.
        last: u32,
    },
    /// The prefix that was asked for was written by a newer Relive.
    #[error("the history of {source_uuid} was written by a newer Relive: {hole}")]
    ReadOnly { source_uuid: Uuid, hole: Hole },
    /// The original was collected, perhaps while it was being copied.
    #[error("process {source_uuid} was garbage collected")]
    Collected { source_uuid: Uuid },
    /// The original cannot be read.
    #[error("{source_uuid}: {source}")]
    Io { source_uuid: Uuid, source: io::Error },
    /// The fork could not be made.
    #[error(transparent)]
    Spawn(#[from] SpawnError),
    /// The fork's journal could not be written.
    #[error(transparent)]
    Write(#[from] WriteError),
}

impl DataDirectory {
    /// Begins a process as a copy of another's past. On return it is on the disk, whole.
    pub fn fork(&self, request: ForkRequest) -> Result<Writer, ForkError> {
        self.fork_with(request, |_| Ok(Vec::new()))
    }

    /// [`Self::fork`], with the records that `decide` asks for in the fork's first write. It is shown the fork as it is
    /// before its first message; if it refuses, there is no fork.
    pub fn fork_with<E: From<ForkError>>(
        &self,
        request: ForkRequest,
        decide: impl FnOnce(&History) -> Result<Vec<Body>, E>,
    ) -> Result<Writer, E> {
        let source_uuid = request.source;
        let original = self.directory(source_uuid);
        let unreadable = |source: io::Error| {
            let is_collected = source.kind() == io::ErrorKind::NotFound && !original.steps().exists();
            if is_collected { ForkError::Collected { source_uuid } } else { ForkError::Io { source_uuid, source } }
        };
        let journal = regular::open(&original.steps()).map_err(unreadable)?;
        if request.within.is_none() {
            self.sync_original(source_uuid, &original)?;
        }
        let prefix = prefix(&original, &journal, &request)?;
        let Some(identity) = &prefix.identity else {
            let error = io::Error::new(io::ErrorKind::InvalidData, "the journal does not describe a process");
            return Err(unreadable(error).into());
        };
        let mut spawned = identity.spawned.clone();
        spawned.uuid = request.uuid;
        spawned.origin = Some(Origin { uuid: source_uuid, step: prefix.completed_step });
        spawned.name = request.name;
        // What it spends counts where the spending of its original does, unless it has a parent of its own.
        let above = spawned.parent_uuid.or(spawned.budget_uuid);
        spawned.budget_uuid = above.filter(|_| request.parent_uuid.is_none());
        spawned.parent_uuid = request.parent_uuid;
        // A fork is nobody's child, unless somebody asks for it.
        (spawned.root_uuid, spawned.depth) = (None, 0);
        spawned.limits = request.limits.unwrap_or(prefix.limits);
        spawned.request = request.request;
        if let Some(ForkWorkspace { cwd, own }) = request.workspace {
            (spawned.cwd, spawned.workspace) = (cwd, Some(own));
        }
        let held = spawned.begins_at_gate();
        let mut batch = vec![request.opening.body(0, held), Body::Spawned(Box::new(spawned))];
        let records = decide(&start(&prefix, &batch, request.opening.now))?;
        batch.extend(request.input.map(Body::Input).into_iter().chain(records));
        let made = self.make(request.uuid, |directory| {
            let file = self.copy_prefix(&original, &journal, &prefix, directory).map_err(unreadable)?;
            let mut writer = Writer::new(&self.io, directory.clone(), file, prefix, Take::Copied);
            writer.append(request.opening.now, batch, Durability::Synced)?;
            self.io.disk.sync_dir(directory.path()).map_err(unreadable)?;
            Ok::<_, ForkError>(writer)
        });
        Ok(made?)
    }

    /// Returns what a journal says up to this end of a record, as a fork `within` it finds it; without one, all that it says.
    pub fn history_within(&self, uuid: Uuid, within: Option<u64>) -> io::Result<(History, Health)> {
        let directory = self.directory(uuid);
        let journal = self.io.disk.open_read(&directory.steps())?;
        checkpoint::load_until(&directory, &journal, within.map_or(Until::End, Until::Offset))
    }

    /// Makes sure that all of an original is on the disk: after a power cut it would otherwise be without records that
    /// its fork has.
    fn sync_original(&self, source_uuid: Uuid, original: &ProcessDirectory) -> Result<(), ForkError> {
        // A sync that failed once is not made good by another: what the cache says of such a journal counts for nothing.
        self.io.check_poison(original)?;
        let disk = &self.io.disk;
        let synced = disk
            .open_append(&original.steps())
            .and_then(|file| disk.sync(&file).inspect_err(|_| self.io.poison(original.path())));
        synced.map_err(|source| ForkError::Io { source_uuid, source })
    }

    fn copy_prefix(
        &self,
        original: &ProcessDirectory,
        journal: &File,
        prefix: &History,
        directory: &ProcessDirectory,
    ) -> io::Result<crate::disk::DiskFile> {
        let disk = &self.io.disk;
        let copy = |from: &File, to: &std::path::Path| {
            let file = disk.create(to)?;
            disk.append_copy(from, from.metadata()?.len(), &file)?;
            disk.sync(&file)
        };
        match regular::open(&original.process_meta()) {
            Ok(meta) => copy(&meta, &directory.process_meta())?,
            // A program has none. A collected original has lost all its files at once.
            Err(error) if error.kind() == io::ErrorKind::NotFound && original.steps().exists() => {}
            Err(error) => return Err(error),
        }
        if !prefix.blobs.is_empty() {
            disk.mkdir(&directory.path().join("blobs"))?;
            let (from, to) = (Blobs::new(disk.clone(), original.path()), Blobs::new(disk.clone(), directory.path()));
            for (_, hash) in &prefix.blobs {
                if !to.path(*hash).exists() {
                    copy(&regular::open(&from.path(*hash))?, &to.path(*hash))?;
                }
            }
            disk.sync_dir(&directory.path().join("blobs"))?;
        }
        let file = disk.create(&directory.steps())?;
        disk.try_lock(&file)?;
        // Synced with the fork's own first records.
        disk.append_copy(journal, prefix.end, &file)?;
        Ok(file)
    }
}

/// Returns the fold of a fork with its first records, before they are written.
fn start(prefix: &History, batch: &[Body], now: Moment) -> History {
    let mut history = prefix.clone();
    let epoch = history.epoch.next();
    for body in batch {
        let (seq, step) = (history.seq + 1, history.step_of(body));
        let place = Place { seq, offset: history.end, len: 0 };
        history.apply(&Record { seq, epoch, at: now.at, step, up: Some(now.up_ms), body: body.clone() }, place);
    }
    history
}

/// The original as of the point where the fork leaves it.
fn prefix(original: &ProcessDirectory, journal: &File, request: &ForkRequest) -> Result<History, ForkError> {
    let source_uuid = request.source;
    let unreadable = |source| ForkError::Io { source_uuid, source };
    let damaged = |hole, last| ForkError::Damaged { source_uuid, hole, last };
    let bound = request.within.map_or(Until::End, Until::Offset);
    match request.point {
        ForkPoint::Step(asked) => {
            let read = |until| checkpoint::load_until(original, journal, until).map_err(unreadable);
            let (mut history, mut health) = read(Until::EndOfStep(asked))?;
            if request.within.is_some_and(|end| history.end > end || health != Health::Good) {
                (history, health) = read(bound)?;
            }
            let last = history.completed_step;
            let reached = history.completed_step == asked && history.identity.is_some();
            match health {
                Health::ReadOnly(hole) => Err(ForkError::ReadOnly { source_uuid, hole }),
                _ if reached => Ok(history),
                Health::Damaged(hole) => Err(damaged(hole, last)),
                Health::Good | Health::Torn { .. } => Err(ForkError::NoSuchStep { source_uuid, asked, last }),
            }
        }
        ForkPoint::End => {
            let start = checkpoint::newest_before(original, journal, bound);
            let (history, health) = scan_until(journal, start.clone(), bound).map_err(unreadable)?;
            match health {
                Health::ReadOnly(hole) => return Err(ForkError::ReadOnly { source_uuid, hole }),
                Health::Damaged(hole) => return Err(damaged(hole, history.completed_step)),
                Health::Good | Health::Torn { .. } => {}
            }
            if history.phase == Phase::Boundary {
                return Ok(history);
            }
            let before = Until::Offset(history.step_start);
            let read = if checkpoint::is_before(&start, before) {
                scan_until(journal, start, before)
            } else {
                checkpoint::load_until(original, journal, before)
            };
            Ok(read.map_err(unreadable)?.0)
        }
    }
}
