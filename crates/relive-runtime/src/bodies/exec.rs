//! Any program as a body: its session is launched or found, orders are passed on to it, and its end is reported.
//!
//! The session does not depend on the daemon, so nothing here is the program's to lose. A body that finds its session
//! alive adopts it; one that finds its exit record reports that. A program is launched only where its session's
//! directory shows that it never ran.

mod attend;
mod foreign;
mod messages;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use relive_core::program::{Inherited, Namespace, ResourceLimit, Stdio};
use relive_core::{Cause, End, KillSignal, Moment, ProcessStatus, Program, Signal, Uuid, Why};
use relive_journal::{DataDirectory, History, Pool, Seen};
use relive_session::exit::{EndedBy, ExitRecord};
use relive_session::launch::LaunchError;
use relive_session::sessions::{Ran, SessionStatus, Sessions};
use relive_session::spec::{self, Spec};
use relive_session::stage::SessionResult;
use relive_session::tree::Plan;
use rustix::io::Errno;

use attend::{Attended, Left, attend};

use super::{Body, Context, Exit, Hearing, LiveSession, OTHER_VERSION, Rest, Shim, Verb};
use crate::environment::Environments;
use crate::error::Result;
use crate::runtime::ProcessRef;
use crate::warnings::Warnings;

/// How often a program is launched if its shim is lost each time before the program runs.
const LAUNCHES_MAX: u32 = 5;
/// The delay before the second launch. It doubles with each further one.
const LAUNCH_AGAIN: Duration = Duration::from_millis(100);
/// How many processes and threads a program may have if nobody says.
const PIDS_DEFAULT: u32 = 4096;

/// Runs programs.
#[derive(Debug, Clone)]
pub(crate) struct ExecBody {
    pub(crate) data: Arc<DataDirectory>,
    pub(crate) pool: Pool,
    pub(crate) sessions: Arc<Sessions>,
    pub(crate) environments: Arc<Environments>,
    pub(crate) warnings: Warnings,
}

/// Why there is no session.
enum NoSession {
    /// It cannot be started.
    Failed(ProcessStatus),
    /// Nobody can tell whether it runs: it is left as it is.
    Unknown(io::Error),
    /// It runs, and nobody here can talk to its shim, which speaks another version of the protocol.
    Foreign { folder: PathBuf, program: Arc<Program>, error: io::Error },
    /// Its shim has gone before the program ran.
    ShimLost(LaunchError),
    /// It was to end before it was launched.
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
    folder: PathBuf,
    program: Arc<Program>,
}

/// What a program was created with.
struct Facts {
    program: Arc<Program>,
    cwd: String,
    /// Whether somebody is about to read its output as it comes.
    pace: spec::Pace,
    /// The session of the current run, if it was launched before.
    before: Option<PathBuf>,
    /// Where a session launched now would be.
    next: PathBuf,
}

impl Body for ExecBody {
    fn accepts(&self, verb: Verb) -> Result<()> {
        match verb {
            Verb::Gate | Verb::Fork => Ok(()),
        }
    }

    fn hears(&self, uuid: Uuid, when: Hearing) -> BoxFuture<'_, Result<()>> {
        self.check_message(uuid, when).boxed()
    }

    fn reads_journal(&self) -> bool {
        true
    }

    fn first_message(&self, _: &History) -> Option<&'static str> {
        None
    }

    fn run(&self, cx: Context) -> BoxFuture<'static, Exit> {
        let body = self.clone();
        async move { body.run_to_end(cx).await }.boxed()
    }

    fn settle(&self, process: ProcessRef, _: Rest) -> BoxFuture<'_, io::Result<()>> {
        // Its body never leaves a session that runs, so this is about the ends of runs that nobody attended.
        async move { self.sessions.end_all(&self.data.directory(process.uuid).sessions()).await }.boxed()
    }

    fn stays_when_suspended(&self) -> bool {
        true
    }

    fn last_seen(&self, uuid: Uuid, now: Moment) -> BoxFuture<'_, Option<Seen>> {
        async move {
            let before = self.facts(uuid).await.ok()?.before?;
            Some(match self.sessions.ran(&before).await.ok()?? {
                Ran::StillRuns => Seen { boot_id: self.sessions.boot_id().to_owned(), up_ms: now.up_ms },
                // A program can write what it likes into its directory, but not what is still to come.
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
                    Attended { sessions: &sessions, connection, folder, program }.pass_on(signal).await
                }
                Shim::OtherVersion => Some(OTHER_VERSION.to_owned()),
            };
            if let Some(refused) = refused {
                warnings.warn(format!("process {} did not get {signal}: {refused}", process.of.pid));
            }
        }
        .boxed()
    }
}

