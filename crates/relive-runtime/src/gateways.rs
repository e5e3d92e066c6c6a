//! The gateway of the data directory: found or started when a CLI agent needs it, and replaced when it is gone or runs another
//! program than this daemon.

use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use relive_core::Uuid;
use relive_gateway::{Entry, Facts, Gateway, Hook, Lease, Link};
use relive_journal::DataDirectory;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::warnings::Warnings;

/// The shortest time between two starts of a gateway.
const START_AGAIN: Duration = Duration::from_secs(1);
/// How long a gateway may take to tell what the calls of a process that it serves do.
const FACTS_WITHIN: Duration = Duration::from_secs(1);

/// The gateway of the data directory, and those that it serves.
#[derive(Debug)]
pub(crate) struct Gateways {
    data: Arc<DataDirectory>,
    /// The program that becomes the gateway; without one there is none.
    program: Option<PathBuf>,
    served: Mutex<HashMap<Uuid, Served>>,
    link: tokio::sync::Mutex<Connection>,
    /// How many connections to a gateway were made.
    connections: AtomicU64,
    warnings: Warnings,
}

#[derive(Debug, Default)]
struct Connection {
    link: Option<Link>,
    started: Option<Instant>,
}

#[derive(Debug)]
struct Served {
    entry: Entry,
    /// The socket that listens at its port, which outlives a gateway; absent if only the gateway has it.
    socket: Option<Arc<OwnedFd>>,
    facts: watch::Sender<Facts>,
    /// Held while the gateway is told a lease, so that it has the last one.
    order: Arc<tokio::sync::Mutex<()>>,
}

/// Whether a gateway is started if there is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Absent {
    Start,
    Leave,
}

impl Gateways {
    pub(crate) fn new(data: Arc<DataDirectory>, program: Option<PathBuf>, warnings: Warnings) -> Self {
        let (served, link) = (Mutex::default(), tokio::sync::Mutex::default());
        Self { data, program, served, link, connections: AtomicU64::new(0), warnings }
    }

    /// Tells whether there can be a gateway.
    pub(crate) fn is_possible(&self) -> bool {
        self.program.is_some()
    }

    fn served(&self) -> MutexGuard<'_, HashMap<Uuid, Served>> {
        self.served.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has a process served, and returns its port. `socket` is the one that listens there already.
    pub(crate) async fn serve(self: &Arc<Self>, mut entry: Entry, socket: Option<OwnedFd>) -> io::Result<u16> {
        let uuid = entry.uuid;
        let link = self.link(Absent::Start).await?;
        let link = link.ok_or_else(|| io::Error::other("this daemon has no gateway"))?;
        let socket = match (socket, entry.port) {
            _ if !link.takes_sockets() => None,
            (Some(socket), _) => Some(socket),
            (None, None) => Some(relive_gateway::listen(None)?),
            // If this fails, the gateway has it.
            (None, port @ Some(_)) => relive_gateway::listen(port).ok(),
        };
        if let Some(socket) = &socket {
            entry.port = Some(relive_gateway::port_of(socket)?);
        }
        let (socket, facts) = (socket.map(Arc::new), watch::Sender::default());
        let given = copy_of(socket.as_deref())?;
        // Known before it is served, so that its first facts are heard.
        self.served().insert(uuid, Served { entry: entry.clone(), socket, facts, order: Arc::default() });
        let served = link.serve(entry, given).await;
        match served {
            Ok(port) => {
                if let Some(served) = self.served().get_mut(&uuid) {
                    served.entry.port = Some(port);
                }
                Ok(port)
            }
            Err(error) => {
                self.served().remove(&uuid);
                Err(io::Error::other(error))
            }
        }
    }

    /// Returns the socket that listens at the port of a process, for somebody who outlives the gateway and this daemon.
    pub(crate) fn socket(&self, uuid: Uuid) -> Option<Arc<OwnedFd>> {
        self.served().get(&uuid)?.socket.clone()
    }

    /// Returns what the calls of a process do, as it changes.
    pub(crate) fn facts(&self, uuid: Uuid) -> Option<watch::Receiver<Facts>> {
        self.served().get(&uuid).map(|served| served.facts.subscribe())
    }

