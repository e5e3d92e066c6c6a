//! Keeps the states of the files: a snapshot after each step with a call that may have changed them, taken while the model
//! thinks. The next call that may change files waits for it, and nothing else does.

use std::sync::Arc;
use std::time::Duration;

use relive_journal::Durability;
use relive_journal::record::{Body, Snapshot};
use relive_journal::recovery::Recovery;
use serde_json::json;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use super::{Exit, Loop, Step, Wait};
use crate::snapshots::{Change, Occasion, Seen, Snapshots};
use crate::tool::Patience;

/// How long a process thinks before its files are looked at for the first time: one that is over sooner costs nothing.
const FIRST_LOOK_AFTER: Duration = Duration::from_millis(50);
/// How long the end of a process waits for the last snapshot.
const LAST_LOOK_WITHIN: Duration = Duration::from_secs(10);
/// The same for a process that was told to end.
const LAST_LOOK_OF_KILLED_WITHIN: Duration = Duration::from_secs(1);

/// The files, as far as the loop has to know about them.
#[derive(Debug, Default)]
pub(super) struct FileWatch {
    /// Whether the files were looked at since the process began or continued.
    has_begun: bool,
    /// Whether a call that may have changed files has ended since the last look.
    is_changed: bool,
    /// The last step with such a call.
    changed_in: u32,
    pending: Option<PendingLook>,
}

/// A snapshot that is being taken.
#[derive(Debug)]
struct PendingLook {
    occasion: Occasion,
    after: u32,
    hurry: Arc<Notify>,
    task: JoinHandle<Seen>,
}

impl Drop for PendingLook {
    fn drop(&mut self) {
        // One that has not begun is not wanted any more.
        self.task.abort();
    }
}

impl PendingLook {
    fn begin(snapshots: &Arc<dyn Snapshots>, occasion: Occasion, after: u32) -> Self {
        let (hurry, snapshots) = (Arc::new(Notify::new()), Arc::clone(snapshots));
        let hurried = Arc::clone(&hurry);
        let task = tokio::spawn(async move {
            if occasion == Occasion::Start {
                let _ = tokio::time::timeout(FIRST_LOOK_AFTER, hurried.notified()).await;
            }
            snapshots.take(occasion, after).await
        });
        Self { occasion, after, hurry, task }
    }
}

/// Tells whether a call may change files: what only reads does not, and a child takes snapshots of its own.
pub(super) fn may_change_files(recovery: &Recovery) -> bool {
    !matches!(recovery, Recovery::Rerun | Recovery::Lookup { .. })
}

impl Loop {
    /// Looks at the files while the model thinks, where they may have changed or were never looked at.
    pub(super) fn look_at_files(&mut self, step: u32) {
        let Some(snapshots) = &self.agent.snapshots else { return };
        let watch = &mut self.files;
        if watch.pending.is_some() {
            return;
        }
        let occasion = match (watch.is_changed, watch.has_begun) {
            (true, _) => Occasion::Step,
            (false, false) => Occasion::Start,
            (false, true) => return,
        };
        (watch.is_changed, watch.has_begun) = (false, true);
        watch.pending = Some(PendingLook::begin(snapshots, occasion, step.saturating_sub(1)));
    }

    /// Returns the record of a snapshot that is ready, to be written with the model's answer. The first one waits for the
    /// first change: a process that changes nothing records none.
    pub(super) async fn files_seen(&mut self) -> Option<Body> {
        let pending = self.files.pending.take_if(|look| look.occasion == Occasion::Step && look.task.is_finished())?;
        self.seen(pending).await.map(Body::Snapshot)
    }

    /// Waits until the files are known, before a call that may change them.
    pub(super) async fn before_change(&mut self, step: u32) -> Step {
        let Some(snapshots) = self.agent.snapshots.clone() else { return Ok(()) };
        if !self.files.has_begun {
            self.look_at_files(step);
        }
        if let Some(mut pending) = self.files.pending.take() {
            pending.hurry.notify_one();
            let waited = self.attend(Wait::Tool(Patience::Read), &mut pending.task).await;
            let seen = match waited {
                Ok(seen) => seen.unwrap_or_default(),
                Err(exit) => {
                    self.files.pending = Some(pending);
                    return Err(exit);
                }
            };
            if let Some(snapshot) = self.tell(&pending, seen, step.saturating_sub(1)) {
                self.record(Body::Snapshot(snapshot), Durability::Deferred).await?;
            }
        }
        snapshots.mark(Change::Begins);
        Ok(())
    }

    /// Notes that a call which may have changed files is over.
    pub(super) fn after_change(&mut self, step: u32) {
        let Some(snapshots) = &self.agent.snapshots else { return };
        snapshots.mark(Change::Ended);
        (self.files.is_changed, self.files.has_begun, self.files.changed_in) = (true, true, step);
    }

    /// Takes the last snapshot, when the loop ends. What is not seen in time is found when the process continues.
    pub(super) async fn last_look(&mut self, exit: &Exit) {
        let within = match exit {
            Exit::Unrecorded(_) => return,
            Exit::Cancelled => LAST_LOOK_OF_KILLED_WITHIN,
            Exit::Completed
            | Exit::Faulted(_)
            | Exit::MaxSteps
            | Exit::TimedOut
            | Exit::OverBudget
            | Exit::SuspendedBudget
            | Exit::Stopped
            | Exit::InDoubt
            | Exit::Approval
            | Exit::Quota { .. }
            | Exit::Question
            | Exit::NeedsCredentials(_) => LAST_LOOK_WITHIN,
        };
        if tokio::time::timeout(within, self.finish_files()).await.is_err()
            && let Some(unseen) = self.agent.snapshots.as_ref().and_then(|snapshots| snapshots.unseen())
        {
            let after = self.files.changed_in;
            let unseen = Body::Snapshot(Box::new(Snapshot { after, ..*unseen }));
            let _ = self.record(unseen, Durability::Deferred).await;
        }
    }

    async fn finish_files(&mut self) {
        loop {
            if self.files.is_changed {
                self.look_at_files(self.files.changed_in.saturating_add(1));
            }
            // A first look that no change followed is of no use.
            let Some(pending) = self.files.pending.take().filter(|look| look.occasion == Occasion::Step) else {
                return;
            };
            if let Some(snapshot) = self.seen(pending).await {
                let _ = self.record(Body::Snapshot(snapshot), Durability::Deferred).await;
            }
        }
    }

    async fn seen(&mut self, mut pending: PendingLook) -> Option<Box<Snapshot>> {
        let seen = (&mut pending.task).await.unwrap_or_default();
        let after = pending.after;
        self.tell(&pending, seen, after)
    }

    fn tell(&self, pending: &PendingLook, seen: Seen, now: u32) -> Option<Box<Snapshot>> {
        if let Some(text) = seen.notice {
            self.event("snapshots_off", json!({"text": text}));
        }
        if let Some(text) = seen.missing {
            self.event("snapshot_missing", json!({"text": text, "after": pending.after}));
        }
        // Until the first change the files are what they were at the start.
        let after = if pending.occasion == Occasion::Start { now } else { pending.after };
        seen.record.map(|record| Box::new(Snapshot { after, ..*record }))
    }
}
