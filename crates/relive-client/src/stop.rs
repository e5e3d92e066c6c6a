//! Stopping the daemon: the one that is there now, and not the one that somebody else starts in the next moment.

use std::time::Instant;

use relive_api::Stopping;
use serde_json::json;

use super::client::{Client, Patience, in_time, post};
use super::error::Error;
use super::http::{Ask, Wire};

impl Client {
    /// Tells the daemon to stop, whatever its version; only the one with this OS pid, if there is one named. Returns
    /// `None` if nothing listens.
    ///
    /// A daemon that stops closes its socket, then stops its processes, then exits.
    pub async fn stop_daemon(&self, only: Option<u32>) -> Result<Option<Stopping>, Error> {
        let ask = Ask { wire: Wire::Any, ..post("/v1/daemon/stop".into(), &json!({}))? };
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

    /// Tells whoever listens, unless a daemon was `asked` before and this is another one.
    async fn stop_listener(&self, ask: &Ask, asked: &mut Option<u32>) -> Result<Option<Stopping>, Error> {
        let connection = self.connection().await?;
        let os_pid = connection.listener.os_pid;
        if asked.is_some() && *asked != os_pid {
            return Ok(asked.map(unanswered));
        }
        *asked = os_pid;
        let answer = in_time(ask, self.exchange_on(connection, ask)).await?;
        self.read_answer(answer).await.map(Some)
    }
}

/// A daemon that gave no answer, and listens no more.
fn unanswered(os_pid: u32) -> Stopping {
    Stopping { os_pid, pausing: 0 }
}
