//! Recovery: what an earlier daemon left is found at the start, and runs, waits or ends as its journal says.

mod open;
mod running;
mod survey;
mod told;

pub(crate) use survey::recovered;

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use relive_core::{Pid, Signal, State, SuspendReason, Uuid};
use relive_journal::Writer;
use relive_journal::record::ResumedBy;
use survey::{Found, Survey, survey, survey_one};

use crate::bodies::{Prepared, Rest};
use crate::error::Result;
use crate::owner::Lane;
use crate::runtime::{ProcessRef, Runtime};
use crate::signal::RETRY_EVERY;
use crate::unrecovered::Failure;

/// How long a start waits for the bodies it has recovered.
const READY_WITHIN: Duration = Duration::from_millis(250);
/// The longest pause between two attempts to recover what could not be recovered.
const RETRY_AT_LEAST_EVERY: Duration = Duration::from_secs(60);

/// What follows for a process that was found, once all are in the table.
enum NextAction {
    /// Its body is started, with its journal.
    Start(Box<Ready>),
    /// The same, after the daemon's own stop.
    Resume(Box<Ready>),
    /// It was told to end, and does.
    End,
    /// It stands still; what its tools left running is made to.
    Freeze,
    Nothing,
}

/// An open journal, and what its body needs at once.
struct Ready {
    writer: Writer,
    prepared: Prepared,
}

impl Runtime {
    /// Recovers everything that has not ended. Parents come before their children, and nobody runs before all are in
    /// the table: a parent that waits for its child has to find it.
    pub async fn recover(self: &Arc<Self>) -> Result<()> {
        let runtime = Arc::clone(self);
        // On a thread of the executor: what is spawned there needs no other thread to be woken each time.
        self.to_the_end(async move { runtime.recover_here().await }).await
    }

    async fn recover_here(self: &Arc<Self>) -> Result<()> {
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
        self.start_all(ready).await?;
        self.catalog.recovered();
        self.workspaces.recovered();
        // Most have asked their model by now, and are synced with that.
        uuids.into_iter().for_each(|uuid| self.sync_recovered(uuid));
        self.retry_unrecovered();
        self.watch_alarms();
        self.resume_when_keys_return();
        Ok(())
    }

    /// Starts the bodies of what was found.
    async fn start_all(self: &Arc<Self>, ready: Vec<(ProcessRef, NextAction)>) -> Result<()> {
        for (process, then) in ready {
            self.carry_on(process, then).await?;
        }
        // Most bodies are ready at once; those that are not are shown as loading.
        let _ = tokio::time::timeout(READY_WITHIN, self.all_started()).await;
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
    async fn settle_files(self: &Arc<Self>) {
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
            match &settled.applied {
                Ok(_) => self.warn(settled.text()),
                // `daemon status` says it as long as it is so.
                Err(_) => tracing::warn!("{}", settled.text()),
            }
        }
        let runtime = Arc::clone(self);
        // Nobody needs what is left of a workspace that was removed, and there may be much of it.
        tokio::spawn(async move {
            runtime.sweep_removed().await.iter().for_each(|error| runtime.warn(error.to_string()));
        });
    }

    /// Recovers processes none of which is the parent of another one. Their journals are opened at the same time, and
    /// they come into the table one after the other, in the order in which they were found.
    async fn recover_wave(self: &Arc<Self>, wave: Vec<Found>) -> Vec<(ProcessRef, NextAction)> {
        let (mut ready, mut opening) = (Vec::new(), self.open_wave(wave));
        while let Some(share) = opening.next().await {
            for (uuid, opened) in share {
                match opened.and_then(|opened| opened.map(|opened| self.publish_recovered(opened)).transpose()) {
                    Ok(done) => ready.extend(done),
                    Err(failure) => self.list_unrecovered(uuid, failure).await,
                }
            }
        }
        ready
    }

    /// Lists a process as not recovered.
    async fn list_unrecovered(&self, uuid: Uuid, failure: Failure) {
        self.warn(format!("{uuid} cannot be recovered: {}", failure.message));
        let info = self.on_disk(move |data| data.info(uuid)).await;
        // A program can have put the journal of another process there.
        let mut info = info.ok().and_then(|info| info.ok().flatten()).filter(|info| info.uuid == uuid);
        if info.is_none() {
            // Its last row still tells its name and PID.
            info = self.catalog.row(uuid).await.ok().flatten().map(|row| row.info);
        }
        self.unrecovered.insert(uuid, failure.with_info(info.map(Box::new)));
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
                match self.open_share(vec![found]).await.pop() {
                    Some((_, Ok(Some(opened)))) => self
                        .publish_recovered(opened)
                        .inspect(|_| self.restore_handles(vec![(uuid, handles)]))
                        .map(Some),
                    Some((_, Err(failure))) => Err(failure),
                    Some((_, Ok(None))) | None => Ok(None),
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

    /// Returns whether the journal of a process is damaged for good: see [`Failure::is_damage`].
    pub(crate) async fn has_damaged_journal(self: &Arc<Self>, uuid: Uuid) -> Result<bool> {
        let boot_id = self.clock.boot_id();
        // It is only looked at, and needs no PID of its own.
        let looked = self.on_journal(move |data| survey_one(data, &boot_id, uuid, Some(Pid::RUNTIME)).map(drop));
        Ok(looked.await?.is_err_and(|failure| failure.is_damage()))
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
            NextAction::Start(ready) | NextAction::Resume(ready) => {
                let mut turn = self.turn(process.uuid, Lane::Own).await?;
                let Ready { writer, prepared } = *ready;
                turn.hold(writer);
                turn.state.prepared = prepared;
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
}
