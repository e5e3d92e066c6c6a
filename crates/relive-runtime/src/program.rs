//! A program's life: its session is launched or found, orders are passed on to it, and its end is recorded.
//!
//! The session goes on without us, so nothing here is the program's to lose. A body that finds its session alive adopts
//! it; one that finds its exit record reports that. A program is launched only where its folder shows that it never ran.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use relive_agent::{Journal, JournalError, Letter};
use relive_core::program::{Namespace, Stdio};
use relive_core::{Cause, End, KillSignal, Outcome, ProcessStatus, Program, Signal, SuspendReason, Why};
use relive_journal::record::{Body, Paused, Resumed, ResumedBy};
use relive_journal::{Durability, History, ProcInfo};
use relive_session::connection::Connection;
use relive_session::exit::{EndedBy, ExitRecord};
use relive_session::protocol::{self, Verb};
use relive_session::sessions::Standing;
use relive_session::spec::{self, Spec};
use relive_session::stage::{SessionResult, Stage};
use relive_session::tree::Rungs;

use crate::drive::Lines;
use crate::runtime::{Runtime, Who};

/// How much of a program's output is kept.
const LOG_MAX_BYTES: u64 = 64 << 20;
/// How many processes and threads a program may have if nobody says.
const PIDS_DEFAULT: u32 = 4096;

/// A session that answers.
#[derive(Debug, Clone)]
pub(crate) struct Live {
    pub(crate) connection: Connection,
    pub(crate) folder: PathBuf,
    pub(crate) rungs: Rungs,
}

/// Why a session is attended no more.
enum Left {
    /// It ended.
    Ended(ExitRecord),
    /// Its shim does not answer any more; the folder knows why.
    Gone,
    /// What happens to it cannot be recorded.
    Unrecorded(JournalError),
    /// Nobody gives orders any more: the daemon goes, and the session goes on.
    Dismissed,
}

/// Why there is no session.
enum NoSession {
    /// It cannot be started.
    Failed(ProcessStatus),
    /// Nobody can tell what became of it: it is left as it is.
    Unknown(std::io::Error),
}

/// What a program was begun with.
struct Facts {
    program: Program,
    cwd: String,
    /// The session of the current run, if it was launched before.
    before: Option<PathBuf>,
    /// Where a session launched now would be.
    next: PathBuf,
}

impl Runtime {
    /// Runs a program to its end.
    pub(crate) async fn run_program(self: &Arc<Self>, who: Who, mut journal: Journal, mut lines: Lines) {
        loop {
            let standing = match self.session_of(who, &journal, &lines).await {
                Ok(standing) => standing,
                Err(NoSession::Failed(status)) => {
                    return self.end(who, journal, Outcome::Ended(End::of(status))).await;
                }
                Err(NoSession::Unknown(error)) => {
                    self.warn(format!("the session of {} cannot be looked at: {error}", who.uuid));
                    drop(journal);
                    return self.suspend_unrecorded(who, SuspendReason::IoError);
                }
            };
            let (connection, folder) = match standing {
                (Standing::Alive(connection), folder) => (connection, folder),
                (Standing::Ended(record), _) => return self.end(who, journal, Outcome::Ended(end_of(&record))).await,
                (Standing::NeverRan, _) => return self.end(who, journal, Outcome::Cancelled).await,
            };
            match self.attend(who, &mut journal, &mut lines, connection, folder).await {
                Left::Ended(record) => return self.end(who, journal, Outcome::Ended(end_of(&record))).await,
                Left::Unrecorded(error) => return self.unrecorded(who, error, journal).await,
                Left::Dismissed => return,
                Left::Gone => {}
            }
        }
    }

    /// The session of the program's current run, launched if it never ran. `NeverRan` if it need not any more.
    async fn session_of(&self, who: Who, journal: &Journal, lines: &Lines) -> Result<(Standing, PathBuf), NoSession> {
        let failed = |stage: &str, error: &std::io::Error| NoSession::Failed(startup_failed(stage, error));
        let history = journal.history().cloned();
        let facts = self.on_disk(move |data| facts(&data.folder(who.uuid).sessions(), history.as_ref())).await;
        let facts = facts.map_err(std::io::Error::other).and_then(|facts| facts);
        let facts = facts.map_err(NoSession::Unknown)?;
        if let Some(path) = &facts.before {
            match self.sessions.find(path).await.map_err(NoSession::Unknown)? {
                Standing::NeverRan => {}
                standing @ (Standing::Alive(_) | Standing::Ended(_)) => return Ok((standing, path.clone())),
            }
        }
        if lines.orders.borrow().end.is_some() {
            return Ok((Standing::NeverRan, facts.next));
        }
        let ladder = self.sessions.ladder().await.map_err(|error| failed("ladder", &error))?;
        let spec =
            self.spec_of(who, &facts, ladder.plan.clone()).await.map_err(|error| failed("environment", &error))?;
        match self.sessions.launch(&facts.next, &spec).await {
            Ok(connection) => Ok((Standing::Alive(connection), facts.next)),
            Err(error) => {
                self.warn(format!("{} cannot be launched: {error}", who.uuid));
                // The shim may have left a record that says more.
                match self.sessions.find(&facts.next).await {
                    Ok(Standing::Ended(record)) => Ok((Standing::Ended(record), facts.next)),
                    Ok(_) | Err(_) => Err(failed("launch", &std::io::Error::other(error))),
                }
            }
        }
    }

