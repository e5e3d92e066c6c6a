//! What clients want of programs: to begin one, to let it pass its gate, to see its session.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use relive_api::{Affected, ExecRequest, ExecStarted, Session};
use relive_core::{Body, ErrorCode, Limits, Pid, Program, Uuid};
use relive_journal::policy::Policy;
use relive_journal::record::{OnBudget, Spawned};
use relive_session::folder::Folder;
use relive_session::protocol::{Outcome, Verb};
use relive_session::sessions::numbered;
use relive_session::stage::{Mode, Snapshot, Stage};
use relive_session::tree::Rungs;

use crate::error::{Error, Result};
use crate::program::Live;
use crate::query::Target;
use crate::run::{Begin, check_environment, check_name};
use crate::runtime::Runtime;

impl Runtime {
    /// Begins a program, and answers when its session does or it has ended. Asking again with the same UUID begins
    /// nothing.
    pub async fn exec(self: &Arc<Self>, request: ExecRequest) -> Result<ExecStarted> {
        check_name(request.name.as_deref())?;
        check_environment(&request.env)?;
        let wrong = |message: String| Err(Error::new(ErrorCode::Invalid, message));
        if request.argv.first().is_none_or(String::is_empty) {
            return wrong("there is no program to run".to_owned());
        }
        if request.argv.iter().any(|word| word.contains('\0')) {
            return wrong("an argument cannot contain a NUL byte".to_owned());
        }
        if !Path::new(&request.cwd).is_absolute() {
            return wrong(format!("the working folder `{}` is not an absolute path", request.cwd));
        }
        let ExecRequest { uuid, name, argv, env, cwd, stdio, gate, namespace, limits, memory, pids } = request;
        let program = Program { argv, stdio, gate, namespace, memory, pids };
        let intent = program.command_line();
        let begin = Begin {
            spawned: Spawned {
                uuid,
                name,
                parent_uuid: None,
                origin: None,
                body: "exec".to_owned(),
                intent: intent.clone().into(),
                program: Some(program),
                cwd,
                limits: Limits { timeout_ms: limits.timeout_ms, ..Limits::default() },
                on_in_doubt: self.settings.on_in_doubt,
                on_budget: OnBudget::End,
                env_names: env.names().map(str::to_owned).collect(),
                policy: Policy::default(),
                root_uuid: None,
                depth: 0,
            },
            meta: None,
            environment: env,
            intent,
            parent: Pid::KERNEL,
        };
        let pid = self.begin(begin).await?.pid;
        let folder = match self.answering(pid).await {
            Some(live) => live.folder,
            None => self.last_session(uuid).await?.unwrap_or_default(),
        };
        Ok(ExecStarted { pid, uuid, folder: folder.display().to_string() })
    }

    /// The session of a program, as soon as it answers; none for one that has ended.
    async fn answering(&self, pid: Pid) -> Option<Live> {
        let mut session = self.lock().bodies.get(&pid)?.session.clone();
        // The sender goes with the body.
        session.wait_for(Option::is_some).await.ok()?.clone()
    }

    /// Opens a program's gate.
    pub async fn proceed(&self, id: &str) -> Result<Affected> {
        self.at_the_gate(id, Verb::Proceed).await
    }

    /// Lets a program at its gate never run.
    pub async fn abort(&self, id: &str) -> Result<Affected> {
        self.at_the_gate(id, Verb::Abort).await
    }

