//! Recovery: what an earlier daemon left is found at the start, and runs, waits or ends as its journal says.

mod running;
mod survey;
mod told;

pub(crate) use survey::recovered;

use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::{StreamExt as _, stream};
use relive_config::Recovery;
use relive_core::{
    Cause, End, Incarnation, Moment, Pid, ProcessStatus, Recovered, Signal, Spec, State, SuspendReason, Suspension,
    Timestamp, Uuid, Why,
};
use relive_journal::record::{Body, Ended, OpenedBy, Paused, Resumed, ResumedBy};
use relive_journal::{Durability, History, Opening, Seen, Writer};
use survey::{Found, PriorState, Survey, survey, survey_one};

use crate::bodies::Rest;
use crate::error::Result;
use crate::inbox;
use crate::owner::Lane;
use crate::runtime::{ProcessRef, Runtime};
use crate::signal::RETRY_EVERY;
use crate::spec::next_generation;
use crate::trees::TreePlace;
use crate::unrecovered::Failure;

/// How long a start waits for the bodies it has recovered.
const READY_WITHIN: Duration = Duration::from_millis(250);
/// The longest pause between two attempts to recover what could not be recovered.
const RETRY_AT_LEAST_EVERY: Duration = Duration::from_secs(60);

/// How many journals are opened at once. Some have to be synced, and wait for the disk together; the others only need a
/// processor, and more threads than that would cost more than they gain.
const OPENED_AT_ONCE: usize = 16;

/// What follows for a process that was found, once all are in the table.
enum NextAction {
    /// Its body is started, with its journal.
    Start(Box<Writer>),
    /// The same, after the daemon's own stop.
    Resume(Box<Writer>),
    /// It was told to end, and does.
    End,
    /// It stands still; what its tools left running is made to.
    Freeze,
    Nothing,
}

/// The first records of a recovered incarnation.
struct FirstRecords {
    /// When the process was last seen to execute.
    seen: Option<Seen>,
    /// What follows `opened`.
    batch: Vec<Body>,
    durability: Durability,
}

/// A process whose journal is open, if it is to be written, and that is not in the table yet.
struct Opened {
    process: ProcessRef,
    /// Its parent is looked for when it comes into the table.
    spec: Spec,
    recovered: Recovered,
    place: Option<TreePlace>,
    resume_at: Option<Timestamp>,
    then: NextAction,
    now: Moment,
}

impl Runtime {
    /// Recovers everything that has not ended. Parents come before their children, and nobody runs before all are in
    /// the table: a parent that waits for its child has to find it.
    pub async fn recover(self: &Arc<Self>) -> Result<()> {
        self.settle_files().await;
        let (environments, socket) = (Arc::clone(&self.environments), self.socket.clone());
        let (boot_id, catalog) = (self.clock.boot_id(), self.catalog.clone());
        let (recovered, surveyed) = tokio::join!(
            self.on_journal(move |_| environments.recover(&socket)),
            self.on_journal(move |data| survey(data, &boot_id, &catalog)),
        );
        recovered?;
        let Survey { found, unreadable } = surveyed??;
        let living =
            found.iter().map(|found| found.spec.uuid).chain(unreadable.iter().map(|(uuid, _)| *uuid)).collect();
        let sockets = Arc::clone(&self.self_sockets);
        self.on_journal(move |_| sockets.keep_only(&living)).await?;
        for (uuid, failure) in unreadable {
            self.list_unrecovered(uuid, failure).await;
        }
        let holders = found.iter().filter(|found| !found.handles.is_empty());
        let handles = holders.map(|found| (found.spec.uuid, found.handles.clone())).collect();
        let mut ready = Vec::new();
        for wave in survey::waves(found) {
            ready.extend(self.recover_wave(wave).await);
        }
        self.restore_handles(handles);
        let uuids: Vec<Uuid> = ready.iter().map(|(process, _)| process.uuid).collect();
        for (process, then) in ready {
            self.carry_on(process, then).await?;
        }
        // Most bodies are ready at once; those that are not are shown as loading.
        let _ = tokio::time::timeout(READY_WITHIN, self.all_started()).await;
        self.catalog.recovered();
        self.workspaces.recovered();
        // Most have asked their model by now, and are synced with that.
        uuids.into_iter().for_each(|uuid| self.sync_recovered(uuid));
        self.retry_unrecovered();
        self.watch_alarms();
        self.resume_when_keys_return();
        Ok(())
    }

