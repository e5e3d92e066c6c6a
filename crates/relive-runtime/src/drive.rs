//! A body's life: started, run, and its exit turned into a record.

mod release;

use std::sync::Arc;
use std::time::Duration;

use relive_agent::{Orders, Pulse};
use relive_core::{
    Cause, End, Event, Incarnation, Outcome, ProcessStatus, Signal, State, SuspendReason, Timestamp, Urgency, Usage,
    Why,
};
use relive_journal::conversation::Cut;
use relive_journal::history::Leave;
use relive_journal::journal::{Event as Noted, Pending};
use relive_journal::record::Body as Record;
use relive_journal::{Durability, History, Journal, JournalError, Next, ProcInfo, Standing, WriteError, Writer};
use tokio::sync::watch;

use crate::bodies::{AgentHost, Context, Exit, LiveSession, PreparedModel, Rest};
use crate::error::Error;
use crate::owner::{BodyHandle, Change, Lane, Owner, Turn};
use crate::records::Note;
use crate::runtime::{ProcessRef, Runtime};
use crate::signal::RETRY_EVERY;

/// How long an event may wait for a record to be written with.
const EVENTS_WITHIN: Duration = Duration::from_millis(50);

/// What follows when a body has exited.
enum Then {
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

    pub(crate) fn warn_once(&self, text: String) {
        self.runtime.warn_once(text);
    }

    /// Tells those who follow the process that something may have changed.
    pub(crate) fn ring(&self) {
        self.runtime.changes.ring(self.process.uuid);
    }

    pub(crate) fn host(&self) -> AgentHost {
        AgentHost { runtime: Arc::clone(&self.runtime), clock: self.runtime.clock.clone(), process: self.process }
    }

    /// Reports that the body is ready: the process runs from here on.
    pub(crate) async fn started(&self) {
        self.apply(Event::Start, |machine| machine.state() == State::Created).await;
        self.runtime.bodies_changed.notify_waiters();
    }

    /// Reports that the process stands still, while its body stays.
    pub(crate) async fn stands_still(&self) {
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
        let mut change = Change::of(machine, Note::default());
        if change.apply(event, &self.runtime).is_ok()
            && let Err(error) = turn.commit(change).await
        {
            self.runtime.warn(format!("{} cannot be recorded: {error}", self.process.uuid));
        }
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

/// A process's journal, through its owner.
#[derive(Debug)]
struct OwnedJournal(BodyOwner);

impl OwnedJournal {
    async fn turn(&self) -> Result<Turn, JournalError> {
        let turn = self.0.runtime.turn_with(Arc::clone(&self.0.owner), Lane::Own).await;
        // A body of an incarnation that is over has nothing to record any more.
        let is_current = |turn: &Turn| turn.machine().is_some_and(|machine| machine.incarnation() == self.0.process.of);
        turn.ok().filter(is_current).ok_or(JournalError::Held)
    }

    async fn with<T: Send + 'static>(
        &self,
        job: impl FnOnce(&mut Writer) -> T + Send + 'static,
    ) -> Result<T, JournalError> {
        let mut turn = self.turn().await?;
        let journal = turn.desk.journal.as_mut().ok_or(relive_journal::JobLost)?;
        Ok(journal.with(job).await?)
    }
}

impl Journal for OwnedJournal {
    fn append(&self, batch: Vec<Record>, durability: Durability) -> Pending<'_, Result<Standing, JournalError>> {
        Box::pin(async move { self.turn().await?.append(self.0.process, batch, durability).await })
    }

    fn standing(&self) -> Pending<'_, Result<Standing, JournalError>> {
        Box::pin(async move {
            let mut turn = self.turn().await?;
            let said = std::mem::take(&mut turn.desk.said);
            let journal = turn.desk.journal.as_ref().ok_or(relive_journal::JobLost)?;
            Ok(journal.standing(said)?)
        })
    }

    fn sync(&self) -> Pending<'_, Result<(), JournalError>> {
        Box::pin(async move { Ok(self.with(Writer::sync).await??) })
    }

    fn leave(&self, call: u32, tool: &str) -> Pending<'_, Result<Leave, JournalError>> {
        let tool = tool.to_owned();
        Box::pin(async move {
            let turn = self.turn().await?;
            let journal = turn.desk.journal.as_ref().ok_or(relive_journal::JobLost)?;
            Ok(journal.history()?.leave(call, &tool))
        })
    }

    fn conversation(&self) -> Pending<'_, Result<Vec<Record>, JournalError>> {
        Box::pin(async move {
            let mut turn = self.turn().await?;
            turn.desk.said.clear();
            turn.desk.journal.as_mut().ok_or(relive_journal::JobLost)?.conversation().await
        })
    }

    fn cuts(&self) -> Pending<'_, Result<Vec<Cut>, JournalError>> {
        Box::pin(async move { self.turn().await?.desk.journal.as_mut().ok_or(relive_journal::JobLost)?.cuts().await })
    }

    fn event(&self, kind: &'static str, body: serde_json::Value) {
        self.0.runtime.note(&self.0.owner, kind, body);
    }

    fn checkpoint(&self) -> Pending<'_, ()> {
        Box::pin(async move {
            let _ = self.with(|writer| writer.checkpoint()).await;
        })
    }
}

