//! The runtime: the process table, the owners that change it, and the components they use.
//!
//! The table is a view that owners publish to. Its lock is held for moments, never across an await, and nothing is read
//! or written under it. What a client is told happened is on the disk first.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use relive_api::{Environment, Paths};
use relive_core::{Incarnation, Machine, Moment, Pid, Timestamp, Uuid};
use relive_journal::{DataDirectory, OpenFailure, WriteError};
use relive_session::sessions::Sessions;
use relive_session::spec::DaemonStart;
use tokio::sync::Notify;

use crate::alarm::Alarm;
use crate::bodies::{AgentBody, Bodies, Body, CliBody, ExecBody, FlowBody};
use crate::budgets::Budgets;
use crate::catalog::Catalog;
use crate::clock::Clock;
use crate::credentials::Credentials;
use crate::environment::Environments;
use crate::error::{Error, Result};
use crate::flows::Flows;
use crate::gateways::Gateways;
use crate::isolation::Isolations;
use crate::owner::{Owner, Owners};
use crate::pending::PendingCalls;
use crate::pools::Pools;
use crate::recall::ToRecall;
use crate::reload::LiveSettings;
use crate::self_socket::{SelfConnection, SelfSockets};
use crate::settings::Settings;
use crate::subtree::Inheritance;
use crate::trees::Trees;
use crate::unrecovered::Unrecovered;
use crate::wait::Waiters;
use crate::warnings::Warnings;
use crate::watch::Changes;
use crate::workspaces::{Options as WorkspaceOptions, Workspaces};

/// How long a journal that is busy is waited for, and how often it is tried.
const BUSY_PATIENCE: Duration = Duration::from_secs(2);
const BUSY_AGAIN: Duration = Duration::from_millis(5);

/// The program that is executed as a shim: this one, also when its file was replaced.
const SHIM: &str = "/proc/self/exe";

/// Owns the processes of one data directory.
#[derive(Debug)]
pub struct Runtime {
    pub(crate) data: Arc<DataDirectory>,
    pub(crate) pools: Pools,
    /// As they were at the start: for what only a start looks at.
    pub(crate) settings: Settings,
    /// As they are now.
    pub(crate) live: Arc<LiveSettings>,
    pub(crate) clock: Clock,
    /// When it was started, since boot.
    pub(crate) started_ms: u64,
    pub(crate) changes: Changes,
    /// Where `config.yaml` is, and beside it agents that can be run by name.
    pub(crate) config: PathBuf,
    pub(crate) socket: PathBuf,
    /// The environment of whoever started each process.
    pub(crate) environments: Arc<Environments>,
    pub(crate) credentials: Arc<Credentials>,
    /// The sockets by which programs inside of processes reach the daemon.
    pub(crate) self_sockets: Arc<SelfSockets>,
    pub(crate) budgets: Budgets,
    /// Finds processes that are not in the table.
    pub(crate) catalog: Catalog,
    /// What processes wait for, as it was read from their journals.
    pub(crate) pending_calls: PendingCalls,
    pub(crate) unrecovered: Unrecovered,
    pub(crate) to_recall: ToRecall,
    pub(crate) warnings: Warnings,
    /// The files that processes work on.
    pub(crate) workspaces: Workspaces,
    pub(crate) owners: Owners,
    pub(crate) bodies: Bodies,
    /// The trees whose body runs.
    pub(crate) flows: Flows,
    /// Told when a body has gone.
    pub(crate) bodies_changed: Notify,
    /// Told when a handle was released, or its holder has ended.
    pub(crate) sight_changed: Notify,
    /// One survey, and one collection, at a time: they share the files `clock` and `tombstones.jsonl`.
    pub(crate) collecting: tokio::sync::Mutex<()>,
    state: Mutex<Published>,
}

