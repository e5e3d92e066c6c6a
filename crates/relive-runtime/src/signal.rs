//! Signals and pauses of one process and of a subtree.
//!
//! Each process is one turn with its own owner; `subtree` walks a subtree.

pub(crate) mod earlier;
mod handled;
mod mask;

use std::sync::Arc;
use std::time::Duration;

use relive_api::{Affected, KeptPause, PauseRequest, SignalRequest};
use relive_core::{
    Aim, Cause, ErrorCode, Event, Holder, Incarnation, Pid, Rights, Signal, SignalSet, State, Urgency, Uuid, Why,
};
use relive_journal::record::ResumedBy;

use crate::error::{Error, Result};
use crate::flows::DueStop;
use crate::lookup::LookedUp;
use crate::owner::{Change, Lane, Turn};
use crate::records::RecordDetails;
use crate::runtime::{ProcessRef, Runtime};
use crate::signal::earlier::Resend;

/// How long a KILL waits for its turn before it acts without one.
pub(crate) const KILL_WITHIN: Duration = Duration::from_secs(1);

/// How long a pause waits for programs to be frozen, and for what it interrupts, before it answers,
const STOPPED_WITHIN: Duration = Duration::from_secs(1);
/// and how often it looks.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// How often a grace looks whether the program can use it.
const FROZEN_AGAIN: Duration = Duration::from_secs(1);

/// How often recording is retried.
pub(crate) const RETRY_EVERY: Duration = Duration::from_secs(5);

/// A signal to deliver.
#[derive(Debug, Clone)]
pub(crate) struct SignalOrder {
    pub(crate) signal: Signal,
    pub(crate) cause: Cause,
    pub(crate) urgency: Urgency,
    pub(crate) aim: Aim,
    pub(crate) request: Option<String>,
    pub(crate) resumed_by: ResumedBy,
    pub(crate) pause_for: PauseFor,
}

/// For whom a process is paused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PauseFor {
    /// For whoever asked for it, until they resume it.
    Caller,
    /// For a rewind, which resumes it if it is refused.
    Rewind,
}

impl SignalOrder {
    pub(crate) fn new(signal: Signal, request: Option<String>) -> Self {
        Self {
            signal,
            cause: Cause::runtime(Why::User),
            urgency: Urgency::Boundary,
            aim: Aim::Process,
            request: request.map(|id| format!("{signal}:{id}")),
            resumed_by: ResumedBy::User,
            pause_for: PauseFor::Caller,
        }
    }

    pub(crate) fn lane(&self) -> Lane {
        match self.signal {
            Signal::Kill | Signal::Term | Signal::Int | Signal::Pause => Lane::Urgent,
            Signal::Resume => Lane::Verb,
        }
    }

    fn event(&self) -> Event {
        Event::Signal { signal: self.signal, cause: self.cause, urgency: self.urgency, aim: self.aim }
    }

    fn details(&self) -> RecordDetails {
        RecordDetails {
            request: self.request.clone(),
            resumed_by: self.resumed_by,
            resume_at: None,
            cause: Some(self.cause),
            unseen: false,
        }
    }
}

/// The effect of a signal on one process.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Delivered {
    pub(crate) changed: bool,
    pub(crate) resumed: bool,
    /// Whether it had received this request before.
    pub(crate) repeated: bool,
    /// Its children, if the signal is for its subtree.
    pub(crate) below: Vec<Uuid>,
}

impl Runtime {
    /// Sends a signal to a process, or to it and its descendants.
    pub async fn signal(
        self: &Arc<Self>,
        id: &str,
        request: SignalRequest,
        request_id: Option<String>,
    ) -> Result<Affected> {
        self.signal_for(Cause::runtime(Why::User), id, request, request_id).await
    }

    pub(crate) async fn signal_for(
        self: &Arc<Self>,
        cause: Cause,
        id: &str,
        request: SignalRequest,
        request_id: Option<String>,
    ) -> Result<Affected> {
        let signal = parse(&request.signal)?;
        let sent = SignalOrder { cause, ..SignalOrder::new(signal, request_id) };
        let (runtime, id) = (Arc::clone(self), id.to_owned());
        self.to_the_end(async move { runtime.deliver(&id, sent, request.subtree).await }).await
    }

