//! Any program as a body: launches or finds its session, passes orders on to it, and reports its end.
//!
//! The session does not depend on the daemon, so a crash here does not affect the program. A body that finds its
//! session alive adopts it; one that finds its exit record reports that. A program is launched only if its session's
//! directory shows that it never ran.

mod attend;
mod ends;
mod facts;
mod foreign;
mod messages;
mod tenant;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use relive_agent::Orders;
use relive_agent::requests::Requests;
use relive_core::program::{Inherited, Namespace, ResourceLimit, Stdio};
use relive_core::{End, Moment, ProcessStatus, Program, Signal, Uuid};
use relive_journal::{DataDirectory, History, Pool, Seen, Writer};
use relive_proxy::{Answers, Unknown};
use relive_session::launch::LaunchError;
use relive_session::proc::Identity;
use relive_session::sessions::{Ran, SessionStatus, Sessions};
use relive_session::spec::{self, Spec};
use relive_session::tree::Ladder;
use tokio::sync::watch;

use attend::{Beginning, Left, attend};
use ends::{attributed, end_of, given_up, startup_failed};
use facts::Trace;
pub(crate) use facts::{ProgramFacts, last_session};

pub(in crate::bodies) use attend::Attended;
pub(crate) use attend::left_ms;
pub(in crate::bodies) use tenant::{AfterSession, Tenant};

use super::{Body, Context, DeliveryTime, Exit, LiveSession, OTHER_VERSION, Prepared, Rest, Shim, Verb};
use crate::environment::Environments;
use crate::error::Result;
use crate::isolation::Isolations;
use crate::runtime::ProcessRef;
use crate::self_socket::{SelfSocket, SelfSockets};
use crate::warnings::Warnings;

/// How often a program is launched if its shim is lost each time before the program runs.
const LAUNCHES_MAX: u32 = 5;
/// The delay before the second launch. It doubles with each further one.
const LAUNCH_AGAIN: Duration = Duration::from_millis(100);
/// The default limit of processes and threads of a program.
const PIDS_DEFAULT: u32 = 4096;

/// Runs programs.
#[derive(Debug, Clone)]
pub(crate) struct ExecBody {
    pub(crate) isolations: Isolations,
    pub(crate) data: Arc<DataDirectory>,
    pub(crate) pool: Pool,
    pub(crate) sessions: Arc<Sessions>,
    pub(crate) environments: Arc<Environments>,
    pub(crate) self_sockets: Arc<SelfSockets>,
    pub(crate) warnings: Warnings,
}

/// The reason why there is no session.
enum NoSession {
    Failed(ProcessStatus),
    /// It is unknown whether it runs: it is not touched.
    Unknown(io::Error),
    /// It runs, but its shim has another version of the protocol.
    Foreign {
        folder: PathBuf,
        program: Arc<Program>,
        error: io::Error,
    },
    /// Its shim was gone before the program ran.
    ShimLost(LaunchError),
    /// It had to end before it was launched.
    NotNeeded,
}

/// The launches of a run whose shims were lost before the program ran.
#[derive(Default)]
struct Launches {
    count: u32,
    /// Why the last one failed, if its shim never answered.
    lost: Option<LaunchError>,
}

/// The session of the current run.
struct RunSession {
    status: SessionStatus,
    beginning: Beginning,
    folder: PathBuf,
    program: Arc<Program>,
}

impl Body for ExecBody {
    fn accepts(&self, verb: Verb) -> Result<()> {
        match verb {
            Verb::Gate | Verb::Fork => Ok(()),
        }
    }

