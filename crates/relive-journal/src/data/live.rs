//! The processes that have not ended, for the start of a daemon.
//!
//! One process never prevents the others from being found: an unreadable one is reported by name.

use std::fs;
use std::io;
use std::path::PathBuf;

use relive_core::Uuid;

use super::{DataDirectory, uuids_in};
use crate::directory::ProcessDirectory;
use crate::history::History;
use crate::scan::Health;

/// A process that has not ended.
#[derive(Debug)]
pub struct Live {
    pub uuid: Uuid,
    pub history: History,
    pub health: Health,
}

/// A process that has a marker and cannot be read. Its marker stays, so the next start tries again.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {source}", path = path.display())]
pub struct Unreadable {
    pub uuid: Uuid,
    pub path: PathBuf,
    pub source: io::Error,
}

impl DataDirectory {
    /// Returns the readable processes that have not ended, ordered by UUID.
    pub fn live(&self) -> io::Result<Vec<Live>> {
        let mut found = Vec::new();
        self.for_each_live(|live| found.extend(live.ok()))?;
        found.sort_unstable_by_key(|live| live.uuid);
        Ok(found)
    }

    /// Calls `each` for every process that has not ended, so that the caller need not hold all of them at once, and for
    /// every unreadable one. Markers of processes that have ended or never existed are removed. The work is bounded by
    /// the number of markers. An error means that the markers themselves cannot be listed.
    pub fn for_each_live(&self, mut each: impl FnMut(Result<Live, Unreadable>)) -> io::Result<()> {
        for uuid in self.marked()? {
            match self.read_live(uuid) {
                Ok(Some(live)) => each(Ok(live)),
                Ok(None) => {}
                Err(unreadable) => each(Err(unreadable)),
            }
        }
        Ok(())
    }

    /// Returns the processes that may not have ended; [`Self::read_live`] tells.
    pub fn marked(&self) -> io::Result<Vec<Uuid>> {
        let unmarked = self.lock_pending().unmarked.clone();
        match unmarked {
            Some(uuids) => Ok(uuids),
            None => uuids_in(&self.root.join("live")),
        }
    }

    /// Reads one process; `None` if it has ended or never existed.
    pub fn read_live(&self, uuid: Uuid) -> Result<Option<Live>, Unreadable> {
        self.read_live_or(uuid, |_| {})
    }

    /// Reads one process. If it has ended, returns `None` and calls `ended` before its marker is removed.
    pub fn read_live_or(&self, uuid: Uuid, ended: impl FnOnce(&History)) -> Result<Option<Live>, Unreadable> {
        let directory = self.directory(uuid);
        let unreadable = |path: PathBuf| move |source| Unreadable { uuid, path, source };
        let (history, health) = match self.history(uuid) {
            Err(error) if is_absent(&error, &directory) => {
                // The next start finds a marker that cannot be removed again.
                let _ = self.unmark(uuid);
                return Ok(None);
            }
            other => other.map_err(unreadable(directory.steps()))?,
        };
        if history.identity.as_ref().is_some_and(|identity| identity.spawned.uuid != uuid) {
            let error = io::Error::new(io::ErrorKind::InvalidData, "this is the journal of another process");
            return Err(unreadable(directory.steps())(error));
        }
        if history.ended().is_some() {
            // Its writer may have been killed before its last sync.
            let disk = &self.io.disk;
            let file = disk.open_append(&directory.steps()).map_err(unreadable(directory.steps()))?;
            let synced = disk.sync(&file).inspect_err(|_| self.io.poison(directory.path()));
            synced.map_err(unreadable(directory.steps()))?;
            ended(&history);
            // The next start repeats whatever fails here.
            let _ = self.retire(uuid, &history);
            return Ok(None);
        }
        check_meta(&directory).map_err(unreadable(directory.process_meta()))?;
        Ok(Some(Live { uuid, history, health }))
    }
}

/// Returns whether there is no such process: a directory under `steps/` always has a journal.
fn is_absent(error: &io::Error, directory: &ProcessDirectory) -> bool {
    error.kind() == io::ErrorKind::NotFound && fs::symlink_metadata(directory.path()).is_err()
}

/// Refuses unreadable metadata. A program has none.
fn check_meta(directory: &ProcessDirectory) -> io::Result<()> {
    match fs::metadata(directory.process_meta()) {
        Ok(metadata) if metadata.is_file() => Ok(()),
        Ok(_) => Err(io::Error::new(io::ErrorKind::InvalidData, "not a regular file")),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}
