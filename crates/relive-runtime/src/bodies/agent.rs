//! The native agent as a body.

mod files;

pub(crate) use files::AgentFiles;

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use relive_agent::snapshots::Snapshots;
use relive_agent::tool::{ChildEnd, ChildRequest, Context as ToolContext, Host, OwnEnd, PrivatePaths};
use relive_agent::{Agent, Budget, Cadence, Exit as AgentExit};
use relive_api::{EndSelfRequest, Environment, Isolated};
use relive_core::status::MAX_STEPS_EXCEEDED;
use relive_core::{Cause, End, ErrorCode, Moment, ProcessStatus, Signal, SuspendReason, Timestamp, Usd, Uuid, Why};
use relive_journal::history::Files;
use relive_journal::payload::{Blobs, Text};
use relive_journal::policy::Permission;
use relive_journal::record::OnBudget;
use relive_journal::{DataDirectory, History, JobLost, Next, ProcessMeta, Seen, Writer};
use relive_llm::Model;
use relive_proxy::Unknown;
use relive_session::protocol::Verb as SessionVerb;
use relive_session::sessions::{SessionStatus, Sessions};
use relive_session::spec;
use relive_types::rule::COMMAND_TOOL;

use super::{Body, Context, DeliveryTime, Exit, LiveSession, Prepared, Rest, Verb};
use crate::area::variables;
use crate::clock::Clock;
use crate::credentials::{Credentials, NoModel, provider_of};
use crate::drive::BodyOwner;
use crate::environment::{Environments, for_tools};
use crate::error::{Error, Result};
use crate::instructions::tool_names;
use crate::isolation::Isolations;
use crate::lookup::Presence;
use crate::pools::Pools;
use crate::runtime::{ProcessRef, Runtime};
use crate::self_socket::SelfSocket;
use crate::warnings::Warnings;
use crate::workspaces::{ProcessFiles, Workspaces};

/// What a completed agent is told when nobody says anything.
const CONTINUE: &str = "Continue.";

/// How often it is tried to read the files of a model that are not read in time.
const BUILDS_MAX: u32 = 4;

/// Runs native agents.
#[derive(Debug)]
pub(crate) struct AgentBody {
    pub(crate) isolations: Isolations,
    pub(crate) data: Arc<DataDirectory>,
    /// The data directory, without symbolic links.
    pub(crate) real_root: PathBuf,
    pub(crate) pools: Pools,
    pub(crate) sessions: Arc<Sessions>,
    pub(crate) credentials: Arc<Credentials>,
    pub(crate) environments: Arc<Environments>,
    pub(crate) cadence: Cadence,
    pub(crate) git_notes: bool,
    pub(crate) workspaces: Workspaces,
    pub(crate) warnings: Warnings,
}

/// What an agent is made of, its journal apart.
struct Parts {
    meta: ProcessMeta,
    model: Arc<dyn Model>,
    cwd: String,
    private: PrivatePaths,
    intent: String,
    on_budget: OnBudget,
    /// The root of its tree.
    root: Uuid,
    files: Files,
    isolated: Isolated,
    inherited: Option<spec::Inherited>,
    /// What becomes of a request for a host that is not in the list.
    unknown: Unknown,
}

/// Why an agent cannot be made.
enum NoAgent {
    Model(NoModel),
    Journal(String),
    /// A file was not read in time, which says nothing about the agent.
    Unread(JobLost),
}

impl Body for AgentBody {
    fn accepts(&self, verb: Verb) -> Result<()> {
        match verb {
            Verb::Fork => Ok(()),
            Verb::Gate => Err(Error::new(ErrorCode::Invalid, "an agent has no gate: only programs do")),
        }
    }

