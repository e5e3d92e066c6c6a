//! Stops the running daemon, and not one that another client starts in the next moment.

use std::time::Instant;

use relive_api::{StopQuery, Stopping};
use serde_json::json;

use super::client::{Client, Patience, in_time, post};
use super::error::Error;
use super::http::{Ask, Wire};

impl Client {
    /// Stops the daemon, whatever its version; only the one with this OS pid, if there is one. Returns `None` if
    /// nothing listens.
    ///
    /// A stopping daemon closes its socket, then stops its processes, then exits.
    pub async fn stop_daemon(&self, only: Option<u32>, query: StopQuery) -> Result<Option<Stopping>, Error> {
        let path = format!("/v1/daemon/stop?for_good={}", query.for_good);
        let ask = Ask { wire: Wire::Any, ..post(path, &json!({}))? };
        let (mut patience, mut asked) = (Patience::new(self.retry), only);
        loop {
            let begun = Instant::now();
            let error = match self.stop_listener(&ask, &mut asked).await {
                Err(error @ Error::Lost(_)) => error,
                Err(Error::NotRunning(_)) => return Ok(asked.map(unanswered)),
                other => return other,
            };
            patience.spend(begun, error)?;
            tokio::time::sleep(self.retry.every).await;
        }
    }

    /// Stops the listening daemon, unless another one was already `asked`.
    async fn stop_listener(&self, ask: &Ask, asked: &mut Option<u32>) -> Result<Option<Stopping>, Error> {
        let connection = self.connection().await?;
        let os_pid = connection.listener.os_pid;
        if asked.is_some() && *asked != os_pid {
            return Ok(asked.map(unanswered));
        }
        *asked = os_pid;
        let answer = in_time(ask, self.attend(connection, ask)).await?;
        self.read_answer(answer).await.map(Some)
    }
}

/// Returns the answer for a daemon that ended without one.
fn unanswered(os_pid: u32) -> Stopping {
    Stopping { os_pid, pausing: 0 }
}