    /// Resumes processes that wait for credentials when their environments come back with a keeper that was stopped.
    fn resume_when_keys_return(self: &Arc<Self>) {
        let (runtime, mut returned) = (Arc::downgrade(self), self.environments.returned());
        // It may have come back while the processes were recovered.
        returned.mark_changed();
        tokio::spawn(async move {
            while returned.changed().await.is_ok() {
                let uuids = returned.borrow_and_update().clone();
                let Some(runtime) = runtime.upgrade() else { return };
                for uuid in uuids {
                    let resumed = runtime.end_pause(uuid, SuspendReason::NeedsCredentials, ResumedBy::DaemonStart);
                    if let Err(error) = resumed.await {
                        runtime.warn(format!("{uuid} has its environment again and could not be resumed: {error}"));
                    }
                }
            }
        });
    }

    /// Rolls back what an earlier daemon left half done to files, before anybody works on them, and removes copies that it
    /// made for processes which never existed.
    async fn settle_files(&self) {
        if !self.workspaces.exists() {
            return;
        }
        let workspaces = self.workspaces.clone();
        let swept = self.in_bulk(move |data| workspaces.sweep_unclaimed(|uuid| data.directory(uuid).steps().exists()));
        match swept.await.unwrap_or(Ok(0)) {
            Ok(0) => {}
            Ok(count) => {
                let copies = if count == 1 { "copy" } else { "copies" };
                tracing::info!("removed {count} {copies} that an interrupted run or fork left");
            }
            Err(error) => self.warn(format!("copies that an interrupted run or fork left cannot be removed: {error}")),
        }
        let workspaces = self.workspaces.clone();
        let settled = self.in_bulk(move |_| workspaces.settle_interrupted()).await;
        for settled in settled.unwrap_or_default() {
            self.warn(settled.text());
        }
    }

    /// Recovers processes none of which is the parent of another one. Their journals are opened at the same time, and
    /// they come into the table one after the other, in the order in which they were found.
    async fn recover_wave(self: &Arc<Self>, wave: Vec<Found>) -> Vec<(ProcessRef, NextAction)> {
        let opening = stream::iter(wave).map(|found| {
            let (uuid, now) = (found.spec.uuid, self.moment());
            async move { (uuid, self.open_below(found, now).await) }
        });
        let mut opening = pin!(opening.buffered(OPENED_AT_ONCE));
        let mut ready = Vec::new();
        while let Some((uuid, opened)) = opening.next().await {
            match opened.and_then(|opened| opened.map(|opened| self.publish_recovered(opened)).transpose()) {
                Ok(done) => ready.extend(done),
                Err(failure) => self.list_unrecovered(uuid, failure).await,
            }
        }
        ready
    }

    /// Lists a process as not recovered.
    async fn list_unrecovered(&self, uuid: Uuid, failure: Failure) {
        self.warn(format!("{uuid} cannot be recovered: {}", failure.message));
        let info = self.on_disk(move |data| data.info(uuid)).await;
        // A program can have put the journal of another process there.
        let info = info.ok().and_then(|info| info.ok().flatten()).filter(|info| info.uuid == uuid);
        self.unrecovered.insert(uuid, failure.with_info(info.map(Box::new)));
    }

