//! The runtime: drives the process table, carries out its effects, and owns the bodies.
//!
//! One lock guards the table and the bodies. It is held for moments, never across an await, and nothing is read or
//! written under it: an effect that takes time becomes a task. What a client is told happened is on the disk first.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use relive_agent::{Letter, Orders};
use relive_api::{Environment, Paths};
use relive_core::{Incarnation, Pid, Timestamp, Uuid};
use relive_journal::{DataFolder, Pool, WriteError, Writer};
use tokio::sync::{Notify, Semaphore, mpsc, watch as channel};

use relive_session::sessions::Sessions;

use crate::clock::Clock;
use crate::environment::Environments;
use crate::error::Result;
use crate::settings::Settings;
use crate::watch::Changes;
use crate::{alarm, credentials, ledger, program, trees};

/// How long a journal that is busy is waited for, and how often it is tried.
pub(crate) const BUSY_PATIENCE: Duration = Duration::from_secs(2);
pub(crate) const BUSY_AGAIN: Duration = Duration::from_millis(5);
/// How many messages may wait for one agent.
pub(crate) const INBOX_MAX: usize = 64;

/// The runtime.
#[derive(Debug)]
pub struct Runtime {
    pub data: Arc<DataFolder>,
    pub pool: Pool,
    pub(crate) settings: Settings,
    pub(crate) clock: Clock,
    pub changes: Changes,
    /// Where `config.yaml` is, and beside it agents that can be run by name.
    pub(crate) config: PathBuf,
    /// What each process has of the one who typed its command.
    pub(crate) environments: Arc<Environments>,
    /// Programs run in these.
    pub(crate) sessions: Arc<Sessions>,
    /// How many commands for keys may run.
    pub(crate) key_commands: Semaphore,
    /// Told when a body has gone, and when the last one has.
    pub(crate) bodies_changed: Notify,
    pub(crate) state: Mutex<State>,
    pub(crate) ledger: ledger::Ledger,
    /// Those who open the journal of a process that has no body, or begin one, take turns.
    pub(crate) turns: Vec<tokio::sync::Mutex<()>>,
    /// One survey, and one collection, at a time: they share the files `clock` and `tombstones.jsonl`.
    pub(crate) collecting: tokio::sync::Mutex<()>,
}

#[derive(Debug)]
pub(crate) struct State {
    pub(crate) table: relive_core::Table,
    pub(crate) bodies: HashMap<Pid, BodyHandle>,
    /// Writers that wait for their body to be launched.
    pub(crate) ready: HashMap<Pid, Writer>,
    /// Suspended since before this daemon: their journal has not been opened under their PID.
    pub(crate) placeholders: HashSet<Pid>,
    /// Who of them was spawned by an agent.
    pub(crate) trees: trees::Trees,
    /// Those who wait for an end.
    pub(crate) waiting: HashMap<Pid, Arc<Notify>>,
    /// Those that are suspended until a moment.
    pub(crate) alarms: HashMap<Pid, alarm::Alarm>,
    pub(crate) warnings: Vec<String>,
    pub(crate) stopping: bool,
}

/// A body that runs.
#[derive(Debug)]
pub(crate) struct BodyHandle {
    pub(crate) orders: channel::Sender<Orders>,
    pub(crate) inbox: mpsc::Sender<Letter>,
    /// The session of a program, as soon as it answers.
    pub(crate) session: channel::Receiver<Option<program::Live>>,
}

/// The names of an incarnation that a task needs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Who {
    pub(crate) of: Incarnation,
    pub(crate) uuid: Uuid,
}

impl Runtime {
    pub fn new(
        data: Arc<DataFolder>,
        pool: Pool,
        settings: Settings,
        clock: Clock,
        last_pid: Pid,
        paths: &Paths,
    ) -> Arc<Self> {
        let table = relive_core::Table::new(settings.table, last_pid);
        let state = State {
            table,
            bodies: HashMap::new(),
            ready: HashMap::new(),
            placeholders: HashSet::new(),
            trees: trees::Trees::default(),
            waiting: HashMap::new(),
            alarms: HashMap::new(),
            warnings: Vec::new(),
            stopping: false,
        };
        let sessions = Sessions::new("/proc/self/exe".into(), clock.boot_id(), paths.short_name());
        Arc::new(Self {
            data,
            pool,
            settings,
            clock,
            changes: Changes::default(),
            config: paths.config.clone(),
            environments: Arc::new(Environments::next_to(&paths.socket)),
            sessions: Arc::new(sessions),
            key_commands: Semaphore::new(credentials::COMMANDS_MAX),
            bodies_changed: Notify::new(),
            state: Mutex::new(state),
            ledger: ledger::Ledger::default(),
            collecting: tokio::sync::Mutex::default(),
            turns: std::iter::repeat_with(tokio::sync::Mutex::default).take(64).collect(),
        })
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The turn of a process. Whoever has one asks for no other.
    pub(crate) fn turn(&self, uuid: Uuid) -> &tokio::sync::Mutex<()> {
        &self.turns[usize::from(uuid.as_bytes()[15]) % self.turns.len()]
    }

    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Something a person should know.
    pub(crate) fn warn(&self, text: String) {
        const WARNINGS_MAX: usize = 100;
        eprintln!("{} warning: {text}", self.now());
        let mut state = self.lock();
        if state.warnings.len() < WARNINGS_MAX {
            state.warnings.push(text);
        }
    }

    /// The same, for what would be said again and again.
    pub(crate) fn warn_once(&self, text: String) {
        let is_known = self.lock().warnings.contains(&text);
        if !is_known {
            self.warn(text);
        }
    }

    /// The environment of a process; an empty one if it is gone.
    pub(crate) async fn environment_of(&self, uuid: Uuid) -> Result<Environment> {
        let environments = Arc::clone(&self.environments);
        Ok(self.pool.run(move || environments.get(uuid)).await??.unwrap_or_default())
    }

    /// Opens a journal. One that is busy is so for a moment only: nobody else has this data folder, but a child that is
    /// just being spawned, also by a daemon that has just died, has a copy of every lock until it executes.
    pub(crate) async fn opened<T: Send + 'static>(
        &self,
        open: impl Fn(&DataFolder) -> Result<T, WriteError> + Clone + Send + 'static,
    ) -> Result<Result<T, WriteError>, relive_journal::JobLost> {
        let deadline = tokio::time::Instant::now() + BUSY_PATIENCE;
        loop {
            let job = open.clone();
            match self.on_disk(move |data| job(data)).await? {
                Err(WriteError::Busy { .. }) if tokio::time::Instant::now() < deadline => {
                    tokio::time::sleep(BUSY_AGAIN).await;
                }
                outcome => return Ok(outcome),
            }
        }
    }

    /// Does something with the data folder on a thread that may block.
    pub(crate) async fn on_disk<T: Send + 'static>(
        &self,
        job: impl FnOnce(&DataFolder) -> T + Send + 'static,
    ) -> Result<T, relive_journal::JobLost> {
        let data = Arc::clone(&self.data);
        self.pool.run(move || job(&data)).await
    }
}
