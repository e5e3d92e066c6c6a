//! A body's life: started, run, and its exit turned into a record.

mod ask;
mod journal;
pub(crate) mod release;
mod stop;

use std::sync::Arc;
use std::time::Duration;

use relive_agent::{Orders, Pulse};
use relive_core::{
    Body, Cause, End, Event, Generation, Incarnation, Outcome, Pid, ProcessStatus, Signal, State, SuspendReason,
    Urgency, Uuid, Why,
};
use relive_journal::{History, JournalError, Next, ProcInfo, WriteError, Writer};
use tokio::sync::watch;

use crate::bodies::{AgentHost, Context, Exit, LiveSession, Prepared, Rest};
use crate::owner::{BodyHandle, Change, Lane, Owner, Turn};
use crate::records::RecordDetails;
use crate::runtime::{ProcessRef, Runtime};
use crate::signal::SignalOrder;
use journal::OwnedJournal;

/// When a program that could not be stopped is tried again.
const SETTLE_AGAIN: Duration = Duration::from_secs(2);

pub(crate) use ask::Standing;
pub(crate) use journal::usage;

/// What follows when a body has exited.
enum AfterExit {
    Over,
    /// The reason to stop has gone: the body is run again.
    Again,
}

/// The owner of a process, as its body sees it.
#[derive(Debug, Clone)]
pub(crate) struct BodyOwner {
    runtime: Arc<Runtime>,
    owner: Arc<Owner>,
    process: ProcessRef,
}

impl BodyOwner {
    pub(crate) fn warn(&self, text: String) {
        self.runtime.warn(text);
    }

    /// Keeps what a provider said of the key, for whoever looks at the process.
    pub(crate) fn key_refused(&self, refusal: &str) {
        self.runtime.lock().refused_keys.insert(self.process.of.pid, refusal.to_owned());
    }

    pub(crate) fn warn_once(&self, text: String) {
        self.runtime.warn_once(text);
    }

    /// Returns why another process asks for something to happen to this one.
    pub(crate) fn why_of(&self, by: Pid) -> Why {
        self.runtime.why_of(by, self.process.uuid)
    }

    /// Takes its handle to another process out of the table, once that is recorded.
    pub(crate) async fn release_handle(&self, target: Uuid) {
        self.runtime.forget_handle(self.process, target).await;
    }

    /// Tells those who follow the process that something may have changed.
    pub(crate) fn ring(&self) {
        self.runtime.changes.ring(self.process.uuid);
    }

    /// Returns a bell that rings when the files of the process may have changed.
    pub(crate) fn follow(&self) -> watch::Receiver<()> {
        self.runtime.follow(self.process.uuid)
    }

    /// Returns the end of the journal's records that are on the disk.
    pub(crate) fn synced_end(&self) -> Option<u64> {
        self.owner.synced_end()
    }

    pub(crate) fn host(&self) -> AgentHost {
        AgentHost {
            runtime: Arc::clone(&self.runtime),
            clock: self.runtime.clock.clone(),
            process: self.process,
            socket: Arc::default(),
        }
    }

    /// Reports that the body is ready: the process runs from here on.
    pub(crate) async fn started(&self) {
        self.apply(Event::Start, |machine| machine.state() == State::Created).await;
        self.runtime.bodies_changed.notify_waiters();
        if self.process.of.generation == Generation(1) {
            // Nobody waits for the snapshot: it is written with what the body records first. Later incarnations have
            // one, which is older than their journal and so derived again by whoever reads it.
            self.owner.info_is_due();
            self.runtime.settle_soon(&self.owner);
        }
    }

    /// Looks at what the journal amounts to, in memory.
    pub(crate) async fn look<T>(&self, look: impl FnOnce(&History) -> T) -> Result<T, JournalError> {
        let turn = self.runtime.turn_with(Arc::clone(&self.owner), Lane::Own).await.map_err(|_| JournalError::Held)?;
        let journal = turn.state.journal.as_ref().ok_or(relive_journal::JobLost)?;
        Ok(look(journal.history()?))
    }

    /// Reports that the process stands still, while its body stays.
    pub(crate) async fn report_stopped(&self) {
        self.apply(Event::BoundaryReached, |machine| machine.pause().is_some()).await;
    }

    /// Ends a pause that cannot be carried out.
    pub(crate) async fn resume(&self) {
        let resume = Event::Signal {
            signal: Signal::Resume,
            cause: Cause::runtime(Why::User),
            urgency: Urgency::Boundary,
            aim: relive_core::Aim::Subtree,
        };
        self.apply(resume, |machine| machine.pause().is_some()).await;
    }