impl Turn {
    /// Appends records of the body. Nothing new begins once the process was told to stop or to end.
    async fn append(
        &mut self,
        process: ProcessRef,
        batch: Vec<Record>,
        durability: Durability,
    ) -> Result<Standing, JournalError> {
        let begins = batch.iter().any(|body| matches!(body, Record::CallStarted(_) | Record::ModelStarted(_)));
        {
            let state = self.runtime.lock();
            let machine = state.table.machine(process.of.pid).filter(|machine| machine.incarnation() == process.of);
            let told = machine.is_none_or(|machine| machine.pause().is_some() || machine.told_to_end().is_some());
            if begins && told {
                return Err(JournalError::Held);
            }
        }
        let (now, events) = (self.runtime.now(), self.owner.take_events());
        let said = std::mem::take(&mut self.desk.said);
        let journal = self.desk.journal.as_mut().ok_or(relive_journal::JobLost)?;
        journal.append(now, events, batch, durability).await?;
        let standing = journal.standing(said)?;
        self.runtime.progressed(process, journal.history()?);
        self.runtime.changes.ring(process.uuid);
        Ok(standing)
    }

    /// Starts the body of a process whose journal is open. Its orders can be given from now on.
    pub(crate) fn start_body(&mut self, of: Incarnation) {
        let process = ProcessRef { of, uuid: self.uuid() };
        if self.owner.has_body() || self.desk.journal.is_none() {
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
        self.owner.set_body(Some(BodyHandle { of, orders: orders.0, pulse: pulse.clone(), session: session.1 }));
        self.runtime.lock().bodies.insert(of.pid, Arc::clone(&self.owner));
        let driver = Driver {
            owner: BodyOwner { runtime: Arc::clone(&self.runtime), owner: Arc::clone(&self.owner), process },
            orders: orders.1,
            pulse,
            session: session.0,
        };
        tokio::spawn(driver.drive(self.desk.prepared.take()));
    }

    /// Puts the body down: nobody gives it orders any more.
    pub(crate) fn drop_body(&mut self) {
        self.owner.set_body(None);
        let mut state = self.runtime.lock();
        state.bodies.retain(|_, owner| !Arc::ptr_eq(owner, &self.owner));
        drop(state);
        self.runtime.bodies_changed.notify_waiters();
    }

    /// When the time of the process is up.
    pub(crate) fn deadline(&self) -> Option<tokio::time::Instant> {
        let history = self.desk.journal.as_ref()?.history().ok()?;
        let timeout = history.limits.timeout_ms?;
        let left = timeout.saturating_sub(elapsed_ms(&ProcInfo::of(history)?, self.runtime.now()));
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
    async fn drive(self, mut prepared: Option<PreparedModel>) {
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
                        prepared: prepared.take(),
                    };
                    // In a task of its own: a panic in one body ends that body, typed, and nothing else.
                    tokio::spawn(body.run(context)).await.unwrap_or(Exit::Panicked)
                }
                None => Exit::Unknown(std::io::Error::other("what it runs is not known here")),
            };
            owner.runtime.budgets.release(owner.process.uuid);
            match owner.runtime.conclude(&owner.owner, owner.process, exit).await {
                Then::Over => return,
                Then::Again => {}
            }
        }
    }
}