    fn accepts_message(&self, uuid: Uuid, when: DeliveryTime) -> BoxFuture<'_, Result<()>> {
        self.check_message(uuid, when).boxed()
    }

    fn reads_journal(&self) -> bool {
        true
    }

    fn first_message(&self, _: &History) -> Option<&'static str> {
        None
    }

    fn read_ahead(&self, journal: &mut Writer) -> Prepared {
        let facts = ProgramFacts::of(&self.data, journal.history(), self.sessions.boot_id());
        // Of what cannot be read the body itself says why.
        Prepared { program: facts.ok(), ..Prepared::default() }
    }

    fn run(&self, cx: Context) -> BoxFuture<'static, Exit> {
        let body = self.clone();
        async move {
            let tenant = tenant::Program::of(&body, &cx);
            body.run_to_end(cx, &tenant).await
        }
        .boxed()
    }

    fn settle(&self, process: ProcessRef, _: Rest) -> BoxFuture<'_, io::Result<()>> {
        // Its body never leaves a running session, so this handles the ends of runs without a body.
        async move { self.sessions.end_all(&self.data.directory(process.uuid).sessions()).await }.boxed()
    }

    fn stays_when_suspended(&self) -> bool {
        true
    }

    /// Its session may run although it could not be found.
    fn ends_others_first(&self) -> bool {
        true
    }

    fn last_seen(&self, uuid: Uuid, now: Moment) -> BoxFuture<'_, Option<Seen>> {
        async move {
            let before = self.facts(uuid).await.ok()?.before?;
            Some(match self.sessions.ran(&before).await.ok()?? {
                Ran::StillRuns => Seen { boot_id: self.sessions.boot_id().to_owned(), up_ms: now.up_ms },
                // A program can write anything into its directory, but not a time in the future.
                Ran::Until { boot_id, up_ms } if boot_id == self.sessions.boot_id() => {
                    Seen { boot_id, up_ms: up_ms.min(now.up_ms) }
                }
                Ran::Until { boot_id, up_ms } => Seen { boot_id, up_ms },
            })
        }
        .boxed()
    }

    fn stops_with_daemon(&self) -> bool {
        false
    }

    fn message_for(&self, _: Signal) -> Option<&'static str> {
        None
    }

    /// A program's handlers are its own: it gets the operating system's signal.
    fn pass_on(&self, signal: Signal, session: LiveSession) -> BoxFuture<'static, ()> {
        let (sessions, warnings) = (Arc::clone(&self.sessions), self.warnings.clone());
        async move {
            let LiveSession { process, program, folder, shim } = session;
            let refused = match shim {
                Shim::Answers { connection, rungs: _ } => {
                    Attended { sessions: &sessions, beginning: Beginning::Found, connection, folder, program }
                        .pass_on(signal)
                        .await
                }
                Shim::OtherVersion => Some(OTHER_VERSION.to_owned()),
            };
            if let Some(refused) = refused {
                warnings.warn(format!("PID {} did not get {signal}: {refused}", process.of.pid));
            }
        }
        .boxed()
    }
}

impl ExecBody {
    /// Runs a program in a session until it has ended.
    pub(in crate::bodies) async fn run_to_end(&self, mut cx: Context, tenant: &dyn Tenant) -> Exit {
        let mut launches = Launches::default();
        // Recorded by an earlier daemon, or carried out while the shim could be reached.
        let mut paused = cx.orders.borrow().stop;
        let mut socket = None;
        loop {
            // Callers wait until it is found again.
            cx.session.send_replace(None);
            let session = match self.session_of(&mut cx, &mut launches, &mut socket, tenant).await {
                Ok(found) => found,
                Err(NoSession::ShimLost(error)) => {
                    cx.owner.warn(format!("{} did not run, its shim was lost: {error}", cx.process.uuid));
                    launches.lost = Some(error);
                    continue;
                }
                Err(NoSession::Failed(status)) => return Exit::Ended(End::of(status)),
                Err(NoSession::Unknown(error)) => return Exit::Unknown(error),
                Err(NoSession::Foreign { folder, program, error }) => {
                    cx.owner.warn_once(format!("{} is left running: {error}", cx.process.uuid));
                    let live = LiveSession { process: cx.process, program, folder, shim: Shim::OtherVersion };
                    match foreign::stay_with(&mut cx, &self.sessions, live, paused).await {
                        Ok(()) => continue,
                        Err(error) => return Exit::Unknown(error),
                    }
                }
                Err(NoSession::NotNeeded) => return Exit::Cancelled,
            };
            let RunSession { status, beginning, folder, program } = session;
            let mut requests = Requests::of(Some(Arc::clone(&cx.journal)), &folder, Answers::default()).await;
            let connection = match status {
                SessionStatus::Alive(connection) => connection,
                SessionStatus::Ended(record) => {
                    requests.show().await;
                    let end = attributed(end_of(&record), &record, &cx);
                    match tenant.ended(&folder, end).await {
                        AfterSession::Over(end) => return Exit::Ended(end),
                        AfterSession::Again => self.clear_for_next(&cx, &mut launches).await,
                    }
                    continue;
                }
                SessionStatus::NeverRan => return Exit::Cancelled,
            };
            let attended = Attended { sessions: &self.sessions, beginning, connection, folder, program };
            // A program has nobody who could be asked, so its requests are only shown.
            let beside = async { drop(tokio::join!(tenant.accompany(&attended), requests.next_question())) };
            let left = attend(&mut cx, &attended, tenant, beside).await;
            requests.show().await;
            match left {
                Left::Ended(record) => {
                    let end = attributed(end_of(&record), &record, &cx);
                    match tenant.ended(&attended.folder, end).await {
                        AfterSession::Over(end) => return Exit::Over(end),
                        AfterSession::Again => self.clear_for_next(&cx, &mut launches).await,
                    }
                }
                Left::Gone => tenant.lost().await,
            }
            paused = cx.orders.borrow().stop;
        }
    }

