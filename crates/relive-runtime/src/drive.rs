//! One body's life: from its journal to the loop, and from the loop's end to the record of it.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use relive_agent::model::Model;
use relive_agent::tool::Context;
use relive_agent::{Agent, Exit, Journal, JournalError, Letter, Orders, Returned};
use relive_api::Environment;
use relive_core::status::MAX_STEPS_EXCEEDED;
use relive_core::{
    Cause, End, Incarnation, Limits, Outcome, ProcessStatus, Signal, SuspendReason, Timestamp, Urgency, Usage, Why,
};
use relive_journal::record::{Body, OnBudget, OpenedBy, Paused, Resumed, ResumedBy};
use relive_journal::{Durability, History, Opening, ProcInfo, ProcessMeta, WriteError, Writer};
use tokio::sync::{mpsc, watch};

use crate::credentials::{NoModel, provider_of};
use crate::host::RuntimeHost;
use crate::instructions::tool_names;
use crate::program::Live;
use crate::runtime::{BodyHandle, INBOX_MAX, Runtime, State, Who};

/// What a body is driven with.
pub(crate) struct Lines {
    pub(crate) orders: watch::Receiver<Orders>,
    pub(crate) inbox: mpsc::Receiver<Letter>,
    /// Where a program's session is made known.
    pub(crate) session: watch::Sender<Option<Live>>,
}

/// What an agent is made of.
struct Facts {
    cwd: String,
    on_budget: OnBudget,
    limits: Limits,
    info: ProcInfo,
    meta: ProcessMeta,
    model: Arc<dyn Model>,
}

impl Runtime {
    /// Starts the body's task. Its orders can be given from now on.
    pub(crate) fn launch(self: &Arc<Self>, state: &mut State, of: Incarnation) {
        let Some(uuid) = self.uuid_of(state, of.pid) else { return };
        // A program that was found suspended has a body all the same.
        let paused = state.table.view(of.pid, self.now()).is_some_and(|view| view.paused);
        let stop = paused.then_some(Urgency::Boundary);
        let (orders, orders_of) = watch::channel(Orders { stop, ..Orders::default() });
        let (inbox, inbox_of) = mpsc::channel(INBOX_MAX);
        let (session, session_of) = watch::channel(None);
        state.bodies.insert(of.pid, BodyHandle { orders, inbox, session: session_of });
        let ready = state.ready.remove(&of.pid);
        let lines = Lines { orders: orders_of, inbox: inbox_of, session };
        let is_placeholder = state.placeholders.remove(&of.pid);
        tokio::spawn(Arc::clone(self).drive(Who { of, uuid }, ready, is_placeholder, lines));
    }

    async fn drive(self: Arc<Self>, who: Who, ready: Option<Writer>, is_placeholder: bool, lines: Lines) {
        let writer = match ready {
            Some(writer) => Ok(writer),
            None => {
                let _turn = self.turn(who.uuid).lock().await;
                self.writer(who, is_placeholder).await
            }
        };
        match writer {
            Ok(writer) if is_program(writer.history()) => {
                let journal = self.journal(who.uuid, writer);
                if AssertUnwindSafe(self.run_program(who, journal, lines)).catch_unwind().await.is_err() {
                    self.panicked(who).await;
                }
            }
            Ok(writer) => self.run_body(who, writer, lines).await,
            Err(error) => {
                self.warn(format!("{} cannot go on: {error}", who.uuid));
                if is_placeholder {
                    self.lock().placeholders.insert(who.of.pid);
                }
                self.suspend_unrecorded(who, SuspendReason::IoError);
            }
        }
    }

    /// The writer of a process that is in the table and has no body.
    pub(crate) async fn writer(&self, who: Who, is_placeholder: bool) -> Result<Writer, JournalError> {
        let opening = Opening { pid: who.of.pid, by: OpenedBy::Resume, boot_id: self.clock.boot_id(), at: self.now() };
        let opened = self.opened(move |data| {
            if is_placeholder {
                data.open_writer(who.uuid, &opening)
            } else {
                data.take_up(who.uuid, who.of.generation)
            }
        });
        Ok(opened.await??)
    }

