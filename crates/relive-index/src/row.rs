//! What the index knows of one process.

use std::fs;
use std::io;

use relive_core::{End, Pid, Uuid};
use relive_journal::{DataDirectory, History, JournalState, ProcInfo, ProcessDirectory};

/// A process, as the index has it.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// The process at a glance, with the length and the last checksum of the journal it was made from.
    pub info: ProcInfo,
    /// Its incarnations, first to last.
    pub incarnations: Vec<Incarnation>,
}

/// One incarnation of a process.
#[derive(Debug, Clone, PartialEq)]
pub struct Incarnation {
    /// Its PID.
    pub pid: Pid,
    /// How it ended; absent while it lives, and where it was interrupted.
    pub end: Option<End>,
}

/// The state of a process by its journal alone. The process table knows more about processes that live.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Not ended and not suspended.
    Running,
    /// Not ended, and suspended.
    Suspended,
    /// Ended.
    Dead,
}

/// Whether a row still says what the journal says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Freshness {
    /// The journal has the length it had.
    Current,
    /// The journal has another length: read the row again with [`Row::read`] and [`crate::Index::upsert`] it.
    Stale,
    /// There is no journal: the process was collected.
    Gone,
}

impl Row {
    /// Makes a row of a history; `None` if the journal does not say what the process is.
    #[must_use]
    pub fn of(history: &History) -> Option<Self> {
        let info = ProcInfo::of(history)?;
        let incarnations = history.incarnations.iter().map(|incarnation| Incarnation {
            pid: incarnation.pid,
            end: incarnation.ended.as_ref().map(|(_, end)| end.clone()),
        });
        Some(Self { info, incarnations: incarnations.collect() })
    }

    /// Reads a process from the data directory: by its snapshot if that says everything, else from its journal.
    pub fn read(data: &DataDirectory, uuid: Uuid) -> io::Result<Option<Self>> {
        let Some(info) = data.info(uuid)? else { return Ok(None) };
        if let [pid] = info.pids[..] {
            let incarnations = vec![Incarnation { pid, end: info.end.clone() }];
            return Ok(Some(Self { info, incarnations }));
        }
        // How earlier incarnations ended stands in the journal only.
        Ok(Self::of(&data.history(uuid)?.0))
    }

    /// The state of the process by its journal.
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
    /// A power cut can leave a journal with the same length and another end; [`ProcInfo::read`] finds that out.
    pub fn of(info: &ProcInfo, directory: &ProcessDirectory) -> io::Result<Self> {
        match fs::metadata(directory.steps()) {
            Ok(metadata) if metadata.len() == info.journal_bytes() => Ok(Self::Current),
            Ok(_) => Ok(Self::Stale),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Self::Gone),
            Err(error) => Err(error),
        }
    }
}