    fn accepts_message(&self, _: Uuid, _: DeliveryTime) -> BoxFuture<'_, Result<()>> {
        std::future::ready(Ok(())).boxed()
    }

    fn reads_journal(&self) -> bool {
        false
    }

    fn first_message(&self, history: &History) -> Option<&'static str> {
        let ended = history.ended().map(|(_, end)| &end.status);
        let completed = matches!(ended, Some(ProcessStatus::Exited { .. }));
        (completed || history.plan().next == Next::Input).then_some(CONTINUE)
    }

    fn run(&self, mut cx: Context) -> BoxFuture<'static, Exit> {
        let parts = self.parts(cx.process, std::mem::take(&mut cx.prepared), cx.owner.clone());
        let (sessions, directory) = (Arc::clone(&self.sessions), self.data.directory(cx.process.uuid).sessions());
        let (pool, slow_pool) = (self.pools.tools.clone(), self.pools.slow_tools.clone());
        let (cadence, git_notes) = (self.cadence, self.git_notes);
        let (workspaces, warnings) = (self.workspaces.clone(), self.warnings.clone());
        let isolations = self.isolations.clone();
        async move {
            let Parts { meta, model, cwd, private, intent, on_budget, root, files, isolated, inherited, unknown } =
                match parts.await {
                    Ok(parts) => parts,
                    Err(NoAgent::Journal(fault) | NoAgent::Model(NoModel::Wrong(fault))) => {
                        return Exit::Ended(End::of(ProcessStatus::Faulted { fault }));
                    }
                    Err(NoAgent::Unread(lost) | NoAgent::Model(NoModel::Unread(lost))) => {
                        return Exit::Unknown(std::io::Error::other(lost));
                    }
                    Err(NoAgent::Model(NoModel::NeedsKey { message, hint: _ })) => {
                        cx.owner.warn_once(format!("{} waits for credentials: {message}", cx.process.uuid));
                        return Exit::Suspended { reason: SuspendReason::NeedsCredentials, resume_at: None };
                    }
                };
            cx.owner.started().await;
            // Those it was given at its start, whatever there is now.
            let given = tool_names(&meta.tools);
            let mut tools = relive_agent::tools::all();
            tools.retain(|tool| given.iter().any(|name| name == tool.name()));
            let host = Arc::new(cx.owner.host());
            if directory.exists() {
                // A command of an earlier run of this body may still be there.
                host.open_socket();
            }
            let context = ToolContext {
                uuid: cx.process.uuid,
                cwd: cwd.clone().into(),
                private,
                host: host.clone(),
                pool,
                slow_pool,
                sessions,
                inherited,
                isolation: isolations.policy(cx.process.uuid, &isolated),
                proxy: crate::isolation::proxy(&isolated, unknown),
                journal: Some(Arc::clone(&cx.journal)),
                folder: directory,
            };
            // Where there were snapshots before, the journal has to say that there are none now.
            let snapshots = (workspaces.are_wanted() || files.last.is_some()).then(|| {
                let files = ProcessFiles::new(workspaces, warnings, cwd.into(), (cx.process.uuid, root), &files);
                Arc::new(files) as Arc<dyn Snapshots>
            });
            let agent = Agent {
                journal: cx.journal,
                meta,
                model,
                tools,
                context,
                orders: cx.orders,
                budget: host,
                intent,
                cadence,
                suspend_on_budget: on_budget == OnBudget::Suspend,
                git_notes,
                snapshots,
                pulse: cx.pulse,
            };
            let exit = agent.run().await;
            if let AgentExit::NeedsCredentials(refusal) = &exit {
                cx.owner.key_refused(refusal);
            }
            exit_of(exit)
        }
        .boxed()
    }

    fn settle(&self, process: ProcessRef, how: Rest) -> BoxFuture<'_, std::io::Result<()>> {
        async move {
            let sessions = self.data.directory(process.uuid).sessions();
            if how == Rest::Ended {
                return self.sessions.end_all(&sessions).await;
            }
            let data = Arc::clone(&self.data);
            let open = self.pools.journal.run(move || {
                let (history, _) = data.history(process.uuid)?;
                Ok::<_, std::io::Error>(history.open_calls().map(|open| open.seq).collect::<Vec<u64>>())
            });
            for seq in open.await.map_err(std::io::Error::other)?? {
                let directory = sessions.join(format!("call-{seq}"));
                if directory.exists()
                    && let SessionStatus::Alive(connection) = self.sessions.find(&directory).await?
                {
                    // One that has gone meanwhile needs no freeze.
                    let _ = self.sessions.order(&directory, &connection, SessionVerb::Freeze).await;
                }
            }
            Ok(())
        }
        .boxed()
    }

    fn stays_when_suspended(&self) -> bool {
        false
    }

    fn last_seen(&self, _: Uuid, _: Moment) -> BoxFuture<'_, Option<Seen>> {
        std::future::ready(None).boxed()
    }

    /// Only an open call is carried out without another record.
    fn acts_on_last_records(&self) -> bool {
        false
    }

    fn read_ahead(&self, journal: &mut Writer) -> Prepared {
        journal.read_ahead();
        let intent = journal.history().identity.as_ref().map(|identity| &identity.spawned.intent);
        // A long one is read with others at the same time. Of what cannot be read the agent itself says why.
        let short = intent.filter(|intent| matches!(intent, Text::Inline(_)));
        let files = short.and_then(|intent| AgentFiles::read(journal.directory(), journal.blobs(), intent).ok());
        Prepared { files, ..Prepared::default() }
    }

    fn stops_with_daemon(&self) -> bool {
        true
    }

    /// An agent handles a signal by hearing of it.
    fn message_for(&self, signal: Signal) -> Option<&'static str> {
        match signal {
            Signal::Term => {
                Some("You received SIGTERM: you are killed after the grace period. Save what matters and finish.")
            }
            Signal::Int => {
                Some("You received SIGINT: the user interrupts you. Decide whether to stop what you are doing.")
            }
            Signal::Pause => Some("You received SIGPAUSE, which you handle yourself: nothing was paused."),
            Signal::Resume => Some("You received SIGRESUME."),
            Signal::Kill => None,
        }
    }

    fn pass_on(&self, _: Signal, _: LiveSession) -> BoxFuture<'static, ()> {
        std::future::ready(()).boxed()
    }
}

