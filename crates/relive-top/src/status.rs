//! The line that says what was done. A message is shown for a time, a command until it has ended.

use crate::state::State;

/// How long a message is shown.
const SHOWN_FOR_MS: u64 = 20_000;
/// Says why nothing changes any more. Shown until there is a daemon.
pub(crate) const STOPPED: &str = "the daemon was stopped; to start it: relive daemon start";

impl State {
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
        !self.status.is_empty() && self.status != STOPPED && !self.own.runs(&self.status)
    }
}