    /// Pauses a process, or it and its descendants.
    pub async fn pause(
        self: &Arc<Self>,
        id: &str,
        request: PauseRequest,
        request_id: Option<String>,
    ) -> Result<Affected> {
        self.pause_for(Cause::runtime(Why::User), id, request, request_id).await
    }

    pub(crate) async fn pause_for(
        self: &Arc<Self>,
        cause: Cause,
        id: &str,
        request: PauseRequest,
        request_id: Option<String>,
    ) -> Result<Affected> {
        let urgency = if request.now { Urgency::Now } else { Urgency::Boundary };
        let sent = SignalOrder { urgency, cause, ..SignalOrder::new(Signal::Pause, request_id) };
        let (runtime, named) = (Arc::clone(self), id.to_owned());
        let affected = self.to_the_end(async move { runtime.deliver(&named, sent, request.subtree).await }).await?;
        let mut pids = affected.pids.clone();
        if pids.is_empty()
            && let Ok(LookedUp::Living { process, .. }) = self.look_up(id).await
        {
            // It was asked to pause before, and may not have stopped yet.
            pids.push(process.of.pid);
        }
        let pausing = self.still_pausing(&pids).await;
        Ok(self.without_ended(id, Affected { pausing, ..affected }))
    }

    /// Leaves out the processes that have ended before they stopped.
    fn without_ended(&self, id: &str, affected: Affected) -> Affected {
        let count = affected.pids.len();
        let mut pids = affected.pids;
        {
            let state = self.lock();
            pids.retain(|pid| state.table.machine(*pid).is_some_and(|machine| machine.end().is_none()));
        }
        if pids.is_empty() && count > 0 && affected.failed.is_empty() {
            return earlier::ended_already(id);
        }
        let ended = count - pids.len();
        Affected { affected: affected.affected.saturating_sub(ended), pids, ..affected }
    }

