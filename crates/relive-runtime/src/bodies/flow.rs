//! A tree as a body: starts, restarts and stops processes as its flow decides.
//!
//! Every start is a record before it is carried out, with the UUID of the process. So the next daemon knows which
//! processes there should be, and starts those that are not there; asking for one that is there changes nothing. An end
//! needs no such care: it is read from the journal of the process that ended.

mod at_end;
mod child;
mod end;
mod join;
mod living;
mod outcome;
mod record;

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt as _, StreamExt as _};
use relive_core::{Cause, End, ErrorCode, Moment, ProcessStatus, Signal, SuspendReason, Uuid, Why};
use relive_flow::{Decision, Event, Flow, SlotState, Start, Verdict};
use relive_journal::{Durability, History, JournalError, Seen};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::{Body, Context, DeliveryTime, Exit, LiveSession, Rest, Verb};
use crate::error::{Error, Result};
use crate::flows::{LiveFlow, RecordedFlow};
use crate::lookup::Presence;
use crate::runtime::{ProcessRef, Runtime};
use child::{ChildEnd, ChildStart, ChildStarted, Creation};
use end::EndSent;
use record::{append, durability_of, is_end_of, is_news};

pub(crate) use outcome::ProcessEnd;

/// The event of a node that changed.
const NODE_EVENT: &str = "node";
/// How often processes that are to end are looked for while a tree ends: one may just be being created.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// Runs compose files and supervisors.
#[derive(Debug, Default)]
pub(crate) struct FlowBody {
    runtime: OnceLock<Weak<Runtime>>,
}

impl FlowBody {
    /// Gives the body the runtime that it starts processes with.
    pub(crate) fn connect(&self, runtime: &Arc<Runtime>) {
        let _ = self.runtime.set(Arc::downgrade(runtime));
    }

    fn runtime(&self) -> Option<Arc<Runtime>> {
        self.runtime.get().and_then(Weak::upgrade)
    }
}

impl Body for FlowBody {
    fn accepts(&self, verb: Verb) -> Result<()> {
        let message = match verb {
            Verb::Fork => "a run or supervisor cannot be forked: fork one of its processes",
            Verb::Gate => "a run or supervisor has no gate: only programs do",
        };
        Err(Error::new(ErrorCode::Invalid, message))
    }

    fn accepts_message(&self, _: Uuid, _: DeliveryTime) -> BoxFuture<'_, Result<()>> {
        let message = "a run or supervisor reads no messages: send it to one of its processes";
        std::future::ready(Err(Error::new(ErrorCode::Invalid, message))).boxed()
    }

    fn reads_journal(&self) -> bool {
        true
    }

    fn first_message(&self, _: &History) -> Option<&'static str> {
        None
    }

    fn run(&self, cx: Context) -> BoxFuture<'static, Exit> {
        let runtime = self.runtime();
        async move {
            let Some(runtime) = runtime else { return Exit::Stopped };
            let uuid = cx.process.uuid;
            let exit = match Driver::open(Arc::clone(&runtime), cx).await {
                Ok(driver) => driver.run().await,
                Err(exit) => exit,
            };
            runtime.flows.close(uuid);
            exit
        }
        .boxed()
    }

    fn settle(&self, process: ProcessRef, how: Rest) -> BoxFuture<'_, std::io::Result<()>> {
        async move {
            if let (Rest::Ended, Some(runtime)) = (how, self.runtime()) {
                runtime.end_below(process).await;
            }
            Ok(())
        }
        .boxed()
    }

    fn stays_when_suspended(&self) -> bool {
        false
    }

    fn ends_others_first(&self) -> bool {
        true
    }

    fn last_seen(&self, _: Uuid, _: Moment) -> BoxFuture<'_, Option<Seen>> {
        std::future::ready(None).boxed()
    }

    fn stops_with_daemon(&self) -> bool {
        true
    }

    fn message_for(&self, _: Signal) -> Option<&'static str> {
        None
    }

    fn pass_on(&self, _: Signal, _: LiveSession) -> BoxFuture<'static, ()> {
        std::future::ready(()).boxed()
    }
}