    /// The same, for whoever does not know whether the PID has been recorded. It stays so if that fails.
    pub(crate) async fn writer_of_suspended(&self, who: Who) -> Result<Writer, JournalError> {
        let is_placeholder = self.lock().placeholders.contains(&who.of.pid);
        let writer = self.writer(who, is_placeholder).await?;
        self.lock().placeholders.remove(&who.of.pid);
        Ok(writer)
    }

    pub(crate) fn journal(&self, uuid: relive_core::Uuid, writer: Writer) -> Journal {
        let changes = self.changes.clone();
        Journal::new(writer, self.pool.clone(), Arc::new(move || changes.ring(uuid)))
    }

    async fn run_body(self: &Arc<Self>, who: Who, writer: Writer, mut lines: Lines) {
        let mut journal = self.journal(who.uuid, writer);
        let session = lines.session.clone();
        loop {
            let resumed = journal.history().and_then(|history| history.paused.as_ref()).is_some();
            if resumed && let Err(error) = self.record_resumed(&mut journal).await {
                return self.unrecorded(who, error, journal).await;
            }
            let facts = match self.facts(who, &journal).await {
                Ok(facts) => facts,
                Err(NoModel::Wrong(fault)) => {
                    return self.end(who, journal, Outcome::Ended(End::of(ProcessStatus::Faulted { fault }))).await;
                }
                Err(NoModel::NeedsKey { message, hint: _ }) => {
                    self.warn_once(format!("{} waits for credentials: {message}", who.uuid));
                    let reason = Some(SuspendReason::NeedsCredentials);
                    match self.stop_at_boundary(who, journal, reason, None).await {
                        None => return,
                        Some(again) if self.is_ending(who) => return self.end(who, again, Outcome::Cancelled).await,
                        Some(again) => journal = again,
                    }
                    continue;
                }
            };
            let agent = self.agent(who, facts, journal, lines);
            let returned = AssertUnwindSafe(agent.run()).catch_unwind().await;
            self.ledger.release(who.uuid);
            let Ok(returned) = returned else { return self.panicked(who).await };
            let Returned { exit, journal: its_journal, orders, inbox } = returned;
            match self.conclude(who, exit, its_journal).await {
                None => return,
                // Told to end while it was being suspended.
                Some(again) if self.is_ending(who) => return self.end(who, again, Outcome::Cancelled).await,
                // The pause was over before it was recorded: the body goes on.
                Some(again) => (journal, lines) = (again, Lines { orders, inbox, session: session.clone() }),
            }
        }
    }

    async fn record_resumed(&self, journal: &mut Journal) -> Result<(), JournalError> {
        let now = self.now();
        let paused = journal.history().and_then(|history| history.paused.as_ref());
        let by = match paused.map(|paused| (paused.reason, paused.resume_at)) {
            Some((SuspendReason::DaemonStop, _)) => ResumedBy::DaemonStart,
            Some((SuspendReason::Quota, Some(resume_at))) if resume_at <= now => ResumedBy::Timer,
            _ => ResumedBy::User,
        };
        journal.append(now, vec![Body::Resumed(Resumed { by })], Durability::Synced).await?;
        journal.event(now, "resumed", serde_json::json!({"by": by})).await;
        Ok(())
    }

    /// What an agent is made of, its journal apart.
    async fn facts(&self, who: Who, journal: &Journal) -> Result<Facts, NoModel> {
        let known = journal.history().and_then(|history| {
            let spawned = &history.identity.as_ref()?.spawned;
            Some((spawned.cwd.clone(), spawned.on_budget, history.limits, ProcInfo::of(history)?))
        });
        let unknown = || NoModel::Wrong("the journal does not say what it is".to_owned());
        let (cwd, on_budget, limits, info) = known.ok_or_else(unknown)?;
        let wrong = |error: &dyn std::fmt::Display| NoModel::Wrong(error.to_string());
        let folder = self.data.folder(who.uuid);
        let meta = self.pool.run(move || ProcessMeta::read(&folder)).await.map_err(|error| wrong(&error))?;
        let meta = meta.map_err(|error| wrong(&error))?;
        let environment = match provider_of(&meta.model) {
            Some(_) => self.environment_of(who.uuid).await.map_err(|error| NoModel::Wrong(error.to_string()))?,
            None => Environment::default(),
        };
        let model = self.model(&meta.model, cwd.as_ref(), who.uuid, &environment).await?;
        Ok(Facts { cwd, on_budget, limits, info, meta, model })
    }

