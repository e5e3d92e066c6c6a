//! Programs that enter the session of another one.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use relive_api::{EnterRequest, ExecRequest, Namespace, NamespaceKind, Network};
use relive_core::program::Entered;
use relive_core::{Body as Kind, Display, ErrorCode, Holder, OsSignal, Pid, Signal, SuspendReason, Timestamp, Uuid};
use relive_session::proc::Identity;
use relive_session::protocol::{Outcome, Stat, Verb};
use relive_session::stage::Stage;
use relive_session::tree::FreezerVersion;

use crate::authority::ANOTHER;
use crate::bodies::{LiveSession, Shim};
use crate::create::Above;
use crate::error::{Error, Result};
use crate::gate::not_done;
use crate::lookup::LookedUp;
use crate::runtime::{ProcessRef, Published, Runtime};

/// How long a session that has just been started may take to get ready.
const READY_WITHIN: Duration = Duration::from_secs(5);

impl Runtime {
    /// Finds the session that a program is to enter, and completes the request by it.
    pub(crate) async fn find_entered(
        self: &Arc<Self>,
        mut request: ExecRequest,
        above: &Above,
    ) -> Result<(ExecRequest, Option<Entered>)> {
        let Some(wanted) = request.enter.take() else { return Ok((request, None)) };
        let invalid = |message: &str| Err(Error::new(ErrorCode::Invalid, message));
        if above.is_isolated() {
            // What keeps a program inside besides namespaces does not hold one that enters them.
            let message = "a program of an isolated process cannot enter a session";
            return Err(Error::new(ErrorCode::Permission, message).with_hint("run it in a terminal outside"));
        }
        let is_own = request.isolation.is_none() && request.namespaces.is_empty() && request.network.is_none();
        if !is_own || request.namespace != Namespace::Host {
            return invalid("a program that enters a session has no isolation or namespaces of its own");
        }
        if request.resources.has_limits() {
            return invalid("a program that enters a session has the limits of that session");
        }
        let LookedUp::Living { process, note: _ } = self.look_up_to_change(&wanted.id).await? else {
            return Err(ended(&wanted.id));
        };
        self.check_can_be_entered(above.by(), process)?;
        let (stat, program) = self.running_program(process, &wanted.id).await?;
        let namespaces = joined(process.of.pid, &wanted, &stat.rungs.namespaces)?;
        if request.cwd.is_empty() {
            let uuid = process.uuid;
            let (history, _) = self.on_journal(move |data| data.history(uuid)).await??;
            request.cwd = history.identity.map(|identity| identity.spawned.cwd).unwrap_or_default();
        }
        if namespaces.contains(&NamespaceKind::Net) && has_proxy(&stat) {
            // As for the program of that session: nothing else of its network leads out.
            for (name, value) in relive_proxy::environment() {
                request.env.set(name.to_owned(), value);
            }
        }
        let Identity { pid: host_pid, start_time } = program;
        Ok((request, Some(Entered { uuid: process.uuid, host_pid, start_time, namespaces })))
    }

    /// Returns the suspended process with which a program is frozen, because it runs in the session of that process: its cgroup
    /// is below the frozen one. Without cgroups a pause reaches only the session's own programs.
    pub(crate) fn frozen_with(&self, state: &Published, uuid: Uuid) -> Option<FrozenWith> {
        let session = self.owners.find(uuid)?.session()?;
        let (entered, freezer) = match &*session.borrow() {
            Some(LiveSession { shim: Shim::Answers { rungs, .. }, program, .. }) => {
                (program.enter.as_ref()?.uuid, rungs.freezer()?)
            }
            Some(LiveSession { shim: Shim::OtherVersion, .. }) | None => return None,
        };
        let pid = state.table.current_pid(entered)?;
        let view = state.table.view(pid, self.moment())?;
        // One that is told to end is thawed for that.
        if let Some(reason) =
            view.suspend_reason.filter(|_| view.display == Display::Suspended && view.ending.is_none())
        {
            let (name, paused_at) = (view.name.map(str::to_owned), view.paused_at);
            return Some(FrozenWith { pid, name, paused_at, reason, freezer });
        }
        // It may have entered a session in turn.
        self.frozen_with(state, entered)
    }