    /// Opens a process, unless its parent could not be recovered: signals to the subtree have to reach it.
    async fn open_below(&self, found: Found, now: Moment) -> Result<Option<Opened>, Failure> {
        let pid = found.pid.as_ref().ok().copied();
        if let Some(parent) = found.spec.parent_uuid
            && let Some(above) = self.unrecovered.get(parent).filter(Failure::is_passing)
        {
            return Err(above.below(parent, pid));
        }
        self.open(found, now).await.map_err(|error| Failure::of(&error, pid))
    }

    /// Recovers a process that could not be recovered at the start. Does nothing if somebody else has meanwhile.
    pub(crate) async fn recover_again(self: &Arc<Self>, uuid: Uuid) -> Result<()> {
        let turn = self.turn(uuid, Lane::Own).await?;
        let Some(before) = self.unrecovered.get(uuid) else { return Ok(()) };
        if self.living(uuid).is_some() {
            self.unrecovered.remove(uuid);
            return Ok(());
        }
        if self.is_stopping() {
            return Err(before.refusal(uuid));
        }
        let (boot_id, pid) = (self.clock.boot_id(), before.pid);
        let found = self.on_journal(move |data| survey_one(data, &boot_id, uuid, pid)).await?;
        let recovered = match found {
            Ok(None) => Ok(None),
            Ok(Some(found)) => {
                let handles = found.handles.clone();
                match self.open_below(found, self.moment()).await {
                    Ok(Some(opened)) => self
                        .publish_recovered(opened)
                        .inspect(|_| self.restore_handles(vec![(uuid, handles)]))
                        .map(Some),
                    Ok(None) => Ok(None),
                    Err(failure) => Err(failure),
                }
            }
            Err(failure) => Err(failure),
        };
        match recovered {
            Ok(done) => {
                self.unrecovered.remove(uuid);
                drop(turn);
                if let Some((process, then)) = done {
                    self.carry_on(process, then).await?;
                    self.sync_recovered(uuid);
                }
                Ok(())
            }
            Err(failure) => {
                let failure = failure.with_info(before.info);
                let refusal = failure.refusal(uuid);
                self.unrecovered.insert(uuid, failure);
                Err(refusal)
            }
        }
    }

    /// Tries again, until it succeeds, to recover what could not be recovered.
    fn retry_unrecovered(self: &Arc<Self>) {
        if self.unrecovered.is_empty() {
            return;
        }
        let runtime = Arc::downgrade(self);
        tokio::spawn(async move {
            let mut wait = RETRY_EVERY;
            loop {
                tokio::time::sleep(wait).await;
                let Some(runtime) = runtime.upgrade() else { return };
                if runtime.is_stopping() {
                    return;
                }
                // Older ones first, and so parents before their children.
                for uuid in runtime.unrecovered.uuids() {
                    // What is wrong is listed with the process.
                    let _ = runtime.recover_again(uuid).await;
                }
                if runtime.unrecovered.is_empty() {
                    return;
                }
                wait = (wait * 2).min(RETRY_AT_LEAST_EVERY);
            }
        });
    }

    /// Has the first records of a process synced soon, unless they have been with later ones.
    fn sync_recovered(self: &Arc<Self>, uuid: Uuid) {
        if let Some(owner) = self.owners.find(uuid).filter(|owner| owner.synced_end() == Some(0)) {
            self.settle_soon(&owner);
        }
    }

    async fn all_started(&self) {
        let mut waited_for: Vec<Pid> = self.lock().bodies.keys().copied().collect();
        loop {
            let changed = self.bodies_changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            {
                let state = self.lock();
                let is_created =
                    |pid: Pid| state.table.machine(pid).is_some_and(|machine| machine.state() == State::Created);
                // Each is looked at until it has started: to look at all of them whenever one has would be quadratic.
                while waited_for.pop_if(|pid| !is_created(*pid)).is_some() {}
            }
            if waited_for.is_empty() {
                return;
            }
            changed.await;
        }
    }