/// What owners have published.
#[derive(Debug)]
pub(crate) struct Published {
    pub(crate) table: relive_core::Table,
    /// The owners of processes whose body runs.
    pub(crate) bodies: HashMap<Pid, Arc<Owner>>,
    pub(crate) trees: Trees,
    /// The signal that each process got with its subtree, and the children that are being created.
    pub(crate) inherited: Inheritance,
    /// Rung when a process has ended.
    pub(crate) waiting: HashMap<Pid, Waiters>,
    pub(crate) alarms: HashMap<Pid, Alarm>,
    /// Told when there is one more.
    pub(crate) alarm_set: Arc<Notify>,
    pub(crate) stopping: bool,
    /// The names of processes that are being created or renamed, each with the process that is to have it.
    pub(crate) names: HashMap<String, Uuid>,
    /// What providers said of the keys of processes that lack credentials. Forgotten with the process.
    pub(crate) refused_keys: HashMap<Pid, String>,
    /// The processes that somebody is about to watch, and since when.
    pub(crate) attended: HashMap<Uuid, u64>,
    /// When each process that makes no progress was found out. Forgotten with the process.
    pub(crate) stalled_at: HashMap<Pid, Timestamp>,
    /// Processes that stand still for a rewind, and that nobody else has paused since.
    pub(crate) paused_for_rewind: HashSet<Pid>,
    /// Whether a task writes the pulse.
    pub(crate) has_heartbeat: bool,
}

/// One incarnation of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ProcessRef {
    pub(crate) of: Incarnation,
    pub(crate) uuid: Uuid,
}

impl Published {
    fn new(settings: relive_core::Settings, last_pid: Pid) -> Self {
        Self {
            table: relive_core::Table::new(settings, last_pid),
            bodies: HashMap::new(),
            trees: Trees::default(),
            inherited: Inheritance::default(),
            waiting: HashMap::new(),
            alarms: HashMap::new(),
            alarm_set: Arc::default(),
            stopping: false,
            names: HashMap::new(),
            refused_keys: HashMap::new(),
            attended: HashMap::new(),
            stalled_at: HashMap::new(),
            paused_for_rewind: HashSet::new(),
            has_heartbeat: false,
        }
    }
}