impl ExecBody {
    async fn run_to_end(&self, mut cx: Context) -> Exit {
        let mut launches = Launches::default();
        // Recorded by an earlier daemon, or carried out by us while we could talk to the shim.
        let mut paused = cx.orders.borrow().stop;
        loop {
            // Whoever asks waits until it is found again.
            cx.session.send_replace(None);
            let session = match self.session_of(&mut cx, &mut launches).await {
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
            let RunSession { status, folder, program } = session;
            let connection = match status {
                SessionStatus::Alive(connection) => connection,
                SessionStatus::Ended(record) => return Exit::Ended(attributed(end_of(&record), &record, &cx)),
                SessionStatus::NeverRan => return Exit::Cancelled,
            };
            let attended = Attended { sessions: &self.sessions, connection, folder, program };
            let messages = self.deliver(cx.process.uuid, cx.owner.clone(), Arc::clone(&cx.journal), &attended);
            match attend(&mut cx, &attended, messages).await {
                Left::Ended(record) => return Exit::Ended(attributed(end_of(&record), &record, &cx)),
                Left::Gone => {}
            }
            paused = cx.orders.borrow().stop;
        }
    }

    /// Finds the session of the current run, or launches it if it never ran.
    async fn session_of(&self, cx: &mut Context, launches: &mut Launches) -> Result<RunSession, NoSession> {
        let failed = |stage: &str, error: &io::Error| NoSession::Failed(startup_failed(stage, error));
        let uuid = cx.process.uuid;
        let facts = self.facts(uuid).await.map_err(NoSession::Unknown)?;
        let program = Arc::clone(&facts.program);
        if let Some(path) = &facts.before {
            match self.sessions.find(path).await {
                Ok(SessionStatus::NeverRan) => {}
                Ok(status @ (SessionStatus::Alive(_) | SessionStatus::Ended(_))) => {
                    return Ok(RunSession { status, folder: path.clone(), program });
                }
                Err(error) if error.kind() == io::ErrorKind::Unsupported => {
                    return Err(NoSession::Foreign { folder: path.clone(), program, error });
                }
                Err(error) => return Err(NoSession::Unknown(error)),
            }
        }
        if !may_launch(cx, launches.count).await {
            return Err(NoSession::NotNeeded);
        }
        if launches.count == LAUNCHES_MAX {
            return Err(NoSession::Failed(given_up(launches.lost.take())));
        }
        launches.count += 1;
        let ladder = self.sessions.ladder().await.map_err(|error| failed("ladder", &error))?;
        let deadline = cx.orders.borrow().deadline;
        let spec = self.spec_of(uuid, &facts, ladder.plan.clone()).await;
        let spec = spec.map(|spec| Spec { timeout_ms: deadline.map(attend::left_ms), ..spec });
        let spec = spec.map_err(|error| failed("environment", &error))?;
        match self.sessions.launch(&facts.next, &spec).await {
            Ok(connection) => {
                launches.lost = None;
                Ok(RunSession { status: SessionStatus::Alive(connection), folder: facts.next, program })
            }
            Err(error) => {
                cx.owner.warn(format!("{uuid} cannot be launched: {error}"));
                // The shim may have left a record that says more.
                match (self.sessions.find(&facts.next).await, &error) {
                    (Ok(status @ SessionStatus::Ended(_)), _) => Ok(RunSession { status, folder: facts.next, program }),
                    (Ok(SessionStatus::NeverRan), LaunchError::Answer { .. }) => Err(NoSession::ShimLost(error)),
                    (Ok(_) | Err(_), _) => Err(failed("launch", &io::Error::other(error))),
                }
            }
        }
    }

    async fn facts(&self, uuid: Uuid) -> io::Result<Facts> {
        let data = Arc::clone(&self.data);
        self.pool.run(move || facts(&data, uuid)).await.map_err(io::Error::other)?
    }

    async fn spec_of(&self, uuid: relive_core::Uuid, facts: &Facts, tree: Plan) -> io::Result<Spec> {
        let environment = self.environments.load(&self.pool, uuid).await?;
        let env = environment.variables().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
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
            limits: spec::Limits {
                memory: program.memory,
                cpu: program.cpu,
                unheld: if program.allow_degraded { spec::Unheld::Say } else { spec::Unheld::Fail },
                pids: Some(spec::PidsLimit {
                    max: program.pids.unwrap_or(PIDS_DEFAULT),
                    required: program.pids.is_some(),
                }),
            },
            pace: facts.pace,
            inherited: program.shell.as_ref().map(inherited),
            ..Spec::new(program.argv.clone(), env, facts.cwd.clone(), tree)
        })
    }
}

/// Waits until a program may be launched after so many launches; `false` if it is to end before that.
async fn may_launch(cx: &mut Context, launches: u32) -> bool {
    let wait = match launches {
        0 | LAUNCHES_MAX => Duration::ZERO,
        launches => LAUNCH_AGAIN * 2_u32.saturating_pow(launches - 1),
    };
    let told = cx.orders.wait_for(|orders| orders.end.is_some());
    tokio::time::timeout(wait, told).await.is_err()
}

fn inherited(shell: &Inherited) -> spec::Inherited {
    let limit =
        |limit: &ResourceLimit| spec::ResourceLimit { resource: limit.resource, soft: limit.soft, hard: limit.hard };
    spec::Inherited {
        umask: shell.umask,
        nice: shell.nice,
        limits: shell.limits.iter().map(limit).collect(),
        ignored: shell.ignored.iter().map(|number| i32::from(*number)).collect(),
    }
}