    async fn spec_of(&self, who: Who, facts: &Facts, tree: relive_session::tree::Plan) -> std::io::Result<Spec> {
        let environment =
            self.environment_of(who.uuid).await.map_err(|error| std::io::Error::other(error.to_string()))?;
        let env = environment.variables().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        let program = &facts.program;
        Ok(Spec {
            argv: program.argv.clone(),
            env,
            cwd: facts.cwd.clone(),
            stdio: match program.stdio {
                Stdio::Null => spec::Stdio::Null,
                Stdio::Pipes => spec::Stdio::Pipes,
                Stdio::Pty { rows, columns } => spec::Stdio::Pty(spec::Size { rows, columns }),
            },
            gate: if program.gate { spec::Gate::Closed } else { spec::Gate::Open },
            namespace: match program.namespace {
                Namespace::Host => spec::Namespace::AsPlanned,
                Namespace::Pid => spec::Namespace::Pid,
                Namespace::PidWithoutInit => spec::Namespace::PidWithoutInit,
            },
            tree,
            limits: spec::Limits {
                memory: program.memory,
                pids: Some(spec::PidsLimit {
                    max: program.pids.unwrap_or(PIDS_DEFAULT),
                    required: program.pids.is_some(),
                }),
            },
            log_max_bytes: LOG_MAX_BYTES,
        })
    }

    /// Passes orders on to a session that answers, until it ends.
    async fn attend(
        self: &Arc<Self>,
        who: Who,
        journal: &mut Journal,
        lines: &mut Lines,
        connection: Connection,
        folder: PathBuf,
    ) -> Left {
        let rungs = match connection.request(Verb::Stat).await {
            Ok(protocol::Outcome::Stat(stat)) => stat.rungs,
            Ok(_) | Err(_) => Rungs::default(),
        };
        lines.session.send_replace(Some(Live { connection: connection.clone(), folder, rungs }));
        let mut seen = connection.seen();
        let mut told = None;
        let mut frozen = journal.history().is_some_and(|history| history.paused.is_some());
        loop {
            let orders = *lines.orders.borrow_and_update();
            let (ended, gone, stage) = {
                let seen = seen.borrow_and_update();
                (seen.ended.clone(), seen.gone, seen.snapshot.stage)
            };
            self.changes.ring(who.uuid);
            if let Some(record) = ended {
                return Left::Ended(record);
            }
            if gone {
                return Left::Gone;
            }
            if let Some(signal) = orders.end
                && told != Some(signal)
            {
                told = Some(signal);
                pass_on(&connection, signal).await;
            }
            let still = orders.stop.is_some() && orders.end.is_none();
            // One that waits at the gate stands still already; it is frozen as soon as it runs.
            if still != frozen && (!still || stage == Stage::Running || stage == Stage::Ready) {
                let done = if still {
                    self.freeze(who, journal, &connection, stage).await
                } else {
                    self.thaw(who, journal, &connection).await
                };
                match done {
                    Ok(()) => frozen = still,
                    Err(error) => return Left::Unrecorded(error),
                }
                continue;
            }
            let deadline = deadline(journal.history(), self.now()).filter(|_| !frozen && orders.end.is_none());
            let far = Duration::from_secs(365 * 24 * 3600);
            tokio::select! {
                changed = lines.orders.changed() => if changed.is_err() { return Left::Dismissed },
                _ = seen.changed() => {}
                letter = lines.inbox.recv() => match letter {
                    Some(letter) => self.take_letter(letter, journal).await,
                    None => return Left::Dismissed,
                },
                () = tokio::time::sleep(deadline.unwrap_or(far)), if deadline.is_some() => self.time_is_up(who),
            }
        }
    }

    /// Lets the tree stand still, and records that it does.
    async fn freeze(
        self: &Arc<Self>,
        who: Who,
        journal: &mut Journal,
        connection: &Connection,
        stage: Stage,
    ) -> Result<(), JournalError> {
        if stage == Stage::Running {
            match connection.request(Verb::Freeze).await {
                Ok(protocol::Outcome::Done) => {}
                // It has ended; that is seen next.
                Ok(protocol::Outcome::NoProcess) | Err(_) => return Ok(()),
                Ok(other) => {
                    self.warn(format!("{} cannot be frozen: {other:?}", who.uuid));
                    let mut state = self.lock();
                    if let Ok(reached) = state.table.resume(who.of.pid, self.now()) {
                        self.carry_out(&mut state, reached.effects);
                    }
                    return Ok(());
                }
            }
        }
        let now = self.now();
        let paused = self.lock().table.view(who.of.pid, now).and_then(|view| view.paused_at.zip(view.suspend_reason));
        let Some((asked_at, reason)) = paused else { return Ok(()) };
        let body = Body::Paused(Paused { reason, asked_at, resume_at: None });
        journal.append(now, vec![body], Durability::Synced).await?;
        journal.event(now, "paused", serde_json::json!({"reason": reason})).await;
        self.write_info(who, journal).await;
        let mut state = self.lock();
        let effects = state.table.boundary_reached(who.of).unwrap_or_default();
        self.carry_out(&mut state, effects);
        Ok(())
    }