/// Why the driver woke up.
enum Woken {
    Ended(Vec<ChildEnd>),
    /// A process has started that another node waits for.
    Started(ChildStarted),
    /// There may be something to decide: new orders, a start that is due, or a node that a person resumed.
    Look,
    TimedOut,
    /// Nobody gives orders any more.
    OrdersClosed,
}

/// Runs one tree.
struct Driver {
    runtime: Arc<Runtime>,
    cx: Context,
    live: Arc<LiveFlow>,
    cwd: String,
    children: FuturesUnordered<BoxFuture<'static, ChildEnd>>,
    /// The processes that have started.
    started: (mpsc::UnboundedSender<ChildStarted>, mpsc::UnboundedReceiver<ChildStarted>),
    /// Processes that were sent the signal that ends them, or are being sent it.
    told: HashSet<Uuid>,
    /// The signals that are being sent. One that is not delivered is sent again.
    telling: FuturesUnordered<JoinHandle<(Uuid, EndSent)>>,
    /// Whether nothing is started any more.
    ending: Arc<AtomicBool>,
}

impl Driver {
    async fn open(runtime: Arc<Runtime>, cx: Context) -> Result<Self, Exit> {
        let uuid = cx.process.uuid;
        let faulted = |error: Error| Exit::Ended(End::of(ProcessStatus::Faulted { fault: error.to_string() }));
        let RecordedFlow { mut flow, last_ended } = runtime.recorded_flow(uuid).await.map_err(faulted)?;
        let cwd = cx.owner.look(|history| history.identity.as_ref().map(|identity| identity.spawned.cwd.clone())).await;
        let cwd = cwd.map_err(Exit::Unrecorded)?.unwrap_or_default();
        cx.owner.started().await;
        if flow.reopened_after() < last_ended {
            // It had ended, and continues now.
            let mut events = runtime.lost_ends(&flow).await.map_err(faulted)?;
            events.push(Event::Reopened { run: last_ended });
            append(&cx, &mut flow, events, Durability::Synced).await.map_err(held)?;
        }
        let rejoins = runtime.lost_rejoins(&flow);
        if !rejoins.is_empty() {
            append(&cx, &mut flow, rejoins, Durability::Synced).await.map_err(held)?;
        }
        let live = runtime.flows.open(uuid, flow);
        let mut driver = Self {
            runtime,
            cx,
            live,
            cwd,
            children: FuturesUnordered::new(),
            started: mpsc::unbounded_channel(),
            told: HashSet::new(),
            telling: FuturesUnordered::new(),
            ending: Arc::default(),
        };
        driver.adopt().await;
        Ok(driver)
    }

    /// Finds the processes that an earlier body started, or was about to.
    async fn adopt(&mut self) {
        let live = Arc::clone(&self.live);
        let flow = live.flow.lock().await;
        for slot in flow.slots() {
            match slot.state {
                SlotState::Running { uuid, start, number } => {
                    // One that a person has paused since its start stays paused.
                    let start = if self.runtime.is_paused_by_user(*uuid) { &Start::New } else { start };
                    self.watch(&flow, slot.name, *uuid, start, *number);
                }
                // It was started before it was to be ended.
                SlotState::ToStop { uuid, .. } => self.watch(&flow, slot.name, *uuid, &Start::New, 0),
                SlotState::Waiting
                | SlotState::Due { .. }
                | SlotState::Succeeded
                | SlotState::Failed { .. }
                | SlotState::Stopped
                | SlotState::Halted
                | SlotState::Skipped => {}
            }
        }
    }