impl AgentBody {
    fn parts(
        &self,
        process: ProcessRef,
        prepared: Prepared,
        owner: BodyOwner,
    ) -> impl Future<Output = Result<Parts, NoAgent>> + Send + 'static {
        let (data, pool) = (Arc::clone(&self.data), self.pools.files.clone());
        let (credentials, environments) = (Arc::clone(&self.credentials), Arc::clone(&self.environments));
        let own = [self.real_root.clone()];
        let isolations = self.isolations.clone();
        async move {
            let uuid = process.uuid;
            let failed = |error: &dyn std::fmt::Display| NoAgent::Journal(error.to_string());
            // The journal is open, so nobody reads it again for this.
            let known =
                owner.look(|history| (history.identity.clone(), history.model.clone(), history.files.clone())).await;
            let (identity, changed, files) = known.map_err(|error| failed(&error))?;
            let spawned = identity.ok_or_else(|| failed(&"the journal has no `spawned`"))?.spawned;
            let Prepared { model, files: read, program: _, socket: _ } = prepared;
            let AgentFiles { mut meta, intent } = match read {
                Some(read) => read,
                None => {
                    let intent = spawned.intent.clone();
                    let read = pool.run(move || {
                        let directory = data.directory(uuid);
                        AgentFiles::read(&directory, &Blobs::new(data.io().disk.clone(), directory.path()), &intent)
                    });
                    read.await.map_err(NoAgent::Unread)?.map_err(|error| failed(&error))?
                }
            };
            if let Some(model) = changed {
                meta.model = model;
            }
            let model = match model {
                Some(model) => model,
                None => {
                    let environment = match provider_of(&meta.model) {
                        Some(_) => environments.of(uuid),
                        None => Environment::default(),
                    };
                    let cwd = Path::new(&spawned.cwd);
                    let model = || credentials.model(&meta.model, cwd, uuid, &environment);
                    patiently(model).await.map_err(NoAgent::Model)?
                }
            };
            let root = spawned.root_uuid.unwrap_or(uuid);
            let isolated = spawned.isolated.unwrap_or_default();
            let (cwd, of) = (spawned.cwd.clone(), isolated.clone());
            let private = PrivatePaths::new(move || {
                private(&real(Path::new(&cwd)), &own, &isolations, &of, || variables(&environments.of(uuid)))
            });
            let on_budget = spawned.on_budget;
            // A person who is asked before a command runs can also be asked what it may reach.
            let unknown = match spawned.policy.of(COMMAND_TOOL) {
                Permission::Ask => Unknown::Ask,
                Permission::Allow | Permission::Deny => Unknown::Refuse,
            };
            let (cwd, inherited) = (spawned.cwd, spawned.shell.as_ref().map(super::exec::inherited));
            Ok(Parts { meta, model, cwd, private, intent, on_budget, root, files, isolated, inherited, unknown })
        }
    }
}

