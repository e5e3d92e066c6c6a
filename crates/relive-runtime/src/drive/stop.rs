//! Stops a body: records its pause, and closes its journal.

use std::sync::Arc;

use relive_core::{Event, Incarnation, SuspendReason, Timestamp, Urgency};
use relive_journal::{ProcInfo, Writer};

use super::AfterExit;
use crate::error::Error;
use crate::owner::{Change, Turn};
use crate::records::RecordDetails;
use crate::runtime::ProcessRef;
use crate::signal::RETRY_EVERY;

impl Turn {
    /// Handles a body that has stopped at its boundary: records a pause of its own if it has one, and closes the
    /// journal.
    pub(super) async fn stop(
        &mut self,
        mut change: Change,
        own: Option<(SuspendReason, Option<Timestamp>)>,
    ) -> AfterExit {
        let runtime = Arc::clone(&self.runtime);
        let mut alarm = None;
        if let Some((reason, resume_at)) = own
            && change.draft().pause().is_none()
        {
            change.details.resume_at = resume_at;
            if change.apply(Event::Suspend { reason, urgency: Urgency::Now }, &runtime).is_err() {
                return AfterExit::Again;
            }
            alarm = resume_at;
        }
        let _ = change.apply(Event::BoundaryReached, &runtime);
        let of = change.draft().incarnation();
        let paused = change.draft().pause();
        // Unsynced records of the last step are on the disk before the process is shown as suspended.
        if let Some(journal) = &mut self.state.journal
            && let Err(error) = journal.with(Writer::sync).await.map_err(Error::from).and_then(|synced| Ok(synced?))
        {
            return self.suspend_unrecorded(change, &error.to_string(), unrecorded(&error)).await;
        }
        let before = change.before().clone();
        if let (Some(resume_at), Some((asked_at, _))) = (alarm, paused) {
            runtime.lock().set_alarm(of.pid, resume_at, asked_at);
        }
        match self.record(change).await {
            Ok(recorded) => {
                // Before it is shown as suspended: a client that sees that may look at the files.
                self.write_snapshot(of).await;
                if let Some((draft, effects)) = recorded {
                    self.publish(draft, effects);
                }
            }
            Err(error) => {
                runtime.lock().alarms.remove(&of.pid);
                let change = Change::of(before, RecordDetails::default());
                return self.suspend_unrecorded(change, &error.to_string(), unrecorded(&error)).await;
            }
        }
        let events = self.owner.take_events();
        if let Some(journal) = &mut self.state.journal {
            journal.write_events(events).await;
            // Followers were notified before these were there.
            runtime.changes.ring(self.uuid());
        }
        self.drop_body(of);
        AfterExit::Over
    }

    /// Writes events, checkpoint and snapshot of a stopped process.
    async fn write_snapshot(&mut self, of: Incarnation) {
        let events = self.owner.take_events();
        let (runtime, uuid) = (Arc::clone(&self.runtime), self.uuid());
        let Some(journal) = &mut self.state.journal else { return };
        if let Ok(history) = journal.history() {
            runtime.progressed(ProcessRef { of, uuid }, history);
            runtime.catalog.tell(history);
        }
        journal.write_events(events).await;
        let (disk, directory) = (runtime.data.io().disk.clone(), runtime.data.directory(uuid));
        let _ = journal
            .with(move |writer| {
                if writer.is_checkpoint_due() {
                    let _ = writer.checkpoint();
                }
                ProcInfo::of(writer.history()).map(|info| info.write(&disk, &directory))
            })
            .await;
        runtime.changes.ring(uuid);
    }

    /// Suspends a process whose work cannot be recorded; one that was asked to end is ended later.
    pub(super) async fn suspend_unrecorded(
        &mut self,
        mut change: Change,
        error: &str,
        reason: SuspendReason,
    ) -> AfterExit {
        let runtime = Arc::clone(&self.runtime);
        let process = ProcessRef { of: change.draft().incarnation(), uuid: self.uuid() };
        runtime.warn(format!("{} cannot record what it does: {error}", self.uuid()));
        if change.draft().told_to_end().is_some() {
            self.publish(change.draft().clone(), Vec::new());
            self.drop_body(process.of);
            runtime.finish_soon(process, RETRY_EVERY);
            return AfterExit::Over;
        }
        if reason != SuspendReason::DiskFull {
            self.suspend_silently(change, reason);
            return AfterExit::Over;
        }
        runtime.disk_full().await;
        // The reserve has made space for this record; even without it the pause applies.
        let suspend = Event::Suspend { reason, urgency: Urgency::Now };
        let _ = change.apply(suspend, &runtime);
        let _ = change.apply(Event::BoundaryReached, &runtime);
        let draft = change.draft().clone();
        if self.commit(change).await.is_err() {
            self.publish(draft, Vec::new());
        }
        self.drop_body(process.of);
        AfterExit::Over
    }

    /// Suspends a process in the table alone.
    fn suspend_silently(&mut self, mut change: Change, reason: SuspendReason) {
        let (runtime, of) = (Arc::clone(&self.runtime), change.draft().incarnation());
        let _ = change.apply(Event::Suspend { reason, urgency: Urgency::Now }, &runtime);
        let _ = change.apply(Event::BoundaryReached, &runtime);
        self.publish(change.draft().clone(), Vec::new());
        self.drop_body(of);
    }
}

/// Returns the reason for suspending a process that cannot be recorded.
pub(super) fn unrecorded(error: &Error) -> SuspendReason {
    if error.is_disk_full() { SuspendReason::DiskFull } else { SuspendReason::IoError }
}
