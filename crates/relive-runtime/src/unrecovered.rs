//! Processes that have not ended and could not be recovered: the disk is full, or their files cannot be read.
//!
//! None of them is in the table, and none runs. They are still listed, and a request to change one is refused with the
//! reason. Recovery is repeated from time to time, and whenever a verb needs the process.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use relive_api::Process;
use relive_core::{Body, Display, ErrorCode, Pid, State, SuspendReason, Uuid};
use relive_journal::data::Unreadable;
use relive_journal::{ProcInfo, ProcessDirectory, is_damage};

use crate::error::Error;
use crate::lookup::OnDisk;
use crate::view::{of_disk, unknown};

/// The reason why a process could not be recovered.
#[derive(Debug, Clone)]
pub(crate) struct Failure {
    pub(crate) message: String,
    cause: FailureCause,
    /// The PID that it will have.
    pub(crate) pid: Option<Pid>,
    /// The last known state of the process.
    pub(crate) info: Option<Box<ProcInfo>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FailureCause {
    DiskFull,
    /// Its journal can be read, but not opened for writing.
    NotOpened,
    /// The system did not let it be read: it may be good.
    Unread,
    /// It was read, and is damaged.
    Damaged,
}

impl Failure {
    pub(crate) fn of(error: &Error, pid: Option<Pid>) -> Self {
        let cause = if error.is_disk_full() { FailureCause::DiskFull } else { FailureCause::NotOpened };
        let message = match cause {
            FailureCause::DiskFull => "the disk is full".to_owned(),
            FailureCause::NotOpened | FailureCause::Unread | FailureCause::Damaged => error.to_string(),
        };
        Self { message, cause, pid, info: None }
    }

    /// Returns the failure of a process that has not ended and has no marker any more, so that the start did not find
    /// it.
    pub(crate) fn unmarked(info: ProcInfo) -> Self {
        let message = "its marker in `live/` is gone".to_owned();
        Self { message, cause: FailureCause::NotOpened, pid: None, info: Some(Box::new(info)) }
    }

    /// Returns the failure of a process whose journal can be read, and does not describe it.
    pub(crate) fn damaged(directory: &ProcessDirectory, error: &Error) -> Self {
        let message = format!("{}: {error}", directory.steps().display());
        Self { message, cause: FailureCause::Damaged, pid: None, info: None }
    }

    /// Returns the failure of a process whose directory does not say what the kernel does.
    pub(crate) fn contradicted(directory: &ProcessDirectory, what: &str) -> Self {
        let message = format!("{}: {what}", directory.path().display());
        Self { message, cause: FailureCause::Damaged, pid: None, info: None }
    }

    pub(crate) fn unreadable(error: &Unreadable) -> Self {
        let cause = if is_damage(&error.source) { FailureCause::Damaged } else { FailureCause::Unread };
        Self { message: error.to_string(), cause, pid: None, info: None }
    }

    /// Returns the failure of a process whose parent could not be recovered: it runs below its parent or not at all.
    pub(crate) fn below(&self, parent: Uuid, pid: Option<Pid>) -> Self {
        let message = format!("its parent {parent} could not be recovered: {}", self.message);
        Self { message, cause: self.cause, pid, info: None }
    }

    pub(crate) fn with_info(self, info: Option<Box<ProcInfo>>) -> Self {
        Self { info, ..self }
    }

    /// Returns whether its journal could be read, and says what the process is.
    pub(crate) fn is_readable(&self) -> bool {
        match self.cause {
            FailureCause::DiskFull | FailureCause::NotOpened => true,
            FailureCause::Unread | FailureCause::Damaged => false,
        }
    }

    /// Returns whether the process can never be recovered from what is on the disk.
    pub(crate) fn is_damage(&self) -> bool {
        self.cause == FailureCause::Damaged
    }

    /// Returns the refusal of a request to change the process.
    pub(crate) fn refusal(&self, uuid: Uuid) -> Error {
        let (code, hint) = match self.cause {
            FailureCause::DiskFull => (ErrorCode::Exhausted, Some("relive gc")),
            FailureCause::NotOpened | FailureCause::Unread => (ErrorCode::Conflict, Some("relive daemon restart")),
            // A person has to repair that file.
            FailureCause::Damaged => (ErrorCode::Conflict, None),
        };
        let message = format!("process {uuid} has not ended and could not be recovered: {}", self.message);
        Error::Said { code, message, hint: hint.map(str::to_owned) }
    }

    /// Returns the process as it is listed.
    pub(crate) fn shown(&self, uuid: Uuid) -> Process {
        let (display, reason) = match self.cause {
            FailureCause::DiskFull => (Display::Suspended, SuspendReason::DiskFull),
            FailureCause::NotOpened => (Display::Suspended, SuspendReason::IoError),
            FailureCause::Unread | FailureCause::Damaged => (Display::Damaged, SuspendReason::IoError),
        };
        let process = match self.info.clone().and_then(|info| OnDisk::last(*info)) {
            Some(found) => of_disk(found),
            None => unknown(uuid),
        };
        // A program needs no daemon to run, and it is unknown whether it does.
        let is_held = process.body != Body::Exec || process.suspend_reason.is_some() || !self.is_readable();
        let (display, reason) = if is_held { (display, Some(reason)) } else { (Display::Running, None) };
        Process {
            pid: self.pid.unwrap_or(process.pid),
            state: State::Running,
            paused: is_held,
            display: display.word().to_owned(),
            suspend_reason: reason,
            dead_at: None,
            // Its program may have forged an end.
            status: None,
            why: None,
            exit: None,
            exit_code: None,
            resumable: !self.is_damage(),
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

    /// Returns the processes with this PID, name or UUID.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_called_that_and_other_errors_by_their_name() {
        let check = |errno: i32, expect: &str| {
            let error = Error::Io(std::io::Error::from_raw_os_error(errno));
            assert_eq!(Failure::of(&error, None).message, expect);
        };
        check(28, "the disk is full");
        check(5, "Input/output error (os error 5)");
    }

    #[test]
    fn a_journal_that_was_not_read_is_not_taken_for_damaged() {
        let check = |source, is_damage: bool| {
            let uuid = Uuid::from_u128(1);
            let said = format!("{source}");
            let failure = Failure::unreadable(&Unreadable { uuid, path: "steps.jsonl".into(), source });
            let shown = failure.shown(uuid);
            let hint = (!is_damage).then_some("relive daemon restart");
            assert_eq!(
                (failure.is_damage(), shown.resumable, shown.hint.as_deref(), &*shown.display),
                (is_damage, !is_damage, hint, "damaged"),
                "{said}"
            );
        };
        // EIO, ENOMEM, EACCES, EMFILE
        for errno in [5, 12, 13, 24] {
            check(std::io::Error::from_raw_os_error(errno), false);
        }
        // ENOENT, ENXIO, EISDIR, ELOOP
        for errno in [2, 6, 21, 40] {
            check(std::io::Error::from_raw_os_error(errno), true);
        }
        check(std::io::Error::new(std::io::ErrorKind::InvalidData, "a hash is wrong"), true);
    }
}