/// Builds a model. After a start many wait for their files at the same time, and on a slow disk some wait longer than one
/// file may take: those try again.
async fn patiently<T, F: Future<Output = Result<T, NoModel>>>(mut build: impl FnMut() -> F) -> Result<T, NoModel> {
    for _ in 1..BUILDS_MAX {
        match build().await {
            Err(NoModel::Unread(_)) => {}
            built => return built,
        }
    }
    build().await
}

/// Returns what an agent could reach from its working directory, a real path, and its tools do not touch: Relive's own
/// directories, and what its commands do not see or may not change.
fn private(
    cwd: &Path,
    own: &[PathBuf],
    isolations: &Isolations,
    isolated: &Isolated,
    env: impl Fn() -> Vec<(String, String)>,
) -> Box<[PathBuf]> {
    let is_near = |path: &PathBuf| path.starts_with(cwd) || cwd.starts_with(path);
    if isolated.isolation.is_none() {
        return own.iter().filter(|path| is_near(path)).cloned().collect();
    }
    let hidden = relive_sandbox::hidden(&isolations.reach(isolated), &env());
    own.iter().cloned().chain(hidden).filter(is_near).chain(relive_sandbox::protected(cwd)).collect()
}

/// Returns a path without symbolic links, as far as there is one.
pub(crate) fn real(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}

fn exit_of(exit: AgentExit) -> Exit {
    let ended = |status| Exit::Ended(End::of(status));
    let killed = |why| {
        let status = ProcessStatus::Killed { signal: Signal::Term.into() };
        Exit::Ended(End { cause: Some(Cause::runtime(why)), ..End::of(status) })
    };
    let suspended = |reason, resume_at| Exit::Suspended { reason, resume_at };
    match exit {
        AgentExit::Completed => Exit::Completed,
        AgentExit::Faulted(fault) => ended(ProcessStatus::Faulted { fault }),
        AgentExit::MaxSteps => ended(ProcessStatus::Faulted { fault: MAX_STEPS_EXCEEDED.to_owned() }),
        AgentExit::Cancelled => Exit::Cancelled,
        AgentExit::TimedOut => killed(Why::Timeout),
        AgentExit::OverBudget => killed(Why::Budget),
        AgentExit::SuspendedBudget => suspended(SuspendReason::BudgetExceeded, None),
        AgentExit::Approval => suspended(SuspendReason::Approval, None),
        AgentExit::Question => suspended(SuspendReason::Question, None),
        AgentExit::InDoubt => suspended(SuspendReason::InDoubt, None),
        AgentExit::Quota { resume_at } => suspended(SuspendReason::Quota, Some(resume_at)),
        AgentExit::NeedsCredentials(_) => suspended(SuspendReason::NeedsCredentials, None),
        AgentExit::Stopped => Exit::Stopped,
        AgentExit::Unrecorded(error) => Exit::Unrecorded(error),
    }
}

/// The runtime, as one agent sees it.
#[derive(Debug)]
pub(crate) struct AgentHost {
    pub(crate) runtime: Arc<Runtime>,
    pub(crate) clock: Clock,
    pub(crate) process: ProcessRef,
    /// The socket of the process, from its first command on.
    pub(crate) socket: Arc<OnceLock<Option<SelfSocket>>>,
}