    /// Ends what a program that crashed has left running, before the next one is launched.
    async fn clear_for_next(&self, cx: &Context, launches: &mut Launches) {
        *launches = Launches::default();
        let sessions = self.data.directory(cx.process.uuid).sessions();
        if let Err(error) = self.sessions.end_all(&sessions).await {
            cx.owner.warn(format!("a program of {} could not be stopped: {error}", cx.process.uuid));
        }
    }

    /// Finds the session of the current run, or launches it if it never ran.
    async fn session_of(
        &self,
        cx: &mut Context,
        launches: &mut Launches,
        socket: &mut Option<SelfSocket>,
        tenant: &dyn Tenant,
    ) -> Result<RunSession, NoSession> {
        let failed = |stage: &str, error: &io::Error| NoSession::Failed(startup_failed(stage, error));
        let uuid = cx.process.uuid;
        let facts = match cx.prepared.program.take() {
            Some(facts) => facts,
            None => self.facts(uuid).await.map_err(NoSession::Unknown)?,
        };
        *socket = socket.take().or_else(|| cx.prepared.socket.take());
        if socket.is_none() {
            let opened = self.self_sockets.open(uuid, facts.program.enter.as_ref().map(|entered| entered.uuid));
            let warn = |error: &io::Error| {
                cx.owner.warn_once(format!("the programs of {uuid} have no socket of their own: {error}"));
            };
            *socket = opened.inspect_err(warn).ok();
        }
        let (program, beginning) = (Arc::clone(&facts.program), Beginning::Found);
        if let Some(found) = self.found(cx, &facts, launches).await? {
            return Ok(found);
        }
        if !may_launch(&mut cx.orders, launches.count).await || !tenant.admit(cx).await {
            return Err(NoSession::NotNeeded);
        }
        if launches.count == LAUNCHES_MAX {
            return Err(NoSession::Failed(given_up(launches.lost.take())));
        }
        launches.count += 1;
        let lost = match facts.trace {
            Trace::None => None,
            Trace::OtherBoot => Some(relive_session::sessions::host_lost()),
            Trace::Removed => Some(relive_session::sessions::shim_lost()),
        };
        if let Some(record) = lost {
            return Ok(RunSession { status: SessionStatus::Ended(record), beginning, folder: facts.next, program });
        }
        let ladder = self.sessions.ladder().await.map_err(|error| failed("ladder", &error))?;
        let spec = self.spec_of(uuid, &facts, ladder, socket.as_ref()).await;
        let spec = spec.map_err(|error| failed("environment", &error))?;
        let spec = tenant.prepare(spec).await.map_err(|error| failed("prepare", &error))?;
        if cx.orders.borrow().end.is_some() {
            // Told while it was prepared.
            return Err(NoSession::NotNeeded);
        }
        let deadline = cx.orders.borrow().deadline;
        let spec = Spec { timeout_ms: deadline.map(attend::left_ms), ..spec };
        match self.sessions.launch(&facts.next, &spec).await {
            Ok(connection) => {
                launches.lost = None;
                let (status, beginning) = (SessionStatus::Alive(connection), Beginning::Launched { deadline });
                Ok(RunSession { status, beginning, folder: facts.next, program })
            }
            Err(error) => {
                cx.owner.warn(format!("{uuid} cannot be launched: {error}"));
                // Its directory decides whether it never ran: a shim that was slow to answer may run it, or may have.
                match (self.found_in(cx, &facts.next, &facts).await?, error) {
                    (Some(found), _) => Ok(found),
                    (None, error @ LaunchError::Answer { .. }) => Err(NoSession::ShimLost(error)),
                    (None, error) => Err(failed("launch", &io::Error::other(error))),
                }
            }
        }
    }

