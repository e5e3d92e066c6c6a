//! Creates processes: the directory is prepared elsewhere, complete and synced, and renamed at the end.

use std::io;

use relive_core::Uuid;

use super::DataDirectory;
use crate::directory::ProcessDirectory;
use crate::history::History;
use crate::meta::ProcessMeta;
use crate::opening::Opening;
use crate::record::{Body, Input, Spawned};
use crate::writer::{Durability, Take, WriteError, Writer};

/// A request to create a process.
#[derive(Debug)]
pub struct SpawnRequest {
    pub opening: Opening,
    /// The properties. The UUID is chosen by the caller.
    pub spawned: Spawned,
    /// The prompt and tools, for an agent.
    pub meta: Option<ProcessMeta>,
    /// The first message, if there is one.
    pub input: Option<Input>,
    /// Further records for the start, after the message and in the same write.
    pub records: Vec<Body>,
}

/// The reason why a process could not be created. Nothing of it remains.
#[derive(Debug, thiserror::Error)]
pub enum SpawnError {
    /// There is, or was, a process with this UUID.
    #[error("there is already a process {0}")]
    Exists(Uuid),
    /// The disk is nearly full.
    #[error("only {free_bytes} bytes are free, and a new process needs {floor_bytes}")]
    NoSpace { free_bytes: u64, floor_bytes: u64 },
    /// Its journal could not be written.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// Its directory could not be created.
    #[error("process {uuid} could not be created: {source}")]
    Io { uuid: Uuid, source: io::Error },
}

impl DataDirectory {
    /// Creates a process. On return it is completely on the disk.
    pub fn spawn(&self, request: SpawnRequest) -> Result<Writer, SpawnError> {
        let SpawnRequest { opening, spawned, meta, input, records } = request;
        self.make(spawned.uuid, |directory| {
            let disk = &self.io.disk;
            let failed = |source| WriteError::Io { path: directory.path().to_owned(), source };
            let has_meta = meta.is_some();
            if let Some(meta) = meta {
                meta.write(disk, directory).map_err(failed)?;
            }
            let file = disk.create(&directory.steps()).map_err(failed)?;
            disk.try_lock(&file).map_err(failed)?;
            let mut writer = Writer::new(&self.io, directory.clone(), file, History::default(), Take::Copied);
            let held = spawned.begins_at_gate();
            let mut batch = vec![opening.body(0, held), Body::Spawned(Box::new(spawned))];
            batch.extend(input.map(Body::Input).into_iter().chain(records));
            writer.append(opening.now, batch, Durability::Synced)?;
            let alone = !has_meta && writer.history().blobs.is_empty();
            if !alone || !disk.keeps_names_in_order(directory.path()) {
                disk.sync_dir(directory.path()).map_err(failed)?;
            }
            Ok(writer)
        })
    }

    /// Creates the directory of a process with the content from `fill`, on the disk, or nothing.
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
            // The next start removes what cannot be removed now.
            let _ = self.io.disk.remove_tree(aside.path());
            if !directory.path().exists() {
                let _ = self.unmark(uuid);
            }
        }
        made
    }

    /// Creates the marker first, so that a start finds every journal that has its name. The content is on the disk.
    fn publish(&self, uuid: Uuid, aside: &ProcessDirectory, directory: &ProcessDirectory) -> io::Result<()> {
        let disk = &self.io.disk;
        self.mark_new(uuid)?;
        disk.rename(aside.path(), directory.path())?;
        disk.sync_dir(&self.root.join("steps")).inspect_err(|_| self.unpublish(aside, directory))
    }

    /// Undoes the rename. The files are deleted once that is on the disk, now or at the next start, so that a partial
    /// directory is never visible.
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