    fn watch(&self, flow: &Flow, slot: &str, uuid: Uuid, start: &Start, number: u64) {
        let Some(run) = flow.work_of(slot) else { return };
        let start = ChildStart {
            parent: self.cx.process,
            slot: slot.to_owned(),
            uuid,
            start: start.clone(),
            number,
            is_paused: flow.slot(slot).is_some_and(|slot| slot.at_end.paused),
            run,
            cwd: self.cwd.clone(),
            wants_result: flow.wants_result(slot),
            merges: flow.merged_before(slot),
            started: flow.is_start_awaited(slot).then(|| self.started.0.clone()),
            ending: Arc::clone(&self.ending),
            attempt: self.live.attempts.begin(uuid),
            journal: Arc::clone(&self.cx.journal),
        };
        self.children.push(start.run_to_end(Arc::clone(&self.runtime)).boxed());
    }

    async fn run(mut self) -> Exit {
        loop {
            let orders = *self.cx.orders.borrow_and_update();
            if let Some(signal) = orders.end {
                return self.end_all(signal, Exit::Cancelled).await;
            }
            if orders.stop.is_some() {
                return Exit::Stopped;
            }
            let next = match self.act().await {
                Ok(Some(verdict)) => return Exit::Ended(end_of(&verdict)),
                Ok(None) => self.wait().await,
                Err(error) => Err(error),
            };
            match next {
                Ok(Woken::Look) => {}
                Ok(Woken::OrdersClosed) => return Exit::Stopped,
                Ok(Woken::Started(started)) => {
                    match self.record_started(&started).await {
                        Ok(()) => {}
                        Err(JournalError::Held) => {
                            // It was told to stop or to end: the order is here, or about to be.
                            let _ = self.started.0.send(started);
                            let _ = tokio::time::timeout(LOOK_AGAIN, self.cx.orders.changed()).await;
                        }
                        Err(error) => return Exit::Unrecorded(error),
                    }
                }
                Ok(Woken::Ended(ended)) => {
                    let has_no_environment = ended.iter().any(|end| end.creation == Creation::NoEnvironment);
                    if let Err(exit) = self.record_ends(ended).await {
                        // Told to stop or to end. The next body reads the ends from the journals of those that ended.
                        let told = self.cx.orders.wait_for(|orders| orders.end.is_some() || orders.stop.is_some());
                        let _ = tokio::time::timeout(LOOK_AGAIN, told).await;
                        let ending = self.cx.orders.borrow().end;
                        match ending.filter(|_| matches!(exit, Exit::Stopped)) {
                            Some(signal) => return self.end_all(signal, Exit::Cancelled).await,
                            None => return exit,
                        }
                    }
                    if has_no_environment {
                        let uuid = self.cx.process.uuid;
                        self.cx.owner.warn_once(format!("{uuid} waits for an environment: its own is lost"));
                        return Exit::Suspended { reason: SuspendReason::NeedsCredentials, resume_at: None };
                    }
                }
                Ok(Woken::TimedOut) => {
                    let status = ProcessStatus::Killed { signal: Signal::Term.into() };
                    let end = End { cause: Some(Cause::runtime(Why::Timeout)), ..End::of(status) };
                    return self.end_all(Signal::Term, Exit::Ended(end)).await;
                }
                Err(JournalError::Held) => {
                    // It was told to stop or to end: the order is here, or about to be.
                    let _ = tokio::time::timeout(LOOK_AGAIN, self.cx.orders.changed()).await;
                }
                Err(error) => return Exit::Unrecorded(error),
            }
        }
    }

    /// Carries out what is decided, until nothing more is.
    async fn act(&mut self) -> Result<Option<Verdict>, JournalError> {
        let live = Arc::clone(&self.live);
        let mut flow = live.flow.lock().await;
        loop {
            let mut starts = Vec::new();
            for decision in flow.decide(self.runtime.wall_ms(), self.room()) {
                match decision {
                    Decision::Start { slot, start } => starts.push((slot, start)),
                    Decision::Stop { uuid, .. } => self.stop(uuid),
                    Decision::Wait { .. } => {}
                    Decision::Finish(verdict) => {
                        // From here on nobody can have a node continue.
                        self.runtime.flows.close(self.cx.process.uuid);
                        return Ok(Some(verdict));
                    }
                }
            }
            if starts.is_empty() {
                return Ok(None);
            }
            self.start(&mut flow, starts).await?;
        }
    }