    /// Refuses to resume a program that is frozen together with the session it entered.
    pub(crate) fn refuse_if_frozen_with(&self, by: Pid, pid: Pid, uuid: Uuid) -> Result<()> {
        match self.told_frozen_with(&self.lock(), by, uuid) {
            Some(with) => Err(with.refusal(&format!("PID {pid} {}", with.paused()))),
            None => Ok(()),
        }
    }

    /// Says when a signal takes effect on a program that is frozen together with the session it entered: unlike a process
    /// that is paused itself, it cannot be thawed to end.
    pub(crate) fn note_while_frozen(&self, by: Pid, pid: Pid, uuid: Uuid, signal: Signal) -> Option<String> {
        let state = self.lock();
        let with = self.frozen_with(&state, uuid)?;
        let told = with.told(with.is_seen_by(&state, by));
        match (signal, with.freezer) {
            (Signal::Resume, _) | (Signal::Kill, FreezerVersion::V2) => None,
            (Signal::Pause, _) => {
                Some(told.with_resume(&format!("{}, whose session it entered, is paused too", told.who)))
            }
            (Signal::Term | Signal::Int | Signal::Kill, _) => Some(told.delays(pid, &signal)),
        }
    }

    /// The same of a signal of the operating system.
    pub(crate) fn note_os_while_frozen(&self, by: Pid, process: ProcessRef, signal: OsSignal) -> Option<String> {
        let told = self.told_frozen_with(&self.lock(), by, process.uuid)?;
        Some(told.delays(process.of.pid, &signal))
    }

    /// Returns what a process is told of the one with which a program is frozen.
    fn told_frozen_with(&self, state: &Published, by: Pid, uuid: Uuid) -> Option<ToldFrozenWith> {
        let with = self.frozen_with(state, uuid)?;
        let is_seen = with.is_seen_by(state, by);
        Some(with.told(is_seen))
    }

    fn check_can_be_entered(&self, by: Pid, process: ProcessRef) -> Result<()> {
        let (state, pid) = (self.lock(), process.of.pid);
        if state.table.view(pid, self.moment()).map(|view| view.body) != Some(Kind::Exec) {
            let message = format!("PID {pid} is not a program, so there is no session to enter");
            return Err(Error::new(ErrorCode::Invalid, message).with_hint(format!("relive info {pid}")));
        }
        if state.table.machine(pid).is_some_and(|machine| machine.pause().is_some()) {
            let message = format!("PID {pid} is suspended, and a program that enters its session would be too");
            return Err(Error::new(ErrorCode::Conflict, message).with_hint(format!("relive resume {pid}")));
        }
        if let Some(with) = self.told_frozen_with(&state, by, process.uuid) {
            let message = format!("PID {pid} {}, and a program that enters its session would be too", with.paused());
            return Err(with.refusal(&message));
        }
        Ok(())
    }

    /// Returns the program of a session, which has its pid for sure: the shim knows it before and after the look.
    async fn running_program(&self, process: ProcessRef, id: &str) -> Result<(Stat, Identity)> {
        if let Some(LiveSession { shim: Shim::Answers { connection, .. }, .. }) = self.live_session(process.uuid).await
        {
            let is_there = connection.wait_for(|seen| seen.snapshot.stage >= Stage::Ready);
            // What it has reached by then is looked at below.
            let _ = tokio::time::timeout(READY_WITHIN, is_there).await;
        }
        let before = self.stat_of(process, id).await?;
        let host_pid = before.snapshot.host_pid.ok_or_else(|| ended(id))?;
        let found = Identity::of(host_pid).map_err(|_| ended(id))?;
        let after = self.stat_of(process, id).await?;
        let is_there = after.snapshot.host_pid == Some(host_pid) && found.lives();
        match after.snapshot.stage {
            Stage::Ready | Stage::Running if is_there => Ok((after, found)),
            Stage::Starting | Stage::Spawned => {
                let message = format!("PID {} has not started yet", process.of.pid);
                Err(Error::new(ErrorCode::Conflict, message).with_hint(format!("relive info {}", process.of.pid)))
            }
            Stage::Ready | Stage::Running | Stage::Exited | Stage::Signaled | Stage::Aborted | Stage::Errored => {
                Err(ended(id))
            }
        }
    }

