//! Where a fork comes from, and where that came from.

use std::collections::HashSet;
use std::io;

use relive_core::{Origin, Uuid};

use super::{DataDirectory, Known};
use crate::info::ProcInfo;

/// How far back a lineage is followed.
pub const LINEAGE_MAX: usize = 1000;

/// One ancestor of a fork.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ancestor {
    /// Which.
    pub uuid: Uuid,
    /// Its last step that the one below shares.
    pub step: u32,
    /// Whether its history was collected, or is not known here.
    pub gone: bool,
}

/// Why a lineage cannot be told.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "each says it")]
pub enum LineageError {
    #[error("{0} is its own ancestor: its journal, or another of its line, was changed by hand")]
    Cycle(Uuid),
    #[error("{0} has more than {LINEAGE_MAX} ancestors")]
    TooLong(Uuid),
    #[error("{uuid}: {source}")]
    Io { uuid: Uuid, source: io::Error },
}

impl DataDirectory {
    /// The ancestors of a process, nearest first.
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

    /// What a process is a fork of, and whether its own history is gone.
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
