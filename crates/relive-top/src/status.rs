//! The line that says what was done. A message is shown for a time, a command until it has ended.

use crate::state::State;

/// How long a message is shown.
const SHOWN_FOR_MS: u64 = 20_000;
/// Says why nothing changes any more. Shown until there is a daemon.
pub(crate) const STOPPED: &str = "the daemon was stopped; to start it: relive daemon start";

/// A daemon that does not answer.
#[derive(Debug)]
pub(crate) struct Silence {
    /// Since when nothing is known, on the clock of the inputs.
    since_ms: u64,
    said: String,
}

impl State {
    /// Takes in that the daemon does not answer: what is shown is as it was then.
    pub(crate) fn begin_silence(&mut self, os_pid: Option<u32>) {
        if self.silence.is_some() {
            return;
        }
        let os_pid = os_pid.map(|os_pid| format!(", OS pid {os_pid}")).unwrap_or_default();
        let said = format!("waiting for the daemon{os_pid}, which does not answer yet");
        self.status.clone_from(&said);
        self.silence = Some(Silence { since_ms: self.now_ms, said });
    }

    pub(crate) fn end_silence(&mut self) {
        if self.silence.take().is_some_and(|silence| silence.said == self.status) {
            self.status.clear();
        }
    }

    /// Returns the time of the clocks that are shown, which stand still while nothing is known.
    pub(crate) fn clock_ms(&self) -> u64 {
        self.silence.as_ref().map_or(self.now_ms, |silence| silence.since_ms)
    }

    /// Removes a message that was shown for long enough, or is not true any more.
    pub(crate) fn expire_status(&mut self) {
        if self.connected && self.status == STOPPED {
            self.status.clear();
        }
        let since = match &self.status_since {
            Some((text, since)) if *text == self.status => *since,
            Some(_) | None => {
                self.status_since = Some((self.status.clone(), self.now_ms));
                self.now_ms
            }
        };
        if self.status_expires() && self.now_ms.saturating_sub(since) >= SHOWN_FOR_MS {
            self.status.clear();
        }
    }

    /// Tells whether there is a message that is removed after a time.
    pub(crate) fn status_expires(&self) -> bool {
        let lasts = self.status == STOPPED || self.silence.as_ref().is_some_and(|silence| silence.said == self.status);
        !self.status.is_empty() && !lasts && !self.own.runs(&self.status)
    }
}
