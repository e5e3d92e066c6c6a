//! `relive daemon start`.

use relive_api::{API_VERSION, DaemonStatus};
use relive_client::Error;

use super::status;
use crate::client::{Client, Start};
use crate::context::Context;
use crate::error::{CommandError, Outcome};

pub(crate) async fn run(context: &Context) -> Outcome<u8> {
    let (status, was_running) = running(context).await?;
    if context.json {
        status::print_json(context, &status)?;
    } else {
        let already = if was_running { " already" } else { "" };
        context.say(&format!("the daemon is running{already} (OS pid {})", status.os_pid));
    }
    Ok(0)
}

/// Starts the daemon if necessary, and returns whether it was running before.
pub(super) async fn running(context: &Context) -> Outcome<(DaemonStatus, bool)> {
    let client = Client::open(context, Start::Always).await?;
    let client = client.ok_or_else(|| CommandError::unavailable("no daemon is running"))?;
    let status = client.daemon().await?;
    if status.api == API_VERSION {
        return Ok((status, client.was_running()));
    }
    Err(Error::OtherVersion { version: status.version, api: status.api }.into())
}