    async fn apply(&self, event: Event, wanted: impl FnOnce(&relive_core::Machine) -> bool) {
        let Ok(mut turn) = self.runtime.turn_with(Arc::clone(&self.owner), Lane::Own).await else { return };
        let machine = turn.machine().filter(|machine| machine.incarnation() == self.process.of && wanted(machine));
        let Some(machine) = machine else { return };
        let mut change = Change::of(machine, RecordDetails::default());
        if change.apply(event, &self.runtime).is_ok()
            && let Err(error) = turn.commit(change).await
        {
            self.runtime.warn(format!("{} cannot be recorded: {error}", self.process.uuid));
        }
    }

    /// Returns all CLI agents that have not ended.
    pub(crate) fn living_cli_agents(&self) -> Vec<Uuid> {
        let state = self.runtime.lock();
        let views = state.table.processes(self.runtime.moment());
        views.filter(|view| view.body == Body::Cli && view.dead_at.is_none()).map(|view| view.uuid).collect()
    }

    /// Has the process end by TERM like [`Self::end_for`], unless its history says that it is needed. No message comes
    /// between the look and the signal. Returns whether it ends.
    pub(crate) async fn end_unless(&self, why: Why, is_needed: impl FnOnce(&History) -> bool) -> bool {
        let Ok(mut turn) = self.runtime.turn_with(Arc::clone(&self.owner), Lane::Own).await else { return false };
        let is_current = turn.machine().is_some_and(|machine| machine.incarnation() == self.process.of);
        let looked = turn.state.journal.as_ref().and_then(|journal| journal.history().ok()).map(is_needed);
        if !is_current || looked != Some(false) {
            return false;
        }
        let sent = SignalOrder { cause: Cause::runtime(why), ..SignalOrder::new(Signal::Term, None) };
        let told = turn.deliver_with_subtree(&sent).await;
        told.inspect_err(|error| self.runtime.warn(format!("{} could not be ended: {error}", self.process.uuid)))
            .is_ok()
    }

    /// Has the process end by TERM, for a reason of the runtime's own.
    pub(crate) fn end_for(&self, why: Why) {
        let (runtime, uuid) = (Arc::clone(&self.runtime), self.process.uuid);
        tokio::spawn(async move {
            if let Err(error) = runtime.signal_one(uuid, Signal::Term, Cause::runtime(why)).await {
                runtime.warn(format!("{uuid} could not be ended: {error}"));
            }
        });
    }
}

impl Turn {
    /// Starts the body of a process whose journal is open. Its orders can be given from now on.
    pub(crate) fn start_body(&mut self, of: Incarnation) {
        let process = ProcessRef { of, uuid: self.uuid() };
        if self.owner.has_body() || self.state.journal.is_none() {
            return;
        }
        let Some(body) = self.runtime.body_of(of.pid) else { return };
        let Some(machine) = self.machine().filter(|machine| machine.incarnation() == of) else { return };
        let end = machine.told_to_end().map(|(signal, _)| signal);
        if end.is_some() && !body.stays_when_suspended() {
            // It ends without a body: see `Runtime::finish_bodiless`.
            return;
        }
        let stop = machine.pause().map(|_| machine.urgency().unwrap_or_default());
        let orders = watch::channel(Orders { stop, end, leave_sessions: false, deadline: self.deadline() });
        let (session, pulse) = (watch::channel(None), Pulse::default());
        self.owner.set_body(BodyHandle { of, orders: orders.0, pulse: pulse.clone(), session: session.1 });
        self.runtime.lock().bodies.insert(of.pid, Arc::clone(&self.owner));
        let driver = Driver {
            owner: BodyOwner { runtime: Arc::clone(&self.runtime), owner: Arc::clone(&self.owner), process },
            orders: orders.1,
            pulse,
            session: session.0,
        };
        tokio::spawn(driver.drive(std::mem::take(&mut self.state.prepared)));
        self.runtime.start_heartbeat();
    }

    /// Writes the snapshot of a process that runs. Nobody waits for it on the disk, or depends on it.
    async fn write_info(&mut self) {
        let (disk, directory) = (self.runtime.data.io().disk.clone(), self.runtime.data.directory(self.uuid()));
        let Some(journal) = &mut self.state.journal else { return };
        let write = move |writer: &mut Writer| {
            ProcInfo::of(writer.history()).map(|info| info.write_unsynced(&disk, &directory))
        };
        let _ = journal.with(write).await;
    }