/// What the journal and the directory of sessions say of a program.
fn facts(data: &DataDirectory, uuid: relive_core::Uuid) -> io::Result<Facts> {
    let (history, _) = data.history(uuid)?;
    let sessions = data.directory(uuid).sessions();
    let untold = || io::Error::other("the journal does not say which program it is");
    let spawned = &history.identity.as_ref().ok_or_else(untold)?.spawned;
    let program = Arc::new(spawned.program.clone().ok_or_else(untold)?);
    // A session of an incarnation that ended is of an earlier run.
    let over = history.incarnations.iter().rev().find(|incarnation| incarnation.ended.is_some());
    let over = over.map_or(0, |incarnation| incarnation.generation.0);
    let before = relive_session::sessions::numbered(&sessions)?.into_iter().filter(|number| *number > over).max();
    // Whoever typed the command is there for its first run only.
    let first = history.incarnations.len() <= 1;
    let pace = if program.foreground && first { spec::Pace::Held } else { spec::Pace::Free };
    Ok(Facts {
        pace,
        program,
        cwd: spawned.cwd.clone(),
        before: before.map(|number| sessions.join(number.to_string())),
        next: sessions.join(history.epoch.0.to_string()),
    })
}

/// Returns how a program ended, from its session's record. Who asked for it is the owner's to know.
fn end_of(record: &ExitRecord) -> End {
    let status = match &record.result {
        SessionResult::Exited(code) => ProcessStatus::Exited { code: *code },
        SessionResult::Signaled(number) => os_killed(u8::try_from(*number).unwrap_or(0)),
        SessionResult::Aborted => {
            ProcessStatus::StartupFailed { stage: "gate".to_owned(), errno: "ECANCELED".to_owned(), code: 125 }
        }
        SessionResult::Error(_) if matches!(record.why, Some(EndedBy::ShimLost | EndedBy::HostLost)) => {
            ProcessStatus::Killed { signal: Signal::Kill.into() }
        }
        SessionResult::Error(failure) => ProcessStatus::StartupFailed {
            stage: failure.stage.clone(),
            errno: failure.errno.clone(),
            code: failure.code,
        },
    };
    let why = match record.why {
        Some(EndedBy::Oom) => Some(Why::Oom),
        Some(EndedBy::Abort) => Some(Why::Aborted),
        Some(EndedBy::ShimLost) => Some(Why::ShimLost),
        Some(EndedBy::HostLost) => Some(Why::HostLost),
        Some(EndedBy::Kill | EndedBy::Signal) | None if record.timed_out => Some(Why::Timeout),
        Some(EndedBy::Kill | EndedBy::Signal | EndedBy::Version) | None => None,
    };
    End { cause: why.map(Cause::runtime), ..End::of(status) }
}

/// Adds that a person ended the program: by a signal of the operating system's, which no order told of. SIGPIPE is sent by
/// the command whose reader is gone.
fn attributed(end: End, record: &ExitRecord, cx: &Context) -> End {
    const SIGPIPE: u8 = 13;
    let sent = record.why == Some(EndedBy::Signal) && end.status != os_killed(SIGPIPE);
    if sent && end.cause.is_none() && cx.orders.borrow().end.is_none() {
        return End { cause: Some(Cause::runtime(Why::User)), ..end };
    }
    end
}

fn os_killed(number: u8) -> ProcessStatus {
    ProcessStatus::Killed { signal: KillSignal::Os(number) }
}

/// Returns the status of a program whose last shim was lost before the program ran; with the reason, if the shim never
/// answered.
fn given_up(lost: Option<LaunchError>) -> ProcessStatus {
    let errno = lost.map_or_else(|| "ESRCH".to_owned(), |error| error.to_string());
    ProcessStatus::StartupFailed { stage: "shim".to_owned(), errno, code: Errno::SRCH.raw_os_error() }
}

fn startup_failed(stage: &str, error: &io::Error) -> ProcessStatus {
    let code = error.raw_os_error().unwrap_or(0);
    ProcessStatus::StartupFailed { stage: stage.to_owned(), errno: error.to_string(), code }
}

/// The directory of the last session of a process, if it had one.
pub(crate) fn last_session(sessions: &Path) -> io::Result<Option<PathBuf>> {
    let last = relive_session::sessions::numbered(sessions)?.into_iter().max();
    Ok(last.map(|number| sessions.join(number.to_string())))
}

#[cfg(test)]
mod tests {
    use relive_session::connection::AdoptError;

    use super::*;

    #[test]
    fn a_program_that_is_given_up_says_what_became_of_its_last_shim() {
        let check = |lost, expect: &str| {
            let status = given_up(lost);
            assert!(
                matches!(&status, ProcessStatus::StartupFailed { errno, code: 3, .. } if errno == expect),
                "{status:?}"
            );
        };
        let silent = LaunchError::Answer { program: "/bin/relive".into(), source: AdoptError::HungUp };
        check(Some(silent), "the shim /bin/relive does not answer as it should: the shim hung up before it greeted");
        check(None, "ESRCH");
    }
}
