//! One turn with a process: decide, write, publish.

use std::sync::Arc;
use std::time::Duration;

use relive_core::{Effect, Effects, Event, Incarnation, Machine, Moment, Signal, Uuid};
use relive_journal::record::Body;
use relive_journal::{Durability, History, OpenJournal, Opening, Writer};

use super::{Lane, Owner, TurnState};
use crate::error::Result;
use crate::records::{self, RecordDetails};
use crate::runtime::Runtime;

/// A turn with a process. Nobody else decides about the process or writes to its journal until it ends.
pub(crate) struct Turn {
    pub(crate) runtime: Arc<Runtime>,
    pub(crate) owner: Arc<Owner>,
    pub(crate) state: tokio::sync::OwnedMutexGuard<TurnState>,
}

/// A decision that is not recorded yet.
#[derive(Debug)]
pub(crate) struct Change {
    before: Machine,
    draft: Machine,
    effects: Effects,
    changed: bool,
    /// When it was decided: the time of all its events, and so of its records. The process's time in the table is then
    /// the same as in its journal.
    decided: Option<Moment>,
    /// Records of the verb itself, before those of the draft.
    pub(crate) first: Vec<Body>,
    /// Records of the verb itself, after those of the draft.
    pub(crate) last: Vec<Body>,
    /// Written after the records.
    pub(crate) events: Vec<(&'static str, serde_json::Value)>,
    pub(crate) details: RecordDetails,
}

impl Change {
    pub(crate) fn of(machine: Machine, details: RecordDetails) -> Self {
        let (before, draft) = (machine.clone(), machine);
        Self {
            before,
            draft,
            effects: Effects::new(),
            changed: false,
            decided: None,
            first: Vec::new(),
            last: Vec::new(),
            events: Vec::new(),
            details,
        }
    }

    /// Applies an event to the draft; `true` if it changed anything.
    pub(crate) fn apply(&mut self, event: Event, runtime: &Runtime) -> Result<bool> {
        let now = *self.decided.get_or_insert_with(|| runtime.moment());
        let applied = self.draft.apply(event, &runtime.settings.table, now)?;
        self.effects.extend(applied.effects);
        self.changed |= applied.changed;
        Ok(applied.changed)
    }

    pub(crate) fn before(&self) -> &Machine {
        &self.before
    }

    pub(crate) fn draft(&self) -> &Machine {
        &self.draft
    }

    pub(crate) fn changed(&self) -> bool {
        self.changed
    }

    /// Returns whether a pause ends, or one is taken back that was to follow the wait for an answer.
    pub(crate) fn resumes(&self) -> bool {
        let ends = self.effects.iter().any(|effect| matches!(effect, Effect::Resume { .. }));
        let (before, after) = (&self.before, &self.draft);
        // One that is asked to end keeps its pause no longer, and resumes nobody by that.
        let is_taken_back = before.kept_pause().is_some() && after.waiting_pause().is_none();
        ends || is_taken_back && after.pause() == before.pause() && after.ending() == before.ending()
    }

    /// Returns the signals that the process has to handle itself.
    pub(crate) fn handled(&self) -> impl Iterator<Item = Signal> {
        self.effects
            .iter()
            .filter_map(|effect| if let Effect::Handle { signal, .. } = effect { Some(*signal) } else { None })
    }
}

impl Runtime {
    /// Waits for a turn with a process, whether or not the process exists.
    pub(crate) async fn turn(self: &Arc<Self>, uuid: Uuid, lane: Lane) -> Result<Turn> {
        let owner = self.owners.of(uuid);
        self.turn_with(owner, lane).await
    }

    pub(crate) async fn turn_with(self: &Arc<Self>, owner: Arc<Owner>, lane: Lane) -> Result<Turn> {
        let state = owner.wait_for_turn(lane).await?;
        Ok(Turn { runtime: Arc::clone(self), owner, state })
    }
}

impl Turn {
    pub(crate) fn uuid(&self) -> Uuid {
        self.owner.uuid
    }

    /// Returns the process from the table, if it has not ended.
    pub(crate) fn machine(&self) -> Option<Machine> {
        self.runtime.machine_of(self.uuid())
    }

    /// Reads the state of the journal, from memory or from the disk.
    pub(crate) async fn look<T: Send + 'static>(
        &mut self,
        look: impl FnOnce(&History) -> T + Send + 'static,
    ) -> Result<T> {
        if let Some(journal) = &self.state.journal {
            return Ok(look(journal.history()?));
        }
        let uuid = self.uuid();
        let read = self.runtime.on_journal(move |data| data.history(uuid).map(|(history, _)| look(&history))).await?;
        match read {
            Ok(looked) => Ok(looked),
            Err(error) => Err(self.runtime.unread_error(uuid, error).await?),
        }
    }

