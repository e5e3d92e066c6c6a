//! The lineage of a fork: its origin, the origin of that, and so on.

use std::collections::HashSet;
use std::io;

use relive_core::{Origin, Uuid};

use super::{DataDirectory, Known};
use crate::info::ProcInfo;

/// How far back a lineage is followed.
pub const LINEAGE_MAX: usize = 1000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ancestor {
    pub uuid: Uuid,
    /// Its last step that it shares with its descendant.
    pub step: u32,
    /// Whether its journal was collected, or is not known here.
    pub gone: bool,
}

/// The reason why a lineage cannot be determined.
#[derive(Debug, thiserror::Error)]
pub enum LineageError {
    #[error("{0} is its own ancestor: a journal in its lineage was changed by hand")]
    Cycle(Uuid),
    #[error("{0} has more than {LINEAGE_MAX} ancestors")]
    TooLong(Uuid),
    #[error("{uuid}: {source}")]
    Io { uuid: Uuid, source: io::Error },
}

impl DataDirectory {
    /// Returns the lineage of a process, nearest first.
    pub fn lineage(&self, uuid: Uuid) -> Result<Vec<Ancestor>, LineageError> {
        let mut ancestors = Vec::new();
        let mut seen = HashSet::from([uuid]);
        let (mut origin, _) = self.origin(uuid)?;
        while let Some(Origin { uuid: parent, step }) = origin {
            if !seen.insert(parent) {
                return Err(LineageError::Cycle(parent));
            }
            if ancestors.len() == LINEAGE_MAX {
                return Err(LineageError::TooLong(uuid));
            }
            let (next, gone) = self.origin(parent)?;
            ancestors.push(Ancestor { uuid: parent, step, gone });
            origin = next;
        }
        Ok(ancestors)
    }

    /// Returns the origin of a process, and whether its own journal is gone.
    fn origin(&self, uuid: Uuid) -> Result<(Option<Origin>, bool), LineageError> {
        let failed = |source| LineageError::Io { uuid, source };
        match self.known(uuid).map_err(failed)? {
            Known::Here(directory) => {
                let info = ProcInfo::read(&directory).map_err(failed)?;
                Ok((info.and_then(|info| info.origin), false))
            }
            Known::Collected(tombstone) => Ok((tombstone.origin, true)),
            Known::Never => Ok((None, true)),
        }
    }
}