    fn agent(self: &Arc<Self>, who: Who, facts: Facts, journal: Journal, lines: Lines) -> Agent {
        let Facts { cwd, on_budget, limits, info, meta, model } = facts;
        let spent_ms = elapsed_ms(&info, self.now());
        let deadline = limits
            .timeout_ms
            .map(|timeout| tokio::time::Instant::now() + Duration::from_millis(timeout.saturating_sub(spent_ms)));
        let host = Arc::new(RuntimeHost::new(self, who));
        // Those it was given at its start, whatever there is now.
        let given = tool_names(&meta.tools);
        let mut tools = relive_agent::tools::all();
        tools.retain(|tool| given.iter().any(|name| name == tool.name()));
        Agent {
            journal,
            meta,
            model,
            tools,
            context: Context {
                uuid: who.uuid,
                cwd: cwd.into(),
                host: host.clone(),
                pool: self.pool.clone(),
                sessions: Arc::clone(&self.sessions),
                folder: self.data.folder(who.uuid).sessions(),
            },
            orders: lines.orders,
            inbox: lines.inbox,
            watcher: host,
            cadence: self.settings.cadence,
            deadline,
            suspend_on_budget: on_budget == OnBudget::Suspend,
            git_notes: self.settings.git_notes,
        }
    }

    fn is_ending(&self, who: Who) -> bool {
        self.lock().table.view(who.of.pid, self.now()).is_some_and(|view| view.ending.is_some())
    }

    /// The loop has come to its end: says so, on the disk first. `Some` if it was only to stop, and need not any more.
    async fn conclude(self: &Arc<Self>, who: Who, exit: Exit, journal: Journal) -> Option<Journal> {
        let ended = |status| Outcome::Ended(End::of(status));
        let killed = |signal: Signal, why| {
            Outcome::Ended(End {
                cause: Some(Cause::kernel(why)),
                ..End::of(ProcessStatus::Killed { signal: signal.into() })
            })
        };
        let outcome = match exit {
            Exit::Completed => ended(ProcessStatus::Exited { code: 0 }),
            Exit::Faulted(fault) => ended(ProcessStatus::Faulted { fault }),
            Exit::MaxSteps => ended(ProcessStatus::Faulted { fault: MAX_STEPS_EXCEEDED.to_owned() }),
            Exit::Cancelled => Outcome::Cancelled,
            Exit::TimedOut => killed(Signal::Term, Why::Timeout),
            Exit::OverBudget => killed(Signal::Term, Why::Budget),
            Exit::SuspendedBudget => {
                return self.stop_at_boundary(who, journal, Some(SuspendReason::BudgetExceeded), None).await;
            }
            Exit::Approval => {
                return self.stop_at_boundary(who, journal, Some(SuspendReason::Approval), None).await;
            }
            Exit::Quota { resume_at } => {
                return self.stop_at_boundary(who, journal, Some(SuspendReason::Quota), Some(resume_at)).await;
            }
            Exit::NeedsCredentials => {
                return self.stop_at_boundary(who, journal, Some(SuspendReason::NeedsCredentials), None).await;
            }
            Exit::InDoubt => return self.stop_at_boundary(who, journal, Some(SuspendReason::InDoubt), None).await,
            Exit::Stopped => return self.stop_at_boundary(who, journal, None, None).await,
            Exit::Unrecorded(error) => {
                self.unrecorded(who, error, journal).await;
                return None;
            }
        };
        self.end(who, journal, outcome).await;
        None
    }