    /// Returns whether the journal has answered this request before.
    pub(crate) async fn was_answered(&mut self, request: Option<&str>) -> Result<bool> {
        let Some(id) = request.map(str::to_owned) else { return Ok(false) };
        self.look(move |history| history.request(&id).is_some()).await
    }

    /// Writes records for an incarnation, and returns when they are on the disk.
    pub(crate) async fn write(&mut self, of: Incarnation, now: Moment, batch: Vec<Body>) -> Result<()> {
        let events = self.owner.take_events();
        if self.state.journal.as_ref().is_some_and(|journal| journal.history().is_err()) {
            // Its thread was lost with the writer: the file has what was written.
            self.state.journal = None;
        }
        if let Some(journal) = &mut self.state.journal {
            let batch = without_idle_resume(journal.history()?, batch);
            journal.append(now, events, batch, Durability::Synced).await?;
        } else {
            self.open(of, now, batch).await?;
            if let Some(journal) = &mut self.state.journal {
                journal.write_events(events).await;
            }
        }
        self.runtime.changes.ring(self.uuid());
        Ok(())
    }

    /// Writes records; on a full disk again after releasing the reserve, because everything is about to stop.
    async fn write_or_make_room(&mut self, of: Incarnation, now: Moment, batch: Vec<Body>) -> Result<()> {
        match self.write(of, now, batch.clone()).await {
            Err(error) if error.is_disk_full() => {
                self.runtime.disk_full().await;
                self.write(of, now, batch).await
            }
            written => written,
        }
    }

    /// Opens the journal for an incarnation that is in the table, with its first records.
    pub(crate) async fn open(&mut self, of: Incarnation, now: Moment, batch: Vec<Body>) -> Result<()> {
        let runtime = Arc::clone(&self.runtime);
        let opening = Opening {
            pid: of.pid,
            by: relive_journal::record::OpenedBy::Resume,
            boot_id: runtime.clock.boot_id(),
            now,
            req: None,
            seen: None,
            cause: None,
        };
        let uuid = self.uuid();
        let writer = runtime
            .opened(move |data| {
                let batch = batch.clone();
                data.open_journal(uuid, &opening, Some(of.generation), move |history| {
                    Ok::<_, std::convert::Infallible>(without_idle_resume(history, batch))
                })
            })
            .await?;
        self.hold(writer);
        Ok(())
    }

    /// Keeps the journal open, for this turn or as long as a body runs.
    pub(crate) fn hold(&mut self, writer: Writer) {
        let journal = OpenJournal::new(writer, self.runtime.pools.journal.clone());
        self.owner.set_synced_end(journal.watch_synced_end().ok());
        self.state.journal = Some(journal);
    }

    /// Records a change, publishes it and carries out its effects. On an error nothing has changed.
    pub(crate) async fn commit(&mut self, change: Change) -> Result<()> {
        if let Some((draft, effects)) = self.record(change).await? {
            self.publish(draft, effects);
        }
        Ok(())
    }

    /// Records a change; returns what has to be published.
    pub(crate) async fn record(&mut self, change: Change) -> Result<Option<(Machine, Effects)>> {
        let Change { before, draft, effects, changed: _, decided, first, last, mut events, details } = change;
        let now = decided.unwrap_or_else(|| self.runtime.moment());
        let mut batch = first;
        batch.extend(records::between(&before, &draft, &details));
        batch.extend(last);
        if before.pause().is_some() && draft.pause().is_none() && draft.end().is_none() {
            let mut event = serde_json::json!({"by": details.resumed_by});
            if let Some(cause) = details.cause {
                event["who"] = self.runtime.in_words_now(cause, None).into();
            }
            events.push(("resumed", event));
        }
        #[cfg(feature = "faults")]
        if draft.end().is_none() && (crate::faults::is_on("publish-first") || crate::faults::is_on("ack-before-sync")) {
            self.commit_later(draft, effects, now, batch);
            return Ok(None);
        }
        if !batch.is_empty() {
            self.write_or_make_room(draft.incarnation(), now, batch).await?;
        }
        for (kind, body) in events {
            self.runtime.emit(&self.owner, kind, body);
        }
        Ok(Some((draft, effects)))
    }

