//! Processes that have not ended and could not be recovered: the disk is full, or their files cannot be read.
//!
//! None of them is in the table, and none runs. They are listed all the same, and whoever wants to change one is told
//! what is wrong with it. Each is tried again: now and then, and whenever a verb needs it.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use relive_api::Process;
use relive_core::{Body, Display, ErrorCode, Pid, State, SuspendReason, Uuid};
use relive_journal::data::Unreadable;
use relive_journal::{ProcInfo, ProcessDirectory};

use crate::error::Error;
use crate::lookup::OnDisk;
use crate::view::{of_disk, unknown};

/// Why a process could not be recovered.
#[derive(Debug, Clone)]
pub(crate) struct Failure {
    pub(crate) message: String,
    cause: FailureCause,
    /// The PID it is to have.
    pub(crate) pid: Option<Pid>,
    /// The process as it was last seen.
    pub(crate) info: Option<Box<ProcInfo>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FailureCause {
    DiskFull,
    /// Its journal can be read, and not opened.
    NotOpened,
    Unreadable,
}

impl Failure {
    pub(crate) fn of(error: &Error, pid: Option<Pid>) -> Self {
        let cause = if error.is_disk_full() { FailureCause::DiskFull } else { FailureCause::NotOpened };
        Self { message: error.to_string(), cause, pid, info: None }
    }

    /// Of a process that has not ended and has no marker any more, so that the start did not look for it.
    pub(crate) fn unmarked(info: ProcInfo) -> Self {
        let message = "its marker in `live/` is gone".to_owned();
        Self { message, cause: FailureCause::NotOpened, pid: None, info: Some(Box::new(info)) }
    }

    /// Of a process whose journal can be read, and does not say what it is.
    pub(crate) fn damaged(directory: &ProcessDirectory, error: &Error) -> Self {
        let message = format!("{}: {error}", directory.steps().display());
        Self { message, cause: FailureCause::Unreadable, pid: None, info: None }
    }

    pub(crate) fn unreadable(error: &Unreadable) -> Self {
        Self { message: error.to_string(), cause: FailureCause::Unreadable, pid: None, info: None }
    }

    /// Of a process whose parent could not be recovered: it runs below that or not at all.
    pub(crate) fn below(&self, parent: Uuid, pid: Option<Pid>) -> Self {
        let message = format!("its parent {parent} could not be recovered: {}", self.message);
        Self { message, cause: self.cause, pid, info: None }
    }

    pub(crate) fn with_info(self, info: Option<Box<ProcInfo>>) -> Self {
        Self { info, ..self }
    }

    /// Tells whether another attempt may succeed without anybody repairing a file.
    pub(crate) fn is_passing(&self) -> bool {
        self.cause != FailureCause::Unreadable
    }

    /// What is said to whoever wants to change the process.
    pub(crate) fn refusal(&self, uuid: Uuid) -> Error {
        let (code, hint) = match self.cause {
            FailureCause::DiskFull => (ErrorCode::Exhausted, Some("relive gc")),
            FailureCause::NotOpened => (ErrorCode::Conflict, Some("relive daemon restart")),
            // Somebody has to repair that file.
            FailureCause::Unreadable => (ErrorCode::Conflict, None),
        };
        let message = format!("process {uuid} has not ended and could not be recovered: {}", self.message);
        Error::Said { code, message, hint: hint.map(str::to_owned) }
    }

    /// The process as it is listed.
    pub(crate) fn shown(&self, uuid: Uuid) -> Process {
        let (display, reason) = match self.cause {
            FailureCause::DiskFull => (Display::Suspended, SuspendReason::DiskFull),
            FailureCause::NotOpened => (Display::Suspended, SuspendReason::IoError),
            FailureCause::Unreadable => (Display::Damaged, SuspendReason::IoError),
        };
        let process = match self.info.clone().and_then(|info| OnDisk::last(*info)) {
            Some(found) => of_disk(found),
            None => unknown(uuid),
        };
        // A program needs no daemon to run, and nobody knows whether it does.
        let is_held = process.body != Body::Exec || process.suspend_reason.is_some() || !self.is_passing();
        let (display, reason) = if is_held { (display, Some(reason)) } else { (Display::Running, None) };
        Process {
            pid: self.pid.unwrap_or(process.pid),
            state: State::Running,
            paused: is_held,
            display: display.word().to_owned(),
            suspend_reason: reason,
            dead_at: None,
            resumable: self.is_passing(),
            hint: self.refusal(uuid).hint(),
            note: Some(self.message.clone()),
            ..process
        }
    }
}

/// The processes that could not be recovered.
#[derive(Debug, Default)]
pub(crate) struct Unrecovered(Mutex<BTreeMap<Uuid, Failure>>);

impl Unrecovered {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<Uuid, Failure>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn insert(&self, uuid: Uuid, failure: Failure) {
        self.lock().insert(uuid, failure);
    }

    pub(crate) fn remove(&self, uuid: Uuid) {
        self.lock().remove(&uuid);
    }

    pub(crate) fn get(&self, uuid: Uuid) -> Option<Failure> {
        self.lock().get(&uuid).cloned()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    /// Returns the processes in the order of their creation.
    pub(crate) fn uuids(&self) -> Vec<Uuid> {
        self.lock().keys().copied().collect()
    }

    /// Returns the processes as they are listed.
    pub(crate) fn shown(&self) -> Vec<Process> {
        self.lock().iter().map(|(uuid, failure)| failure.shown(*uuid)).collect()
    }

    pub(crate) fn contains(&self, uuid: Uuid) -> bool {
        self.lock().contains_key(&uuid)
    }

    /// Returns the processes that have this PID, name or UUID.
    pub(crate) fn find(&self, id: &str) -> Vec<Uuid> {
        let found = self.lock();
        let is_meant = |(uuid, failure): &(&Uuid, &Failure)| {
            let info = failure.info.as_ref();
            let pids = failure.pid.into_iter().chain(info.and_then(|info| info.pids.last().copied()));
            uuid.to_string() == id
                || pids.map(|pid| pid.to_string()).any(|pid| pid == id)
                || info.and_then(|info| info.name.as_deref()) == Some(id)
        };
        found.iter().filter(is_meant).map(|(uuid, _)| *uuid).collect()
    }
}
