//! All connections: how many there are, which one makes room for another, and their end.

use std::collections::HashMap;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

use axum::Router;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, watch};

use super::connection::{self, Connection};

/// How many connections are open at once: more than all classes of requests have room for, so that there always is one
/// that is not being served and can be closed.
pub(super) const CONNECTIONS_MAX: usize = 1024;
/// How many connections are accepted before the first of them was looked at. Clients that connect faster than that wait
/// in the system's queue, in turn; accepted at once, they would push out those before them.
const NEW_MAX: usize = 64;

/// The connections of a daemon, cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Connections {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    open: Mutex<Open>,
    /// Told when one has closed.
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

    /// Waits until those that were accepted before have been looked at.
    pub(crate) async fn accepts(&self) -> Option<Turn> {
        Arc::clone(&self.inner.new).acquire_owned().await.ok().map(Turn)
    }

    /// Serves a new connection in the background. At the limit, the most dispensable one is closed for it.
    pub(crate) fn serve<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
        &self,
        stream: S,
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
            let mut served = pin!(connection::serve(stream, connection, router, stop));
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

    /// Closes the connection that nobody will miss; `false` where all are being served.
    pub(crate) fn make_room(&self) -> bool {
        let mut open = self.open();
        let ranks = open.by_number.iter().filter_map(|(number, connection)| Some((connection.dispensable()?, *number)));
        let Some((_, number)) = ranks.min() else { return false };
        if let Some(connection) = open.by_number.remove(&number) {
            connection.close();
        }
        true
    }

    /// Waits until all are closed, but no longer than this.
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

/// The right to accept one connection, until it was looked at.
#[derive(Debug)]
pub(crate) struct Turn(#[expect(dead_code, reason = "held")] OwnedSemaphorePermit);

/// A connection's place among the others.
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