    /// Puts the body of an incarnation down: nobody gives it orders any more. A later incarnation keeps its own.
    pub(crate) fn drop_body(&mut self, of: Incarnation) {
        if !self.owner.drop_body(of) {
            return;
        }
        self.runtime.lock().bodies.remove(&of.pid);
        self.runtime.bodies_changed.notify_waiters();
    }

    /// Returns when the time of the process is up, if it continues to run. There is no such moment while a pause is asked
    /// for, the process is at its gate, or the body waits for a place: its time stands still.
    pub(crate) fn deadline(&self) -> Option<tokio::time::Instant> {
        let machine = self.machine()?;
        if machine.pause().is_some() || machine.is_queued() || machine.stopwatch().is_held() {
            return None;
        }
        let history = self.state.journal.as_ref()?.history().ok()?;
        let timeout = history.limits.timeout_ms?;
        let elapsed = history.stopwatch().elapsed_ms(self.runtime.moment().up_ms);
        let left = timeout.saturating_sub(elapsed);
        Some(tokio::time::Instant::now() + Duration::from_millis(left))
    }
}

/// Runs a body until its process has ended or stands still.
struct Driver {
    owner: BodyOwner,
    orders: watch::Receiver<Orders>,
    pulse: Pulse,
    session: watch::Sender<Option<LiveSession>>,
}

impl Driver {
    async fn drive(self, mut prepared: Prepared) {
        let Self { owner, orders, pulse, session } = self;
        loop {
            let exit = match owner.runtime.body_of(owner.process.of.pid) {
                Some(body) => {
                    let context = Context {
                        process: owner.process,
                        journal: Arc::new(OwnedJournal(owner.clone())),
                        orders: orders.clone(),
                        pulse: pulse.clone(),
                        owner: owner.clone(),
                        session: session.clone(),
                        prepared: std::mem::take(&mut prepared),
                    };
                    // In a task of its own: a panic in one body ends that body, typed, and nothing else.
                    tokio::spawn(body.run(context)).await.unwrap_or(Exit::Panicked)
                }
                None => Exit::Unknown(std::io::Error::other(
                    "this version of Relive does not know the body of this process",
                )),
            };
            owner.runtime.budgets.release(owner.process.uuid);
            match owner.runtime.conclude(&owner.owner, owner.process, exit).await {
                AfterExit::Over => return,
                AfterExit::Again => {}
            }
        }
    }
}

