//! A listener that does not answer: a daemon that is busy recovering its processes, or a program that is no daemon.
//!
//! A request may take long, and a daemon listens before it serves. So a silent listener is asked for something that
//! every daemon answers at once, and only one that is not known to be the daemon is given up.

use std::fmt;
use std::path::Path;
use std::pin::pin;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::client::{Answer, Client, get};
use super::connection::Connection;
use super::error::Error;
use super::http::{Ask, Wire};

/// How long a listener may be silent before it is checked.
const NOTICED_AFTER: Duration = Duration::from_secs(2);
/// How long a daemon that serves may take for the simplest request before it is said to be silent.
const PROBED_WITHIN: Duration = Duration::from_millis(500);
/// How much longer a listener may be silent that is not the daemon.
const GIVEN_UP_AFTER: Duration = Duration::from_secs(4);

/// Knows the daemon by other means than its answers.
pub trait Witness: fmt::Debug + Send + Sync {
    /// Returns whether the process with this OS pid is the daemon, which may be starting.
    fn is_daemon(&self, os_pid: u32) -> bool;

    /// Called once for each request to a listener that is silent.
    fn is_silent(&self, socket: &Path, os_pid: u32);

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
        let ask = Ask { wire: Wire::Any, ..get("/v1/daemon".into()) };
        match tokio::time::timeout(within, self.exchange_on(connection, &ask)).await {
            Ok(_) => Pulse::Answers,
            Err(_) => Pulse::Silent { os_pid },
        }
    }

    /// Sends a request on a connection. Fails if the listener is silent and is not the daemon.
    pub(super) async fn attend(&self, connection: Connection, ask: &Ask) -> Result<Answer, Error> {
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
        witness.is_silent(&self.socket, os_pid);
        if witness.is_daemon(os_pid) {
            return exchange.await;
        }
        tokio::select! {
            answered = &mut exchange => answered,
            () = &mut probe => exchange.await,
            () = tokio::time::sleep(GIVEN_UP_AFTER) => {
                let within = NOTICED_AFTER + PROBED_WITHIN + GIVEN_UP_AFTER;
                Err(Error::Mute { socket: self.socket.clone(), os_pid, within })
            }
        }
    }

    /// Returns when the listener answers a request that every daemon answers, or has gone: the request itself tells.
    async fn probe(&self) {
        let Ok(connection) = Connection::open(&self.socket).await else { return };
        let _ = self.exchange_on(connection, &Ask { wire: Wire::Any, ..get("/v1/daemon".into()) }).await;
    }
}