impl Runtime {
    /// Records why a body has exited, and makes it known.
    async fn conclude(self: &Arc<Self>, owner: &Arc<Owner>, process: ProcessRef, exit: Exit) -> Then {
        let ends = matches!(exit, Exit::Ended(_) | Exit::Cancelled | Exit::Panicked | Exit::Completed);
        if ends || self.is_told_to_end(process) {
            // What its tools started is gone before anybody hears that it is. Sessions may take their time, so this is
            // before the turn.
            self.settle(process, Rest::Ended).await;
        }
        let Ok(mut turn) = self.turn_with(Arc::clone(owner), Lane::Own).await else { return Then::Over };
        let Some(machine) = turn.machine().filter(|machine| machine.incarnation() == process.of) else {
            turn.drop_body();
            return Then::Over;
        };
        let mut change = Change::of(machine, Note::default());
        if change.draft().state() == State::Created {
            let _ = change.apply(Event::Start, self);
        }
        let (ending, paused) = (change.draft().told_to_end().is_some(), change.draft().pause().is_some());
        match exit {
            Exit::Unrecorded(error) => {
                let full = matches!(error, JournalError::Write(WriteError::DiskFull { .. }));
                turn.suspend_unrecorded(change, &error.to_string(), full).await
            }
            Exit::Unknown(error) => turn.suspend_unrecorded(change, &error.to_string(), false).await,
            Exit::Panicked => {
                // No text: its reason reads `unexpected exit`.
                let status = ProcessStatus::Faulted { fault: String::new() };
                turn.finish(change, Outcome::Ended(End::of(status))).await
            }
            Exit::Ended(end) => turn.finish(change, Outcome::Ended(end)).await,
            Exit::Cancelled if ending => turn.finish(change, Outcome::Cancelled).await,
            Exit::Stopped | Exit::Suspended { .. } if ending => {
                // Told to end since it was looked at: its sessions end first.
                drop(turn);
                self.finish_soon(process, Duration::ZERO);
                Then::Over
            }
            Exit::Completed if turn.has_more_to_do().await => Then::Again,
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
            Exit::Stopped | Exit::Completed => Then::Again,
            Exit::Suspended { reason, .. } if turn.is_answered(reason).await => Then::Again,
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
    pub(crate) async fn settle(&self, process: ProcessRef, how: Rest) {
        let Some(body) = self.body_of(process.of.pid) else { return };
        if let Err(error) = body.settle(process, how).await {
            self.warn(format!("a program of {} could not be stopped: {error}", process.uuid));
        }
    }

    /// Ends a process that was told to end and has no body.
    pub(crate) async fn finish_bodiless(self: &Arc<Self>, process: ProcessRef) {
        let owner = self.owners.of(process.uuid);
        self.conclude(&owner, process, Exit::Cancelled).await;
    }

    fn progressed(&self, process: ProcessRef, history: &History) {
        self.budgets.progressed(process.uuid, history);
        let _ = self.lock().table.progress(process.of, usage(history), self.now());
    }

    /// Keeps an event to be written with the next records, or soon.
    pub(crate) fn note(self: &Arc<Self>, owner: &Arc<Owner>, kind: &'static str, body: serde_json::Value) {
        owner.push_event(Noted { at: self.now(), kind, body });
        if !owner.claim_flush() {
            return;
        }
        let (runtime, owner) = (Arc::clone(self), Arc::clone(owner));
        tokio::spawn(async move {
            tokio::time::sleep(EVENTS_WITHIN).await;
            let Ok(mut turn) = runtime.turn_with(Arc::clone(&owner), Lane::Own).await else { return };
            owner.release_flush();
            let events = owner.take_events();
            if let Some(journal) = turn.desk.journal.as_mut().filter(|_| !events.is_empty()) {
                journal.write_events(events).await;
                runtime.changes.ring(owner.uuid);
            }
        });
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
            SuspendReason::InDoubt => history.open_calls().next().is_none(),
            SuspendReason::User
            | SuspendReason::BudgetExceeded
            | SuspendReason::DiskFull
            | SuspendReason::IoError
            | SuspendReason::CrashLoop
            | SuspendReason::Quota
            | SuspendReason::NeedsCredentials
            | SuspendReason::DaemonStop => false,
        });
        answered.await.unwrap_or(false)
    }

