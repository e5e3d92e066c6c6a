//! The looks of running processes at their files: a snapshot gets into the journal only with the next record, and until
//! then this is where it is known.

use std::sync::Arc;
use std::time::Duration;

use relive_agent::snapshots::Seen;
use relive_core::Uuid;
use relive_journal::record::Snapshot as Record;
use tokio::sync::watch;

use super::{Workspaces, lock};

/// The looks of one run of a process.
#[derive(Debug, Default)]
pub(super) struct Looks(watch::Sender<LookState>);

/// How far the files of a running process are known.
#[derive(Debug, Clone, Default)]
struct LookState {
    /// Whether calls have changed files since the last look.
    is_due: bool,
    last: Option<Look>,
}

/// A look at the files after a step.
#[derive(Debug, Clone)]
pub(crate) struct Look {
    pub(crate) after: u32,
    /// The record; absent if nothing had changed.
    pub(crate) record: Option<Box<Record>>,
    /// Whether the files were seen.
    pub(crate) is_seen: bool,
}

/// The outcome of waiting for a look.
#[derive(Debug)]
pub(crate) enum Awaited {
    Looked(Look),
    /// Nobody looks at its files now: its journal says what is known.
    Stopped,
    NotInTime,
}

impl Looks {
    /// Notes the outcome of a look. Where snapshots are off, nobody looked.
    pub(super) fn publish(&self, after: u32, seen: &Seen, is_off: bool) {
        let record = seen.record.as_ref().map(|record| Box::new(Record { after, ..(**record).clone() }));
        let is_seen = seen.missing.is_none() && seen.notice.is_none() && !is_off;
        self.0.send_replace(LookState { is_due: false, last: Some(Look { after, record, is_seen }) });
    }

    /// Notes that files may have changed.
    pub(super) fn expect_one(&self) {
        self.0.send_modify(|state| state.is_due = true);
    }
}

impl Workspaces {
    pub(super) fn begin_looks(&self, uuid: Uuid) -> Arc<Looks> {
        let looks = Arc::new(Looks::default());
        lock(&self.0.looks).insert(uuid, Arc::clone(&looks));
        looks
    }

    pub(super) fn end_looks(&self, uuid: Uuid, looks: &Arc<Looks>) {
        let mut all = lock(&self.0.looks);
        // The next run may have begun.
        if all.get(&uuid).is_some_and(|known| Arc::ptr_eq(known, looks)) {
            all.remove(&uuid);
        }
    }

    fn looks_of(&self, uuid: Uuid) -> Option<watch::Receiver<LookState>> {
        lock(&self.0.looks).get(&uuid).map(|looks| looks.0.subscribe())
    }

    /// Waits for the look of a running process at the files after a step.
    pub(crate) async fn await_look(&self, uuid: Uuid, step: u32, within: Duration) -> Awaited {
        let Some(mut looks) = self.looks_of(uuid) else { return Awaited::Stopped };
        // After a start of the daemon none is due: the look that was not recorded before is lost.
        match tokio::time::timeout(within, looks.wait_for(|state| !state.is_due)).await {
            Ok(Ok(state)) => {
                let look = state.last.clone().filter(|look| look.after >= step);
                look.map_or(Awaited::Stopped, Awaited::Looked)
            }
            Ok(Err(_)) => Awaited::Stopped,
            Err(_) => Awaited::NotInTime,
        }
    }

    /// Returns the last look of a running process, after waiting for one that is due.
    pub(crate) async fn last_look(&self, uuid: Uuid, within: Duration) -> Awaited {
        let Some(mut looks) = self.looks_of(uuid) else { return Awaited::Stopped };
        match tokio::time::timeout(within, looks.wait_for(|state| !state.is_due)).await {
            Ok(Ok(state)) => state.last.clone().map_or(Awaited::Stopped, Awaited::Looked),
            Ok(Err(_)) => Awaited::Stopped,
            Err(_) => Awaited::NotInTime,
        }
    }
}