    /// Waits a moment for those that are to stop at once, and returns the processes that have not stopped.
    async fn still_pausing(&self, pids: &[Pid]) -> Vec<Pid> {
        let until = tokio::time::Instant::now() + STOPPED_WITHIN;
        loop {
            let pausing: Vec<(Pid, Urgency)> = {
                let state = self.lock();
                let machines = pids.iter().filter_map(|pid| state.table.machine(*pid));
                let pausing = machines.filter(|machine| machine.kept_pause().is_none());
                pausing.filter_map(|machine| Some((machine.incarnation().pid, machine.urgency()?))).collect()
            };
            let at_once = |(pid, urgency): &(Pid, Urgency)| {
                *urgency == Urgency::Now || self.body_of(*pid).is_some_and(|body| body.stays_when_suspended())
            };
            if tokio::time::Instant::now() >= until || !pausing.iter().any(at_once) {
                return pausing.into_iter().map(|(pid, _)| pid).collect();
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    pub(crate) async fn deliver(self: &Arc<Self>, id: &str, sent: SignalOrder, subtree: bool) -> Result<Affected> {
        let signal = sent.signal;
        match self.deliver_recorded(id, sent, subtree).await {
            Err(refused) if signal == Signal::Kill => self.kill_unrecorded(id, refused).await,
            delivered => delivered,
        }
    }

    async fn deliver_recorded(self: &Arc<Self>, id: &str, sent: SignalOrder, subtree: bool) -> Result<Affected> {
        let found = self.look_up_to_change(id).await?;
        let LookedUp::Living { process, note } = found else {
            let (uuid, note) = self.identity_of(&found)?;
            let mut turn = self.turn(uuid, Lane::Verb).await?;
            if !turn.was_answered(sent.request.as_deref()).await? {
                let pid = turn.last_pid().await?;
                drop(turn);
                return match self.stop_due(uuid, &sent).await? {
                    DueStop::Over => {
                        let ended = self.ended_earlier(id, uuid, &Resend::of(sent.signal, subtree))?;
                        Ok(Affected { note: note.or(ended.note), ..Affected::default() })
                    }
                    DueStop::Stopped { note } => {
                        let pids = Vec::from_iter(pid);
                        Ok(Affected { affected: 1, pids, note: Some(note), ..Affected::default() })
                    }
                    DueStop::Restarted => Box::pin(self.deliver_recorded(&uuid.to_string(), sent, subtree)).await,
                };
            }
            // It was ended by this request. Its descendants may not have got the signal.
            let pid = turn.last_pid().await?;
            drop(turn);
            return match pid.filter(|_| subtree) {
                Some(pid) => Ok(Affected { note, ..self.signal_tree(uuid, pid, sent).await? }),
                None => Ok(Affected { affected: 1, pids: Vec::from_iter(pid), note, ..Affected::default() }),
            };
        };
        let (pid, signal) = (process.of.pid, sent.signal);
        let by = sent.cause.by;
        if signal == Signal::Resume
            && let Err(refusal) = self.refuse_if_frozen_with(by, pid, process.uuid)
            && !self.turn(process.uuid, Lane::Verb).await?.was_answered(sent.request.as_deref()).await?
        {
            return Err(refusal);
        }
        let frozen = self.note_while_frozen(by, pid, process.uuid, signal);
        let mut affected = if subtree {
            self.signal_tree(process.uuid, pid, sent).await?
        } else {
            let delivered = self.signal_process(process.uuid, &sent).await?;
            let mut pids = Vec::from_iter(delivered.changed.then_some(pid));
            if delivered.resumed {
                pids.extend(self.resume_above(pid, &sent).await);
            }
            Affected { affected: pids.len(), pids, ..Affected::default() }
        };
        if affected.pids.is_empty() {
            let told = self.machine_of(process.uuid).map(|machine| machine.told_to_end());
            affected.note = match told {
                None => Some(format!("PID {pid} has ended already: nothing to do")),
                Some(Some((signal, _))) => Some(format!("{}: nothing to do", is_being_ended(pid, signal))),
                Some(None) => None,
            };
        }
        affected.pending = self.pending_of(signal, pid, &affected.pids);
        affected.kept = if signal == Signal::Pause { self.kept_of(pid, &affected.pids) } else { Vec::new() };
        affected.handled = self.handled_by(signal, &affected);
        affected.frozen = frozen.is_some();
        affected.note = note.or(affected.note).or(frozen);
        Ok(affected)
    }

    /// Returns those of the processes that handle a signal themselves, so that nothing else happened to them.
    fn handled_by(&self, signal: Signal, affected: &Affected) -> Vec<Pid> {
        match signal {
            Signal::Pause | Signal::Int => {}
            Signal::Term | Signal::Kill | Signal::Resume => return Vec::new(),
        }
        let state = self.lock();
        let handles = |pid: &Pid| {
            let machine = state.table.machine(*pid).filter(|machine| machine.kept_pause().is_none());
            machine.is_some_and(|machine| machine.handlers().contains(signal))
        };
        let reached = affected.pids.iter().copied().filter(|pid| !affected.pending.contains(pid));
        reached.filter(handles).collect()
    }

    /// Returns those of the processes that block a signal which was sent to them.
    pub(crate) fn pending_of(&self, signal: Signal, root: Pid, pids: &[Pid]) -> Vec<Pid> {
        let state = self.lock();
        let mut sent_to = pids.to_vec();
        if pids.is_empty() {
            // It was pending before, so nothing changed.
            sent_to.push(root);
        }
        let blocks = |pid: &Pid| {
            let machine = state.table.machine(*pid);
            machine.is_some_and(|machine| {
                let is_kept = signal == Signal::Pause && machine.kept_pause().is_some();
                !is_kept && machine.pending().any(|(pending, _)| pending == signal)
            })
        };
        sent_to.into_iter().filter(blocks).collect()
    }

    /// Returns those of the processes that wait for something else, and are paused once they have it.
    fn kept_of(&self, root: Pid, pids: &[Pid]) -> Vec<KeptPause> {
        let state = self.lock();
        // Nothing changed if it was kept before.
        let sent_to = if pids.is_empty() { vec![root] } else { pids.to_vec() };
        let kept = |pid: Pid| {
            let machine = state.table.machine(pid)?;
            machine.kept_pause()?;
            machine.pause().map(|(_, reason)| KeptPause { pid, reason })
        };
        sent_to.into_iter().filter_map(kept).collect()
    }

    /// Resumes ancestors that the user paused, nearest first. A process does so up to the first one that it may not
    /// control: resuming what is its own does not undo the pause of somebody else.
    pub(crate) async fn resume_above(self: &Arc<Self>, pid: Pid, sent: &SignalOrder) -> Vec<Pid> {
        let above = {
            let (state, by) = (self.lock(), Holder::Process(sent.cause.by));
            let may_resume = |ancestor: &Pid| {
                sent.cause.by == Pid::RUNTIME || state.table.authorize(by, *ancestor, Rights::Controller).is_ok()
            };
            let mut above = state.table.ancestors_paused_by_user(pid);
            above.truncate(above.iter().take_while(|ancestor| may_resume(ancestor)).count());
            above
        };
        let mut resumed = Vec::new();
        for ancestor in above {
            let sent = SignalOrder {
                signal: Signal::Resume,
                aim: Aim::Subtree,
                resumed_by: ResumedBy::Descendant,
                ..sent.clone()
            };
            let Some(uuid) = self.uuid_of(ancestor) else { continue };
            match self.signal_process(uuid, &sent).await {
                Ok(delivered) => resumed.extend(delivered.changed.then_some(ancestor)),
                Err(error) => self.warn(format!("process {ancestor} could not be resumed: {error}")),
            }
        }
        resumed
    }

    /// Sends a signal for a reason of the runtime.
    pub(crate) async fn signal_one(self: &Arc<Self>, uuid: Uuid, signal: Signal, cause: Cause) -> Result<Delivered> {
        let sent = SignalOrder { cause, aim: Aim::Subtree, ..SignalOrder::new(signal, None) };
        self.signal_process(uuid, &sent).await
    }

    /// Delivers a signal to one process, in one turn.
    pub(crate) async fn signal_process(self: &Arc<Self>, uuid: Uuid, sent: &SignalOrder) -> Result<Delivered> {
        let owner = self.owners.of(uuid);
        let mut waiting = std::pin::pin!(self.turn_with(Arc::clone(&owner), sent.lane()));
        let mut turn = match tokio::time::timeout(KILL_WITHIN, waiting.as_mut()).await {
            Ok(turn) => turn?,
            Err(_) => {
                if sent.signal == Signal::Kill {
                    // The disk is stuck. KILL still takes effect; it is acknowledged when it is recorded.
                    owner.order(|orders| orders.end = Some(Signal::Kill));
                }
                waiting.await?
            }
        };
        turn.deliver_with_subtree(sent).await
    }

    pub(crate) fn arm_grace(self: &Arc<Self>, uuid: Uuid, of: Incarnation, grace: Duration) {
        let runtime = Arc::clone(self);
        tokio::spawn(async move {
            runtime.pass_grace(uuid, of, grace).await;
            let Ok(mut turn) = runtime.turn(uuid, Lane::Own).await else { return };
            let Some(machine) = turn.machine().filter(|machine| machine.incarnation() == of) else { return };
            let mut change = Change::of(machine, RecordDetails::default());
            if matches!(change.apply(Event::GraceExpired, &runtime), Ok(true))
                && let Err(error) = turn.commit(change).await
            {
                runtime.warn_once(format!("the kill of {uuid} after its grace cannot be recorded: {error}"));
                drop(turn);
                runtime.arm_grace(uuid, of, RETRY_EVERY);
            }
        });
    }
}

impl Runtime {
    /// Waits for as long as a grace. It begins again while the program is frozen together with the session it entered, since
    /// only a program that runs can use it.
    async fn pass_grace(&self, uuid: Uuid, of: Incarnation, grace: Duration) {
        let mut left = grace;
        while !left.is_zero() {
            let step = left.min(FROZEN_AGAIN);
            tokio::time::sleep(step).await;
            if self.living(uuid).is_none_or(|process| process.of != of) {
                return;
            }
            left = if self.frozen_with(&self.lock(), uuid).is_some() { grace } else { left - step };
        }
    }
}

impl Turn {
    pub(crate) async fn last_pid(&mut self) -> Result<Option<Pid>> {
        self.look(|history| history.incarnation().map(|last| last.pid)).await
    }

    pub(crate) async fn deliver(&mut self, sent: &SignalOrder) -> Result<Delivered> {
        let nothing = Delivered::default();
        let Some(machine) = self.machine() else {
            let answered = sent.request.is_some() && self.was_answered(sent.request.as_deref()).await.unwrap_or(false);
            return Ok(Delivered { changed: answered, repeated: answered, ..nothing });
        };
        if self.was_answered(sent.request.as_deref()).await? {
            return Ok(Delivered { changed: true, repeated: true, ..nothing });
        }
        let runtime = Arc::clone(&self.runtime);
        let mut change = Change::of(machine, sent.details());
        if change.draft().state() == State::Created && self.owner.has_body() {
            // Its body is about to start: it gets the signal then.
            change.apply(Event::Start, &runtime)?;
        }
        let changed = change.apply(sent.event(), &runtime)?;
        if sent.signal == Signal::Pause && sent.pause_for == PauseFor::Caller {
            runtime.lock().paused_for_rewind.remove(&change.draft().incarnation().pid);
        }
        if !changed {
            if change.draft().told_to_end().is_some() && !self.owner.has_body() {
                // Its end could not be recorded before.
                runtime.finish_soon(ProcessRef { of: change.draft().incarnation(), uuid: self.uuid() }, Duration::ZERO);
            }
            return Ok(nothing);
        }
        if sent.signal == Signal::Kill {
            // KILL takes effect without waiting for its record.
            self.owner.order(|orders| orders.end = Some(Signal::Kill));
        }
        let (resumed, pid) = (change.resumes(), change.draft().incarnation().pid);
        self.commit_signal(change).await?;
        if sent.pause_for == PauseFor::Rewind {
            runtime.lock().paused_for_rewind.insert(pid);
        }
        Ok(Delivered { changed: true, resumed, ..nothing })
    }

    /// Records a change made by signals. A process that is asked to end and has no body ends here.
    pub(crate) async fn commit_signal(&mut self, mut change: Change) -> Result<()> {
        let runtime = Arc::clone(&self.runtime);
        let of = change.draft().incarnation();
        let process = ProcessRef { of, uuid: self.uuid() };
        let handled: Vec<Signal> = change.handled().collect();
        let commands = match handled.is_empty() {
            true => SignalSet::EMPTY,
            false => self.look(|history| history.commands).await?,
        };
        let texts = self.record_handled(&mut change, &handled);
        let bodiless = !self.owner.has_body();
        let ends = bodiless && change.draft().told_to_end().is_some() && change.draft().end().is_none();
        if !ends {
            self.commit(change).await?;
            self.state.said.extend(texts);
            self.pass_on(of, handled.into_iter().filter(|signal| !commands.contains(*signal)).collect());
            if bodiless && self.machine().is_none() {
                // It was created and never started.
                self.release(of).await;
            }
            return Ok(());
        }
        let has_session = self.look(|history| history.open_calls().next().is_some()).await.unwrap_or(true);
        if has_session || runtime.body_of(of.pid).is_some_and(|body| body.ends_others_first()) {
            self.commit(change).await?;
            // Its sessions, or the processes of a tree, end first, and then the end is recorded.
            tokio::spawn(async move { runtime.finish_bodiless(process).await });
            return Ok(());
        }
        change.apply(Event::Terminate(relive_core::Outcome::Cancelled), &runtime)?;
        self.commit(change).await?;
        self.release(of).await;
        Ok(())
    }
}

fn parse(name: &str) -> Result<Signal> {
    Signal::from_name(name).ok_or_else(|| {
        let known = "it is one of TERM, KILL, INT, PAUSE and RESUME, and all but KILL can be blocked and handled";
        Error::new(ErrorCode::Invalid, format!("`{name}` is not a signal: {known}")).with_hint("relive help signals")
    })
}

pub(crate) fn is_being_ended(pid: Pid, signal: Signal) -> String {
    format!("PID {pid} is being ended by {signal}")
}