impl Runtime {
    /// Records why a body has exited, and makes it known.
    async fn conclude(self: &Arc<Self>, owner: &Arc<Owner>, process: ProcessRef, exit: Exit) -> AfterExit {
        let ends = matches!(exit, Exit::Ended(_) | Exit::Cancelled | Exit::Panicked | Exit::Completed);
        let is_over = matches!(exit, Exit::Over(_));
        if ends || !is_over && self.is_told_to_end(process) {
            // What its tools started is gone before anybody hears that it is. Sessions may take their time, so this is
            // before the turn.
            let is_settled = self.settle(process, Rest::Ended).await;
            if is_settled.is_err() && matches!(exit, Exit::Cancelled) {
                // Nobody is told that it has ended while its program runs.
                self.finish_soon(process, SETTLE_AGAIN);
                return AfterExit::Over;
            }
        }
        let Ok(mut turn) = self.turn_with(Arc::clone(owner), Lane::Own).await else { return AfterExit::Over };
        let Some(machine) = turn.machine().filter(|machine| machine.incarnation() == process.of) else {
            turn.drop_body(process.of);
            return AfterExit::Over;
        };
        let exit = match (exit, turn.state.unrecorded.take()) {
            (Exit::Stopped | Exit::Suspended { .. } | Exit::Completed, Some(error)) => Exit::Unrecorded(error),
            (exit, _) => exit,
        };
        let mut change = Change::of(machine, RecordDetails::default());
        if change.draft().state() == State::Created {
            let _ = change.apply(Event::Start, self);
        }
        let (ending, paused) = (change.draft().told_to_end().is_some(), change.draft().pause().is_some());
        match exit {
            Exit::Unrecorded(error) => {
                let reason = match error {
                    JournalError::Write(WriteError::DiskFull { .. }) => SuspendReason::DiskFull,
                    JournalError::Write(_) | JournalError::Read(_) | JournalError::Lost(_) | JournalError::Held => {
                        SuspendReason::IoError
                    }
                };
                turn.suspend_unrecorded(change, &error.to_string(), reason).await
            }
            Exit::Unknown(error) => turn.suspend_unrecorded(change, &error.to_string(), SuspendReason::IoError).await,
            Exit::Panicked => {
                // No text: its reason reads `unexpected exit`.
                let status = ProcessStatus::Faulted { fault: String::new() };
                turn.finish(change, Outcome::Ended(End::of(status))).await
            }
            Exit::Ended(end) | Exit::Over(end) => turn.finish(change, Outcome::Ended(end)).await,
            Exit::Cancelled if ending => turn.finish(change, Outcome::Cancelled).await,
            Exit::Stopped | Exit::Suspended { .. } if ending => {
                // Told to end since it was looked at: its sessions end first.
                drop(turn);
                self.finish_soon(process, Duration::ZERO);
                AfterExit::Over
            }
            Exit::Completed if turn.has_more_to_do().await => AfterExit::Again,
            // Paused while it completed: it ends when it is resumed.
            Exit::Completed if !paused => {
                let status = ProcessStatus::Exited { code: 0 };
                turn.finish(change, Outcome::Ended(End::of(status))).await
            }
            Exit::Stopped | Exit::Cancelled | Exit::Completed if paused => turn.stop(change, None).await,
            Exit::Cancelled => {
                // A KILL that reached the body and could not be recorded.
                let cause = Cause::runtime(Why::User);
                let kill = Event::Signal {
                    signal: Signal::Kill,
                    cause,
                    urgency: Urgency::Now,
                    aim: relive_core::Aim::Subtree,
                };
                let _ = change.apply(kill, self);
                turn.finish(change, Outcome::Cancelled).await
            }
            // Resumed before it had stopped.
            Exit::Stopped | Exit::Completed => AfterExit::Again,
            Exit::Suspended { reason, .. } if turn.is_answered(reason).await => AfterExit::Again,
            Exit::Suspended { reason, resume_at } => turn.stop(change, Some((reason, resume_at))).await,
        }
    }

    fn is_told_to_end(&self, process: ProcessRef) -> bool {
        let state = self.lock();
        let machine = state.table.machine(process.of.pid).filter(|machine| machine.incarnation() == process.of);
        machine.is_some_and(|machine| machine.told_to_end().is_some())
    }

    /// Ends a process that was told to end and has no body, after a while.
    pub(crate) fn finish_soon(self: &Arc<Self>, process: ProcessRef, after: Duration) {
        let runtime = Arc::clone(self);
        tokio::spawn(async move {
            tokio::time::sleep(after).await;
            runtime.finish_bodiless(process).await;
        });
    }

    /// Stops or ends what outlives a body.
    pub(crate) async fn settle(&self, process: ProcessRef, how: Rest) -> std::io::Result<()> {
        let Some(body) = self.body_of(process.of.pid) else { return Ok(()) };
        body.settle(process, how).await.inspect_err(|error| {
            self.warn(format!("a program of {} could not be stopped: {error}", process.uuid));
        })
    }

    /// Ends a process that was told to end and has no body.
    pub(crate) async fn finish_bodiless(self: &Arc<Self>, process: ProcessRef) {
        let owner = self.owners.of(process.uuid);
        self.conclude(&owner, process, Exit::Cancelled).await;
    }
}

impl Turn {
    /// Tells whether something was said since a body found nothing to do.
    async fn has_more_to_do(&mut self) -> bool {
        self.look(|history| history.plan().next != Next::Input).await.unwrap_or(false)
    }

    /// Tells whether the person was quicker than the pause that waits for them.
    async fn is_answered(&mut self, reason: SuspendReason) -> bool {
        let answered = self.look(move |history| match reason {
            SuspendReason::Approval => history.question().is_none(),
            SuspendReason::Question => history.open_question().is_none(),
            SuspendReason::InDoubt => history.open_calls().next().is_none(),
            SuspendReason::User
            | SuspendReason::BudgetExceeded
            | SuspendReason::DiskFull
            | SuspendReason::IoError
            | SuspendReason::CrashLoop
            | SuspendReason::Quota
            | SuspendReason::NeedsCredentials
            | SuspendReason::DaemonStop
            | SuspendReason::Stalled => false,
        });
        answered.await.unwrap_or(false)
    }
}
