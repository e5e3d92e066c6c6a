//! A daemon that has stopped while somebody watches a process: it is said once, and nothing typed is taken meanwhile.

use std::path::PathBuf;
use std::time::Duration;

use relive_api::{Created, Process};
use relive_client::Link;
use relive_core::Pid;
use tokio::sync::watch;
use tokio::time::Instant;

use super::Foreground;
use crate::client::Client;
use crate::commands::run::questions::is_asked_here;

/// How long the stream of the process has to be lost: a daemon that is started again at once is not worth a word.
const LOST_FOR: Duration = Duration::from_secs(1);
/// Says that nothing happens until there is another daemon.
const STOPPED: &str =
    "the daemon has stopped: the agent continues with the next one (to start it: relive daemon start)";

/// What has become of the daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    Stopped,
    Back,
}

pub(super) struct Absence {
    link: watch::Receiver<Link>,
    socket: PathBuf,
    /// When the stream was lost, or when it was last found to be.
    lost_at: Option<Instant>,
    is_known: bool,
}

impl Absence {
    pub(super) fn new(client: &Client<'_>) -> Self {
        Self { link: client.link(), socket: client.context().paths.socket.clone(), lost_at: None, is_known: false }
    }

    /// Returns whether no daemon runs, as far as is known.
    pub(super) fn is_known(&self) -> bool {
        self.is_known
    }

    /// Returns when it turns out that the daemon has stopped, or is back. It can be dropped and called again.
    pub(super) async fn turns(&mut self) -> Turn {
        loop {
            let is_lost = *self.link.borrow_and_update() == Link::Lost;
            match (is_lost, self.is_known) {
                (false, true) => {
                    (self.is_known, self.lost_at) = (false, None);
                    return Turn::Back;
                }
                (false, false) => {
                    self.lost_at = None;
                    self.changed().await;
                }
                (true, true) => self.changed().await,
                (true, false) => {
                    let due = *self.lost_at.get_or_insert_with(Instant::now) + LOST_FOR;
                    if tokio::time::timeout_at(due, self.link.changed()).await.is_ok() {
                        continue;
                    }
                    // A daemon that was told to stop removes its socket. One that was killed leaves it, and is started
                    // again by the client.
                    self.is_known = !self.socket.exists();
                    if self.is_known {
                        return Turn::Stopped;
                    }
                    self.lost_at = Some(Instant::now());
                }
            }
        }
    }

    async fn changed(&mut self) {
        if self.link.changed().await.is_err() {
            std::future::pending().await
        }
    }
}

impl Foreground<'_> {
    /// Says that the daemon has stopped. When it is back, the question is shown again, below that.
    pub(super) fn daemon_turned(&mut self, turn: Turn) {
        let is_asking = self.questions.is_asking();
        if is_asking {
            // Below the prompt.
            self.client.context().say("");
        }
        match turn {
            Turn::Stopped => self.show.left(STOPPED),
            Turn::Back => {
                self.show.left("the daemon runs again");
                if is_asking {
                    self.ask();
                }
            }
        }
    }
}

/// Returns the PID that a process has by now, as a new daemon may run it, and what it does. No daemon is started for that.
pub(super) async fn now(front: &Foreground<'_>, created: Created) -> (Pid, &'static str) {
    let daemon = Client::beside(front.client.context()).await;
    let process = match &daemon {
        Some(daemon) => tokio::time::timeout(LOST_FOR, daemon.process(&created.uuid.to_string())).await.ok(),
        None => None,
    };
    let process = process.and_then(Result::ok);
    let is_asking = |process: &Process| process.suspend_reason.is_some_and(is_asked_here);
    let keeps = if front.questions.is_asking() || process.as_ref().is_some_and(is_asking) {
        "keeps waiting for your answer"
    } else if daemon.is_some() {
        "keeps running"
    } else {
        "is resumed by the next daemon"
    };
    (process.map_or(created.pid, |process| process.pid), keeps)
}
