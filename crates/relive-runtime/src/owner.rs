//! One owner per process: every verb and every record of a body waits for its turn there.
//!
//! A turn decides on a draft of the process, writes the records, publishes the draft and ends; nobody else changes the
//! process meanwhile. Turns come in the order in which they were asked for. An owner exists while somebody has a turn,
//! waits for one, or a body runs: a suspended agent has none.

mod turn;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use relive_agent::{Orders, Pulse};
use relive_core::{ErrorCode, Incarnation, Uuid};
use relive_journal::journal::Event;
use relive_journal::{JournalError, OpenJournal, SyncedEnd};
use tokio::sync::watch;

use crate::bodies::{LiveSession, Prepared};
use crate::error::{Error, Result};

pub(crate) use turn::{Change, Turn};

/// How many verbs may wait for one process.
const WAITING_MAX: usize = 64;
/// How many events of one process may wait to be written.
const EVENTS_MAX: usize = 4096;
/// How many more of those that stop or end it.
const URGENT_MAX: usize = 8;

/// The owners that exist.
#[derive(Debug, Clone, Default)]
pub(crate) struct Owners {
    by_uuid: Arc<Mutex<HashMap<Uuid, Weak<Owner>>>>,
}

impl Owners {
    fn lock(&self) -> MutexGuard<'_, HashMap<Uuid, Weak<Owner>>> {
        self.by_uuid.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the owner of a process, whether or not the process exists.
    pub(crate) fn of(&self, uuid: Uuid) -> Arc<Owner> {
        let mut owners = self.lock();
        if let Some(owner) = owners.get(&uuid).and_then(Weak::upgrade) {
            return owner;
        }
        let owner = Arc::new(Owner {
            uuid,
            state: Arc::default(),
            body: Mutex::default(),
            events: Mutex::default(),
            settle_is_due: AtomicBool::new(false),
            info_is_due: AtomicBool::new(false),
            waiting: AtomicUsize::new(0),
            synced_end: Mutex::default(),
            owners: self.clone(),
        });
        owners.insert(uuid, Arc::downgrade(&owner));
        owner
    }

    /// Returns the owner of a process that has a turn or a body.
    pub(crate) fn find(&self, uuid: Uuid) -> Option<Arc<Owner>> {
        self.lock().get(&uuid).and_then(Weak::upgrade)
    }
}

/// How a turn is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lane {
    /// A verb: refused when too many wait.
    Verb,
    /// A verb that stops or ends the process: it has places of its own.
    Urgent,
    /// The process's own body, or the runtime: never refused.
    Own,
}

/// The owner of one process.
#[derive(Debug)]
pub(crate) struct Owner {
    pub(crate) uuid: Uuid,
    state: Arc<tokio::sync::Mutex<TurnState>>,
    /// Beside the state, so that orders reach the body without a turn.
    body: Mutex<Option<BodyHandle>>,
    /// Events of the body that are not written yet.
    events: Mutex<Vec<Event>>,
    /// Whether somebody will write them soon.
    settle_is_due: AtomicBool,
    /// Whether the snapshot is to be written then.
    info_is_due: AtomicBool,
    waiting: AtomicUsize,
    /// How much of the journal is on the disk, while it is open.
    synced_end: Mutex<Option<SyncedEnd>>,
    owners: Owners,
}

/// What a turn works with.
#[derive(Debug, Default)]
pub(crate) struct TurnState {
    /// Open while a body runs, and during a turn that needs it.
    pub(crate) journal: Option<OpenJournal>,
    /// Why records of the body that it did not wait for could not be written.
    pub(crate) unrecorded: Option<JournalError>,
    /// Messages that were recorded and that the body has not taken in.
    pub(crate) said: Vec<String>,
    /// For the body that is about to start.
    pub(crate) prepared: Prepared,
}

/// A body that runs.
#[derive(Debug)]
pub(crate) struct BodyHandle {
    pub(crate) orders: watch::Sender<Orders>,
    pub(crate) of: Incarnation,
    /// Since when it owes progress; a body that never does leaves it as it is.
    pub(crate) pulse: Pulse,
    /// The session of a program, as soon as it answers.
    pub(crate) session: watch::Receiver<Option<LiveSession>>,
}

/// Counts a verb while it waits for its turn.
struct Waiting<'a>(&'a Owner);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Owner {
    /// Waits for the state.
    pub(crate) async fn wait_for_turn(&self, lane: Lane) -> Result<tokio::sync::OwnedMutexGuard<TurnState>> {
        let most = match lane {
            Lane::Verb => WAITING_MAX,
            Lane::Urgent => WAITING_MAX + URGENT_MAX,
            Lane::Own => usize::MAX,
        };
        let before = self.waiting.fetch_add(1, Ordering::Relaxed);
        let _waiting = Waiting(self);
        if before >= most {
            let message = format!("too many requests wait for process {}: {before}", self.uuid);
            return Err(Error::new(ErrorCode::Exhausted, message).with_hint("try again in a moment"));
        }
        Ok(Arc::clone(&self.state).lock_owned().await)
    }