impl Runtime {
    /// Returns a runtime that owns no process yet: [`Self::recover`] finds those of the data directory.
    #[must_use]
    pub fn new(data: Arc<DataDirectory>, pools: Pools, settings: Settings, clock: Clock, paths: &Paths) -> Arc<Self> {
        let state = Published::new(settings.table, data.last_pid());
        let sessions = Sessions::new(SHIM.into(), clock.boot_id(), paths.short_name());
        let sessions = Arc::new(sessions.with_daemon(DaemonStart::of_this_process(paths.log.clone())));
        let (self_sockets, warnings) = (SelfSockets::new(paths), Warnings::default());
        let environments = Arc::new(Environments::new(Arc::clone(&data), settings.keeper.clone(), warnings.clone()));
        let live = Arc::new(LiveSettings::new(settings.clone(), &paths.config));
        let shared = (Arc::clone(&live), Arc::clone(&environments));
        let credentials = Arc::new(Credentials::new(shared.0, pools.files.clone(), shared.1, warnings.clone()));
        let isolations = Isolations::new(paths, Arc::clone(&live));
        let workspaces =
            Workspaces::new(WorkspaceOptions::of(data.root(), &settings, &isolations, &pools, clock.clone()));
        let exec = ExecBody {
            isolations: isolations.clone(),
            data: Arc::clone(&data),
            pool: pools.journal.clone(),
            sessions: Arc::clone(&sessions),
            environments: Arc::clone(&environments),
            self_sockets: Arc::clone(&self_sockets),
            warnings: warnings.clone(),
        };
        let gateways = Arc::new(Gateways::new(Arc::clone(&data), settings.keeper.clone(), warnings.clone()));
        let bodies = Bodies {
            cli: CliBody::new(exec.clone(), clock.clone(), Arc::clone(&live), Arc::clone(&gateways)),
            flow: FlowBody::default(),
            agent: AgentBody {
                isolations: isolations.clone(),
                data: Arc::clone(&data),
                real_root: crate::bodies::real(data.root()),
                pools: pools.clone(),
                sessions: Arc::clone(&sessions),
                credentials: Arc::clone(&credentials),
                environments: Arc::clone(&environments),
                cadence: settings.cadence,
                git_notes: settings.git_notes,
                workspaces: workspaces.clone(),
                warnings: warnings.clone(),
            },
            exec,
        };
        let catalog = Catalog::new(Arc::clone(&data), warnings.clone());
        let runtime = Arc::new(Self {
            data,
            pools,
            settings,
            live,
            started_ms: clock.moment().up_ms,
            clock,
            changes: Changes::default(),
            config: paths.config.clone(),
            socket: paths.socket.clone(),
            environments,
            credentials,
            self_sockets,
            budgets: Budgets::default(),
            catalog,
            pending_calls: PendingCalls::default(),
            unrecovered: Unrecovered::default(),
            to_recall: ToRecall::default(),
            warnings,
            workspaces,
            owners: Owners::default(),
            bodies,
            flows: Flows::default(),
            bodies_changed: Notify::new(),
            sight_changed: Notify::new(),
            collecting: tokio::sync::Mutex::default(),
            state: Mutex::new(state),
        });
        runtime.bodies.flow.connect(&runtime);
        runtime
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Published> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the directory of a process, whether or not it exists.
    #[must_use]
    pub fn directory(&self, uuid: Uuid) -> relive_journal::ProcessDirectory {
        self.data.directory(uuid)
    }

    /// Returns the end of the journal's records that are on the disk, while something may be written to it.
    #[must_use]
    pub fn synced_end(&self, uuid: Uuid) -> Option<u64> {
        self.owners.find(uuid)?.synced_end()
    }

    /// Returns a bell that rings when the files of a process may have changed.
    #[must_use]
    pub fn follow(&self, uuid: Uuid) -> tokio::sync::watch::Receiver<()> {
        self.changes.follow(uuid)
    }

    /// Returns the threads that may block.
    #[must_use]
    pub fn pools(&self) -> &Pools {
        &self.pools
    }

    /// Returns the connections that programs make to the sockets of their processes, once.
    #[must_use]
    pub fn self_connections(&self) -> Option<tokio::sync::mpsc::Receiver<SelfConnection>> {
        self.self_sockets.connections()
    }

    /// Tells the time of day.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Tells the time by both clocks.
    pub(crate) fn moment(&self) -> Moment {
        self.clock.moment()
    }

    /// Tells whether a process costs a task just now, for tests: a suspended one must not.
    #[doc(hidden)]
    #[must_use]
    pub fn has_owner(&self, uuid: Uuid) -> bool {
        self.owners.find(uuid).is_some()
    }

    /// Tells whether processes that have ended can be looked up: not while their index is being rebuilt.
    #[doc(hidden)]
    #[must_use]
    pub fn is_index_complete(&self) -> bool {
        self.catalog.is_complete()
    }

    /// Leaves the index no more room than this, for tests: a disk that is full.
    #[doc(hidden)]
    pub async fn limit_index_pages(&self, pages: u32) -> Result<()> {
        self.catalog.limit_pages(pages).await
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.lock().stopping
    }

    /// Says something that a person should know.
    pub fn warn(&self, text: String) {
        self.warnings.warn(text);
    }

    /// Says something that would be said again and again.
    pub(crate) fn warn_once(&self, text: String) {
        self.warnings.warn_once(text);
    }

    /// Runs a verb to its end, whether or not whoever asked for it stays.
    pub(crate) async fn to_the_end<T: Send + 'static>(
        self: &Arc<Self>,
        verb: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        #[cfg(feature = "faults")]
        if crate::faults::is_on("inline-verbs") {
            return Box::pin(verb).await;
        }
        match tokio::spawn(verb).await {
            Ok(answer) => answer,
            Err(error) => {
                Err(Error::new(relive_core::ErrorCode::Internal, format!("the request failed unexpectedly: {error}")))
            }
        }
    }

