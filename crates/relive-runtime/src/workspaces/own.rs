//! Workspaces of their own: copies of a snapshot, one directory for each process.

use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, Weak};

use relive_core::{ErrorCode, Uuid};
use relive_workspace::{Control, Snapshot};
use tokio::sync::OwnedMutexGuard;

use super::{Workspaces, lock};
use crate::error::{Error, Result};

/// How the name of a mark ends that a copy has until its process exists.
const UNCLAIMED: &str = ".unclaimed";
/// How the name of a copy ends that is being written, see [`relive_workspace::Store::copy`].
const UNFINISHED: &str = ".relive-copy";

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
        if self.unclaimed(uuid).symlink_metadata().is_ok() {
            // What a daemon left that was killed before the process existed.
            store.remove_copy(&path)?;
        } else if path.symlink_metadata().is_ok() {
            let message = format!("{} is there already, and may be the workspace of a process", path.display());
            return Err(Error::new(ErrorCode::Conflict, message).with_hint("relive workspace list"));
        }
        // Until the process exists, a start may remove the copy.
        store.mark_copy(&self.unclaimed(uuid))?;
        let snapshot = store.as_copied(snapshot)?;
        self.remember(snapshot);
        if let Err(error) = store.copy(&snapshot, &path, &Control::default()) {
            self.claim_own(uuid);
            return Err(error.into());
        }
        Ok((path, snapshot))
    }

    /// Waits until nobody else creates a process with this UUID, and keeps others from it: the copy that is made for a
    /// request must not be replaced by the copy for the same request, sent again.
    pub(crate) async fn hold_creation(&self, uuid: Uuid) -> OwnedMutexGuard<()> {
        let creation = {
            let mut all = lock(&self.0.creations);
            all.retain(|_, creation| creation.strong_count() > 0);
            all.get(&uuid).and_then(Weak::upgrade).unwrap_or_else(|| {
                let creation = Arc::default();
                all.insert(uuid, Arc::downgrade(&creation));
                creation
            })
        };
        creation.lock_owned().await
    }

    fn unclaimed(&self, uuid: Uuid) -> PathBuf {
        self.0.options.own.join(format!(".{uuid}{UNCLAIMED}"))
    }

    /// Notes that the process whose own workspace it is exists.
    pub(crate) fn claim_own(&self, uuid: Uuid) {
        let mark = self.unclaimed(uuid);
        if mark.symlink_metadata().is_ok()
            && let Ok(store) = self.store()
        {
            // Where it stays, the next start finds the process and removes it.
            let _ = store.remove_copy(&mark);
        }
    }

    /// Removes the copies that were made for processes which an earlier daemon could not create any more, and returns how
    /// many there were. A copy without a mark is never removed: it may be all that is left of a process.
    pub(crate) fn sweep_unclaimed(&self, exists: impl Fn(Uuid) -> bool) -> Result<usize> {
        let entries = match std::fs::read_dir(&self.0.options.own) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(0),
            Err(error) => return Err(error.into()),
        };
        let mut swept = 0;
        for entry in entries {
            let entry = entry?;
            let name = entry.file_name();
            let marked = |end: &str| name.to_str()?.strip_prefix('.')?.strip_suffix(end)?.parse::<Uuid>().ok();
            if let Some(uuid) = marked(UNCLAIMED) {
                if !exists(uuid) {
                    swept += usize::from(self.has_own(uuid));
                    self.store()?.remove_copy(&self.own(uuid))?;
                }
                self.store()?.remove_copy(&entry.path())?;
            } else if marked(UNFINISHED).is_some() {
                self.store()?.remove_copy(&entry.path())?;
                swept += 1;
            }
        }
        Ok(swept)
    }

    /// Tells whether the own workspace of a process is there.
    pub(crate) fn has_own(&self, uuid: Uuid) -> bool {
        self.own(uuid).symlink_metadata().is_ok_and(|metadata| metadata.is_dir())
    }

    /// Removes the own workspace of a process.
    pub(crate) fn remove_own(&self, uuid: Uuid) -> Result<()> {
        let path = self.own(uuid);
        self.close(&path);
        self.store()?.remove_copy(&path)?;
        self.claim_own(uuid);
        Ok(())
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