    /// Records the end, then makes it known.
    pub(crate) async fn end(self: &Arc<Self>, who: Who, mut journal: Journal, outcome: Outcome) {
        let pid = who.of.pid;
        // What its tools began is gone before anybody hears that it is.
        if let Err(error) = self.sessions.end_all(&self.data.folder(who.uuid).sessions()).await {
            self.warn(format!("a program of {} could not be ended: {error}", who.uuid));
        }
        // Not matched on directly: the lock would be held while the refusal is told.
        let end = self.lock().table.end_of(pid, outcome);
        let end = match end {
            Ok(end) => end,
            Err(refusal) => return self.warn(format!("the end of {} was refused: {refusal}", who.uuid)),
        };
        let now = self.now();
        let exit = end.exit();
        let event = serde_json::json!({"code": exit.code, "reason": exit.reason});
        let recorded = journal.append(now, vec![Body::Ended(end.clone())], Durability::Synced).await;
        if let Err(error) = recorded {
            return self.unrecorded(who, error, journal).await;
        }
        journal.event(now, "ended", event).await;
        // While the journal is still held: once the end is known the process may be resumed, and its marker is the next
        // incarnation's.
        let history = journal.history().cloned();
        self.retire(who, history.clone()).await;
        drop(journal);
        {
            let mut state = self.lock();
            if let Some(history) = &history {
                let _ = state.table.progress(who.of, usage(history), now);
            }
            match state.table.terminate(pid, Outcome::Recorded(end), now) {
                Ok(effects) => self.carry_out(&mut state, effects),
                Err(refusal) => eprintln!("the end of {} was refused: {refusal}", who.uuid),
            }
        }
        self.changes.ring(who.uuid);
    }

    async fn retire(&self, who: Who, history: Option<History>) {
        let Some(history) = history else { return };
        let retired = self.on_disk(move |data| {
            // Nobody depends on it.
            let _ = data.write_profile(who.uuid);
            data.retire(who.uuid, &history)
        });
        let retired = retired.await;
        // The journal says it; the next start does the rest.
        if let Ok(Err(error)) = retired {
            self.warn(format!("the snapshot of {} could not be written: {error}", who.uuid));
        }
    }

    /// The body stands at its boundary: records the pause, and puts the journal down. `Some` if the pause is over
    /// already. With a reason of the runtime's own, the pause begins here, and ends by itself at `resume_at`.
    pub(crate) async fn stop_at_boundary(
        self: &Arc<Self>,
        who: Who,
        mut journal: Journal,
        own_reason: Option<SuspendReason>,
        resume_at: Option<Timestamp>,
    ) -> Option<Journal> {
        let pid = who.of.pid;
        let now = self.now();
        let paused = {
            let mut state = self.lock();
            if let Some(reason) = own_reason
                && let Ok(reached) = state.table.suspend(pid, reason, Urgency::Now, now)
            {
                self.carry_out(&mut state, reached.effects);
            }
            let view = state.table.view(pid, now)?;
            let hint = crate::query::hint(&view);
            view.paused_at.zip(view.suspend_reason).map(|(asked_at, reason)| (asked_at, reason, hint))
        };
        let Some((asked_at, reason, hint)) = paused else { return Some(journal) };
        // Paused by somebody else in the same moment, it waits for them.
        let resume_at = resume_at.filter(|_| own_reason == Some(reason));
        let body = Body::Paused(Paused { reason, asked_at, resume_at });
        if let Err(error) = journal.append(now, vec![body], Durability::Synced).await {
            self.unrecorded(who, error, journal).await;
            return None;
        }
        let mut event = serde_json::json!({"reason": reason, "resume_at": resume_at});
        if let Some(hint) = hint {
            event["hint"] = hint.into();
        }
        journal.event(now, "paused", event).await;
        journal.checkpoint().await;
        if let Some(info) = journal.history().and_then(ProcInfo::of) {
            let disk = self.data.io().disk.clone();
            let folder = self.data.folder(who.uuid);
            let _ = self.pool.run(move || info.write(&disk, &folder)).await;
        }
        let mut state = self.lock();
        if let Some(history) = journal.history() {
            // The last result of a step may have been recorded with the pause.
            let _ = state.table.progress(who.of, usage(history), now);
        }
        let effects = state.table.boundary_reached(who.of).unwrap_or_default();
        self.carry_out(&mut state, effects);
        let still = state.table.view(pid, now).is_some_and(|view| view.paused && view.ending.is_none());
        if still {
            if let Some(resume_at) = resume_at {
                state.set_alarm(pid, resume_at, asked_at);
            }
            // Before anybody can find it without a body: whoever resumes it wants the journal.
            drop(journal);
            state.bodies.remove(&pid);
            self.bodies_changed.notify_waiters();
            return None;
        }
        Some(journal)
    }