    /// Returns the number of the connection to the gateway. With another one, the hooks may be counted anew.
    pub(crate) fn connection(&self) -> u64 {
        self.connections.load(Ordering::Acquire)
    }

    /// Returns what a process has reported of itself after a number.
    pub(crate) async fn hooks(&self, uuid: Uuid, after: u64) -> io::Result<Vec<Hook>> {
        let link = self.link.lock().await.link.clone();
        match link.filter(|link| !link.is_gone()) {
            Some(link) => link.hooks(uuid, after).await.map_err(io::Error::other),
            None => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    /// Tells whether the gateway takes hooks of a process that it serves. One of an earlier version does not.
    pub(crate) async fn takes_hooks(&self, uuid: Uuid) -> bool {
        let Some(mut facts) = self.facts(uuid) else { return false };
        let told = tokio::time::timeout(FACTS_WITHIN, facts.wait_for(|facts| facts.hooks.is_some())).await;
        matches!(told, Ok(Ok(_)))
    }

    /// Changes what a process may spend. If the gateway is gone, the next one has it.
    pub(crate) async fn lease(&self, uuid: Uuid, lease: Lease) -> io::Result<()> {
        self.change_lease(uuid, |current| *current = lease).await
    }

    /// Lets the held calls of a process continue.
    pub(crate) async fn release(&self, uuid: Uuid) {
        // If the gateway is gone, the next one has it.
        let _ = self.change_lease(uuid, |lease| lease.hold = false).await;
    }

    /// Changes the lease of a process, one change after the other: each sees the one before, and the gateway hears of
    /// them in their order. Whoever releases a process does so beside the one who grants it what it may spend.
    async fn change_lease(&self, uuid: Uuid, change: impl FnOnce(&mut Lease)) -> io::Result<()> {
        let Some(order) = self.served().get(&uuid).map(|served| Arc::clone(&served.order)) else { return Ok(()) };
        let _in_order = order.lock().await;
        let lease = match self.served().get_mut(&uuid) {
            Some(served) => {
                change(&mut served.entry.lease);
                served.entry.lease.clone()
            }
            None => return Ok(()),
        };
        let link = self.link.lock().await.link.clone();
        match link.filter(|link| !link.is_gone()) {
            Some(link) => link.lease(uuid, lease).await.map_err(io::Error::other),
            None => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    /// Serves a process no longer. All its calls are in its log then.
    pub(crate) async fn forget(self: &Arc<Self>, uuid: Uuid) {
        self.served().remove(&uuid);
        let link = self.link(Absent::Leave).await;
        let forgotten = match link {
            Ok(Some(link)) => link.forget(uuid).await.is_ok(),
            Ok(None) | Err(_) => false,
        };
        if !forgotten {
            let directory = self.data.directory(uuid).path().to_owned();
            let closed = tokio::task::spawn_blocking(move || relive_gateway::close_log(&directory)).await;
            if let Ok(Err(error)) = closed {
                self.warnings.warn(format!("the model calls of {uuid} may not all be counted: {error}"));
            }
        }
    }

    /// Returns the connection to the gateway.
    async fn link(self: &Arc<Self>, absent: Absent) -> io::Result<Option<Link>> {
        let Some(program) = self.program.clone() else { return Ok(None) };
        let mut connection = self.link.lock().await;
        if let Some(link) = connection.link.as_ref().filter(|link| !link.is_gone()) {
            return Ok(Some(link.clone()));
        }
        let data = Arc::clone(&self.data);
        let found = tokio::task::spawn_blocking(move || Gateway::find(data.root(), data.lock_descriptor()));
        let found = found.await.map_err(io::Error::other)?;
        let (gateway, handover) = match (found, absent) {
            (Ok(Some(found)), _) if found.is_outdated(&program) => {
                let handover = self.retire(found).await;
                (self.start(&program).await?, handover)
            }
            (Ok(Some(found)), _) => (found, None),
            (Ok(None), Absent::Leave) => return Ok(None),
            (Ok(None) | Err(_), Absent::Start) => (self.start(&program).await?, None),
            (Err(error), Absent::Leave) => return Err(io::Error::other(error)),
        };
        tracing::debug!("the gateway has the OS pid {:?}", gateway.os_pid());
        self.forget_hooks();
        let heard = Arc::downgrade(self);
        let link = gateway.talk(move |uuid, facts| {
            if let Some(gateways) = heard.upgrade() {
                gateways.hear(uuid, facts);
            }
        })?;
        if let Some(handover) = handover {
            // Before anybody is served, so that later reports come after these.
            handover.hand_over(&link).await;
        }
        (connection.link, connection.started) = (Some(link.clone()), Some(Instant::now()));
        drop(connection);
        self.serve_again(&link).await;
        self.watch(link.clone());
        Ok(Some(link))
    }

    async fn start(&self, program: &Path) -> io::Result<Gateway> {
        let (data, program) = (Arc::clone(&self.data), program.to_owned());
        let started = tokio::task::spawn_blocking(move || {
            Gateway::start(&program, data.root(), data.lock_descriptor()).map_err(io::Error::other)
        });
        started.await.map_err(io::Error::other)?
    }

    /// Has a gateway that runs another program leave everybody to the one that is started next. If it cannot, it ends when the
    /// other one is there.
    async fn retire(&self, gateway: Gateway) -> Option<Handover> {
        let link = gateway.talk(|_, _| {}).ok()?;
        match link.retire().await {
            Ok(()) => Some(Handover(link)),
            Err(error) => {
                self.warnings.warn(format!("the gateway of another version was ended: {error}"));
                None
            }
        }
    }

    /// Forgets how many hooks the gateway had: the next one counts its own, and has not told yet.
    fn forget_hooks(&self) {
        self.connections.fetch_add(1, Ordering::AcqRel);
        for served in self.served().values() {
            served.facts.send_modify(|facts| facts.hooks = None);
        }
    }

    fn hear(&self, uuid: Uuid, facts: Facts) {
        if let Some(served) = self.served().get(&uuid) {
            served.facts.send_replace(facts);
        }
    }

    /// Has those served that an earlier gateway served.
    async fn serve_again(&self, link: &Link) {
        let all: Vec<_> = self.served().values().map(|served| (served.entry.clone(), served.socket.clone())).collect();
        for (entry, socket) in all {
            let uuid = entry.uuid;
            let served = match copy_of(socket.as_deref().filter(|_| link.takes_sockets())) {
                Ok(socket) => link.serve(entry, socket).await.map_err(io::Error::other),
                Err(error) => Err(error),
            };
            if let Err(error) = served {
                self.warnings.warn(format!("CLI agent {uuid} cannot reach its model: {error}"));
            }
        }
    }

    /// Replaces the gateway when it is gone, if somebody needs it.
    fn watch(self: &Arc<Self>, link: Link) {
        let gateways = Arc::downgrade(self);
        tokio::spawn(async move {
            link.gone().await;
            let Some(gateways) = gateways.upgrade() else { return };
            let started = gateways.link.lock().await.started;
            // One that cannot run is not started again in a loop.
            tokio::time::sleep(started.map_or(Duration::ZERO, |at| START_AGAIN.saturating_sub(at.elapsed()))).await;
            if gateways.served().is_empty() {
                return;
            }
            tracing::warn!("the gateway is gone");
            if let Err(error) = gateways.link(Absent::Start).await {
                gateways.warnings.warn(format!("the gateway cannot be started: {error}"));
            }
        });
    }
}

/// A gateway that has retired, and has reports that its successor has to know.
struct Handover(Link);

impl Handover {
    /// Tells another gateway what the programs have reported of themselves. What it does not hear is not known of them until
    /// they report again.
    async fn hand_over(self, to: &Link) {
        let Self(from) = self;
        for uuid in from.list().await.unwrap_or_default() {
            let mut after = 0;
            while let Ok(hooks) = from.hooks(uuid, after).await
                && let Some(last) = hooks.last()
            {
                after = last.number;
                if to.inherit(uuid, hooks).await.is_err() {
                    return;
                }
            }
        }
    }
}

fn copy_of(socket: Option<&OwnedFd>) -> io::Result<Option<OwnedFd>> {
    socket.map(OwnedFd::try_clone).transpose()
}