    /// Publishes or answers before the write, for the switches that have to make the torture tests fail.
    #[cfg(feature = "faults")]
    fn commit_later(&mut self, draft: Machine, effects: Effects, now: Moment, batch: Vec<Body>) {
        let publish_first = crate::faults::is_on("publish-first");
        if publish_first {
            self.publish(draft.clone(), effects.clone());
        }
        let (runtime, owner) = (Arc::clone(&self.runtime), Arc::clone(&self.owner));
        tokio::spawn(async move {
            crate::faults::delay().await;
            let Ok(mut turn) = runtime.turn_with(owner, Lane::Own).await else { return };
            if !batch.is_empty() && turn.write(draft.incarnation(), now, batch).await.is_ok() && !publish_first {
                turn.publish(draft, effects);
            }
        });
    }

    /// Publishes a recorded draft, and carries out its effects.
    pub(crate) fn publish(&mut self, draft: Machine, effects: Effects) {
        let runtime = Arc::clone(&self.runtime);
        let is_free = draft.end().is_none() && draft.pause().is_none() && draft.ending().is_none();
        let pid = draft.incarnation().pid;
        let kept = |machine: &Machine| (machine.kept_pause().is_some(), machine.kept_urgency());
        let keeps_other = self.machine().is_some_and(|before| kept(&before) != kept(&draft));
        let of_tree = {
            let mut state = runtime.lock();
            if is_free {
                state.inherited.freed(pid);
            }
            match state.table.publish(draft, runtime.moment()) {
                Ok(effects) => effects,
                Err(refusal) => {
                    drop(state);
                    runtime.warn(format!("a change of {} was not published: {refusal}", self.uuid()));
                    return;
                }
            }
        };
        for effect in effects.into_iter().chain(of_tree) {
            self.carry_out(effect);
        }
        if keeps_other {
            // A body that stays looks again whether it is to stand still.
            self.owner.order(|_| ());
        }
        runtime.changes.ring(self.uuid());
    }

    fn carry_out(&mut self, effect: Effect) {
        match effect {
            Effect::Launch { of } => self.start_body(of),
            Effect::AskToEnd { signal, .. } => self.order_end(signal),
            Effect::Kill { .. } => self.order_end(Signal::Kill),
            Effect::ArmGrace { of, grace_ms } => {
                self.runtime.arm_grace(self.uuid(), of, Duration::from_millis(grace_ms));
            }
            Effect::Stop { urgency, .. } => {
                let reason = self.machine().and_then(|machine| machine.pause()).map(|(_, reason)| reason);
                let leave_sessions = reason == Some(relive_core::SuspendReason::DaemonStop);
                self.owner.order(|orders| {
                    (orders.stop, orders.leave_sessions, orders.deadline) = (Some(urgency), leave_sessions, None);
                });
            }
            Effect::Resume { of } => {
                let deadline = self.deadline();
                if !self.owner.order(|orders| (orders.stop, orders.deadline) = (None, deadline)) {
                    self.start_body(of);
                }
                self.runtime.start_heartbeat();
            }
            // Those above stop as well.
            Effect::SuspendedBelow { reason: relive_core::SuspendReason::DaemonStop, .. } => {}
            Effect::SuspendedBelow { ancestor, of, reason } => {
                self.runtime.tell(ancestor, "suspended_below", serde_json::json!({"pid": of, "reason": reason}));
            }
            // The verb takes it from the change, because it knows what the body does with it.
            Effect::Handle { .. } => {}
            Effect::Suspended { of } => self.runtime.emit_paused(&self.owner, of.pid),
            // The release drives the rest.
            Effect::Stalled { .. }
            | Effect::Ended { .. }
            | Effect::Reap { .. }
            | Effect::Reparented { .. }
            | Effect::Cancel { .. }
            | Effect::Join { .. }
            | Effect::TakeDebugChannel { .. }
            | Effect::CloseDebugChannel { .. }
            | Effect::FreeContext { .. }
            | Effect::Dead { .. }
            | Effect::Left { .. } => {}
        }
    }

    fn order_end(&self, signal: Signal) {
        self.owner.order(|orders| orders.end = Some(signal));
    }
}

/// Leaves out the `resumed` of a pause that could not be recorded.
fn without_idle_resume(history: &History, mut batch: Vec<Body>) -> Vec<Body> {
    if history.paused.is_none() {
        batch.retain(|body| !matches!(body, Body::Resumed(_)));
    }
    batch
}

impl Drop for Turn {
    fn drop(&mut self) {
        if !self.owner.has_body() {
            // A suspended process has no descriptor.
            self.state.journal = None;
            self.owner.set_synced_end(None);
            self.state.said.clear();
        }
    }
}
