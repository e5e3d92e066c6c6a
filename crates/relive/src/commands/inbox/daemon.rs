//! The daemon while somebody looks at the inbox: one that was stopped is not started by that, one that has crashed is.

use relive_api::Inbox;
use relive_core::ErrorCode;

use crate::client::Client;
use crate::error::{Kind, Outcome};

/// What is known of the daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Daemon {
    Runs,
    /// Somebody stopped it, and it has removed its socket.
    Stopped,
    Crashed,
}

impl Daemon {
    /// Looks whether a daemon runs. Starts none.
    pub(super) async fn look(client: &Client<'_>) -> Self {
        match client.connect().await {
            Ok(()) => Self::Runs,
            Err(_) if client.context().paths.socket.exists() => Self::Crashed,
            Err(_) => Self::Stopped,
        }
    }
}

/// Asks the daemon something; `None` if somebody has stopped it, perhaps only after it was asked.
pub(super) async fn ask<T>(client: &Client<'_>, question: impl AsyncFn() -> Outcome<T>) -> Outcome<Option<T>> {
    loop {
        match Daemon::look(client).await {
            Daemon::Runs => {}
            Daemon::Stopped => return Ok(None),
            Daemon::Crashed => client.start().await?,
        }
        match question().await {
            Err(error) if error.kind == Kind::Code(ErrorCode::Unavailable) && client.connect().await.is_err() => {}
            answer => return answer.map(Some),
        }
    }
}

/// Returns the inbox; `None` if somebody has stopped the daemon.
pub(super) async fn open(client: &Client<'_>) -> Outcome<Option<Inbox>> {
    ask(client, async || Ok(client.inbox().await?)).await
}
