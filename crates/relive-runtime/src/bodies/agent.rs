//! The native agent as a body.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use relive_agent::tool::{ChildEnd, ChildRequest, Context as ToolContext, Host};
use relive_agent::{Agent, Budget, Cadence, Exit as AgentExit};
use relive_api::Environment;
use relive_core::status::MAX_STEPS_EXCEEDED;
use relive_core::{Cause, End, ErrorCode, Moment, ProcessStatus, Signal, SuspendReason, Timestamp, Usd, Uuid, Why};
use relive_journal::record::OnBudget;
use relive_journal::{DataDirectory, History, Next, ProcessMeta, Seen};
use relive_llm::Model;
use relive_session::protocol::Verb as SessionVerb;
use relive_session::sessions::{SessionStatus, Sessions};

use super::{Body, Context, Exit, Hearing, LiveSession, PreparedModel, Rest, Verb};
use crate::clock::Clock;
use crate::credentials::{Credentials, NoModel, provider_of};
use crate::environment::{Environments, for_tools};
use crate::error::{Error, Result};
use crate::instructions::tool_names;
use crate::lookup::Presence;
use crate::pools::Pools;
use crate::runtime::{ProcessRef, Runtime};

/// What a completed agent is told when nobody says anything.
const CONTINUE: &str = "Continue.";

/// Runs native agents.
#[derive(Debug)]
pub(crate) struct AgentBody {
    pub(crate) data: Arc<DataDirectory>,
    pub(crate) pools: Pools,
    pub(crate) sessions: Arc<Sessions>,
    pub(crate) credentials: Arc<Credentials>,
    pub(crate) environments: Arc<Environments>,
    pub(crate) cadence: Cadence,
    pub(crate) git_notes: bool,
}

/// What an agent is made of, its journal apart.
struct Parts {
    meta: ProcessMeta,
    model: Arc<dyn Model>,
    cwd: String,
    private: Arc<[PathBuf]>,
    intent: String,
    on_budget: OnBudget,
}

/// Why an agent cannot be made.
enum NoAgent {
    Model(NoModel),
    Journal(String),
}

impl Body for AgentBody {
    fn accepts(&self, verb: Verb) -> Result<()> {
        match verb {
            Verb::Fork => Ok(()),
            Verb::Gate => Err(Error::new(ErrorCode::Invalid, "an agent has no gate: only programs do")),
        }
    }

    fn hears(&self, _: Uuid, _: Hearing) -> BoxFuture<'_, Result<()>> {
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

    fn run(&self, cx: Context) -> BoxFuture<'static, Exit> {
        let parts = self.parts(cx.process, cx.prepared.clone());
        let (sessions, folder) = (Arc::clone(&self.sessions), self.data.directory(cx.process.uuid).sessions());
        let (pool, slow_pool) = (self.pools.tools.clone(), self.pools.slow_tools.clone());
        let (cadence, git_notes) = (self.cadence, self.git_notes);
        async move {
            let Parts { meta, model, cwd, private, intent, on_budget } = match parts.await {
                Ok(parts) => parts,
                Err(NoAgent::Journal(fault) | NoAgent::Model(NoModel::Wrong(fault))) => {
                    return Exit::Ended(End::of(ProcessStatus::Faulted { fault }));
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
            let context = ToolContext {
                uuid: cx.process.uuid,
                cwd: cwd.into(),
                private,
                host: host.clone(),
                pool,
                slow_pool,
                sessions,
                folder,
            };
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
                pulse: cx.pulse,
            };
            exit_of(agent.run().await)
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
                let folder = sessions.join(format!("call-{seq}"));
                if folder.exists()
                    && let SessionStatus::Alive(connection) = self.sessions.find(&folder).await?
                {
                    // One that has gone meanwhile needs no freeze.
                    let _ = self.sessions.order(&folder, &connection, SessionVerb::Freeze).await;
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
        prepared: Option<PreparedModel>,
    ) -> impl Future<Output = Result<Parts, NoAgent>> + Send + 'static {
        let (data, pool) = (Arc::clone(&self.data), self.pools.files.clone());
        let (credentials, environments) = (Arc::clone(&self.credentials), Arc::clone(&self.environments));
        let own = [self.data.root().to_owned(), self.environments.directory().to_owned()];
        async move {
            let uuid = process.uuid;
            let read = pool.run(move || {
                let folder = data.directory(uuid);
                let (history, _) = data.history(uuid)?;
                let spawned = history.identity.ok_or_else(|| std::io::Error::other("the journal has no `spawned`"))?;
                let blobs = relive_journal::payload::Blobs::new(data.io().disk.clone(), folder.path());
                let intent = blobs.text(&spawned.spawned.intent).map_err(std::io::Error::other)?;
                let named = |error| std::io::Error::other(format!("process-meta.json cannot be read: {error}"));
                let meta = ProcessMeta::read(&folder).map_err(named)?;
                let private = private(Path::new(&spawned.spawned.cwd), &own);
                Ok::<_, std::io::Error>((meta, spawned.spawned, private, intent))
            });
            let failed = |error: &dyn std::fmt::Display| NoAgent::Journal(error.to_string());
            let (meta, spawned, private, intent) =
                read.await.map_err(|error| failed(&error))?.map_err(|error| failed(&error))?;
            let model = match prepared {
                Some(PreparedModel(model)) => model,
                None => {
                    let environment = match provider_of(&meta.model) {
                        Some(_) => environments.load(&pool, uuid).await.map_err(|error| failed(&error))?,
                        None => Environment::default(),
                    };
                    let cwd = Path::new(&spawned.cwd);
                    credentials.model(&meta.model, cwd, uuid, &environment).await.map_err(NoAgent::Model)?
                }
            };
            Ok(Parts { meta, model, cwd: spawned.cwd, private, intent, on_budget: spawned.on_budget })
        }
    }
}

/// Returns those of Relive's own directories that an agent could reach from its working directory.
fn private(cwd: &Path, own: &[PathBuf]) -> Arc<[PathBuf]> {
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let cwd = real(cwd);
    own.iter().map(|path| real(path)).filter(|path| path.starts_with(&cwd) || cwd.starts_with(path)).collect()
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
        AgentExit::InDoubt => suspended(SuspendReason::InDoubt, None),
        AgentExit::Quota { resume_at } => suspended(SuspendReason::Quota, Some(resume_at)),
        AgentExit::NeedsCredentials => suspended(SuspendReason::NeedsCredentials, None),
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
        async move {
            let environment = runtime.environment_of(uuid).await.map_err(|error| error.to_string())?;
            Ok(for_tools(&environment, &runtime.settings.tool_env))
        }
        .boxed()
    }

    fn spawn_agent(&self, request: ChildRequest) -> BoxFuture<'static, Result<(), String>> {
        let (runtime, process) = (Arc::clone(&self.runtime), self.process);
        async move { runtime.spawn_child(process, request).await.map_err(|error| error.to_string()) }.boxed()
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