    /// Finds the session of the current run, if it was launched.
    async fn found(
        &self,
        cx: &Context,
        facts: &ProgramFacts,
        launches: &Launches,
    ) -> Result<Option<RunSession>, NoSession> {
        let mut found = None;
        if let Some(path) = &facts.before {
            found = self.found_in(cx, path, facts).await?;
        }
        let is_alive = |found: &RunSession| matches!(found.status, SessionStatus::Alive(_));
        if found.as_ref().is_some_and(is_alive) || !(facts.is_recovered || launches.count > 0) {
            return Ok(found);
        }
        // The program can remove its session's directory, and create others.
        let sessions = facts.next.parent().unwrap_or(&facts.next);
        for path in self.sessions.running_in(sessions).await.map_err(NoSession::Unknown)? {
            if let Some(running) = self.found_in(cx, &path, facts).await? {
                return Ok(Some(running));
            }
        }
        Ok(found)
    }

    async fn found_in(&self, cx: &Context, path: &Path, facts: &ProgramFacts) -> Result<Option<RunSession>, NoSession> {
        let (folder, program) = (path.to_owned(), Arc::clone(&facts.program));
        let mut orders = cx.orders.clone();
        let found = tokio::select! {
            biased;
            found = self.sessions.find(path) => found,
            // A kill does not wait for a shim that is long in answering.
            _ = killed(&mut orders) => match self.sessions.end_without_shim(path).await {
                Ok(()) => self.sessions.find(path).await,
                Err(error) => Err(error),
            },
        };
        match found {
            Ok(SessionStatus::NeverRan) => Ok(None),
            Ok(status @ (SessionStatus::Alive(_) | SessionStatus::Ended(_))) => {
                Ok(Some(RunSession { status, beginning: Beginning::Found, folder, program }))
            }
            Err(error) if error.kind() == io::ErrorKind::Unsupported => {
                Err(NoSession::Foreign { folder, program, error })
            }
            Err(error) => Err(NoSession::Unknown(error)),
        }
    }

    /// Returns the program of a process, as its journal names it.
    pub(in crate::bodies) async fn program_of(&self, uuid: Uuid) -> io::Result<Arc<Program>> {
        Ok(self.facts(uuid).await?.program)
    }

    async fn facts(&self, uuid: Uuid) -> io::Result<ProgramFacts> {
        let (data, boot_id) = (Arc::clone(&self.data), self.sessions.boot_id().to_owned());
        self.pool.run(move || ProgramFacts::read(&data, uuid, &boot_id)).await.map_err(io::Error::other)?
    }