    /// It could not record what it does, so it stands still.
    pub(crate) async fn unrecorded(self: &Arc<Self>, who: Who, error: JournalError, journal: Journal) {
        self.warn(format!("{} cannot record what it does: {error}", who.uuid));
        let full = matches!(error, JournalError::Write(WriteError::DiskFull { .. }));
        if !full {
            drop(journal);
            return self.suspend_unrecorded(who, SuspendReason::IoError);
        }
        self.disk_full().await;
        // The reserve has made room for this record; if not even that, the pause holds all the same.
        let mut journal = journal;
        let now = self.now();
        let body = Body::Paused(Paused { reason: SuspendReason::DiskFull, asked_at: now, resume_at: None });
        let _ = journal.append(now, vec![body], Durability::Synced).await;
        drop(journal);
        self.suspend_unrecorded(who, SuspendReason::DiskFull);
    }

    /// Stops everything: nothing goes on unrecorded.
    async fn disk_full(self: &Arc<Self>) {
        let _ = self.on_disk(|data| data.release_reserve()).await;
        let mut state = self.lock();
        let now = self.now();
        let running: Vec<_> = state.bodies.keys().copied().collect();
        for pid in running {
            if let Ok(reached) = state.table.suspend(pid, SuspendReason::DiskFull, Urgency::Boundary, now) {
                self.carry_out(&mut state, reached.effects);
            }
        }
    }

    /// Suspends it in the table alone.
    pub(crate) fn suspend_unrecorded(self: &Arc<Self>, who: Who, reason: SuspendReason) {
        let mut state = self.lock();
        let now = self.now();
        if let Ok(reached) = state.table.suspend(who.of.pid, reason, Urgency::Now, now) {
            self.carry_out(&mut state, reached.effects);
        }
        let effects = state.table.boundary_reached(who.of).unwrap_or_default();
        self.carry_out(&mut state, effects);
        state.bodies.remove(&who.of.pid);
        self.bodies_changed.notify_waiters();
    }

    /// A panic in one body ends that body, typed, and nothing else.
    async fn panicked(self: &Arc<Self>, who: Who) {
        match self.writer(who, false).await {
            Ok(writer) => {
                let journal = self.journal(who.uuid, writer);
                let fault = "the agent panicked".to_owned();
                self.end(who, journal, Outcome::Ended(End::of(ProcessStatus::Faulted { fault }))).await;
            }
            Err(error) => {
                self.warn(format!("{} panicked and its journal cannot be opened: {error}", who.uuid));
                self.suspend_unrecorded(who, SuspendReason::IoError);
            }
        }
    }

    /// Ends a process that has no body: one that is suspended.
    pub(crate) async fn finish(self: Arc<Self>, who: Who) {
        let _turn = self.turn(who.uuid).lock().await;
        match self.writer_of_suspended(who).await {
            Ok(writer) => {
                let journal = self.journal(who.uuid, writer);
                self.end(who, journal, Outcome::Cancelled).await;
            }
            Err(error) => {
                self.warn(format!("{} was ended and its journal cannot say so: {error}", who.uuid));
                let mut state = self.lock();
                if let Ok(effects) = state.table.terminate(who.of.pid, Outcome::Cancelled, self.now()) {
                    self.carry_out(&mut state, effects);
                }
            }
        }
    }
}

pub(crate) fn is_program(history: &History) -> bool {
    history.identity.as_ref().is_some_and(|identity| identity.spawned.program.is_some())
}

/// How long it has run, pauses not counted.
pub(crate) fn elapsed_ms(info: &ProcInfo, now: relive_core::Timestamp) -> u64 {
    let since = now.as_millisecond() - info.created_at.as_millisecond();
    u64::try_from(since).unwrap_or(0).saturating_sub(info.paused_total_ms)
}

/// What a history has used, as the table counts it.
pub(crate) fn usage(history: &History) -> Usage {
    Usage {
        step: history.completed_step,
        tokens_in: history.spent.tokens_in,
        tokens_out: history.spent.tokens_out,
        cost_usd: history.spent.cost_usd,
    }
}
