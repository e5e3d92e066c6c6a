//! The gates of programs, and their sessions for clients.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use relive_api::{Affected, GateRequest, LastSignal, Resources, Session};
use relive_core::{Cause, ErrorCode, Event, OsSignal, Pid, Program, Uuid, Why};
use relive_session::connection::Connection;
use relive_session::directory::SessionDirectory;
use relive_session::log::Reader;
use relive_session::protocol::{Outcome, Verb};
use relive_session::stage::{Mode, Snapshot, Stage};
use relive_session::tree::Rungs;

use crate::bodies::{
    LiveSession, OTHER_VERSION, Shim, Verb as BodyVerb, found_session, is_looked_for, last_session, left_ms,
};
use crate::error::{Error, Result};
use crate::lookup::LookedUp;
use crate::owner::{Change, Lane};
use crate::records::RecordDetails;
use crate::runtime::{ProcessRef, Runtime};

/// Said of a program that reaches listed hosts only, and now none.
const NO_PROXY: &str = "network: its proxy has ended, so it reaches no host any more";
/// How long a shim may take to say whether its tree is frozen.
const FROZEN_WITHIN: Duration = Duration::from_secs(1);

/// How long a program may take to run, or to be gone, after its gate was opened or closed for good.
const PAST_GATE_WITHIN: Duration = Duration::from_secs(5);

/// How often a shim is asked that hangs up before it has answered.
const ASKS_MAX: u32 = 3;

impl Runtime {
    /// Returns the session of a program as soon as it answers; `None` for one that has ended.
    pub(crate) async fn live_session(&self, uuid: Uuid) -> Option<LiveSession> {
        found_session(&mut self.owners.find(uuid)?.session()?).await
    }

    /// Sends a request to the shim of a program; `NoProcess` if the program has ended.
    pub(crate) async fn ask_shim(&self, process: ProcessRef, verb: Verb) -> Result<Outcome> {
        let ProcessRef { of, uuid } = process;
        let mut session = self.owners.find(uuid).and_then(|owner| owner.session());
        for _ in 0..ASKS_MAX {
            let Some(session) = &mut session else { break };
            let Some(live) = found_session(session).await else { break };
            let Shim::Answers { connection, rungs: _ } = live.shim else {
                let message = format!("PID {} cannot be reached: {OTHER_VERSION}", of.pid);
                return Err(Error::new(ErrorCode::Conflict, message));
            };
            if let Ok(outcome) = self.bodies.exec.sessions.order(&live.folder, &connection, verb.clone()).await {
                return Ok(outcome);
            }
            // The shim has hung up; the body finds out whether its program has ended.
            if !is_looked_for(session).await {
                break;
            }
        }
        match self.living(uuid).filter(|living| living.of == of) {
            Some(_) => {
                let message = format!("PID {}: its session cannot be reached", of.pid);
                Err(Error::new(ErrorCode::Unavailable, message).with_hint(format!("relive info {uuid}")))
            }
            None => Ok(Outcome::NoProcess),
        }
    }

    /// Opens a program's gate.
    pub async fn proceed(self: &Arc<Self>, id: &str, request: GateRequest) -> Result<Affected> {
        let (runtime, id) = (Arc::clone(self), id.to_owned());
        self.to_the_end(async move { runtime.at_the_gate_once(&id, Verb::Proceed, request).await }).await
    }

    /// Aborts a program at its gate, for a person: it never runs.
    pub async fn abort(self: &Arc<Self>, id: &str, request: GateRequest) -> Result<Affected> {
        self.abort_for(Cause::runtime(Why::User), id, request).await
    }

    pub(crate) async fn abort_for(self: &Arc<Self>, cause: Cause, id: &str, request: GateRequest) -> Result<Affected> {
        let (runtime, id) = (Arc::clone(self), id.to_owned());
        let verb = Verb::Abort { by: sender(cause) };
        self.to_the_end(async move { runtime.at_the_gate_once(&id, verb, request).await }).await
    }