    fn room(&self) -> usize {
        self.runtime.live.now().trees.children_max.saturating_sub(self.children.len())
    }

    /// Records that processes are started, all in one write, and starts them.
    async fn start(&mut self, flow: &mut Flow, starts: Vec<(String, Start)>) -> Result<(), JournalError> {
        let mut events = Vec::new();
        for (slot, start) in starts {
            let last = flow.slot(&slot).and_then(|slot| slot.uuid);
            let (uuid, start) = match (start, last) {
                (start @ Start::Resume { .. }, Some(last)) if !is_removed(&self.runtime, last).await => (last, start),
                // There is nothing left that it could continue from.
                (Start::Resume { .. }, _) => (self.runtime.clock.new_uuid(), Start::New),
                (start @ (Start::New | Start::Fork { .. }), _) => (self.runtime.clock.new_uuid(), start),
            };
            events.push(Event::Starting { slot, uuid, start });
        }
        append(&self.cx, flow, events.clone(), Durability::Synced).await?;
        for event in events {
            let Event::Starting { slot, .. } = &event else { continue };
            let Some(found) = flow.slot(slot) else { continue };
            if let SlotState::Running { uuid, start, number } = found.state {
                self.watch(flow, slot, *uuid, start, *number);
            }
        }
        Ok(())
    }