    async fn stat_of(&self, process: ProcessRef, id: &str) -> Result<Stat> {
        match self.ask_shim(process, Verb::Stat).await? {
            Outcome::Stat(stat) => Ok(*stat),
            Outcome::NoProcess => Err(ended(id)),
            refused @ (Outcome::Done
            | Outcome::Kept
            | Outcome::WrongStage { .. }
            | Outcome::Unknown { .. }
            | Outcome::Failed { .. }) => Err(not_done(process.of.pid, "cannot be entered", refused)),
        }
    }
}

/// The process with which a program is frozen.
#[derive(Debug)]
pub(crate) struct FrozenWith {
    pub(crate) pid: Pid,
    name: Option<String>,
    pub(crate) paused_at: Option<Timestamp>,
    pub(crate) reason: SuspendReason,
    freezer: FreezerVersion,
}

/// What is said of the process with which a program is frozen.
pub(crate) struct ToldFrozenWith {
    pub(crate) who: String,
    /// The command that thaws the program.
    pub(crate) resume: Option<String>,
}

impl FrozenWith {
    /// Returns whether a process may see it; PID 0 is the person, who sees everything.
    pub(crate) fn is_seen_by(&self, state: &Published, by: Pid) -> bool {
        by == Pid::RUNTIME || by == self.pid || state.table.rights(Holder::Process(by), self.pid).is_some()
    }

    /// Names it only to those that may see it.
    pub(crate) fn told(&self, is_seen: bool) -> ToldFrozenWith {
        if !is_seen {
            return ToldFrozenWith { who: ANOTHER.to_owned(), resume: None };
        }
        let name = self.name.as_ref().map(|name| format!(" ({name})")).unwrap_or_default();
        ToldFrozenWith { who: format!("PID {}{name}", self.pid), resume: Some(format!("relive resume {}", self.pid)) }
    }
}

impl ToldFrozenWith {
    fn paused(&self) -> String {
        format!("is paused with {}, whose session it entered", self.who)
    }

    fn refusal(&self, message: &str) -> Error {
        let refusal = Error::new(ErrorCode::Conflict, message);
        match &self.resume {
            Some(resume) => refusal.with_hint(resume),
            None => refusal,
        }
    }

    fn with_resume(&self, message: &str) -> String {
        let resume = self.resume.as_ref().map(|resume| format!(": {resume}")).unwrap_or_default();
        format!("{message}{resume}")
    }

    fn delays(&self, pid: Pid, signal: &dyn fmt::Display) -> String {
        let paused = self.paused();
        self.with_resume(&format!("PID {pid} {paused}, and {signal} takes effect when that is resumed"))
    }
}

fn ended(id: &str) -> Error {
    Error::new(ErrorCode::Conflict, format!("`{id}` has ended, so it cannot be entered"))
        .with_hint(format!("relive info {id}"))
}

/// Returns whether the programs of a session reach the network through a proxy.
fn has_proxy(stat: &Stat) -> bool {
    matches!(stat.rungs.network.parse(), Ok(Network::Allow(_)))
}

/// Returns the namespaces to join. Without privileges those of a session can be joined only together with its user
/// namespace.
fn joined(pid: Pid, wanted: &EnterRequest, own: &[String]) -> Result<Vec<NamespaceKind>> {
    let has = |kind: &NamespaceKind| own.iter().any(|name| name == kind.name());
    let Some(asked) = &wanted.namespaces else {
        return Ok(NamespaceKind::ALL.into_iter().filter(has).collect());
    };
    if let Some(missing) = asked.iter().find(|kind| !has(kind)) {
        let names = if own.is_empty() { "none".to_owned() } else { own.join(", ") };
        let message = format!("PID {pid} has no {} namespace of its own; it has {names}", missing.name());
        return Err(Error::new(ErrorCode::Invalid, message).with_hint(format!("relive info {pid}")));
    }
    let needs_user = !asked.is_empty() && !rustix::process::geteuid().is_root();
    let user = Some(NamespaceKind::User).filter(|user| needs_user && has(user));
    let is_joined = |kind: &NamespaceKind| asked.contains(kind) || user == Some(*kind);
    Ok(NamespaceKind::ALL.into_iter().filter(is_joined).collect())
}