    /// Opens or closes a gate. One that an earlier attempt has opened or closed is as it should be.
    async fn at_the_gate_once(self: &Arc<Self>, id: &str, verb: Verb, request: GateRequest) -> Result<Affected> {
        let refused = match self.at_the_gate(id, verb.clone()).await {
            Err(refused) if request.repeated && refused.code() == ErrorCode::Conflict => refused,
            answer => return answer,
        };
        let (uuid, note) = self.identity_of(&self.look_up(id).await?)?;
        let Some(pid) = self.last_pid(uuid).await else { return Err(refused) };
        let stage = self.session_view(pid, uuid).await?.map(|session| session.stage);
        let is_done = match (verb == Verb::Proceed, stage.as_deref()) {
            (proceeds, Some("aborted")) => !proceeds,
            (proceeds, Some("running" | "exited" | "signaled")) => proceeds,
            (_, Some(_) | None) => false,
        };
        if !is_done {
            return Err(refused);
        }
        Ok(Affected { affected: 1, pids: vec![pid], note, ..Affected::default() })
    }

    async fn at_the_gate(self: &Arc<Self>, id: &str, verb: Verb) -> Result<Affected> {
        let ended = || Error::new(ErrorCode::Conflict, format!("`{id}` has ended, so it is not at its gate"));
        let LookedUp::Living { process, note } = self.look_up_to_change(id).await? else { return Err(ended()) };
        let pid = process.of.pid;
        if let Some(body) = self.body_of(pid) {
            body.accepts(BodyVerb::Gate)?;
        }
        // One that was told to end is not resumed any more: it meets its signal behind the gate.
        let stands_still =
            |machine: &relive_core::Machine| machine.pause().is_some() && machine.told_to_end().is_none();
        let is_suspended = self.lock().table.machine(pid).is_some_and(stands_still);
        if is_suspended && verb == Verb::Proceed {
            let message = format!("PID {pid} is suspended");
            return Err(Error::new(ErrorCode::Conflict, message)
                .with_hint(format!("relive resume {pid}; relive proceed {pid}")));
        }
        let affected = Affected { affected: 1, pids: vec![pid], note, ..Affected::default() };
        if verb == Verb::Proceed
            && let Some(deadline) = self.count_time(process).await?
        {
            // The shim holds the time limit if this daemon is killed as soon as the program runs.
            self.ask_shim(process, Verb::Deadline { left_ms: Some(left_ms(deadline)) }).await?;
        }
        let proceeds = verb == Verb::Proceed;
        match self.ask_shim(process, verb).await? {
            Outcome::Done => {
                self.wait_past_gate(process.uuid, proceeds).await;
                Ok(affected)
            }
            Outcome::Kept => {
                let kept = format!("PID {pid} has not reached its gate yet: the request waits until then");
                Ok(Affected { note: Some(kept), ..affected })
            }
            Outcome::NoProcess => Err(ended()),
            refused @ (Outcome::WrongStage { .. }
            | Outcome::Unknown { .. }
            | Outcome::Failed { .. }
            | Outcome::Stat(_)) => Err(not_done(pid, "has not passed its gate", refused)),
        }
    }

    /// Waits until the answer is true for whoever looks next: the program runs, or its end is recorded.
    async fn wait_past_gate(self: &Arc<Self>, uuid: Uuid, proceeds: bool) {
        if !proceeds {
            // If it takes longer, that is seen like any other end.
            let _ = self.wait(&uuid.to_string(), Some(PAST_GATE_WITHIN)).await;
            return;
        }
        if let Some(LiveSession { shim: Shim::Answers { connection, rungs: _ }, .. }) = self.live_session(uuid).await {
            let mut seen = connection.seen();
            let is_past = |stage| !matches!(stage, Stage::Starting | Stage::Spawned | Stage::Ready);
            let past = seen.wait_for(|seen| seen.ended.is_some() || seen.gone || is_past(seen.snapshot.stage));
            let _ = tokio::time::timeout(PAST_GATE_WITHIN, past).await;
        }
    }