    /// The body stands at its boundary: records a pause of its own if it has one, and puts the journal down.
    async fn stop(&mut self, mut change: Change, own: Option<(SuspendReason, Option<Timestamp>)>) -> Then {
        let runtime = Arc::clone(&self.runtime);
        let mut alarm = None;
        if let Some((reason, resume_at)) = own
            && change.draft().pause().is_none()
        {
            change.note.resume_at = resume_at;
            if change.apply(Event::Suspend { reason, urgency: Urgency::Now }, &runtime).is_err() {
                return Then::Again;
            }
            alarm = resume_at;
        }
        let _ = change.apply(Event::BoundaryReached, &runtime);
        let of = change.draft().incarnation();
        let paused = change.draft().pause();
        // What the last step left unsynced is on the disk before the process is shown as suspended.
        if let Some(journal) = &mut self.desk.journal
            && let Err(error) = journal.with(Writer::sync).await.map_err(Error::from).and_then(|synced| Ok(synced?))
        {
            return self.suspend_unrecorded(change, &error.to_string(), error.is_disk_full()).await;
        }
        let before = change.before().clone();
        if let (Some(resume_at), Some((asked_at, _))) = (alarm, paused) {
            runtime.lock().set_alarm(of.pid, resume_at, asked_at);
        }
        match self.record(change).await {
            Ok(recorded) => {
                // Before it is shown as suspended: whoever sees that may look at the files.
                self.write_snapshot(of).await;
                if let Some((draft, effects)) = recorded {
                    self.publish(draft, effects);
                }
            }
            Err(error) => {
                runtime.lock().alarms.remove(&of.pid);
                let change = Change::of(before, Note::default());
                return self.suspend_unrecorded(change, &error.to_string(), error.is_disk_full()).await;
            }
        }
        let events = self.owner.take_events();
        if let Some(journal) = &mut self.desk.journal {
            journal.write_events(events).await;
        }
        self.drop_body();
        Then::Over
    }

    /// Writes events, checkpoint and snapshot of a process that stands still.
    async fn write_snapshot(&mut self, of: Incarnation) {
        let events = self.owner.take_events();
        let (runtime, uuid) = (Arc::clone(&self.runtime), self.uuid());
        let Some(journal) = &mut self.desk.journal else { return };
        if let Ok(history) = journal.history() {
            runtime.progressed(ProcessRef { of, uuid }, history);
        }
        journal.write_events(events).await;
        let (disk, folder) = (runtime.data.io().disk.clone(), runtime.data.folder(uuid));
        let _ = journal
            .with(move |writer| {
                let _ = writer.checkpoint();
                ProcInfo::of(writer.history()).map(|info| info.write(&disk, &folder))
            })
            .await;
        runtime.changes.ring(uuid);
    }

    /// What the body does cannot be recorded, so the process stands still; one that was told to end is ended later.
    async fn suspend_unrecorded(&mut self, mut change: Change, error: &str, full: bool) -> Then {
        let runtime = Arc::clone(&self.runtime);
        let process = ProcessRef { of: change.draft().incarnation(), uuid: self.uuid() };
        runtime.warn(format!("{} cannot record what it does: {error}", self.uuid()));
        if change.draft().told_to_end().is_some() {
            self.publish(change.draft().clone(), Vec::new());
            self.drop_body();
            runtime.finish_soon(process, RETRY_EVERY);
            return Then::Over;
        }
        if !full {
            self.suspend_silently(change, SuspendReason::IoError);
            return Then::Over;
        }
        runtime.disk_full().await;
        // The reserve has made room for this record; if not even that, the pause holds all the same.
        let suspend = Event::Suspend { reason: SuspendReason::DiskFull, urgency: Urgency::Now };
        let _ = change.apply(suspend, &runtime);
        let _ = change.apply(Event::BoundaryReached, &runtime);
        let draft = change.draft().clone();
        if self.commit(change).await.is_err() {
            self.publish(draft, Vec::new());
        }
        self.drop_body();
        Then::Over
    }

    /// Suspends a process in the table alone.
    fn suspend_silently(&mut self, mut change: Change, reason: SuspendReason) {
        let runtime = Arc::clone(&self.runtime);
        let _ = change.apply(Event::Suspend { reason, urgency: Urgency::Now }, &runtime);
        let _ = change.apply(Event::BoundaryReached, &runtime);
        self.publish(change.draft().clone(), Vec::new());
        self.drop_body();
    }
}

/// How long a process has run, pauses not counted.
pub(crate) fn elapsed_ms(info: &ProcInfo, now: Timestamp) -> u64 {
    let since = now.as_millisecond() - info.created_at.as_millisecond();
    u64::try_from(since).unwrap_or(0).saturating_sub(info.paused_total_ms)
}

/// What a process has used, as the table counts it.
pub(crate) fn usage(history: &History) -> Usage {
    Usage {
        step: history.completed_step,
        tokens_in: history.spent.tokens_in,
        tokens_out: history.spent.tokens_out,
        cost_usd: history.spent.cost_usd,
    }
}
