//! Beginning a process: its directory is made aside, whole and synced, and gets its name last.

use std::io;

use relive_core::Uuid;

use super::DataDirectory;
use crate::directory::ProcessDirectory;
use crate::history::History;
use crate::meta::ProcessMeta;
use crate::opening::Opening;
use crate::record::{Body, Input, Spawned};
use crate::writer::{Durability, Take, WriteError, Writer};

/// What a process begins with.
#[derive(Debug)]
pub struct SpawnRequest {
    /// Its first incarnation.
    pub opening: Opening,
    /// What it is. Its UUID is chosen by whoever asks.
    pub spawned: Spawned,
    /// What it is told and given, where it is an agent.
    pub meta: Option<ProcessMeta>,
    /// Its first message, if it has one.
    pub input: Option<Input>,
    /// What else is recorded at its start, after the message and in the same write.
    pub records: Vec<Body>,
}

/// Why a process could not be begun. Nothing of it remains.
#[derive(Debug, thiserror::Error)]
pub enum SpawnError {
    /// There is, or was, one with this UUID.
    #[error("there is already a process {0}")]
    Exists(Uuid),
    /// The disk is nearly full.
    #[error("only {free_bytes} bytes are free, and no process is begun below {floor_bytes}")]
    NoSpace {
        /// What is free.
        free_bytes: u64,
        /// What should be.
        floor_bytes: u64,
    },
    /// Its journal could not be written.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// Its directory could not be made.
    #[error("process {uuid} could not be made: {source}")]
    Io {
        /// Which.
        uuid: Uuid,
        /// The system's word for it.
        source: io::Error,
    },
}

impl DataDirectory {
    /// Begins a process. On return it is on the disk, whole.
    pub fn spawn(&self, request: SpawnRequest) -> Result<Writer, SpawnError> {
        let SpawnRequest { opening, spawned, meta, input, records } = request;
        self.make(spawned.uuid, |directory| {
            let disk = &self.io.disk;
            let failed = |source| WriteError::Io { path: directory.path().to_owned(), source };
            if let Some(meta) = meta {
                meta.write(disk, directory).map_err(failed)?;
            }
            let file = disk.create(&directory.steps()).map_err(failed)?;
            disk.try_lock(&file).map_err(failed)?;
            let mut writer = Writer::new(&self.io, directory.clone(), file, History::default(), Take::Copied);
            let mut batch = vec![opening.body(0), Body::Spawned(Box::new(spawned))];
            batch.extend(input.map(Body::Input).into_iter().chain(records));
            writer.append(opening.now, batch, Durability::Synced)?;
            Ok(writer)
        })
    }

    /// Makes the directory of a process with what `fill` puts in it, or nothing.
    pub(super) fn make<E: From<SpawnError> + From<WriteError>>(
        &self,
        uuid: Uuid,
        fill: impl FnOnce(&ProcessDirectory) -> Result<Writer, E>,
    ) -> Result<Writer, E> {
        let failed = |source| E::from(SpawnError::Io { uuid, source });
        let space = self.space().map_err(failed)?;
        if !space.above_floor {
            let (free_bytes, floor_bytes) = (space.free_bytes, self.space.floor_bytes);
            return Err(SpawnError::NoSpace { free_bytes, floor_bytes }.into());
        }
        self.settle().map_err(failed)?;
        let directory = self.directory(uuid);
        let aside = ProcessDirectory::new(self.root.join("tmp").join(uuid.to_string()));
        if directory.path().exists() {
            return Err(SpawnError::Exists(uuid).into());
        }
        match self.io.disk.mkdir(aside.path()) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Err(SpawnError::Exists(uuid).into()),
            other => other.map_err(failed)?,
        }
        let made = fill(&aside).and_then(|writer| {
            self.publish(uuid, &aside, &directory).map_err(failed)?;
            Ok(writer.renamed(&self.io, directory.clone()))
        });
        if made.is_err() {
            // What cannot be removed now is removed at the next start.
            let _ = self.io.disk.remove_tree(aside.path());
            if !directory.path().exists() {
                let _ = self.io.disk.unlink(&self.marker(uuid));
            }
        }
        made
    }

    /// The marker first, so that a start finds every history that has its name.
    fn publish(&self, uuid: Uuid, aside: &ProcessDirectory, directory: &ProcessDirectory) -> io::Result<()> {
        let disk = &self.io.disk;
        disk.sync_dir(aside.path())?;
        self.mark(uuid)?;
        disk.rename(aside.path(), directory.path())?;
        disk.sync_dir(&self.root.join("steps")).inspect_err(|_| self.unpublish(aside, directory))
    }

    /// Takes the name back. The files go once that is on the disk, now or at the next start, so that half of them is
    /// never seen.
    fn unpublish(&self, aside: &ProcessDirectory, directory: &ProcessDirectory) {
        let disk = &self.io.disk;
        let undone = aside.path().with_extension("undone");
        if disk.rename(directory.path(), &undone).is_err() {
            self.io.poison(directory.path());
        } else if disk.sync_dir(&self.root.join("steps")).is_ok() {
            let _ = disk.remove_tree(&undone);
        }
    }
}