    /// Counts the time of a program from now on. This is recorded before its gate opens: if this daemon is killed in
    /// between, the time counts too early, and a program that runs never has more time than its limit. Returns when its
    /// time is up, if it has a limit.
    async fn count_time(self: &Arc<Self>, process: ProcessRef) -> Result<Option<tokio::time::Instant>> {
        let mut turn = self.turn(process.uuid, Lane::Verb).await?;
        let is_meant = |machine: &relive_core::Machine| machine.incarnation() == process.of;
        let Some(machine) = turn.machine().filter(is_meant) else { return Ok(None) };
        let mut change = Change::of(machine, RecordDetails::default());
        if !change.apply(Event::Proceed, self)? {
            return Ok(None);
        }
        turn.commit(change).await?;
        let deadline = turn.deadline();
        turn.owner.order(|orders| orders.deadline = deadline);
        self.start_heartbeat();
        Ok(deadline)
    }

    /// Returns the session of a program: from its shim, or from its directory.
    pub(crate) async fn session_view(&self, pid: Pid, uuid: Uuid) -> Result<Option<Session>> {
        let session = self.owners.find(uuid).and_then(|owner| owner.session());
        let live = session.and_then(|session| session.borrow().clone());
        if let Some(LiveSession { folder, program, shim: Shim::Answers { connection, rungs }, .. }) = live {
            let paused = self.lock().table.machine(pid).is_some_and(|machine| machine.pause().is_some());
            let snapshot = connection.seen().borrow().snapshot.clone();
            // The freezer decides, not the journal: a daemon may have died between the two.
            let may_be_frozen = paused || program.enter.is_some();
            let frozen = may_be_frozen && snapshot.stage == Stage::Running && is_frozen(&connection).await;
            let mut session = view(&snapshot, &rungs, &folder, frozen);
            let needs_proxy = session.network.starts_with("allow:") && snapshot.stage == Stage::Running;
            if needs_proxy && snapshot.mode == Mode::Spawn && !relive_proxy::is_alive(&folder).await {
                session.degraded.push(NO_PROXY.to_owned());
            }
            let dropped = self.pools.journal.run(move || Reader::oldest(&folder)).await?.unwrap_or(0);
            return Ok(Some(with_limits(Session { output_dropped: dropped, ..session }, &program)));
        }
        let Some(path) = self.last_session(uuid).await? else { return Ok(None) };
        let session = self.pools.reads.run(move || of_folder(&path)).await?;
        let read = self.on_disk(move |data| data.history(uuid)).await?;
        let program = read.ok().and_then(|(history, _)| history.identity?.spawned.program);
        Ok(session.map(|session| match &program {
            Some(program) => with_limits(session, program),
            None => session,
        }))
    }

    pub(crate) async fn last_session(&self, uuid: Uuid) -> Result<Option<PathBuf>> {
        let sessions = self.data.directory(uuid).sessions();
        Ok(self.pools.reads.run(move || last_session(&sessions)).await??)
    }
}

async fn is_frozen(connection: &Connection) -> bool {
    let asked = tokio::time::timeout(FROZEN_WITHIN, connection.request(Verb::Stat)).await;
    matches!(asked, Ok(Ok(Outcome::Stat(stat))) if stat.frozen)
}

/// Returns the process that a shim is told as the one who asks; `None` for a person.
pub(crate) fn sender(cause: Cause) -> Option<u32> {
    Some(cause.by).filter(|by| *by != Pid::RUNTIME).map(|by| by.0)
}

/// Returns the error of an answer that is neither of those that were hoped for: a process `failed`, or was asked too early or
/// too late.
pub(crate) fn not_done(pid: Pid, failed: &str, outcome: Outcome) -> Error {
    match outcome {
        Outcome::WrongStage { message } | Outcome::Unknown { message } => {
            let said = match message.strip_prefix("it ") {
                Some(rest) => format!("PID {pid} {rest}"),
                None => format!("PID {pid}: {message}"),
            };
            Error::new(ErrorCode::Conflict, said).with_hint(format!("relive info {pid}"))
        }
        Outcome::Failed { call: _, errno } if matches!(errno.as_str(), "ENOSPC" | "EDQUOT") => {
            Error::new(ErrorCode::Exhausted, format!("PID {pid} {failed}: the disk is full")).with_hint("relive gc")
        }
        Outcome::Failed { call, errno } => {
            Error::new(ErrorCode::Internal, format!("PID {pid} {failed}: {call} failed with {errno}"))
        }
        Outcome::Done | Outcome::Kept | Outcome::NoProcess | Outcome::Stat(_) => {
            Error::new(ErrorCode::Internal, "the shim answered another request")
        }
    }
}

