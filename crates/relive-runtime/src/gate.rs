//! The gates of programs, and their sessions as clients see them.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use relive_api::{Affected, Session};
use relive_core::{ErrorCode, Pid, Uuid};
use relive_session::directory::SessionDirectory;
use relive_session::log::Reader;
use relive_session::protocol::{Outcome, Verb};
use relive_session::stage::{Mode, Snapshot, Stage};
use relive_session::tree::Rungs;

use crate::bodies::{LiveSession, OTHER_VERSION, Shim, Verb as BodyVerb, found_session, is_looked_for, last_session};
use crate::error::{Error, Result};
use crate::lookup::LookedUp;
use crate::runtime::{ProcessRef, Runtime};

/// How often a shim is asked that hangs up before it has answered.
const ASKS_MAX: u32 = 3;

impl Runtime {
    /// Returns the session of a program as soon as it answers; none for one that has ended.
    pub(crate) async fn live_session(&self, uuid: Uuid) -> Option<LiveSession> {
        found_session(&mut self.owners.find(uuid)?.session()?).await
    }

    /// Asks the shim of a program for something; `NoProcess` if the program has ended.
    pub(crate) async fn ask_shim(&self, process: ProcessRef, verb: Verb) -> Result<Outcome> {
        let ProcessRef { of, uuid } = process;
        let mut session = self.owners.find(uuid).and_then(|owner| owner.session());
        for _ in 0..ASKS_MAX {
            let Some(session) = &mut session else { break };
            let Some(live) = found_session(session).await else { break };
            let Shim::Answers { connection, rungs: _ } = live.shim else {
                let message = format!("process {} cannot be reached: {OTHER_VERSION}", of.pid);
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
                let message = format!("process {}: its session cannot be reached", of.pid);
                Err(Error::new(ErrorCode::Unavailable, message).with_hint(format!("relive info {uuid}")))
            }
            None => Ok(Outcome::NoProcess),
        }
    }

    /// Opens a program's gate.
    pub async fn proceed(self: &Arc<Self>, id: &str) -> Result<Affected> {
        let (runtime, id) = (Arc::clone(self), id.to_owned());
        self.to_the_end(async move { runtime.at_the_gate(&id, Verb::Proceed).await }).await
    }

    /// Lets a program at its gate never run.
    pub async fn abort(self: &Arc<Self>, id: &str) -> Result<Affected> {
        let (runtime, id) = (Arc::clone(self), id.to_owned());
        self.to_the_end(async move { runtime.at_the_gate(&id, Verb::Abort).await }).await
    }

    async fn at_the_gate(self: &Arc<Self>, id: &str, verb: Verb) -> Result<Affected> {
        let ended = || Error::new(ErrorCode::Conflict, format!("`{id}` has ended: there is no process"));
        let LookedUp::Living { process, note } = self.look_up_to_change(id).await? else { return Err(ended()) };
        let pid = process.of.pid;
        if let Some(body) = self.body_of(pid) {
            body.accepts(BodyVerb::Gate)?;
        }
        let paused = self.lock().table.machine(pid).is_some_and(|machine| machine.pause().is_some());
        if paused && verb == Verb::Proceed {
            let message = format!("process {pid} is suspended");
            return Err(
                Error::new(ErrorCode::Conflict, message).with_hint(format!("relive resume {pid}, then proceed"))
            );
        }
        let affected = Affected { affected: 1, pids: vec![pid], note, ..Affected::default() };
        match self.ask_shim(process, verb).await? {
            Outcome::Done => Ok(affected),
            Outcome::Kept => {
                let kept = format!("process {pid} is not at its gate yet: this is kept until it is");
                Ok(Affected { note: Some(kept), ..affected })
            }
            Outcome::NoProcess => Err(ended()),
            Outcome::WrongStage { message } | Outcome::Unknown { message } => {
                Err(Error::new(ErrorCode::Conflict, format!("process {pid}: {message}")))
            }
            Outcome::Failed { call, errno } => Err(Error::new(ErrorCode::Internal, format!("{call}: {errno}"))),
            Outcome::Stat(_) => Err(Error::new(ErrorCode::Internal, "an answer to another question")),
        }
    }

    /// Returns the session of a program: as it answers, or as its directory has it.
    pub(crate) async fn session_view(&self, pid: Pid, uuid: Uuid) -> Result<Option<Session>> {
        let session = self.owners.find(uuid).and_then(|owner| owner.session());
        let live = session.and_then(|session| session.borrow().clone());
        if let Some(LiveSession { folder, shim: Shim::Answers { connection, rungs }, .. }) = live {
            let paused = self.lock().table.machine(pid).is_some_and(|machine| machine.is_at_boundary());
            let snapshot = connection.seen().borrow().snapshot.clone();
            let frozen = paused && snapshot.stage == Stage::Running;
            let session = view(&snapshot, &rungs, &folder, frozen);
            let dropped = self.pools.journal.run(move || Reader::oldest(&folder)).await?.unwrap_or(0);
            return Ok(Some(Session { output_dropped: dropped, ..session }));
        }
        let Some(path) = self.last_session(uuid).await? else { return Ok(None) };
        Ok(self.pools.reads.run(move || of_folder(&path)).await?)
    }

    pub(crate) async fn last_session(&self, uuid: Uuid) -> Result<Option<PathBuf>> {
        let sessions = self.data.directory(uuid).sessions();
        Ok(self.pools.reads.run(move || last_session(&sessions)).await??)
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
    let (mut output_lost, mut oom_kills, mut left) = (false, 0, Vec::new());
    if let Some(exit) = exit {
        (output_lost, oom_kills, left) = (exit.output_lost, exit.oom_kills, exit.left);
        snapshot.stage = exit.result.stage();
        snapshot.result = Some(exit.result);
        snapshot.host_pid = exit.host_pid.or(snapshot.host_pid);
        snapshot.child_pid = exit.child_pid.or(snapshot.child_pid);
    }
    let output_dropped = Reader::oldest(path).unwrap_or(0);
    Some(Session { output_dropped, output_lost, oom_kills, left, ..view(&snapshot, &rungs, path, false) })
}

fn view(snapshot: &Snapshot, rungs: &Rungs, folder: &Path, frozen: bool) -> Session {
    let mode = match snapshot.mode {
        Mode::Spawn => "spawn",
    };
    Session {
        mode: mode.to_owned(),
        stage: snapshot.stage.name().to_owned(),
        host_pid: snapshot.host_pid,
        child_pid: snapshot.child_pid,
        init_pid: snapshot.init_pid,
        pty: snapshot.pty,
        result: snapshot.result.as_ref().and_then(|result| serde_json::to_value(result).ok()),
        isolation: "none".to_owned(),
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
        compact: snapshot.to_string(),
    }
}