impl AgentHost {
    fn open_socket(&self) -> Option<&SelfSocket> {
        let open = || {
            let opened = self.runtime.self_sockets.open(self.process.uuid, None);
            let said = |error: &std::io::Error| {
                let uuid = self.process.uuid;
                self.runtime.warn_once(format!("the programs of {uuid} have no socket of their own: {error}"));
            };
            opened.inspect_err(said).ok()
        };
        self.socket.get_or_init(open).as_ref()
    }
}

impl Host for AgentHost {
    fn now(&self) -> Timestamp {
        self.clock.now()
    }

    fn new_uuid(&self) -> Uuid {
        self.clock.new_uuid()
    }

    fn environment(&self) -> BoxFuture<'static, Result<Vec<(String, String)>, String>> {
        let (runtime, uuid) = (Arc::clone(&self.runtime), self.process.uuid);
        self.open_socket();
        let socket = Arc::clone(&self.socket);
        async move {
            let environment = runtime.environment_of(uuid);
            let environment = for_tools(&environment, &runtime.live.now().tool_env);
            Ok(runtime.self_sockets.added_to(environment, socket.get().and_then(Option::as_ref)))
        }
        .boxed()
    }

    fn spawn_agent(&self, request: ChildRequest) -> BoxFuture<'static, Result<(), String>> {
        let (runtime, process) = (Arc::clone(&self.runtime), self.process);
        async move { runtime.spawn_child(process, request).await.map_err(|error| error.to_string()) }.boxed()
    }

    fn end_self(&self, how: OwnEnd) -> BoxFuture<'static, Result<(), String>> {
        let (runtime, uuid) = (Arc::clone(&self.runtime), self.process.uuid);
        let request = match how {
            OwnEnd::Exit { code, reason } => EndSelfRequest::Exit { code, reason },
            OwnEnd::Fault { fault } => EndSelfRequest::Fault { fault },
            OwnEnd::Abandon => EndSelfRequest::Abandon,
        };
        async move { runtime.end_self(uuid, request, None).await.map_err(|error| error.to_string()) }.boxed()
    }

    fn exists(&self, uuid: Uuid) -> BoxFuture<'static, bool> {
        let runtime = Arc::clone(&self.runtime);
        async move { !matches!(runtime.presence(uuid).await, Ok(Presence::Never)) }.boxed()
    }

    fn wait_agent(&self, _: Uuid, uuid: Uuid) -> BoxFuture<'static, Result<ChildEnd, String>> {
        let (runtime, process) = (Arc::clone(&self.runtime), self.process);
        async move { runtime.wait_for_child(process, uuid).await.map_err(|error| error.to_string()) }.boxed()
    }
}

impl Budget for AgentHost {
    fn reserve(&self, tokens: u64, cost: Usd) -> BoxFuture<'static, bool> {
        let (runtime, process) = (Arc::clone(&self.runtime), self.process);
        async move { runtime.reserve(process.uuid, tokens, cost).await }.boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fails this often, and returns how often a model was built, and whether there was one.
    async fn built(failures: u32, failure: fn() -> NoModel) -> (u32, bool) {
        let mut attempts = 0;
        let model = patiently(|| {
            attempts += 1;
            std::future::ready(if attempts > failures { Ok(()) } else { Err(failure()) })
        });
        let model = model.await.is_ok();
        (attempts, model)
    }

    #[tokio::test]
    async fn a_model_whose_files_were_not_read_in_time_is_built_again_and_no_other() {
        let unread: fn() -> NoModel = || NoModel::Unread(JobLost);
        assert_eq!(built(0, unread).await, (1, true));
        assert_eq!(built(BUILDS_MAX - 1, unread).await, (BUILDS_MAX, true));
        assert_eq!(built(u32::MAX, unread).await, (BUILDS_MAX, false));
        assert_eq!(built(1, || NoModel::Wrong(String::new())).await, (1, false));
    }
}
