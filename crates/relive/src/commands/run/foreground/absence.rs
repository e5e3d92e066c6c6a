//! A daemon that has stopped while somebody watches a process: it is said once, and nothing typed is taken meanwhile.

use std::time::Duration;

use relive_api::{Created, Process};
use relive_core::{Pid, SuspendReason};
use tokio::time::{Interval, MissedTickBehavior};

use super::Foreground;
use crate::client::Client;
use crate::context::Context;

/// How often it is checked whether there is a daemon.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How many checks in a row have to find none: one that is started again at once is not worth a word.
const MISSED_MAX: u32 = 2;
/// Says that nothing happens until there is another daemon.
pub(super) const STOPPED: &str =
    "the daemon has stopped: the agent continues with the next one (to start it: relive daemon start)";

pub(super) struct Absence<'a> {
    context: &'a Context,
    ticks: Interval,
    /// How many checks in a row have found no daemon.
    missed: u32,
}

impl<'a> Absence<'a> {
    pub(super) fn new(context: &'a Context) -> Self {
        let mut ticks = tokio::time::interval(LOOK_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self { context, ticks, missed: 0 }
    }

    /// Returns whether no daemon runs, as far as is known.
    pub(super) fn is_known(&self) -> bool {
        self.missed >= MISSED_MAX
    }

    /// Returns when it turns out that the daemon has stopped. It can be dropped and called again.
    pub(super) async fn begins(&mut self) {
        loop {
            self.ticks.tick().await;
            if self.is_daemon_here().await {
                self.missed = 0;
                continue;
            }
            self.missed = self.missed.saturating_add(1);
            if self.missed == MISSED_MAX {
                return;
            }
        }
    }

    /// A daemon that was told to stop removes its socket. One that was killed leaves it, and is started again by the client.
    async fn is_daemon_here(&self) -> bool {
        self.context.paths.socket.exists() || Client::beside(self.context).await.is_some()
    }
}

/// Returns the PID that a process has by now, as a new daemon may run it, and what it does. No daemon is started for that.
pub(super) async fn now(front: &Foreground<'_>, created: Created) -> (Pid, &'static str) {
    let daemon = Client::beside(front.client.context()).await;
    let process = match &daemon {
        Some(daemon) => daemon.process(&created.uuid.to_string()).await.ok(),
        None => None,
    };
    let is_asking =
        |process: &Process| matches!(process.suspend_reason, Some(SuspendReason::Approval | SuspendReason::Question));
    let keeps = if front.questions.is_asking() || process.as_ref().is_some_and(is_asking) {
        "keeps waiting for your answer"
    } else if daemon.is_some() {
        "keeps running"
    } else {
        "is resumed by the next daemon"
    };
    (process.map_or(created.pid, |process| process.pid), keeps)
}