    async fn carry_on(self: &Arc<Self>, process: ProcessRef, then: NextAction) -> Result<()> {
        let (runtime, resumes) = (Arc::clone(self), matches!(then, NextAction::Resume(_)));
        match then {
            NextAction::Start(writer) | NextAction::Resume(writer) => {
                let mut turn = self.turn(process.uuid, Lane::Own).await?;
                turn.hold(*writer);
                if resumes {
                    self.emit(&turn.owner, "resumed", serde_json::json!({"by": ResumedBy::DaemonStart}));
                }
                let told = turn.machine().and_then(|machine| machine.ending());
                if told.is_some_and(|(signal, _)| signal == Signal::Term) {
                    // Its grace was the earlier daemon's to count.
                    let grace = Duration::from_millis(self.settings.table.grace_ms);
                    self.arm_grace(process.uuid, process.of, grace);
                }
                turn.start_body(process.of);
            }
            NextAction::End => {
                tokio::spawn(async move { runtime.finish_bodiless(process).await });
            }
            NextAction::Freeze => {
                tokio::spawn(async move {
                    // Whatever fails is warned of.
                    let _ = runtime.settle(process, Rest::Frozen).await;
                });
            }
            NextAction::Nothing => {}
        }
        Ok(())
    }

    /// Opens the journal of a process, where it is to be written. Returns nothing if the process has ended with that.
    async fn open(&self, found: Found, now: Moment) -> Result<Option<Opened>> {
        let Found { spec, pid, left, recovered, place, open_calls, handles: _, history } = found;
        let (uuid, pid) = (spec.uuid, pid?);
        let spec = next_generation(Spec { pid, ..spec });
        let process = ProcessRef { of: Incarnation { pid, generation: spec.generation }, uuid };
        let body = self.bodies.of(spec.body);
        let durability = match body {
            Some(body) if !body.acts_on_last_records() => Durability::Written,
            Some(_) | None => Durability::Synced,
        };
        let body = body.filter(|body| body.stays_when_suspended());
        let first = |batch| FirstRecords { seen: None, batch, durability };
        let synced = |batch| FirstRecords { seen: None, batch, durability: Durability::Synced };
        let mut stopwatch = spec.stopwatch;
        let (recovered, resume_at, then) = match left {
            PriorState::Unwritable(hole) => {
                self.warn(format!("{uuid} is suspended: its journal cannot be written, {hole}"));
                (suspended(recovered, SuspendReason::IoError, now.at), None, NextAction::Nothing)
            }
            // Its session may have ended or run on: its body looks, and passes the orders on.
            PriorState::Suspended { .. }
            | PriorState::Ending
            | PriorState::Interrupted { .. }
            | PriorState::Stopped
                if let Some(body) = body =>
            {
                let seen = body.last_seen(uuid, now).await;
                let first = FirstRecords { seen, ..first(Vec::new()) };
                let writer = self.open_recovered(process, now, first, history).await?;
                (recovered, None, NextAction::Start(Box::new(writer)))
            }
            PriorState::Ending => (recovered, None, NextAction::End),
            PriorState::Suspended { resume_at } if open_calls => (recovered, resume_at, NextAction::Freeze),
            PriorState::Suspended { resume_at } => (recovered, resume_at, NextAction::Nothing),
            PriorState::Interrupted { crash_loop: true } => {
                let reason = SuspendReason::CrashLoop;
                let paused = Body::Paused(Paused { reason, asked_at: now.at, resume_at: None, cause: None, req: None });
                let writer = self.open_recovered(process, now, synced(vec![paused]), history).await?;
                stopwatch = writer.history().stopwatch();
                self.catalog.tell(writer.history());
                // The writer is put down at once: a suspended process holds no descriptor.
                (suspended(recovered, reason, now.at), None, NextAction::Nothing)
            }
            PriorState::Interrupted { crash_loop: false } if self.settings.recovery == Recovery::Manual => {
                self.end_interrupted(process, now, history).await?;
                return Ok(None);
            }
            PriorState::Stopped => {
                let resumed = Body::Resumed(Resumed { by: ResumedBy::DaemonStart, cause: None, req: None });
                let writer = self.open_recovered(process, now, first(vec![resumed]), history).await?;
                (Recovered { suspension: None, ..recovered }, None, NextAction::Resume(Box::new(writer)))
            }
            PriorState::Interrupted { crash_loop: false } => {
                let writer = self.open_recovered(process, now, first(Vec::new()), history).await?;
                (recovered, None, NextAction::Start(Box::new(writer)))
            }
        };
        if let NextAction::Start(writer) | NextAction::Resume(writer) = &then {
            stopwatch = writer.history().stopwatch();
        }
        let spec = Spec { stopwatch, ..spec };
        Ok(Some(Opened { process, spec, recovered, place, resume_at, then, now }))
    }