    async fn at_the_gate(&self, id: &str, verb: Verb) -> Result<Affected> {
        let ended = || Error::new(ErrorCode::Conflict, format!("`{id}` has ended: there is no process"));
        let pid = match self.resolve(id).await? {
            Target::Listed(pid) => pid,
            Target::OnDisk(_) => return Err(ended()),
        };
        let (is_program, paused) = {
            let state = self.lock();
            let view = state.table.view(pid, self.now()).ok_or_else(ended)?;
            (view.body == Body::Exec, view.paused)
        };
        if !is_program {
            let message = format!("process {pid} is no program: it has no gate");
            return Err(Error::new(ErrorCode::Invalid, message));
        }
        if paused && verb == Verb::Proceed {
            let message = format!("process {pid} is suspended");
            return Err(
                Error::new(ErrorCode::Conflict, message).with_hint(format!("relive resume {pid}, then proceed"))
            );
        }
        let live = self.answering(pid).await.ok_or_else(ended)?;
        let affected = Affected { affected: 1, pids: vec![pid], note: None };
        match live.connection.request(verb).await {
            Ok(Outcome::Done) => Ok(affected),
            Ok(Outcome::Kept) => {
                Ok(Affected { note: Some(format!("process {pid} is not at its gate yet: it is kept")), ..affected })
            }
            Ok(Outcome::NoProcess) | Err(_) => Err(ended()),
            Ok(Outcome::WrongStage { message } | Outcome::Unknown { message }) => {
                Err(Error::new(ErrorCode::Conflict, format!("process {pid}: {message}")))
            }
            Ok(Outcome::Failed { call, errno }) => Err(Error::new(ErrorCode::Internal, format!("{call}: {errno}"))),
            Ok(Outcome::Stat(_)) => Err(Error::new(ErrorCode::Internal, "an answer to another question")),
        }
    }

    /// The session of a program, for a client: as it answers, or as its folder has it.
    pub(crate) async fn session_view(&self, pid: Pid, uuid: Uuid) -> Result<Option<Session>> {
        let live = {
            let state = self.lock();
            let paused = state.table.view(pid, self.now()).is_some_and(|view| view.paused);
            let session = state.bodies.get(&pid).map(|body| body.session.clone());
            session.and_then(|session| session.borrow().clone()).map(|live| (live, paused))
        };
        if let Some((live, paused)) = live {
            let snapshot = live.connection.seen().borrow().snapshot.clone();
            let frozen = paused && snapshot.stage == Stage::Running;
            return Ok(Some(session(&snapshot, &live.rungs, &live.folder, frozen)));
        }
        let Some(path) = self.last_session(uuid).await? else { return Ok(None) };
        let found = self.pool.run(move || of_folder(&path)).await?;
        Ok(found?)
    }

    async fn last_session(&self, uuid: Uuid) -> Result<Option<PathBuf>> {
        let sessions = self.data.folder(uuid).sessions();
        let last = self.pool.run(move || Ok::<_, std::io::Error>((numbered(&sessions)?.into_iter().max(), sessions)));
        let (last, sessions) = last.await??;
        Ok(last.map(|number| sessions.join(number.to_string())))
    }
}

/// What the folder of a session says that does not answer.
fn of_folder(path: &Path) -> std::io::Result<Option<Session>> {
    let folder = Folder::open(path)?;
    let (state, exit) = (folder.read_state()?, folder.read_exit()?);
    let rungs = state.as_ref().map(|state| state.rungs.clone()).unwrap_or_default();
    let starting = Snapshot {
        mode: Mode::Spawn,
        stage: Stage::Starting,
        host_pid: None,
        child_pid: None,
        pty: false,
        result: None,
    };
    let mut snapshot = state.map_or(starting, |state| state.snapshot);
    if let Some(exit) = exit {
        snapshot.stage = exit.result.stage();
        snapshot.result = Some(exit.result);
        snapshot.host_pid = exit.host_pid.or(snapshot.host_pid);
        snapshot.child_pid = exit.child_pid.or(snapshot.child_pid);
    }
    Ok(Some(session(&snapshot, &rungs, path, false)))
}

fn session(snapshot: &Snapshot, rungs: &Rungs, folder: &Path, frozen: bool) -> Session {
    let mode = match snapshot.mode {
        Mode::Spawn => "spawn",
    };
    Session {
        mode: mode.to_owned(),
        stage: snapshot.stage.name().to_owned(),
        host_pid: snapshot.host_pid,
        child_pid: snapshot.child_pid,
        pty: snapshot.pty,
        result: snapshot.result.as_ref().and_then(|result| serde_json::to_value(result).ok()),
        isolation: "none".to_owned(),
        degraded: rungs.degraded.clone(),
        tree: rungs.tree.clone(),
        pause: rungs.pause.clone(),
        kill: rungs.kill.clone(),
        folder: folder.display().to_string(),
        frozen,
        compact: snapshot.to_string(),
    }
}