    async fn spec_of(
        &self,
        uuid: relive_core::Uuid,
        facts: &ProgramFacts,
        ladder: &Ladder,
        socket: Option<&SelfSocket>,
    ) -> io::Result<Spec> {
        let environment = self.environments.of(uuid);
        let env = environment.variables().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        let env = self.self_sockets.added_to(env, socket);
        let program = &facts.program;
        Ok(Spec {
            stdio: match program.stdio {
                Stdio::Null => spec::Stdio::Null,
                Stdio::Pipes => spec::Stdio::Pipes,
                Stdio::Pty { rows, columns } => spec::Stdio::Pty(spec::Size { rows, columns }),
            },
            streams: if program.one_output { spec::Streams::Together } else { spec::Streams::Apart },
            gate: if program.gate { spec::Gate::Closed } else { spec::Gate::Open },
            namespace: match program.namespace {
                Namespace::Host => spec::Namespace::AsPlanned,
                Namespace::Pid => spec::Namespace::Pid,
                Namespace::PidWithoutInit => spec::Namespace::PidWithoutInit,
            },
            isolation: spec::Isolation {
                policy: self.isolations.policy(uuid, &facts.isolated),
                machine: ladder.isolation.clone(),
            },
            proxy: crate::isolation::proxy(&facts.isolated, Unknown::Refuse),
            enter: program.enter.as_ref().map(|enter| spec::Enter {
                program: Identity { pid: enter.host_pid, start_time: enter.start_time },
                namespaces: crate::isolation::namespaces(&enter.namespaces),
            }),
            limits: limits(program),
            pace: facts.pace,
            inherited: program.shell.as_ref().map(inherited),
            names: facts.names,
            ..Spec::new(program.argv.clone(), env, facts.cwd.clone(), ladder.plan.clone())
        })
    }
}

/// Waits until a program has to be killed, and has been for longer than a shim that answers needs.
async fn killed(orders: &mut watch::Receiver<Orders>) {
    /// Usually its shim is found meanwhile, and tells how the program ended.
    const PATIENCE: Duration = Duration::from_secs(1);
    if orders.wait_for(|orders| orders.end == Some(Signal::Kill)).await.is_err() {
        // Nobody tells any more.
        std::future::pending::<()>().await;
    }
    tokio::time::sleep(PATIENCE).await;
}

/// Waits until a program may be launched after this many launches; `false` if it has to end before that.
async fn may_launch(orders: &mut watch::Receiver<Orders>, launches: u32) -> bool {
    let told = orders.wait_for(|orders| orders.end.is_some());
    match launches {
        // Without a timer: even one that is due at once waits for the next millisecond.
        0 | LAUNCHES_MAX => told.now_or_never().is_none(),
        launches => {
            let wait = LAUNCH_AGAIN * 2_u32.saturating_pow(launches - 1);
            tokio::time::timeout(wait, told).await.is_err()
        }
    }
}

/// Returns the limits of a program. One that enters a session has the limits of that.
fn limits(program: &Program) -> spec::Limits {
    if program.enter.is_some() {
        return spec::Limits::default();
    }
    spec::Limits {
        memory: program.resources.memory,
        cpu: program.resources.cpu,
        unheld: if program.resources.allow_degraded { spec::Unheld::Say } else { spec::Unheld::Fail },
        pids: Some(spec::PidsLimit {
            max: program.resources.pids.unwrap_or(PIDS_DEFAULT),
            required: program.resources.pids.is_some(),
        }),
    }
}

/// Returns the settings of a shell for a session.
pub(in crate::bodies) fn inherited(shell: &Inherited) -> spec::Inherited {
    let limit =
        |limit: &ResourceLimit| spec::ResourceLimit { resource: limit.resource, soft: limit.soft, hard: limit.hard };
    spec::Inherited {
        umask: shell.umask,
        nice: shell.nice,
        limits: shell.limits.iter().map(limit).collect(),
        ignored: shell.ignored.iter().map(|number| i32::from(*number)).collect(),
        cpus: shell.cpus.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_first_launch_waits_for_nothing_and_an_order_to_end_prevents_it() {
        for launches in [0, LAUNCHES_MAX] {
            let (sender, mut orders) = watch::channel(Orders::default());
            assert_eq!(may_launch(&mut orders, launches).now_or_never(), Some(true));
            sender.send_modify(|orders| orders.end = Some(Signal::Term));
            assert_eq!(may_launch(&mut orders, launches).now_or_never(), Some(false));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn each_further_launch_waits_twice_as_long() {
        let (_sender, mut orders) = watch::channel(Orders::default());
        for (launches, wait) in [(1, LAUNCH_AGAIN), (2, LAUNCH_AGAIN * 2), (3, LAUNCH_AGAIN * 4)] {
            let begun = tokio::time::Instant::now();
            assert!(may_launch(&mut orders, launches).await);
            assert!(begun.elapsed() >= wait, "{launches}: {:?}", begun.elapsed());
        }
    }
}
