//! A process that is served: its port, its lease, its log, and what its calls are doing.

mod doing;

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use tokio::net::TcpListener;
use tokio::sync::watch;
use uuid::Uuid;

pub(crate) use self::doing::Doing;
use self::doing::What;
use crate::gates::{Gate, Limit, gate};
use crate::hooks::{Hook, Hooks};
use crate::listen::{self, listen};
use crate::log::{Asked, Begun, Ended, Log};
use crate::protocol::{Auth, Entry, Facts, Lease, Wanted};

/// How often to look what the gateway before has recorded, while it has calls.
const FOLLOW_EVERY: Duration = Duration::from_millis(50);
/// How long the gateway before may take to record the calls of a program that has ended.
const RECORDED_WITHIN: Duration = Duration::from_secs(3);

/// How long to wait before something is recorded again that did not fit on the disk.
const SPACE_AGAIN: Duration = Duration::from_millis(200);

/// A process that is served.
#[derive(Debug)]
pub(crate) struct Served {
    pub(crate) uuid: Uuid,
    pub(crate) port: u16,
    target: Mutex<Target>,
    lease: watch::Sender<Lease>,
    log: Arc<Mutex<CountedLog>>,
    state: Mutex<State>,
    facts: Mutex<Facts>,
    hooks: Mutex<Hooks>,
    /// Rings when the facts have changed.
    bell: watch::Sender<()>,
    closing: watch::Sender<bool>,
    /// Whether another gateway serves the process now, and this one only ends its calls.
    retired: watch::Sender<bool>,
    /// Whether new connections are accepted.
    accepting: watch::Sender<bool>,
    /// The number of connections, and of calls under way.
    open: watch::Sender<usize>,
    /// Whether the calls of the gateway before are followed no longer: they have ended, or the process is forgotten.
    is_sole: watch::Sender<bool>,
}

/// Where calls go.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    token: String,
    pub(crate) upstream: String,
    pub(crate) auth: Auth,
}

#[derive(Debug)]
struct State {
    /// The number of the next call.
    next: u64,
    in_flight: u32,
    held: u32,
    /// How much waits to be recorded, because the disk is full.
    unrecorded: u32,
    limited: Option<Limit>,
    wanted: BTreeMap<u64, String>,
    logged: Logged,
}

/// What is known of the log without waiting for it.
#[derive(Debug, Clone, Copy)]
struct Logged {
    /// Grows with every change of the log, so that an earlier state does not replace a later one.
    change: u64,
    /// The tokens that the lease does not know of.
    unsettled: u64,
    length: u64,
    /// Calls of the gateway before that are open.
    inherited: usize,
}

/// The log, and how often it was changed.
#[derive(Debug)]
struct CountedLog {
    log: Log,
    changes: u64,
}

impl CountedLog {
    fn logged(&mut self) -> Logged {
        self.changes += 1;
        let log = &self.log;
        let (unsettled, inherited) = (log.unsettled(), log.inherited());
        Logged { change: self.changes, unsettled, length: log.length, inherited }
    }
}

/// What becomes of a call that waited for its turn.
#[derive(Debug)]
pub(crate) enum Passed {
    Open,
    Refused(String),
}