    /// Lets the tree go on, having recorded that it does.
    async fn thaw(&self, who: Who, journal: &mut Journal, connection: &Connection) -> Result<(), JournalError> {
        let now = self.now();
        if journal.history().is_some_and(|history| history.paused.is_some()) {
            let by = ResumedBy::User;
            journal.append(now, vec![Body::Resumed(Resumed { by })], Durability::Synced).await?;
            journal.event(now, "resumed", serde_json::json!({"by": by})).await;
            self.write_info(who, journal).await;
        }
        // If it has gone, that is seen next.
        let _ = connection.request(Verb::Thaw).await;
        Ok(())
    }

    async fn write_info(&self, who: Who, journal: &Journal) {
        let Some(info) = journal.history().and_then(ProcInfo::of) else { return };
        let (disk, folder) = (self.data.io().disk.clone(), self.data.folder(who.uuid));
        let _ = self.pool.run(move || info.write(&disk, &folder)).await;
    }

    async fn take_letter(&self, letter: Letter, journal: &mut Journal) {
        match letter {
            Letter::Input { recorded, .. } => {
                let _ = recorded.send(Err("a program takes no messages: relive attach".to_owned()));
            }
            Letter::Event { kind, body } => journal.event(self.now(), kind, body).await,
        }
    }

    fn time_is_up(self: &Arc<Self>, who: Who) {
        let mut state = self.lock();
        let cause = Cause::kernel(Why::Timeout);
        if let Ok(reached) = state.table.signal(who.of.pid, Signal::Term, cause, self.now()) {
            self.carry_out(&mut state, reached.effects);
        }
    }
}

async fn pass_on(connection: &Connection, signal: Signal) {
    let verb = match signal {
        Signal::Term => Verb::Signal { number: rustix::process::Signal::TERM.as_raw() },
        Signal::Int => Verb::Signal { number: rustix::process::Signal::INT.as_raw() },
        Signal::Kill => Verb::Kill,
        Signal::Pause | Signal::Resume => return,
    };
    // One that has gone needs no signal.
    let _ = connection.request(verb).await;
}

/// How long it may still run.
fn deadline(history: Option<&History>, now: relive_core::Timestamp) -> Option<Duration> {
    let history = history?;
    let info = ProcInfo::of(history)?;
    let timeout = history.limits.timeout_ms?;
    Some(Duration::from_millis(timeout.saturating_sub(crate::drive::elapsed_ms(&info, now))))
}

/// What the journal and the folder of sessions say of a program.
fn facts(sessions: &Path, history: Option<&History>) -> std::io::Result<Facts> {
    let untold = || std::io::Error::other("the journal does not say what it is");
    let history = history.ok_or_else(untold)?;
    let spawned = &history.identity.as_ref().ok_or_else(untold)?.spawned;
    let program = spawned.program.clone().ok_or_else(untold)?;
    // A session of an incarnation that ended is of an earlier run.
    let over = history.incarnations.iter().rev().find(|incarnation| incarnation.ended.is_some());
    let over = over.map_or(0, |incarnation| incarnation.generation.0);
    let before = relive_session::sessions::numbered(sessions)?.into_iter().filter(|number| *number > over).max();
    Ok(Facts {
        program,
        cwd: spawned.cwd.clone(),
        before: before.map(|number| sessions.join(number.to_string())),
        next: sessions.join(history.epoch.0.to_string()),
    })
}

/// How a program ended, from its session's record. Who asked for it is the table's to know.
pub(crate) fn end_of(record: &ExitRecord) -> End {
    let status = match &record.result {
        SessionResult::Exited(code) => ProcessStatus::Exited { code: *code },
        SessionResult::Signaled(number) => {
            ProcessStatus::Killed { signal: KillSignal::Os(u8::try_from(*number).unwrap_or(0)) }
        }
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
        Some(EndedBy::Kill | EndedBy::Signal | EndedBy::Version) | None => None,
    };
    End { cause: why.map(Cause::kernel), ..End::of(status) }
}

fn startup_failed(stage: &str, error: &std::io::Error) -> ProcessStatus {
    let code = error.raw_os_error().unwrap_or(0);
    ProcessStatus::StartupFailed { stage: stage.to_owned(), errno: error.to_string(), code }
}
