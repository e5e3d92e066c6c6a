//! The processes that have not ended, as a start finds them.
//!
//! One process never keeps the others from being found: what cannot be read is handed over by name.

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
    /// Which.
    pub uuid: Uuid,
    /// What its journal amounts to.
    pub history: History,
    /// Whether its journal can be written.
    pub health: Health,
}

/// A process that has a marker and cannot be read. Its marker stays, so the next start tries again.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {source}", path = path.display())]
pub struct Unreadable {
    /// The process.
    pub uuid: Uuid,
    /// The file that cannot be read.
    pub path: PathBuf,
    /// The system's reason.
    pub source: io::Error,
}

impl DataDirectory {
    /// The processes that have not ended and can be read, in the order of their UUIDs.
    pub fn live(&self) -> io::Result<Vec<Live>> {
        let mut found = Vec::new();
        self.for_each_live(|live| found.extend(live.ok()))?;
        found.sort_unstable_by_key(|live| live.uuid);
        Ok(found)
    }

    /// Hands over each process that has not ended, so that nobody need hold all histories at once, and each that cannot
    /// be read. Markers of processes that have ended, or never began, are removed. What it reads is bounded by the
    /// number of markers. An error means that the markers themselves cannot be listed.
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

    /// Returns the processes that may not have ended: [`Self::read_live`] tells.
    pub fn marked(&self) -> io::Result<Vec<Uuid>> {
        let unmarked = self.lock_pending().unmarked.clone();
        match unmarked {
            Some(uuids) => Ok(uuids),
            None => uuids_in(&self.root.join("live")),
        }
    }

    /// Reads one process; nothing if it has ended, or never began.
    pub fn read_live(&self, uuid: Uuid) -> Result<Option<Live>, Unreadable> {
        let directory = self.directory(uuid);
        let unreadable = |path: PathBuf| move |source| Unreadable { uuid, path, source };
        let (history, health) = match self.history(uuid) {
            Err(error) if is_absent(&error, &directory) => {
                // A marker that cannot be removed is found again by the next start.
                let _ = self.io.disk.unlink(&self.marker(uuid));
                return Ok(None);
            }
            other => other.map_err(unreadable(directory.steps()))?,
        };
        if history.ended().is_some() {
            // Its writer may have been killed before its last sync.
            let disk = &self.io.disk;
            let file = disk.open_append(&directory.steps()).map_err(unreadable(directory.steps()))?;
            let synced = disk.sync(&file).inspect_err(|_| self.io.poison(directory.path()));
            synced.map_err(unreadable(directory.steps()))?;
            // Whatever fails here the next start does.
            let _ = self.retire(uuid, &history);
            return Ok(None);
        }
        check_meta(&directory).map_err(unreadable(directory.process_meta()))?;
        Ok(Some(Live { uuid, history, health }))
    }
}

/// Tells whether there is no such process: a directory under `steps/` always has a journal.
fn is_absent(error: &io::Error, directory: &ProcessDirectory) -> bool {
    error.kind() == io::ErrorKind::NotFound && fs::symlink_metadata(directory.path()).is_err()
}

/// Refuses metadata that nobody could read. A program has none.
fn check_meta(directory: &ProcessDirectory) -> io::Result<()> {
    match fs::metadata(directory.process_meta()) {
        Ok(metadata) if metadata.is_file() => Ok(()),
        Ok(_) => Err(io::Error::new(io::ErrorKind::InvalidData, "not a regular file")),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}
