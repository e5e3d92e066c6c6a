//! The feed of all processes: which of them have changed since a position.
//!
//! A process is in it once, at its last change, so a reader that is slow gets fewer changes and never a longer queue. A
//! position belongs to one daemon: a reader that comes from another one, or has been away for too long, begins anew.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use relive_api::{Change, Process, item_of};
use relive_core::{ErrorCode, Pid, Timestamp, Uuid};
use tokio::sync::watch;

use crate::inbox::needs_somebody;
use crate::lookup::OnDisk;
use crate::runtime::Runtime;
use crate::view::of_disk;

/// How many processes the feed remembers the last change of. More than are alive on any machine.
const REMEMBERED_MAX: usize = 65_536;
/// How many processes one batch has.
const BATCH: usize = 256;
/// After what time something that could not be found out is looked at again.
const LIST_AGAIN_AFTER: Duration = Duration::from_secs(1);

/// Which process changed last, and when, as positions.
#[derive(Debug, Clone)]
pub(crate) struct Feed {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    changes: Mutex<Log>,
    bell: watch::Sender<u64>,
}

impl Shared {
    /// Rings with a position. Another one may have rung with a later one since the lock was released: the bell never goes
    /// back, or a reader between the two would sleep.
    fn ring(&self, position: u64) {
        self.bell.send_if_modified(|last| {
            let is_later = position > *last;
            if is_later {
                *last = position;
            }
            is_later
        });
    }
}

#[derive(Debug, Default)]
struct Log {
    /// The position of the last change.
    last: u64,
    /// Changes up to this one may be forgotten.
    forgotten: u64,
    by_position: BTreeMap<u64, Uuid>,
    of: HashMap<Uuid, u64>,
}

impl Default for Feed {
    fn default() -> Self {
        Self { shared: Arc::new(Shared { changes: Mutex::default(), bell: watch::Sender::new(0) }) }
    }
}

impl Feed {
    fn lock(&self) -> MutexGuard<'_, Log> {
        self.shared.changes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns what rings at every change, with its position.
    pub(crate) fn bell(&self) -> watch::Receiver<u64> {
        self.shared.bell.subscribe()
    }

    /// Returns the position of the last change.
    pub(crate) fn last(&self) -> u64 {
        self.lock().last
    }

    /// Tells whether a process has changed in this daemon, as far as that is remembered.
    pub(crate) fn has_noted(&self, uuid: Uuid) -> bool {
        self.lock().of.contains_key(&uuid)
    }

    /// Returns the position of the last change of a process, 0 if there was none; `None` if that may be forgotten.
    pub(crate) fn noted(&self, uuid: Uuid) -> Option<u64> {
        let log = self.lock();
        log.of.get(&uuid).copied().or((log.forgotten == 0).then_some(0))
    }

    /// Notes that a process has changed.
    pub(crate) fn note(&self, uuid: Uuid) {
        let last = self.lock().note(uuid);
        self.shared.ring(last);
    }
}

impl Log {
    fn note(&mut self, uuid: Uuid) -> u64 {
        self.last += 1;
        if let Some(before) = self.of.insert(uuid, self.last) {
            self.by_position.remove(&before);
        }
        self.by_position.insert(self.last, uuid);
        if self.by_position.len() > REMEMBERED_MAX
            && let Some((position, uuid)) = self.by_position.pop_first()
        {
            self.forgotten = position;
            self.of.remove(&uuid);
        }
        self.last
    }

    /// Returns up to `max` processes that have changed after a position, and the position after them; `None` if some
    /// may be forgotten.
    fn since(&self, position: u64, max: usize) -> Option<(Vec<Uuid>, u64)> {
        if position < self.forgotten || position > self.last {
            return None;
        }
        let changed: Vec<(u64, Uuid)> =
            self.by_position.range(position + 1..).take(max).map(|(at, uuid)| (*at, *uuid)).collect();
        let next = if changed.len() < max { self.last } else { changed.last().map_or(self.last, |(at, _)| *at) };
        Some((changed.into_iter().map(|(_, uuid)| uuid).collect(), next))
    }
}

/// A reader of the feed.
#[derive(Debug)]
pub struct FeedReader {
    runtime: Arc<Runtime>,
    bell: watch::Receiver<u64>,
    position: u64,
    /// Present while the reader gets everything there is: the PID after which it continues.
    listing: Option<Listing>,
    /// When the reader was last told of a change.
    since: Option<Timestamp>,
    /// Whether the reader knows all that there was when it began.
    is_ready: bool,
    /// Whether ended processes were missing from the index: they are listed when it is complete.
    lists_again: bool,
}

#[derive(Debug, Clone, Copy)]
enum Listing {
    Begin,
    Living { after: Pid },
    Ended,
}

/// The next part of a feed.
#[derive(Debug)]
pub struct FeedPart {
    /// Whether everything that the reader knows is to be forgotten.
    pub reset: bool,
    pub changes: Vec<Change>,
    /// The id to continue after; absent while everything is listed.
    pub id: Option<String>,
    /// Present if the reader knows now all that there was when it began.
    pub ready: Option<FeedReady>,
}

