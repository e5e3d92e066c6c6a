//! The end of a process: it is recorded, published, and its resources are released in a fixed order.

use std::sync::Arc;

use relive_core::{End, Event, Incarnation, Outcome, ReleaseEvent};
use serde_json::{Value, json};

use super::AfterExit;
use super::stop::unrecorded;
use crate::attribution::signal_of;
use crate::owner::{Change, Turn};
use crate::records::RecordDetails;

/// The steps of a release, as its events name them.
pub(crate) const STEPS: [&str; 7] = ["orphans", "cancel", "join", "debug_channel", "context", "dead", "left"];

/// Returns the event of an end. `by` says in words who ended the process.
pub(crate) fn ended_event(end: &End, by: Option<String>) -> Value {
    let exit = end.exit();
    let mut event = json!({"code": exit.code, "reason": exit.reason});
    if let Some(by) = by {
        event["by"] = by.into();
    }
    event
}

impl Turn {
    /// Records the end of a process, then releases it.
    pub(super) async fn finish(&mut self, mut change: Change, outcome: Outcome) -> AfterExit {
        let runtime = Arc::clone(&self.runtime);
        if let Err(error) = change.apply(Event::Terminate(outcome), &runtime) {
            runtime.warn(format!("the end of {} was refused: {error}", self.uuid()));
            self.drop_body(change.draft().incarnation());
            return AfterExit::Over;
        }
        let of = change.draft().incarnation();
        if let Some(end) = change.draft().end() {
            let by = end.cause.map(|cause| runtime.in_words_now(cause, signal_of(end).as_deref()));
            let event = ended_event(end, by);
            change.events.push(("ended", event));
        }
        change.details.unseen = self.ends_unseen(change.draft());
        let before = change.before().clone();
        if let Err(error) = self.commit(change).await {
            let change = Change::of(before, RecordDetails::default());
            return self.suspend_unrecorded(change, &error.to_string(), unrecorded(&error)).await;
        }
        self.release(of).await;
        AfterExit::Over
    }

    /// Releases a process whose end is recorded: orphans, cancel, join, debug channel, context, Dead, out of the table.
    /// Waiters are answered when it is over.
    pub(crate) async fn release(&mut self, of: Incarnation) {
        let (runtime, uuid) = (Arc::clone(&self.runtime), self.uuid());
        let answer = |event| {
            let _ = runtime.lock().table.released(of, event, runtime.moment());
        };
        // Orphans go to PID 0 before their parent is released.
        let _ = runtime.lock().table.reap(of.pid, runtime.moment());
        // Before the body counts as gone: a stopping daemon waits for that, and then closes the index.
        if let Some(history) = self.state.journal.as_ref().and_then(|journal| journal.history().ok()) {
            runtime.catalog.tell(history);
        }
        // The body gets no more orders. It has returned, so joining it takes no time.
        self.drop_body(of);
        answer(ReleaseEvent::Cancelled);
        answer(ReleaseEvent::Joined);
        answer(ReleaseEvent::Closed);
        let mut events = self.owner.take_events();
        let now = runtime.moment();
        let step = |step| relive_journal::journal::Event { at: now.at, kind: "release", body: json!({"phase": step}) };
        events.extend(STEPS.map(step));
        if let Some(journal) = &mut self.state.journal {
            if let Ok(history) = journal.history() {
                let _ = runtime.lock().table.progress(of, super::usage(history), now);
            }
            self.retire(events).await;
        }
        self.state.journal = None;
        {
            let mut state = runtime.lock();
            state.trees.leave(uuid);
            state.inherited.remove(&of.pid);
        }
        runtime.budgets.close(uuid);
        answer(ReleaseEvent::Freed);
        {
            let mut state = runtime.lock();
            state.refused_keys.remove(&of.pid);
            state.stalled_at.remove(&of.pid);
            state.paused_for_rewind.remove(&of.pid);
        }
        runtime.sight_changed.notify_waiters();
        if let Some(waiters) = runtime.lock().waiting.remove(&of.pid) {
            waiters.bell.notify_waiters();
        }
        runtime.changes.ring(uuid);
    }

    /// Writes the last events and the snapshot, and removes the socket and the marker, while the journal is still held: once
    /// the process can be resumed, both belong to the next incarnation.
    async fn retire(&mut self, events: Vec<relive_journal::journal::Event>) {
        let (runtime, uuid) = (Arc::clone(&self.runtime), self.uuid());
        let Some(journal) = &mut self.state.journal else { return };
        let (data, sockets) = (Arc::clone(&runtime.data), Arc::clone(&runtime.self_sockets));
        let retired = journal.write_events_then(events, move |writer| {
            sockets.remove(uuid);
            // Nothing depends on it.
            let _ = data.write_profile(uuid);
            data.retire(uuid, writer.history())
        });
        let retired = retired.await;
        // The end is in the journal; the next start does the rest.
        if let Ok(Err(error)) = retired {
            runtime.warn(format!("the snapshot of {uuid} could not be written: {error}"));
        }
    }
}
