//! The index entry of one process.

use std::fs;
use std::io;

use relive_core::{End, Pid, Uuid};
use relive_journal::{DataDirectory, History, JournalState, ProcInfo, ProcessDirectory};

/// A process in the index.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// A summary of the process, with the length and the last checksum of the journal it was made from.
    pub info: ProcInfo,
    /// The incarnations, first to last.
    pub incarnations: Vec<Incarnation>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Incarnation {
    pub pid: Pid,
    /// Absent while the incarnation lives and if it was interrupted.
    pub end: Option<End>,
}

/// The state of a process according to its journal alone. The process table knows more about living processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Not ended and not suspended.
    Running,
    /// Not ended, and suspended.
    Suspended,
    Dead,
}

/// Whether a row matches the journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Freshness {
    /// The journal has the recorded length.
    Current,
    /// The journal has another length: read the row again with [`Row::read`] and [`crate::Index::upsert`] it.
    Stale,
    /// There is no journal: the process was collected.
    Gone,
}

impl Row {
    /// Creates a row from a journal; `None` if the journal does not describe the process.
    #[must_use]
    pub fn of(history: &History) -> Option<Self> {
        let info = ProcInfo::of(history)?;
        let incarnations = history.incarnations.iter().map(|incarnation| Incarnation {
            pid: incarnation.pid,
            end: incarnation.ended.as_ref().map(|(_, end)| end.clone()),
        });
        Some(Self { info, incarnations: incarnations.collect() })
    }

    /// Reads a process from the data directory: from its snapshot if that is complete, else from its journal.
    pub fn read(data: &DataDirectory, uuid: Uuid) -> io::Result<Option<Self>> {
        let Some(info) = data.info(uuid)? else { return Ok(None) };
        if let [pid] = info.pids[..] {
            let incarnations = vec![Incarnation { pid, end: info.end.clone() }];
            return Ok(Some(Self { info, incarnations }));
        }
        // Only the journal records how earlier incarnations ended.
        Ok(Self::of(&data.history(uuid)?.0))
    }

    /// Returns the state of the process according to its journal.
    #[must_use]
    pub fn state(&self) -> State {
        state_of(&self.info)
    }
}

pub(crate) fn state_of(info: &ProcInfo) -> State {
    match (info.state, info.suspend_reason) {
        (JournalState::Dead, _) => State::Dead,
        (JournalState::Running, Some(_)) => State::Suspended,
        (JournalState::Running, None) => State::Running,
    }
}

impl Freshness {
    /// Compares a row with the journal of the process, by one `stat`.
    ///
    /// After a power cut a journal may have the same length and a different end; [`ProcInfo::read`] detects that.
    pub fn of(info: &ProcInfo, directory: &ProcessDirectory) -> io::Result<Self> {
        match fs::metadata(directory.steps()) {
            Ok(metadata) if metadata.len() == info.journal_bytes() => Ok(Self::Current),
            Ok(_) => Ok(Self::Stale),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Self::Gone),
            Err(error) => Err(error),
        }
    }
}