impl Served {
    /// Opens the log of a process and its port: the socket that listens there already, if there is one. It blocks.
    pub(crate) fn open(
        entry: Entry,
        listener: Option<OwnedFd>,
        hooks: Hooks,
        bell: watch::Sender<()>,
    ) -> io::Result<(Arc<Self>, TcpListener)> {
        let Entry { uuid, port, token, upstream, auth, directory, lease } = entry;
        let listener = listener.map_or_else(|| listen(port), Ok)?;
        let (listener, port) = listen::accept_at(listener, port)?;
        let mut log = CountedLog { log: Log::open(&directory, lease.settled)?, changes: 0 };
        let logged = log.logged();
        let (next, wanted) = (log.log.next, BTreeMap::new());
        let state = State { next, in_flight: 0, held: 0, unrecorded: 0, limited: None, wanted, logged };
        let served = Arc::new(Self {
            uuid,
            port,
            target: Mutex::new(Target { token, upstream, auth }),
            lease: watch::Sender::new(lease),
            log: Arc::new(Mutex::new(log)),
            state: Mutex::new(state),
            facts: Mutex::default(),
            hooks: Mutex::new(hooks),
            bell,
            closing: watch::Sender::new(false),
            retired: watch::Sender::new(false),
            accepting: watch::Sender::new(true),
            open: watch::Sender::new(0),
            is_sole: watch::Sender::new(logged.inherited == 0),
        });
        served.publish();
        Ok((served, listener))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes over the key, the address and the lease of an entry of a later daemon.
    pub(crate) fn renew(&self, entry: Entry) {
        let target = Target { token: entry.token, upstream: entry.upstream, auth: entry.auth };
        *self.target.lock().unwrap_or_else(PoisonError::into_inner) = target;
        self.set_lease(entry.lease);
    }

    pub(crate) fn set_lease(&self, lease: Lease) {
        let logged = {
            let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
            log.log.settle(lease.settled);
            log.logged()
        };
        self.note(logged);
        self.lease.send_replace(lease);
        self.publish();
    }

    pub(crate) fn target(&self) -> Target {
        self.target.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn facts(&self) -> Facts {
        self.facts.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits until the process is to be served no longer.
    pub(crate) async fn closing(&self) {
        // The sender is this one.
        drop(self.closing.subscribe().wait_for(|closing| *closing).await);
    }

    /// Ends all calls, and waits until they are recorded. Those of the gateway before end with the program: they are
    /// waited for until [`Self::follow_predecessor`] gives up.
    pub(crate) async fn close(&self) {
        self.closing.send_replace(true);
        // The senders are this one.
        let _ = self.open.subscribe().wait_for(|open| *open == 0).await;
        let _ = self.is_sole.subscribe().wait_for(|is_sole| *is_sole).await;
    }

    /// Leaves the process to another gateway: accepts no connection and begins no call from now on. Calls that wait are
    /// passed on to the other one, and those that the provider has are ended here.
    pub(crate) async fn retire(&self) -> io::Result<()> {
        self.retired.send_replace(true);
        self.with_log(Log::retire).await?;
        // The sender is this one.
        let _ = self.accepting.subscribe().wait_for(|accepting| !accepting).await;
        Ok(())
    }

    pub(crate) fn is_retired(&self) -> bool {
        *self.retired.borrow()
    }

    /// Waits until another gateway serves the process.
    pub(crate) async fn retired(&self) {
        // The sender is this one.
        drop(self.retired.subscribe().wait_for(|retired| *retired).await);
    }

    /// Notes that no more connections are accepted.
    pub(crate) fn accepts_no_more(&self) {
        self.accepting.send_replace(false);
    }

    /// Waits until nobody is connected and no call is under way.
    pub(crate) async fn drained(&self) {
        // The sender is this one.
        let _ = self.open.subscribe().wait_for(|open| *open == 0).await;
    }

    /// Follows the calls of the gateway before until all of them have ended, but not for long after the process is
    /// forgotten.
    pub(crate) async fn follow_predecessor(&self) {
        let is_late = async {
            self.closing().await;
            tokio::time::sleep(RECORDED_WITHIN).await;
        };
        tokio::select! {
            () = self.predecessor_ended() => {}
            () = is_late => {}
        }
        self.is_sole.send_replace(true);
    }

    async fn predecessor_ended(&self) {
        loop {
            let followed = self.with_log(|log| log.follow().map(|open| open == 0)).await;
            self.publish();
            if matches!(followed, Ok(true)) || self.is_retired() {
                return;
            }
            tokio::time::sleep(FOLLOW_EVERY).await;
        }
    }

    fn publish(&self) {
        let is_holding = self.lease.borrow().hold;
        let hooks = Some(self.hooks().last());
        let facts = {
            let state = self.state();
            Facts {
                log: state.logged.length,
                in_flight: state.in_flight + u32::try_from(state.logged.inherited).unwrap_or(u32::MAX),
                held: state.held,
                is_disk_full: state.unrecorded > 0,
                limited_until_ms: state.limited.map(|limit| limit.until.as_millisecond()),
                limited_call: state.limited.map(|limit| limit.told),
                wanted: state
                    .wanted
                    .iter()
                    .map(|(number, model)| Wanted { number: *number, model: model.clone() })
                    .collect(),
                is_holding,
                hooks,
            }
        };
        let mut known = self.facts.lock().unwrap_or_else(PoisonError::into_inner);
        if *known != facts {
            *known = facts;
            drop(known);
            self.bell.send_replace(());
        }
    }

    fn hooks(&self) -> MutexGuard<'_, Hooks> {
        self.hooks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps the body of a hook; `false` if it is none.
    pub(crate) fn take_hook(&self, body: &[u8]) -> bool {
        let is_one = self.hooks().add(body);
        self.publish();
        is_one
    }

    /// Returns hooks after a number, the first ones first.
    pub(crate) fn hooks_after(&self, number: u64) -> Vec<Hook> {
        self.hooks().after(number)
    }

    /// Returns the number of a new call.
    pub(crate) fn number(&self) -> u64 {
        let mut state = self.state();
        state.next += 1;
        state.next - 1
    }

    /// Keeps the process from being forgotten, and this gateway from ending, while a connection or a call is under way.
    pub(crate) fn exist(self: &Arc<Self>) -> Doing {
        Doing::begin(self, What::Existing)
    }

    /// Counts a call that the provider has.
    pub(crate) fn ask(self: &Arc<Self>) -> Doing {
        Doing::begin(self, What::Asking)
    }

    /// Waits until a call may be made.
    pub(crate) async fn pass(self: &Arc<Self>, number: u64, model: &str) -> Passed {
        let mut lease = self.lease.subscribe();
        let mut waiting: Option<Doing> = None;
        let mut wanting: Option<Doing> = None;
        loop {
            let (unsettled, limited) = {
                let state = self.state();
                (state.logged.unsettled, state.limited)
            };
            let verdict = gate(&lease.borrow_and_update(), number, unsettled, limited, Timestamp::now());
            let until = match verdict {
                Gate::Open => {
                    self.clear_limit();
                    return Passed::Open;
                }
                Gate::Refuse(reason) => return Passed::Refused(reason),
                Gate::Asks => {
                    self.state().wanted.insert(number, model.to_owned());
                    wanting.get_or_insert_with(|| Doing::begin(self, What::Wanting(number)));
                    None
                }
                Gate::Held => {
                    waiting.get_or_insert_with(|| Doing::begin(self, What::Waiting));
                    None
                }
                Gate::Limited(until) => {
                    waiting.get_or_insert_with(|| Doing::begin(self, What::Waiting));
                    Some(until)
                }
            };
            let left = until.map(|until| until.duration_since(Timestamp::now()));
            let left = left.map(|left| std::time::Duration::try_from(left).unwrap_or_default());
            let reset = async {
                match left {
                    Some(left) => tokio::time::sleep(left).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                changed = lease.changed() => {
                    if changed.is_err() {
                        return Passed::Refused("the gateway ends".to_owned());
                    }
                }
                () = reset => {}
            }
        }
    }

    /// Notes that the provider takes no calls before this time, as it has told a call.
    pub(crate) fn limit(&self, until: Timestamp, told: u64) {
        self.state().limited = Some(Limit { until, told });
        self.publish();
    }

    fn clear_limit(&self) {
        if self.state().limited.take().is_some() {
            self.publish();
        }
    }

    /// Records that a call is about to be made. On a full disk it waits, as long as the call is wanted.
    pub(crate) async fn record_begin(
        self: &Arc<Self>,
        asked: &Asked,
        is_wanted: impl Fn() -> bool,
    ) -> io::Result<Begun> {
        let begun = asked.clone();
        let begun = self.with_space(move |log| log.begin(&begun), &is_wanted).await?;
        if let Err(error) = self.with_space(Log::sync, &is_wanted).await {
            if begun == Begun::Recorded {
                // The log says that the call has begun, but it is not made. Its end may have to wait for space, too.
                let (served, ended, doing) = (Arc::clone(self), asked.ended(Timestamp::now()), self.exist());
                tokio::spawn(async move {
                    let _ = served.record_end(ended).await;
                    drop(doing);
                });
            }
            return Err(error);
        }
        Ok(begun)
    }

    /// Records a call that is not made. On a full disk it waits, as long as somebody waits for the answer.
    pub(crate) async fn record_refusal(
        self: &Arc<Self>,
        ended: Ended,
        is_wanted: impl Fn() -> bool,
    ) -> io::Result<Begun> {
        let recorded = self.with_space(move |log| log.refuse(&ended), &is_wanted).await?;
        self.with_space(Log::sync, &is_wanted).await?;
        self.publish();
        Ok(recorded)
    }

    /// Records the end of a call. On a full disk it waits, whether or not somebody waits for the answer.
    pub(crate) async fn record_end(self: &Arc<Self>, ended: Ended) -> io::Result<()> {
        self.with_space(move |log| log.end(&ended), || true).await?;
        self.with_space(Log::sync, || true).await?;
        self.publish();
        Ok(())
    }

    /// Changes the log, and tries again while the disk is full, unless the process is not served any more. A call that failed
    /// instead would be made again, and paid for twice. The change must do nothing if it fails.
    async fn with_space<T: Send + 'static>(
        self: &Arc<Self>,
        change: impl Fn(&mut Log) -> io::Result<T> + Clone + Send + 'static,
        is_wanted: impl Fn() -> bool,
    ) -> io::Result<T> {
        let mut waiting: Option<Doing> = None;
        loop {
            let error = match self.with_log(change.clone()).await {
                Err(error) if is_full(&error) && is_wanted() => error,
                changed => return changed,
            };
            // The daemon tells the user.
            waiting.get_or_insert_with(|| Doing::begin(self, What::Recording));
            tokio::select! {
                () = tokio::time::sleep(SPACE_AGAIN) => {}
                () = self.closing() => return Err(error),
            }
        }
    }

    async fn with_log<T: Send + 'static>(
        &self,
        change: impl FnOnce(&mut Log) -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let log = Arc::clone(&self.log);
        let changed = tokio::task::spawn_blocking(move || {
            let mut log = log.lock().unwrap_or_else(PoisonError::into_inner);
            let changed = change(&mut log.log);
            (changed, log.logged())
        });
        let (changed, logged) = changed.await.map_err(io::Error::other)?;
        self.note(logged);
        changed
    }

    fn note(&self, logged: Logged) {
        let mut state = self.state();
        if logged.change > state.logged.change {
            state.logged = logged;
        }
    }
}

impl Target {
    pub(crate) fn accepts(&self, token: &str) -> bool {
        // Of what is compared, nobody can choose the bytes.
        crate::token_hash(token) == self.token
    }

    /// Tells whether this is the token for hooks.
    pub(crate) fn accepts_hooks(&self, token: &str) -> bool {
        crate::token_hash(token) == crate::token_hash(&crate::hooks_token(&self.token))
    }
}

fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

#[cfg(test)]
mod tests;