    /// Shows a process that was opened in the table, below its parent.
    fn publish_recovered(&self, opened: Opened) -> Result<(ProcessRef, NextAction), Failure> {
        let Opened { process, spec, recovered, place, resume_at, then, now } = opened;
        let pid = process.of.pid;
        let parent = spec.parent_uuid.and_then(|uuid| self.living(uuid)).map_or(Pid::RUNTIME, |parent| parent.of.pid);
        let mut state = self.lock();
        if let (Some(resume_at), Some(suspension)) = (resume_at, &recovered.suspension) {
            state.set_alarm(pid, resume_at, suspension.asked_at);
        }
        let recovered = state.table.recover(Spec { parent, ..spec }, recovered, now);
        recovered.map_err(|error| Failure::of(&error.into(), Some(pid)))?;
        if let Some(place) = place {
            state.trees.join(place);
        }
        Ok((process, then))
    }

    /// Opens the journal of a process for its next incarnation, with its first records in the same write.
    async fn open_recovered(
        &self,
        process: ProcessRef,
        now: Moment,
        first: FirstRecords,
        history: Option<Box<History>>,
    ) -> Result<Writer> {
        let FirstRecords { seen, batch, durability } = first;
        let (uuid, pid, by) = (process.uuid, process.of.pid, OpenedBy::Recovery);
        let opening = Opening { pid, by, boot_id: self.clock.boot_id(), now, req: None, seen, cause: None };
        let history = Arc::new(Mutex::new(history));
        self.opened(move |data| {
            let batch = batch.clone();
            let known = history.lock().unwrap_or_else(PoisonError::into_inner).take().map(|history| *history);
            data.open_surveyed(uuid, &opening, known, durability, move |_| Ok::<_, std::convert::Infallible>(batch))
        })
        .await
    }

    /// Ends a process that was interrupted, where `recovery: manual` leaves resuming to a person.
    async fn end_interrupted(&self, process: ProcessRef, now: Moment, history: Option<Box<History>>) -> Result<()> {
        let is_root = history.as_ref().is_some_and(|history| inbox::is_root(history));
        let ended = Body::Ended(Ended { end: interrupted(), unseen: is_root, req: None });
        let first = FirstRecords { seen: None, batch: vec![ended], durability: Durability::Synced };
        let writer = self.open_recovered(process, now, first, history).await?;
        self.catalog.tell(writer.history());
        Ok(self.on_journal(move |data| data.retire(process.uuid, writer.history())).await??)
    }
}

fn suspended(recovered: Recovered, reason: SuspendReason, asked_at: Timestamp) -> Recovered {
    let suspension = Some(Suspension { asked_at, reason, cause: None });
    Recovered { suspension, ending: None, own_end: None, ..recovered }
}

fn interrupted() -> End {
    let status = ProcessStatus::Killed { signal: Signal::Kill.into() };
    End { cause: Some(Cause::runtime(Why::HostLost)), ..End::of(status) }
}
