//! Workspaces of their own: copies of a snapshot, one directory for each process.

use std::path::{Path, PathBuf};
use std::sync::PoisonError;

use relive_core::Uuid;
use relive_workspace::{Control, Snapshot};

use super::Workspaces;
use crate::error::Result;

/// A directory that Relive made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OwnDirectory {
    pub(crate) uuid: Uuid,
    pub(crate) path: PathBuf,
}

impl Workspaces {
    /// Where own workspaces are.
    pub(crate) fn own_root(&self) -> &Path {
        &self.0.options.own
    }

    /// Where the own workspace of a process is, or would be.
    pub(crate) fn own(&self, uuid: Uuid) -> PathBuf {
        self.0.options.own.join(uuid.to_string())
    }

    /// Copies a snapshot into the own workspace of a process that does not exist yet. Returns what the copy is.
    pub(crate) fn copy(&self, snapshot: &Snapshot, uuid: Uuid) -> Result<(PathBuf, Snapshot)> {
        let (store, path) = (self.store()?, self.own(uuid));
        let _counted = self.0.collecting.read().unwrap_or_else(PoisonError::into_inner);
        // What a daemon left that was killed before the process existed.
        store.remove_copy(&path)?;
        let snapshot = store.as_copied(snapshot)?;
        self.remember(snapshot);
        store.copy(&snapshot, &path, &Control::default())?;
        Ok((path, snapshot))
    }

    /// Tells whether the own workspace of a process is there.
    pub(crate) fn has_own(&self, uuid: Uuid) -> bool {
        self.own(uuid).symlink_metadata().is_ok_and(|metadata| metadata.is_dir())
    }

    /// Removes the own workspace of a process.
    pub(crate) fn remove_own(&self, uuid: Uuid) -> Result<()> {
        let path = self.own(uuid);
        self.close(&path);
        Ok(self.store()?.remove_copy(&path)?)
    }

    /// Lists the own workspaces there are.
    pub(crate) fn all_own(&self) -> Result<Vec<OwnDirectory>> {
        let entries = match std::fs::read_dir(&self.0.options.own) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error.into()),
        };
        let mut found = Vec::new();
        for entry in entries {
            let entry = entry?;
            // A link leads to files that Relive did not make.
            if !entry.file_type()?.is_dir() {
                continue;
            }
            let uuid = entry.file_name().to_str().and_then(|name| Uuid::try_parse(name).ok());
            found.extend(uuid.map(|uuid| OwnDirectory { uuid, path: entry.path() }));
        }
        found.sort_by_key(|own| own.uuid);
        Ok(found)
    }
}