    /// Returns what a process runs.
    pub(crate) fn body_of(&self, pid: Pid) -> Option<&dyn Body> {
        let kind = self.lock().table.view(pid, self.moment())?.body;
        self.bodies.of(kind)
    }

    pub(crate) fn uuid_of(&self, pid: Pid) -> Option<Uuid> {
        self.lock().table.view(pid, self.moment()).map(|view| view.uuid)
    }

    /// Returns the living incarnation of a process.
    pub(crate) fn living(&self, uuid: Uuid) -> Option<ProcessRef> {
        Some(ProcessRef { of: self.machine_of(uuid)?.incarnation(), uuid })
    }

    /// Returns a process as the table has it, if it has not ended.
    pub(crate) fn machine_of(&self, uuid: Uuid) -> Option<Machine> {
        let state = self.lock();
        let pid = state.table.current_pid(uuid)?;
        state.table.machine(pid).filter(|machine| machine.end().is_none()).cloned()
    }

    /// Notes an event of another process, also if that has no body.
    pub(crate) fn tell(self: &Arc<Self>, pid: Pid, kind: &'static str, body: serde_json::Value) {
        let owner = self.lock().bodies.get(&pid).cloned();
        let owner = owner.or_else(|| self.uuid_of(pid).map(|uuid| self.owners.of(uuid)));
        if let Some(owner) = owner {
            self.emit(&owner, kind, body);
        }
    }

    /// Notes that a process stands still, why, and what a person can do about it.
    pub(crate) fn emit_paused(self: &Arc<Self>, owner: &Arc<Owner>, pid: Pid) {
        let (process, cause) = {
            let state = self.lock();
            let Some(view) = state.table.view(pid, self.moment()) else { return };
            (crate::view::of_view(&state, &view), view.paused_by)
        };
        let process = self.with_budget_hint(process);
        let mut event = serde_json::json!({"reason": process.suspend_reason, "resume_at": process.resume_at});
        if let Some(hint) = process.hint {
            event["hint"] = hint.into();
        }
        if let Some(cause) = cause {
            event["by"] = self.in_words_now(cause, None).into();
        }
        self.emit(owner, "paused", event);
    }

    /// Returns the environment of a process; an empty one if it is gone.
    pub(crate) fn environment_of(&self, uuid: Uuid) -> Environment {
        self.environments.of(uuid)
    }

    /// Tells whether a process had an environment, and has none left.
    pub(crate) async fn has_lost_environment(&self, uuid: Uuid) -> Result<bool> {
        if !self.environment_of(uuid).is_empty() {
            return Ok(false);
        }
        let (history, _) = self.on_journal(move |data| data.history(uuid)).await??;
        Ok(history.identity.is_some_and(|identity| !identity.spawned.env_names.is_empty()))
    }

    /// Opens a journal. One that is busy is so for a moment only: nobody else has this data directory, but a child that
    /// is just being spawned, also by a daemon that has just died, has a copy of every lock until it executes.
    pub(crate) async fn opened<T: Send + 'static, E: Into<Error> + Send + 'static>(
        &self,
        open: impl Fn(&DataDirectory) -> Result<T, OpenFailure<E>> + Clone + Send + 'static,
    ) -> Result<T> {
        let deadline = tokio::time::Instant::now() + BUSY_PATIENCE;
        loop {
            let job = open.clone();
            match self.on_journal(move |data| job(data)).await? {
                Err(OpenFailure::Write(WriteError::Busy { .. })) if tokio::time::Instant::now() < deadline => {
                    tokio::time::sleep(BUSY_AGAIN).await;
                }
                Ok(opened) => return Ok(opened),
                Err(OpenFailure::Write(error)) => return Err(error.into()),
                Err(OpenFailure::Refused(error)) => return Err(error.into()),
            }
        }
    }
}