/// Reads what the directory of a session says that does not answer. A program can write into its own session's directory:
/// what cannot be read says nothing.
fn of_folder(path: &Path) -> Option<Session> {
    let folder = SessionDirectory::open(path).ok()?;
    let (state, exit) = (folder.read_state().unwrap_or_default(), folder.read_exit().unwrap_or_default());
    let rungs = state.as_ref().map(|state| state.rungs.clone()).unwrap_or_default();
    let starting = Snapshot {
        mode: Mode::Spawn,
        stage: Stage::Starting,
        host_pid: None,
        child_pid: None,
        init_pid: None,
        pty: false,
        result: None,
    };
    let mut snapshot = state.map_or(starting, |state| state.snapshot);
    let (mut output_lost, mut oom_kills, mut left, mut last_signal) = (false, 0, Vec::new(), None);
    if let Some(exit) = exit {
        (output_lost, oom_kills, left) = (exit.output_lost, exit.oom_kills, exit.left);
        last_signal = exit.last_signal.and_then(|sent| {
            let signal = OsSignal::from_number(u8::try_from(sent.number).ok()?)?.name().into_owned();
            let by = Some(sent.by.map_or(Pid::RUNTIME, Pid));
            Some(LastSignal { signal, by, from: String::new(), before_end_ms: sent.before_end_ms })
        });
        snapshot.stage = exit.result.stage();
        snapshot.result = Some(exit.result);
        snapshot.host_pid = exit.host_pid.or(snapshot.host_pid);
        snapshot.child_pid = exit.child_pid.or(snapshot.child_pid);
    }
    let output_dropped = Reader::oldest(path).unwrap_or(0);
    Some(Session { output_dropped, output_lost, oom_kills, left, last_signal, ..view(&snapshot, &rungs, path, false) })
}

fn with_limits(session: Session, program: &Program) -> Session {
    let Resources { memory, pids, cpu, .. } = program.resources;
    Session { memory, pids, cpu, ..session }
}

fn view(snapshot: &Snapshot, rungs: &Rungs, folder: &Path, frozen: bool) -> Session {
    let mode = match snapshot.mode {
        Mode::Spawn => "spawn",
        Mode::Enter => "enter",
    };
    Session {
        mode: mode.to_owned(),
        stage: snapshot.stage.name().to_owned(),
        host_pid: snapshot.host_pid,
        child_pid: snapshot.child_pid,
        init_pid: snapshot.init_pid,
        pty: snapshot.pty,
        result: snapshot.result.as_ref().and_then(|result| serde_json::to_value(result).ok()),
        isolation: if rungs.isolation.is_empty() { "none".to_owned() } else { rungs.isolation.clone() },
        network: if rungs.network.is_empty() { "full".to_owned() } else { rungs.network.clone() },
        namespaces: rungs.namespaces.clone(),
        memory: None,
        pids: None,
        cpu: None,
        degraded: rungs.degraded.clone(),
        tree: rungs.tree.clone(),
        pause: rungs.pause.clone(),
        kill: rungs.kill.clone(),
        folder: folder.display().to_string(),
        frozen,
        output_dropped: 0,
        output_lost: false,
        oom_kills: 0,
        left: Vec::new(),
        last_signal: None,
        compact: snapshot.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_called_that() {
        let check = |errno: &str, code, expect: &str| {
            let failed = Outcome::Failed { call: "state".to_owned(), errno: errno.to_owned() };
            let error = not_done(Pid(7), "has not passed its gate", failed);
            assert_eq!((error.code(), error.to_string().as_str()), (code, expect));
        };
        check("ENOSPC", ErrorCode::Exhausted, "PID 7 has not passed its gate: the disk is full");
        check("EIO", ErrorCode::Internal, "PID 7 has not passed its gate: state failed with EIO");
    }
}