    async fn wait(&mut self) -> Result<Woken, JournalError> {
        let mut due = None;
        {
            let (flow, now) = (self.live.flow.lock().await, self.runtime.wall_ms());
            for decision in flow.decide(now, self.room()) {
                match decision {
                    Decision::Wait { until_ms } => due = Some(Duration::from_millis(until_ms.saturating_sub(now))),
                    // Its time has come since, or somebody else has changed the tree.
                    Decision::Start { .. } | Decision::Finish(_) => return Ok(Woken::Look),
                    // It is being told to, or was.
                    Decision::Stop { uuid, .. } if self.told.contains(&uuid) || self.live.attempts.stop(uuid) => {}
                    Decision::Stop { .. } => return Ok(Woken::Look),
                }
            }
        }
        let deadline = self.cx.orders.borrow().deadline;
        let at_deadline = async move {
            match deadline {
                Some(deadline) => tokio::time::sleep_until(deadline).await,
                None => std::future::pending().await,
            }
        };
        let at_due = async move {
            match due {
                Some(due) => tokio::time::sleep(due).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            changed = self.cx.orders.changed() => Ok(if changed.is_ok() { Woken::Look } else { Woken::OrdersClosed }),
            () = self.live.changed.notified() => Ok(Woken::Look),
            Some(told) = self.telling.next() => {
                if let Ok((uuid, EndSent::No)) = told {
                    self.told.remove(&uuid);
                }
                Ok(Woken::Look)
            }
            // Before its end, which may be there as well.
            Some(started) = self.started.1.recv() => Ok(Woken::Started(started)),
            Some(first) = self.children.next() => {
                let mut ended = vec![first];
                // Those that ended meanwhile are one write with it.
                while let Some(Some(more)) = self.children.next().now_or_never() {
                    ended.push(more);
                }
                Ok(Woken::Ended(ended))
            }
            () = at_due => Ok(Woken::Look),
            () = at_deadline => Ok(Woken::TimedOut),
        }
    }

    /// Records that a process has started. It is not synced: the next body finds out again.
    async fn record_started(&mut self, started: &ChildStarted) -> Result<(), JournalError> {
        let (slot, uuid) = (started.slot.clone(), started.uuid);
        let live = Arc::clone(&self.live);
        let mut flow = live.flow.lock().await;
        if !is_news(&flow, &slot, uuid) {
            return Ok(());
        }
        append(&self.cx, &mut flow, vec![Event::Started { slot, uuid }], Durability::Deferred).await
    }

    /// Records ends. Most are not synced: the journals of the processes that ended have them.
    async fn record_ends(&mut self, ended: Vec<ChildEnd>) -> Result<(), Exit> {
        let live = Arc::clone(&self.live);
        let mut flow = live.flow.lock().await;
        let mut events = Vec::new();
        // Of one that ended at once, both are there at the same time.
        while let Ok(ChildStarted { slot, uuid }) = self.started.1.try_recv() {
            if is_news(&flow, &slot, uuid) {
                events.push(Event::Started { slot, uuid });
            }
        }
        for end in ended {
            self.told.remove(&end.uuid);
            if end.creation == Creation::NoEnvironment {
                continue;
            }
            if !is_end_of(&flow, &end) {
                // A person stopped it while it waited for room, and that is recorded.
                continue;
            }
            live.attempts.forget(end.uuid);
            if let (Creation::Refused, Some(note)) = (end.creation, &end.note) {
                self.cx.owner.warn(format!("{} of {} cannot be started: {note}", end.slot, self.cx.process.uuid));
            }
            events.push(end.event(self.runtime.wall_ms()));
        }
        let durability = durability_of(&flow, &events, &self.told);
        append(&self.cx, &mut flow, events, durability).await.map_err(held)
    }

    fn stop(&mut self, uuid: Uuid) {
        if self.live.attempts.stop(uuid) {
            return;
        }
        if self.told.insert(uuid) {
            let (runtime, process) = (Arc::clone(&self.runtime), self.cx.process);
            self.telling.push(tokio::spawn(async move {
                let sent = runtime.end_child(process, uuid, Signal::Term).await;
                match sent {
                    // It may just be being created.
                    EndSent::No => tokio::time::sleep(LOOK_AGAIN).await,
                    EndSent::Yes => {
                        tokio::time::sleep(runtime.grace()).await;
                        runtime.kill_if_blocked(process, uuid).await;
                    }
                }
                (uuid, sent)
            }));
        }
    }

    /// Ends all processes, and returns when they have ended.
    async fn end_all(mut self, signal: Signal, exit: Exit) -> Exit {
        self.runtime.flows.close(self.cx.process.uuid);
        self.ending.store(true, Ordering::Relaxed);
        let mut signal = if signal == Signal::Int { Signal::Term } else { signal };
        let mut sent: HashSet<Uuid> = HashSet::new();
        let killed_at = tokio::time::Instant::now() + self.runtime.grace();
        while !self.children.is_empty() {
            if signal == Signal::Term && tokio::time::Instant::now() >= killed_at {
                for uuid in &sent {
                    self.runtime.kill_if_blocked(self.cx.process, *uuid).await;
                }
            }
            let living = crate::flows::living(&*self.live.flow.lock().await);
            for (_, uuid) in living {
                if self.runtime.living(uuid).is_some()
                    && !sent.contains(&uuid)
                    && self.runtime.end_child(self.cx.process, uuid, signal).await == EndSent::Yes
                {
                    sent.insert(uuid);
                }
            }
            tokio::select! {
                ended = self.children.next() => {
                    if let Some(ended) = ended {
                        let _ = self.record_ends(vec![ended]).await;
                    }
                }
                changed = self.cx.orders.changed() => {
                    let told = self.cx.orders.borrow_and_update().end;
                    if changed.is_ok() && told == Some(Signal::Kill) && signal != Signal::Kill {
                        signal = Signal::Kill;
                        sent.clear();
                    }
                }
                () = tokio::time::sleep(LOOK_AGAIN) => {}
            }
        }
        exit
    }
}

async fn is_removed(runtime: &Runtime, uuid: Uuid) -> bool {
    matches!(runtime.presence(uuid).await, Ok(Presence::Collected))
}

fn held(error: JournalError) -> Exit {
    match error {
        JournalError::Held => Exit::Stopped,
        error @ (JournalError::Write(_) | JournalError::Read(_) | JournalError::Lost(_)) => Exit::Unrecorded(error),
    }
}

fn end_of(verdict: &Verdict) -> End {
    let reason = verdict.reason().map(String::into_boxed_str);
    End { reason, ..End::of(ProcessStatus::Exited { code: verdict.code() }) }
}
