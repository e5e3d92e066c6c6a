//! Who did something to a process, in words: on every kill, pause and resume.

use std::borrow::Cow;
use std::sync::Arc;

use relive_api::{LastSignal, Process, Session, SignalState, SuspendedBelow, cause_in_words};
use relive_core::{Cause, End, Holder, Pid, ProcessStatus, Rights, State, Uuid, Wait, Why};

use crate::lookup::LookedUp;
use crate::runtime::Runtime;

/// How many suspended processes below one `info` lists.
const SUSPENDED_MAX: usize = 64;

impl Runtime {
    /// Says who ended or paused a process, and who below it is suspended. `end` is how it ended, if the table does not
    /// know that.
    pub(crate) async fn with_attribution(self: &Arc<Self>, process: Process, end: Option<End>) -> Process {
        let (ended, paused, signal, suspended) = {
            let (state, now) = (self.lock(), self.moment());
            let view = state.table.view(process.pid, now);
            let (ended, paused) = view.as_ref().map_or((None, None), |view| (view.ended_by, view.paused_by));
            let below = state.table.subtree(process.pid).into_iter().skip(1);
            let views = below.filter_map(|pid| state.table.view(pid, now));
            let suspended = views.filter_map(|view| {
                Some(SuspendedBelow { pid: view.pid, name: view.name.map(str::to_owned), reason: view.suspend_reason? })
            });
            let suspended: Vec<SuspendedBelow> = suspended.take(SUSPENDED_MAX).collect();
            let signal = match state.table.wait(process.pid) {
                Ok(Wait::Ended { end, .. }) => signal_of(end),
                Ok(Wait::NotEnded) | Err(_) => end.as_ref().and_then(signal_of),
            };
            (ended, paused, process.ending.map(|signal| signal.name().into()).or(signal), suspended)
        };
        let (blocked_signals, handled_signals, pending_signals) =
            self.signal_state(process.pid, None).map_or_else(Default::default, |state| {
                let SignalState { blocked, handled, pending, .. } = state;
                (blocked, handled, pending)
            });
        let of_disk = process.why.zip(process.killed_by).map(|(why, by)| Cause { why, by, root: process.killed_from });
        let session = match process.session {
            Some(session) => Some(self.with_sender(session).await),
            None => None,
        };
        let ended_by = match ended.or(of_disk).map(|cause| without_itself(cause, process.pid)) {
            Some(cause) => Some(self.in_words(cause, signal.as_deref()).await),
            None => session.as_ref().and_then(exited_after),
        };
        let paused_by = match paused.map(|cause| without_itself(cause, process.pid)) {
            Some(cause) => Some(self.in_words(cause, None).await),
            // It may be paused with another process, which it says already.
            None => process.paused_by,
        };
        Process {
            session,
            ended_by,
            paused_by,
            suspended,
            pending_signals,
            blocked_signals,
            handled_signals,
            ..process
        }
    }

    /// Returns why a process asks for something to happen to another one: as one of those above it, or as its user, by a
    /// handle.
    pub(crate) fn why_of(&self, by: Pid, target: Uuid) -> Why {
        let state = self.lock();
        let target = state.table.current_pid(target);
        let lives = state.table.machine(by).is_some_and(|machine| machine.state() == State::Running);
        let rights = target.and_then(|target| state.table.rights(Holder::Process(by), target));
        // Of one that has ended, or that had this PID before a restart, it cannot be told here.
        if rights == Some(Rights::Owner) || !lives { Why::Parent } else { Why::User }
    }

    /// Returns who resumed a process last, if its journal says so.
    pub(crate) async fn resumer_of(self: &Arc<Self>, uuid: Uuid) -> Option<(Cause, String)> {
        let read = self.on_journal(move |data| data.history(uuid)).await.ok()?;
        let cause = read.ok()?.0.resumed_by?;
        let words = self.in_words(cause, None).await;
        Some((cause, words))
    }

    /// Says who sent the last signal before a program exited.
    async fn with_sender(self: &Arc<Self>, session: Session) -> Session {
        let Some(sent) = session.last_signal else { return session };
        let from = match sent.by.unwrap_or(Pid::RUNTIME) {
            Pid::RUNTIME => "you".to_owned(),
            by => self.named(by).await,
        };
        Session { last_signal: Some(LastSignal { from, ..sent }), ..session }
    }

    /// Says who a cause is, also where that one has been forgotten by the table.
    async fn in_words(self: &Arc<Self>, cause: Cause, signal: Option<&str>) -> String {
        let (by, root) = (self.named(cause.by).await, self.named(cause.root.unwrap_or(Pid::RUNTIME)).await);
        cause_in_words(cause, signal, &by, &root)
    }

    /// Says who a cause is, for an event.
    pub(crate) fn in_words_now(&self, cause: Cause, signal: Option<&str>) -> String {
        let named = |pid| with_name(pid, self.name_now(pid).flatten().as_deref());
        cause_in_words(cause, signal, &named(cause.by), &named(cause.root.unwrap_or(Pid::RUNTIME)))
    }

    /// Returns a PID with the name of its process, if that has one.
    async fn named(self: &Arc<Self>, pid: Pid) -> String {
        let name = match self.name_now(pid) {
            Some(name) => name,
            None if pid == Pid::RUNTIME => None,
            None => match self.look_up(&pid.to_string()).await {
                Ok(LookedUp::OnDisk(found)) => found.info.name,
                // It was somebody's PID before a restart.
                Ok(LookedUp::Living { process, .. }) => self.name_now(process.of.pid).flatten(),
                Ok(LookedUp::Remembered(_) | LookedUp::Unrecovered(_)) | Err(_) => None,
            },
        };
        with_name(pid, name.as_deref())
    }

    /// Returns the name of a process that the table knows.
    fn name_now(&self, pid: Pid) -> Option<Option<String>> {
        let state = self.lock();
        state.table.view(pid, self.moment()).map(|view| view.name.map(str::to_owned))
    }
}

/// Returns a cause as it is told of the process that was named: what was below it says that it went with that one.
fn without_itself(cause: Cause, pid: Pid) -> Cause {
    Cause { root: cause.root.filter(|root| *root != pid), ..cause }
}

/// Says of a program that exited by itself which signal it got before that.
pub(crate) fn exited_after(session: &Session) -> Option<String> {
    session.last_signal.as_ref().map(LastSignal::in_words)
}

/// Says who a cause is, without names: for an end from before this daemon.
pub(crate) fn words_of_pids(cause: Cause, signal: Option<&str>) -> String {
    let named = |pid| with_name(pid, None);
    cause_in_words(cause, signal, &named(cause.by), &named(cause.root.unwrap_or(Pid::RUNTIME)))
}

fn with_name(pid: Pid, name: Option<&str>) -> String {
    name.map_or_else(|| format!("PID {pid}"), |name| format!("PID {pid} ({name})"))
}

/// Returns the signal that ended a process, or asked it to end.
pub(crate) fn signal_of(end: &End) -> Option<Cow<'static, str>> {
    match (end.sent_signal, &end.status) {
        // It did not end within its grace.
        (Some(sent), ProcessStatus::Killed { signal }) => Some(format!("{sent}, then {}", signal.name()).into()),
        (Some(sent), _) => Some(sent.name().into()),
        (None, ProcessStatus::Killed { signal }) => Some(signal.name()),
        (
            None,
            ProcessStatus::Exited { .. }
            | ProcessStatus::Abandoned
            | ProcessStatus::Faulted { .. }
            | ProcessStatus::StartupFailed { .. },
        ) => None,
    }
}
