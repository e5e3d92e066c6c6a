//! A listener that does not answer: a daemon that is busy recovering its processes, or a program that is no daemon.
//!
//! A request may take long, and a daemon listens before it serves. So a silent listener is asked for something that
//! every daemon answers at once, and only one that is not known to be the daemon is given up.

use std::fmt;
use std::path::Path;
use std::pin::pin;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::client::{Answer, Client, get};
use super::connection::Connection;
use super::error::{Cause, Error};
use super::http::{Ask, Wire};

/// How long a listener may be silent before it is checked.
const NOTICED_AFTER: Duration = Duration::from_secs(2);
/// How long a daemon that serves may take for the simplest request before it is said to be silent.
const PROBED_WITHIN: Duration = Duration::from_millis(500);
/// How much longer a listener may be silent that is not the daemon.
const GIVEN_UP_AFTER: Duration = Duration::from_secs(4);
/// How long to wait in all for a listener that is not the daemon.
const SILENT_WITHIN: Duration = NOTICED_AFTER.saturating_add(PROBED_WITHIN).saturating_add(GIVEN_UP_AFTER);

/// Knows the daemon by other means than its answers.
pub trait Witness: fmt::Debug + Send + Sync {
    /// Returns whether the process with this OS pid is the daemon, which may be starting.
    fn is_daemon(&self, os_pid: u32) -> bool;

    /// Returns the OS pid of the daemon that should be listening on this socket, if it runs.
    fn daemon_of(&self, socket: &Path) -> Option<u32>;

    /// Returns whether the socket file is the one that the daemon with this OS pid has made.
    fn has_made_its_socket(&self, os_pid: u32) -> bool;

    /// Called once for each request to a listener that is silent. Nobody knows the OS pid of one that accepts no connection.
    fn report_silence(&self, socket: &Path, os_pid: Option<u32>);

    /// Called each time the daemon says that a request is not done yet, and is asked again.
    fn is_not_done(&self, work: LongWork);
}

/// What a request asks for that may take long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LongWork {
    /// The start of a process, which can be cancelled.
    Start,
    /// What is done in any case, such as a rewind.
    Other,
}

/// Whether a daemon shows a sign of life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pulse {
    Answers,
    /// It accepts connections, and answers nothing.
    Silent {
        os_pid: Option<u32>,
    },
    /// Nothing listens.
    Gone,
}

impl Client {
    /// Asks for something that every daemon answers at once, on a connection of its own. Starts no daemon.
    pub async fn pulse(&self, within: Duration) -> Pulse {
        let Ok(connection) = Connection::open(&self.socket).await else { return Pulse::Gone };
        let os_pid = connection.listener.os_pid;
        match tokio::time::timeout(within, self.exchange_on(connection, &simplest())).await {
            Ok(_) => Pulse::Answers,
            Err(_) => Pulse::Silent { os_pid },
        }
    }

    /// Connects, and waits while as many connections wait to be accepted as there may be: for a moment, unless the daemon is
    /// known to listen there.
    pub(super) async fn connect_when_accepted(&self) -> Result<Connection, Error> {
        let answered = self.answered.load(Ordering::Relaxed);
        let (begun, mut has_told) = (Instant::now(), false);
        loop {
            let socket = match Connection::open(&self.socket).await {
                Err(Error::Full { socket, .. }) => socket,
                opened => return opened,
            };
            let waited = begun.elapsed();
            if waited >= NOTICED_AFTER.min(self.retry.within) {
                let witness = self.witness.as_ref();
                let daemon = self.daemon_of_socket();
                let listens = daemon.filter(|os_pid| witness.is_some_and(|by| by.has_made_its_socket(*os_pid)));
                let is_known = answered || listens.is_some();
                let within = if is_known { self.retry.within } else { self.retry.within.min(SILENT_WITHIN) };
                if waited >= within {
                    return Err(match listens {
                        Some(os_pid) => Error::Overloaded { os_pid, within },
                        None => Error::Full { socket, within, daemon },
                    });
                }
                if let Some(witness) = witness.filter(|_| !has_told) {
                    witness.report_silence(&socket, listens);
                    has_told = true;
                }
            }
            tokio::time::sleep(self.retry.every).await;
        }
    }

