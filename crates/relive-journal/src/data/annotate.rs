//! Records that are added to the journal of a process that has ended: about its name, and about its files, which outlive it.

use relive_core::{Moment, Uuid};

use super::DataDirectory;
use crate::disk::is_full;
use crate::history::History;
use crate::info::ProcInfo;
use crate::opening::Acquired;
use crate::record::Body;
use crate::writer::WriteError;

impl DataDirectory {
    /// Adds records to the journal of a process that has ended, which is opened for them alone: no incarnation begins. On
    /// return they are on the disk.
    pub fn annotate(&self, uuid: Uuid, now: Moment, records: Vec<Body>) -> Result<History, WriteError> {
        let directory = self.directory(uuid);
        let failed = |source| WriteError::Io { path: directory.steps(), source };
        self.settle().map_err(failed)?;
        let writer = Acquired::new(&self.io, directory.clone(), None)?.note(&self.io, now, records)?;
        let history = writer.history().clone();
        if let Some(info) = ProcInfo::of(&history) {
            match info.write(&self.io.disk, &directory) {
                // Derived: it is made anew when it is asked for.
                Err(error) if is_full(&error) => {}
                written => written.map_err(failed)?,
            }
        }
        Ok(history)
    }
}
