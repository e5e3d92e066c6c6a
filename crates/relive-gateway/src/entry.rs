//! A process that is served: its port, its lease, its log, and what its calls are doing.

use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::watch;
use uuid::Uuid;

use crate::gates::{Gate, Limit, gate};
use crate::hooks::{Hook, Hooks};
use crate::log::{Asked, Ended, Log};
use crate::protocol::{Auth, Entry, Facts, Lease, Wanted};

const BACKLOG: u32 = 128;

/// A process that is served.
#[derive(Debug)]
pub(crate) struct Served {
    pub(crate) uuid: Uuid,
    pub(crate) port: u16,
    target: Mutex<Target>,
    lease: watch::Sender<Lease>,
    log: Arc<Mutex<Log>>,
    state: Mutex<State>,
    facts: Mutex<Facts>,
    hooks: Mutex<Hooks>,
    /// Rings when the facts have changed.
    bell: watch::Sender<()>,
    closing: watch::Sender<bool>,
    /// Held by every call that is under way.
    calls: watch::Sender<usize>,
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
    limited: Option<Limit>,
    wanted: BTreeMap<u64, String>,
    /// The tokens that the lease does not know of.
    unsettled: u64,
    log: u64,
}

/// Something that a call does, for as long as it is kept.
#[derive(Debug)]
pub(crate) struct Doing {
    served: Arc<Served>,
    what: What,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    Asking,
    Waiting,
    Wanting(u64),
    Existing,
}

/// What becomes of a call that waited for its turn.
#[derive(Debug)]
pub(crate) enum Passed {
    Open,
    Refused(String),
}

impl Served {
    /// Binds the port of a process, and opens its log. It blocks.
    pub(crate) fn open(entry: Entry, bell: watch::Sender<()>) -> io::Result<(Arc<Self>, TcpListener)> {
        let Entry { uuid, port, token, upstream, auth, directory, lease } = entry;
        let socket = TcpSocket::new_v4()?;
        socket.set_reuseaddr(true)?;
        socket.bind(SocketAddr::from((Ipv4Addr::LOCALHOST, port.unwrap_or(0))))?;
        let mut log = Log::open(&directory, lease.settled)?;
        let listener = socket.listen(BACKLOG)?;
        let port = listener.local_addr()?.port();
        let state = State {
            next: log.next,
            in_flight: 0,
            held: 0,
            limited: None,
            wanted: BTreeMap::new(),
            unsettled: log.unsettled(lease.settled),
            log: log.length,
        };
        let served = Arc::new(Self {
            uuid,
            port,
            target: Mutex::new(Target { token, upstream, auth }),
            lease: watch::Sender::new(lease),
            log: Arc::new(Mutex::new(log)),
            state: Mutex::new(state),
            facts: Mutex::default(),
            hooks: Mutex::default(),
            bell,
            closing: watch::Sender::new(false),
            calls: watch::Sender::new(0),
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
        let unsettled = self.log.lock().unwrap_or_else(PoisonError::into_inner).unsettled(lease.settled);
        self.state().unsettled = unsettled;
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

    /// Ends all calls, and waits until they are recorded.
    pub(crate) async fn close(&self) {
        self.closing.send_replace(true);
        // The sender is this one.
        let _ = self.calls.subscribe().wait_for(|calls| *calls == 0).await;
    }

    fn publish(&self) {
        let is_holding = self.lease.borrow().hold;
        let hooks = Some(self.hooks().last());
        let facts = {
            let state = self.state();
            Facts {
                log: state.log,
                in_flight: state.in_flight,
                held: state.held,
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

    /// Keeps the process from being forgotten while a call is under way.
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
                (state.unsettled, state.limited)
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

    /// Records that a call is about to be made.
    pub(crate) async fn record_begin(&self, asked: Asked) -> io::Result<()> {
        self.with_log(move |log| log.begin(&asked)).await
    }

    /// Records the end of a call.
    pub(crate) async fn record_end(&self, ended: Ended) -> io::Result<()> {
        let tokens = ended.tokens_in.saturating_add(ended.tokens_out);
        self.with_log(move |log| log.end(&ended)).await?;
        {
            let mut state = self.state();
            state.unsettled = state.unsettled.saturating_add(tokens);
        }
        self.publish();
        Ok(())
    }

    async fn with_log(&self, change: impl FnOnce(&mut Log) -> io::Result<()> + Send + 'static) -> io::Result<()> {
        let log = Arc::clone(&self.log);
        let changed = tokio::task::spawn_blocking(move || {
            let mut log = log.lock().unwrap_or_else(PoisonError::into_inner);
            change(&mut log).map(|()| log.length)
        });
        let length = changed.await.map_err(io::Error::other)??;
        let mut state = self.state();
        state.log = state.log.max(length);
        Ok(())
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

impl Doing {
    fn begin(served: &Arc<Served>, what: What) -> Self {
        match what {
            What::Asking => served.state().in_flight += 1,
            What::Waiting => served.state().held += 1,
            What::Wanting(_) => {}
            What::Existing => served.calls.send_modify(|calls| *calls += 1),
        }
        served.publish();
        Self { served: Arc::clone(served), what }
    }
}

impl Drop for Doing {
    fn drop(&mut self) {
        match self.what {
            What::Asking => self.served.state().in_flight -= 1,
            What::Waiting => self.served.state().held -= 1,
            What::Wanting(number) => drop(self.served.state().wanted.remove(&number)),
            What::Existing => self.served.calls.send_modify(|calls| *calls -= 1),
        }
        self.served.publish();
    }
}