    fn body(&self) -> MutexGuard<'_, Option<BodyHandle>> {
        self.body.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn has_body(&self) -> bool {
        self.body().is_some()
    }

    pub(crate) fn set_body(&self, body: BodyHandle) {
        *self.body() = Some(body);
    }

    /// Forgets the body of an incarnation; `false` if there is none of it.
    pub(crate) fn drop_body(&self, of: Incarnation) -> bool {
        self.body().take_if(|body| body.of == of).is_some()
    }

    /// Changes the orders of the body; `false` if there is none.
    pub(crate) fn order(&self, change: impl FnOnce(&mut Orders)) -> bool {
        match &*self.body() {
            Some(body) => {
                body.orders.send_modify(change);
                true
            }
            None => false,
        }
    }

    /// Returns the end of the records that are on the disk; nothing if the journal is not open.
    pub(crate) fn synced_end(&self) -> Option<u64> {
        self.synced_end.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map(SyncedEnd::get)
    }

    pub(crate) fn set_synced_end(&self, synced_end: Option<SyncedEnd>) {
        *self.synced_end.lock().unwrap_or_else(PoisonError::into_inner) = synced_end;
    }

    /// Returns which incarnation runs, and since when its body owes progress.
    pub(crate) fn owes_since(&self) -> Option<(Incarnation, Option<tokio::time::Instant>)> {
        self.body().as_ref().map(|body| (body.of, body.pulse.owes_since()))
    }

    /// Returns when the body asks a model again that has failed.
    pub(crate) fn asks_again_at(&self) -> Option<tokio::time::Instant> {
        self.body().as_ref().and_then(|body| body.pulse.asks_again_at())
    }

    /// Looks at what the journal of a process that runs amounts to, between two turns. Nothing where a turn takes longer
    /// than that.
    pub(crate) async fn look<T>(
        &self,
        until: tokio::time::Instant,
        look: impl FnOnce(&relive_journal::History) -> T,
    ) -> Option<T> {
        let state = match self.state.try_lock() {
            Ok(state) => state,
            Err(_) => tokio::time::timeout_at(until, self.state.lock()).await.ok()?,
        };
        state.journal.as_ref()?.history().ok().map(look)
    }

    /// Returns the session of a program that runs.
    pub(crate) fn session(&self) -> Option<watch::Receiver<Option<LiveSession>>> {
        self.body().as_ref().map(|body| body.session.clone())
    }

    /// Keeps an event to be written with the next records.
    pub(crate) fn push_event(&self, event: Event) {
        let mut events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        // Events are never acknowledged: while the disk is stuck, the later ones are dropped.
        if events.len() < EVENTS_MAX {
            events.push(event);
        }
    }

    /// Takes it on to write the events that wait; `false` if somebody else has.
    pub(crate) fn claim_settle(&self) -> bool {
        !self.settle_is_due.swap(true, Ordering::AcqRel)
    }

    /// Gives that up, before the events are taken.
    pub(crate) fn release_settle(&self) {
        self.settle_is_due.store(false, Ordering::Release);
    }

    /// Has the snapshot written with the events that wait.
    pub(crate) fn info_is_due(&self) {
        self.info_is_due.store(true, Ordering::Release);
    }

    pub(crate) fn take_info_due(&self) -> bool {
        self.info_is_due.swap(false, Ordering::AcqRel)
    }

    pub(crate) fn take_events(&self) -> Vec<Event> {
        std::mem::take(&mut *self.events.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        let mut owners = self.owners.lock();
        if owners.get(&self.uuid).is_some_and(|owner| owner.strong_count() == 0) {
            owners.remove(&self.uuid);
        }
    }
}

#[cfg(test)]
mod tests {
    use relive_core::{Generation, Pid};

    use super::*;

    /// Two requests to end a process may both find it without a body. The later one comes when the process is resumed.
    #[test]
    fn a_late_end_of_an_incarnation_leaves_the_next_one_its_body() {
        let owner = Owners::default().of(Uuid::from_u128(1));
        let [first, second] = [1, 2].map(|number| Incarnation { pid: Pid(number), generation: Generation(number) });
        let handle = |of| {
            let (orders, session) = (watch::channel(Orders::default()).0, watch::channel(None).1);
            BodyHandle { orders, of, pulse: Pulse::default(), session }
        };
        owner.set_body(handle(first));
        assert!(owner.drop_body(first));
        owner.set_body(handle(second));
        assert!(!owner.drop_body(first));
        assert!(owner.has_body());
    }
}