/// The reader of a feed knows everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FeedReady {
    /// Whether processes that have ended may be missing.
    pub incomplete: bool,
}

impl FeedReader {
    /// Opens the feed after the id that a reader has seen last, as far as this daemon knows it.
    pub(crate) fn open(runtime: Arc<Runtime>, after: Option<&str>) -> Self {
        let seen = after.and_then(parse_id);
        let since = seen.as_ref().and_then(|(_, _, at)| *at);
        let known = seen.filter(|(daemon, position, _)| {
            *daemon == runtime.started_id() && runtime.changes.feed().lock().since(*position, 1).is_some()
        });
        let bell = runtime.changes.feed().shared.bell.subscribe();
        match known {
            Some((_, position, _)) => {
                Self { runtime, bell, position, listing: None, since, is_ready: false, lists_again: false }
            }
            None => {
                let (position, listing) = (runtime.changes.feed().lock().last, Some(Listing::Begin));
                Self { runtime, bell, position, listing, since, is_ready: false, lists_again: false }
            }
        }
    }

    /// Opens the feed after a position of this daemon.
    pub(crate) fn after(runtime: Arc<Runtime>, position: u64) -> Self {
        let bell = runtime.changes.feed().bell();
        Self { runtime, bell, position, listing: None, since: None, is_ready: false, lists_again: false }
    }

    pub(crate) fn position(&self) -> u64 {
        self.position
    }

    /// Waits until there is something new.
    pub async fn changed(&mut self) {
        if self.listing.is_some() {
            return;
        }
        let (position, lists_again) = (self.position, self.lists_again);
        tokio::select! {
            _ = self.bell.wait_for(|last| *last > position) => {}
            () = tokio::time::sleep(LIST_AGAIN_AFTER), if lists_again => {}
        }
    }

    /// Returns what there is, without waiting.
    pub async fn next(&mut self) -> FeedPart {
        match self.listing {
            Some(Listing::Begin) => {
                self.listing = Some(Listing::Living { after: Pid::RUNTIME });
                FeedPart { reset: true, changes: Vec::new(), id: None, ready: None }
            }
            Some(Listing::Living { after }) => {
                let (changes, last) = self.living(after).await;
                self.listing = Some(last.map_or(Listing::Ended, |after| Listing::Living { after }));
                FeedPart { reset: false, changes, id: None, ready: None }
            }
            Some(Listing::Ended) => {
                self.listing = None;
                self.list_ended().await
            }
            None if self.lists_again && self.runtime.catalog.is_complete() => self.list_ended().await,
            None => self.changes().await,
        }
    }

    async fn list_ended(&mut self) -> FeedPart {
        let is_rebuilt = self.runtime.catalog.is_complete();
        let (changes, is_all) = self.ended().await;
        (self.is_ready, self.lists_again) = (true, !is_rebuilt);
        FeedPart { reset: false, changes, id: Some(self.id()), ready: Some(FeedReady { incomplete: !is_all }) }
    }

    async fn changes(&mut self) -> FeedPart {
        let since = self.runtime.changes.feed().lock().since(self.position, BATCH);
        let Some((changed, next)) = since else {
            self.position = self.runtime.changes.feed().lock().last;
            self.listing = Some(Listing::Living { after: Pid::RUNTIME });
            return FeedPart { reset: true, changes: Vec::new(), id: None, ready: None };
        };
        self.position = next;
        let is_last = changed.len() < BATCH;
        let patience = crate::doing::patience();
        let mut changes = Vec::with_capacity(changed.len());
        for uuid in changed {
            changes.extend(self.change_of(uuid, patience).await);
        }
        let ready = (is_last && !self.is_ready).then_some(FeedReady { incomplete: false });
        self.is_ready |= is_last;
        FeedPart { reset: false, changes, id: Some(self.id()), ready }
    }

    /// Returns what is known of a process; `None` if that cannot be found out just now. Then it is told of later.
    async fn change_of(&self, uuid: Uuid, patience: tokio::time::Instant) -> Option<Change> {
        let living = {
            let state = self.runtime.lock();
            let pid = state.table.current_pid(uuid);
            let view = pid.and_then(|pid| state.table.view(pid, self.runtime.moment()));
            view.filter(|view| view.dead_at.is_none()).map(|view| self.runtime.shown(&state, &view))
        };
        let process = match living {
            Some(process) => Some(self.whole(process, patience).await),
            None => match self.runtime.current_row(uuid).await {
                Ok(row) => row.and_then(|row| OnDisk::last(row.info)).map(of_disk),
                Err(error) => {
                    if error.code() == ErrorCode::Unavailable {
                        self.tell_later(uuid);
                    }
                    return None;
                }
            },
        };
        Some(Change { uuid, item: process.as_ref().and_then(item_of), process })
    }