    /// Returns the daemon that should be listening on the socket.
    fn daemon_of_socket(&self) -> Option<u32> {
        self.witness.as_ref().and_then(|witness| witness.daemon_of(&self.socket))
    }

    /// Names the daemon in the error of an answer that is not one of a daemon.
    pub(super) fn with_displaced_daemon(&self, error: Error) -> Error {
        let Error::NotADaemon { socket, source, daemon: None } = error else { return error };
        Error::NotADaemon { socket, source, daemon: self.daemon_of_socket() }
    }

    /// Sends a request on a connection. Fails if the listener is not the daemon and is silent, or hangs up again and again.
    pub(super) async fn attend(&self, connection: Connection, ask: &Ask) -> Result<Answer, Error> {
        let os_pid = connection.listener.os_pid;
        match (self.attend_once(connection, ask).await, os_pid) {
            (Err(Error::Lost(cause)), Some(os_pid)) => Err(self.after_hang_up(os_pid, cause).await),
            (attended, _) => attended,
        }
    }

    /// Finds out whether a listener that hung up is another program than the daemon: it neither goes away nor answers what
    /// every daemon answers. A daemon may have done what it was asked for, which is left to the caller.
    async fn after_hang_up(&self, os_pid: u32, cause: Cause) -> Error {
        let Some(witness) = &self.witness else { return Error::Lost(cause) };
        let (begun, mut has_told) = (Instant::now(), false);
        let within = self.retry.within.min(SILENT_WITHIN);
        while !self.answered.load(Ordering::Relaxed) && !witness.is_daemon(os_pid) && !within.is_zero() {
            if begun.elapsed() >= within {
                let daemon = witness.daemon_of(&self.socket);
                return Error::Mute { socket: self.socket.clone(), os_pid, within, daemon };
            }
            if begun.elapsed() >= NOTICED_AFTER && !has_told {
                witness.report_silence(&self.socket, Some(os_pid));
                has_told = true;
            }
            tokio::time::sleep(self.retry.every).await;
            match Connection::open(&self.socket).await {
                Ok(connection) if connection.listener.os_pid == Some(os_pid) => {
                    let probed = tokio::time::timeout(PROBED_WITHIN, self.exchange_on(connection, &simplest())).await;
                    // What it had said was lost when it hung up.
                    if let Ok(Err(error @ Error::NotADaemon { .. })) = probed {
                        return error;
                    }
                }
                Ok(_) | Err(_) => break,
            }
        }
        Error::Lost(cause)
    }

    async fn attend_once(&self, connection: Connection, ask: &Ask) -> Result<Answer, Error> {
        let os_pid = connection.listener.os_pid;
        let mut exchange = pin!(self.exchange_on(connection, ask));
        let (Some(witness), Some(os_pid), false) = (&self.witness, os_pid, self.answered.load(Ordering::Relaxed))
        else {
            return exchange.await;
        };
        if let Ok(answered) = tokio::time::timeout(NOTICED_AFTER, &mut exchange).await {
            return answered;
        }
        let mut probe = pin!(self.probe());
        tokio::select! {
            answered = &mut exchange => return answered,
            () = &mut probe => return exchange.await,
            () = tokio::time::sleep(PROBED_WITHIN) => {}
        }
        witness.report_silence(&self.socket, Some(os_pid));
        if witness.is_daemon(os_pid) {
            return exchange.await;
        }
        tokio::select! {
            answered = &mut exchange => answered,
            () = &mut probe => exchange.await,
            () = tokio::time::sleep(GIVEN_UP_AFTER) => {
                let daemon = witness.daemon_of(&self.socket);
                Err(Error::Mute { socket: self.socket.clone(), os_pid, within: SILENT_WITHIN, daemon })
            }
        }
    }

    /// Returns when the listener answers a request that every daemon answers, or has gone: the request itself tells.
    async fn probe(&self) {
        let Ok(connection) = Connection::open(&self.socket).await else { return };
        let _ = self.exchange_on(connection, &simplest()).await;
    }
}

/// Returns a request that every daemon answers at once.
fn simplest() -> Ask {
    Ask { wire: Wire::Any, ..get("/v1/daemon".into()) }
}
