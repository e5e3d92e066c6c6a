//! What a process is shown of the processes that it may see: nothing that names one that it may not see.

use relive_api::Process;
use relive_core::{Cause, Holder, Pid, Rights, SuspendReason, Uuid};

use super::Access;
use crate::attribution::exited_after;
use crate::error::{Error, Result};
use crate::lookup::Presence;
use crate::runtime::{ProcessRef, Published};

/// How a process that the caller may not see is called.
pub(crate) const ANOTHER: &str = "another process";

impl Access {
    /// Refuses a new process under the UUID of one that the caller may not see, like every other verb does.
    pub(super) async fn may_use(&self, uuid: Uuid) -> Result<()> {
        if self.process()?.is_none() || self.runtime.presence(uuid).await? == Presence::Never {
            return Ok(());
        }
        self.find(&uuid.to_string(), Rights::Observer).await.map(|_| ())
    }

    /// Leaves the hint out of the refusal of a name, if the caller may not see the process that has it. That it is taken
    /// cannot be a secret: names are unique.
    pub(super) async fn without_stranger<T>(&self, answer: Result<T>) -> Result<T> {
        match answer {
            Err(Error::NameTaken { name }) => {
                let is_seen = self.find(&name, Rights::Observer).await.is_ok();
                let error = Error::NameTaken { name };
                Err(if is_seen { error } else { Error::new(error.code(), error.to_string()) })
            }
            answer => answer,
        }
    }

    /// Leaves out whatever names a process that the caller may not see: the parent of a process that it observes, or the
    /// one whose budget is used up.
    pub(super) fn shown(&self, caller: ProcessRef, process: Process) -> Process {
        let is_foreign = process.suspend_reason == Some(SuspendReason::BudgetExceeded);
        let (hint, reached_limit) = (process.hint.clone(), process.reached_limit);
        let process = Process {
            hint: hint.filter(|_| !is_foreign),
            reached_limit: reached_limit.filter(|_| !is_foreign),
            ..process
        };
        let state = self.runtime.lock();
        let process = self.without_frozen_with(&state, caller.of.pid, process);
        if process.uuid == caller.uuid {
            // It is told who its parent is.
            return process;
        }
        let holder = Holder::Process(caller.of.pid);
        let is_seen = |pid: &Pid| *pid == Pid::RUNTIME || state.table.rights(holder, *pid).is_some();
        // Only whoever owns it may see all that is below it.
        let sees_all = state.table.rights(holder, process.pid) == Some(Rights::Owner);
        let is_known = |uuid: &Uuid| state.table.current_pid(*uuid).is_some_and(|pid| is_seen(&pid));
        let suspended: Vec<_> = process.suspended.into_iter().filter(|below| is_seen(&below.pid)).collect();
        // A list does not name them, and `info` names only some.
        let suspended_below = match sees_all {
            true => process.suspended_below,
            false => {
                let below = state.table.subtree(process.pid).into_iter().skip(1).filter(is_seen);
                let views = below.filter_map(|pid| state.table.view(pid, self.runtime.moment()));
                let count = views.filter(|view| view.suspend_reason.is_some()).count();
                u32::try_from(count).unwrap_or(u32::MAX)
            }
        };
        Process {
            ppid: Some(process.ppid).filter(is_seen).unwrap_or(Pid::RUNTIME),
            parent_uuid: process.parent_uuid.filter(is_known),
            origin_step: process.origin_step.filter(|_| process.origin_uuid.as_ref().is_some_and(is_known)),
            origin_uuid: process.origin_uuid.filter(is_known),
            suspended_below,
            suspended,
            tree: process.tree.filter(|_| sees_all),
            ..process
        }
    }

    /// Leaves out with which process a program is frozen, unless the caller may see that one.
    fn without_frozen_with(&self, state: &Published, caller: Pid, process: Process) -> Process {
        if !process.paused {
            return process;
        }
        let with = self.runtime.frozen_with(state, process.uuid);
        if with.is_none_or(|with| with.is_seen_by(state, caller)) {
            return process;
        }
        let own = state.table.view(process.pid, self.runtime.moment()).and_then(|view| view.paused_by);
        let paused_by = if own.is_some() { process.paused_by } else { Some(ANOTHER.to_owned()) };
        Process { paused_by, hint: None, ..process }
    }

    /// The same of one process, with the words that say who ended, paused and resumed it.
    pub(super) async fn shown_whole(&self, process: Process, resumer: Option<(Cause, String)>) -> Result<Process> {
        let (resumed, words) = resumer.unzip();
        let process = Process { resumed_by: words, ..process };
        let Some(caller) = self.process()? else { return Ok(process) };
        let mut process = self.shown(caller, process);
        if let Some(cause) = resumed
            && !self.sees_cause(caller, cause).await
        {
            process.resumed_by = Some(ANOTHER.to_owned());
        }
        if let Some(sent) = process.session.as_mut().and_then(|session| session.last_signal.as_mut())
            && !self.sees(caller, sent.by.unwrap_or(Pid::RUNTIME)).await
        {
            (sent.by, sent.from) = (None, ANOTHER.to_owned());
            if process.why.is_none() {
                process.ended_by = process.session.as_ref().and_then(exited_after);
            }
        }
        let (ended, paused) = {
            let state = self.runtime.lock();
            let view = state.table.view(process.pid, self.runtime.moment());
            view.map_or((None, None), |view| (view.ended_by, view.paused_by))
        };
        if let Some(cause) = ended
            && !self.sees_cause(caller, cause).await
        {
            (process.ended_by, process.killed_by, process.killed_from) = (Some(ANOTHER.to_owned()), None, None);
        }
        if let Some(cause) = paused
            && !self.sees_cause(caller, cause).await
        {
            process.paused_by = Some(ANOTHER.to_owned());
        }
        Ok(process)
    }

    /// Tells whether the caller may see who did something, and to which tree.
    async fn sees_cause(&self, caller: ProcessRef, cause: Cause) -> bool {
        self.sees(caller, cause.by).await && self.sees(caller, cause.root.unwrap_or(Pid::RUNTIME)).await
    }

    /// Tells whether a PID, also one from before a restart, is of a process that the caller may see.
    async fn sees(&self, caller: ProcessRef, pid: Pid) -> bool {
        if pid == Pid::RUNTIME || pid == caller.of.pid {
            return true;
        }
        self.find(&pid.to_string(), Rights::Observer).await.is_ok()
    }
}
