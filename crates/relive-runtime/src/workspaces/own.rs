//! Workspaces of their own: copies of a snapshot, one directory for each process.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::PoisonError;

use relive_core::{ErrorCode, Uuid};
use relive_workspace::{CopyState, REMOVED_END, Snapshot};

use super::{Workspaces, no_copy};
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

    /// Copies a snapshot of a directory into the own workspace of a process that does not exist yet. Returns what the copy
    /// is.
    pub(crate) fn copy(&self, snapshot: &Snapshot, of: &Path, uuid: Uuid) -> Result<(PathBuf, Snapshot)> {
        let control = self.control_of_start(uuid);
        let settings = self.0.rules.read().unwrap_or_else(PoisonError::into_inner).settings.clone();
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
        let rules = store.outer_rules(of, &settings);
        let snapshot = store.as_copied(snapshot)?;
        self.remember(snapshot);
        #[cfg(feature = "faults")]
        self.hold_copy(uuid);
        if let Err(error) = store.copy_with_rules(&snapshot, &path, &rules, &control) {
            self.claim_own(uuid);
            return Err(error.into());
        }
        Ok((path, snapshot))
    }

    /// Makes a copy last until the test has made a file `go`, or cancels its start.
    #[cfg(feature = "faults")]
    fn hold_copy(&self, uuid: Uuid) {
        let (go, cancel) = (self.0.options.own.join("go"), self.cancel_flag(uuid));
        let is_cancelled = || cancel.load(std::sync::atomic::Ordering::Relaxed);
        while crate::faults::is_on("held-copy") && !go.exists() && !is_cancelled() {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
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

    /// Tells whether the directory of a copy is the one that was made. Blocks.
    pub(crate) fn look_at_copy(&self, path: &Path) -> Result<CopyState> {
        Ok(self.store()?.look_at_copy(path))
    }

    /// Tells whether a copy was made at a path that Relive has not removed since. Blocks.
    pub(crate) fn remembers_copy(&self, path: &Path) -> Result<bool> {
        Ok(self.store()?.remembers_copy(path))
    }

    /// Tells whether somebody else has removed the own workspace of a process. Blocks.
    pub(crate) fn has_lost_own(&self, uuid: Uuid) -> Result<bool> {
        // No store is opened for it where nobody ever had one.
        let may_have = self.own_root().symlink_metadata().is_ok() && !self.has_own(uuid);
        Ok(may_have && self.remembers_copy(&self.own(uuid))?)
    }

    /// Refuses the path of an own workspace where its directory is not any more.
    pub(crate) fn check_made(&self, path: &Path) -> Result<()> {
        let (Some(above), Some(name)) = (path.parent(), path.file_name().and_then(OsStr::to_str)) else {
            return Ok(());
        };
        let own = self.own_root();
        let is_own = above == own || own.canonicalize().is_ok_and(|own| above == own);
        let Some(uuid) = Uuid::try_parse(name).ok().filter(|_| is_own) else { return Ok(()) };
        match self.look_at_copy(path)? {
            CopyState::There => Ok(()),
            state @ (CopyState::Gone | CopyState::Replaced) => Err(no_copy(uuid, path, state)),
        }
    }

    /// Tells whether the own workspace of a process is there.
    pub(crate) fn has_own(&self, uuid: Uuid) -> bool {
        self.own(uuid).symlink_metadata().is_ok_and(|metadata| metadata.is_dir())
    }

    /// Notes, durably, that the own workspace of a process is to be removed once the process is. If a kill comes between,
    /// the next start removes it.
    pub(crate) fn disclaim_own(&self, uuid: Uuid) -> Result<()> {
        Ok(self.store()?.mark_copy_durably(&self.unclaimed(uuid))?)
    }

    /// Removes the own workspace of a process, or what an earlier removal left of it. When this fails, either all of it is
    /// there, or it counts as removed and the message says where its last files are.
    pub(crate) fn remove_own(&self, uuid: Uuid) -> Result<()> {
        let path = self.own(uuid);
        self.close(&path);
        let store = self.store()?;
        let rest = self.removed_own(uuid);
        let _alone = self.0.removing.lock(&rest);
        #[cfg(feature = "faults")]
        super::faulty::begin_removal();
        let removed = store.remove_copy(&path);
        #[cfg(feature = "faults")]
        super::faulty::end_removal();
        let is_there = removed.is_err() && self.has_own(uuid);
        if !is_there {
            self.claim_own(uuid);
        }
        removed.map_err(|error| if is_there { error.into() } else { left_over(&rest, error) })
    }

    fn removed_own(&self, uuid: Uuid) -> PathBuf {
        self.0.options.own.join(format!(".{uuid}{REMOVED_END}"))
    }

    /// Returns where the last files of an own workspace are that could not all be removed.
    pub(crate) fn rest_of_own(&self, uuid: Uuid) -> Option<PathBuf> {
        Some(self.removed_own(uuid)).filter(|rest| rest.symlink_metadata().is_ok())
    }

    /// Removes what interrupted removals left, and returns why some of it stays.
    pub(crate) fn sweep_removed(&self) -> Vec<Error> {
        let Ok(entries) = std::fs::read_dir(&self.0.options.own) else { return Vec::new() };
        let mut failed = Vec::new();
        for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
            let is_rest = |name: &str| name.starts_with('.') && name.ends_with(REMOVED_END);
            if !path.file_name().and_then(OsStr::to_str).is_some_and(is_rest) {
                continue;
            }
            // Whoever removes it already says what becomes of it.
            let Some(_alone) = self.0.removing.try_lock(&path) else { continue };
            match self.store() {
                Ok(store) => failed.extend(store.remove_rest(&path).err().map(|error| left_over(&path, error))),
                Err(error) => failed.push(error),
            }
        }
        failed
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

/// Says where the last files of a removed workspace are, and how to remove them.
fn left_over(rest: &Path, error: relive_workspace::Error) -> Error {
    let is_refused = matches!(&error, relive_workspace::Error::Io { source, .. }
        if source.kind() == std::io::ErrorKind::PermissionDenied);
    let uuid = rest.file_name().and_then(|name| name.to_str()?.strip_prefix('.')?.strip_suffix(REMOVED_END));
    let (error, path) = (Error::from(error), rest.display().to_string());
    let hint = match uuid {
        Some(uuid) if !is_refused => format!("relive workspace rm {uuid}"),
        // Files of another user.
        Some(_) | None => format!("sudo rm -r {}", relive_types::program::quote(&path)),
    };
    let message = format!("the workspace was removed, but files of it are left in {path}: {error}");
    Error::new(error.code(), message).with_hint(hint)
}
