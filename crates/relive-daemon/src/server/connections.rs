//! All connections: their limit, which one is closed for another, and their end.

use std::collections::HashMap;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

use axum::Router;
use relive_runtime::Caller;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, watch};

use super::connection::{self, Connection};

/// The limit of open connections: more than all classes of requests admit, so that there is always one that is not
/// being served and can be closed.
pub(super) const CONNECTIONS_MAX: usize = 1024;
/// How many connections are accepted before the first of them was polled. Clients that connect faster than that wait in
/// the system's queue; accepted at once, they would displace those before them.
const NEW_MAX: usize = 64;

/// The connections of a daemon, cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Connections {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    open: Mutex<Open>,
    /// Notified when one has closed.
    closed: Notify,
    new: Arc<Semaphore>,
    stop: watch::Receiver<bool>,
}

#[derive(Debug, Default)]
struct Open {
    next: u64,
    by_number: HashMap<u64, Arc<Connection>>,
}

impl Connections {
    pub(crate) fn new(stop: watch::Receiver<bool>) -> Self {
        Self {
            inner: Arc::new(Inner {
                open: Mutex::default(),
                closed: Notify::new(),
                new: Arc::new(Semaphore::new(NEW_MAX)),
                stop,
            }),
        }
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        self.inner.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the connections accepted before have been polled.
    pub(crate) async fn accepts(&self) -> Option<Turn> {
        Arc::clone(&self.inner.new).acquire_owned().await.ok().map(Turn)
    }

    /// Serves a new connection in the background. At the limit, the most dispensable one is closed for it.
    pub(crate) fn serve<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
        &self,
        stream: S,
        identify: impl FnOnce(&S) -> Caller + Send + 'static,
        router: Router,
        turn: Option<Turn>,
    ) {
        if self.open().by_number.len() >= CONNECTIONS_MAX && !self.make_room() {
            tracing::warn!("refused a connection: {CONNECTIONS_MAX} are being served");
            return;
        }
        let connection = Connection::new();
        let entry = self.register(&connection);
        let stop = self.inner.stop.clone();
        tokio::spawn(async move {
            let caller = identify(&stream);
            let mut served = pin!(connection::serve(stream, caller, connection, router, stop));
            // Once, which reads what the client has sent so far.
            let first = poll_fn(|cx| Poll::Ready(served.as_mut().poll(cx))).await;
            drop(turn);
            if first.is_pending() {
                served.await;
            }
            drop(entry);
        });
    }

    fn register(&self, connection: &Arc<Connection>) -> Entry {
        let mut open = self.open();
        let number = open.next;
        open.next += 1;
        open.by_number.insert(number, Arc::clone(connection));
        Entry { connections: self.clone(), number }
    }

    /// Closes the most dispensable connection; returns `false` if all are being served.
    pub(crate) fn make_room(&self) -> bool {
        let mut open = self.open();
        let ranks = open.by_number.iter().filter_map(|(number, connection)| Some((connection.dispensable()?, *number)));
        let Some((_, number)) = ranks.min() else { return false };
        if let Some(connection) = open.by_number.remove(&number) {
            connection.close();
        }
        true
    }

    /// Waits until all are closed, at most this long.
    pub(crate) async fn closed_within(&self, limit: Duration) {
        let closed = async {
            loop {
                let mut changed = std::pin::pin!(self.inner.closed.notified());
                changed.as_mut().enable();
                if self.open().by_number.is_empty() {
                    return;
                }
                changed.await;
            }
        };
        if tokio::time::timeout(limit, closed).await.is_err() {
            tracing::debug!("{} connections were left open", self.open().by_number.len());
        }
    }
}

/// The permission to accept one connection, held until it was polled.
#[derive(Debug)]
pub(crate) struct Turn(#[expect(dead_code, reason = "held")] OwnedSemaphorePermit);

/// A connection in the list.
struct Entry {
    connections: Connections,
    number: u64,
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.connections.open().by_number.remove(&self.number);
        self.connections.inner.closed.notify_waiters();
    }
}

#[cfg(test)]
mod tests;