    /// Notes a change again in a moment.
    fn tell_later(&self, uuid: Uuid) {
        let feed = self.runtime.changes.feed().clone();
        tokio::spawn(async move {
            tokio::time::sleep(LIST_AGAIN_AFTER).await;
            feed.note(uuid);
        });
    }

    async fn whole(&self, process: Process, patience: tokio::time::Instant) -> Process {
        let process = self.runtime.with_doing(process, patience).await;
        if needs_somebody(process.suspend_reason, process.stalled) {
            return self.runtime.with_waiting(process).await;
        }
        process
    }

    /// Returns living processes after a PID, and the last PID if there may be more.
    async fn living(&self, after: Pid) -> (Vec<Change>, Option<Pid>) {
        let page: Vec<Process> = {
            let state = self.runtime.lock();
            let views = state.table.processes_after(after, self.runtime.moment()).take(BATCH);
            views.map(|view| self.runtime.shown(&state, &view)).collect()
        };
        let last = page.last().map(|process| process.pid).filter(|_| page.len() == BATCH);
        let patience = crate::doing::patience();
        let mut changes = Vec::with_capacity(page.len());
        for process in page {
            let process = self.whole(process, patience).await;
            changes.push(Change { uuid: process.uuid, item: item_of(&process), process: Some(process) });
        }
        (changes, last)
    }

    /// Returns what has ended and nobody has seen, what cannot be recovered, and what ended since the reader was here.
    /// And whether these are all.
    async fn ended(&self) -> (Vec<Change>, bool) {
        let (mut ended, is_all) = self.runtime.ended_unseen().await;
        ended.extend(self.runtime.unrecovered.shown());
        if let Some(since) = self.since {
            let state = self.runtime.lock();
            let views = state.table.ended().filter(|view| view.dead_at.is_some_and(|at| at >= since));
            let views = views.filter(|view| view.successor_pid.is_none());
            let known: std::collections::HashSet<Uuid> = ended.iter().map(|process| process.uuid).collect();
            ended
                .extend(views.filter(|view| !known.contains(&view.uuid)).map(|view| self.runtime.shown(&state, &view)));
        }
        let change = |process: Process| Change { uuid: process.uuid, item: item_of(&process), process: Some(process) };
        (ended.into_iter().map(change).collect(), is_all)
    }

    fn id(&self) -> String {
        format!("{}-{}-{}", self.runtime.started_id(), self.position, self.runtime.now().as_millisecond())
    }
}

impl Runtime {
    /// Returns what tells this daemon from every other one.
    fn started_id(&self) -> String {
        format!("{:x}.{:x}", self.started_ms, std::process::id())
    }
}

/// Returns the daemon, the position and the time of an id.
fn parse_id(id: &str) -> Option<(String, u64, Option<Timestamp>)> {
    let mut parts = id.splitn(3, '-');
    let (daemon, position, at) = (parts.next()?, parts.next()?, parts.next()?);
    let at = at.parse().ok().and_then(|millis| Timestamp::from_millisecond(millis).ok());
    Some((daemon.to_owned(), position.parse().ok()?, at))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uuid(n: usize) -> Uuid {
        Uuid::from_u128(n as u128)
    }

    #[test]
    fn a_process_is_in_the_feed_once_at_its_last_change() {
        let mut log = Log::default();
        for n in [1, 2, 1, 3, 1] {
            log.note(uuid(n));
        }
        assert_eq!(log.since(0, 10), Some((vec![uuid(2), uuid(3), uuid(1)], 5)));
        assert_eq!(log.since(4, 10), Some((vec![uuid(1)], 5)));
        assert_eq!(log.since(5, 10), Some((vec![], 5)));
        assert_eq!(log.since(0, 2), Some((vec![uuid(2), uuid(3)], 4)), "the next part begins where this one ends");
        assert_eq!(log.since(6, 10), None, "a position of another daemon");
    }

    #[test]
    fn a_reader_that_was_away_for_too_long_begins_anew() {
        let mut log = Log::default();
        for n in 0..=REMEMBERED_MAX {
            log.note(uuid(n));
        }
        assert_eq!(log.since(0, 1), None);
        assert_eq!(log.since(1, 1).map(|(changed, _)| changed), Some(vec![uuid(1)]));
        assert_eq!(log.of.len(), REMEMBERED_MAX);
    }

    #[test]
    fn the_bell_never_goes_back() {
        let feed = Feed::default();
        let bell = feed.bell();
        feed.shared.ring(6);
        // Noted before, and rung after.
        feed.shared.ring(5);
        assert_eq!(*bell.borrow(), 6);
    }

    #[test]
    fn ids_name_the_daemon_the_position_and_the_time() {
        let (daemon, position, at) = parse_id("a.b-7-1000").unwrap();
        assert_eq!((daemon.as_str(), position, at), ("a.b", 7, Timestamp::from_millisecond(1000).ok()));
        assert!(["", "a", "a-b-c", "a-1"].iter().all(|id| parse_id(id).is_none()));
    }
}
