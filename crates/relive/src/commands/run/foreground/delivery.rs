//! Lines that are sent now or not at all: one that arrives later could be an answer to something that its writer does not
//! see any more.

use std::time::{Duration, Instant};

use relive_client::Retry;

use crate::client::Client;
use crate::context::Context;
use crate::error::{CommandError, Outcome};

/// How long a line may wait for the daemon: one that has crashed is started again by whoever watches.
const WITHIN: Duration = Duration::from_secs(1);
const AGAIN: Duration = Duration::from_millis(50);

/// Returns a client for one line. It starts no daemon, and gives up soon.
pub(super) async fn daemon_now(context: &Context) -> Outcome<relive_client::Client> {
    let begun = Instant::now();
    loop {
        if let Some(daemon) = Client::beside(context).await {
            return Ok(daemon.with_retry(Retry { within: WITHIN, every: AGAIN }));
        }
        if begun.elapsed() > WITHIN {
            return Err(CommandError::unavailable("no daemon is running (to start it: relive daemon start)"));
        }
        tokio::time::sleep(AGAIN).await;
    }
}
