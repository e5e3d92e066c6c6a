//! `wait --needs-me`: waits until something is in the inbox.

use std::collections::BTreeSet;
use std::time::Duration;

use relive_api::{Change, Item};
use relive_core::{ErrorCode, Uuid};
use serde_json::json;

use crate::client::{Client, Start};
use crate::commands::targets::{Scope, Targets};
use crate::context::Context;
use crate::error::{CommandError, Outcome};
use crate::render::approval::exact;
use crate::render::time::{as_millis, elapsed};

/// How long a daemon that went away is waited for before it is tried again.
const AGAIN_AFTER: Duration = Duration::from_millis(200);

/// Why the stream is no longer read.
enum Stopped {
    Needs(Box<Item>),
    /// All that were named have ended.
    Over,
    Failed(relive_client::Error),
}

impl From<relive_client::Error> for Stopped {
    fn from(error: relive_client::Error) -> Self {
        Self::Failed(error)
    }
}

pub(super) async fn run(context: &Context, targets: &Targets, timeout: Option<Duration>) -> Outcome<u8> {
    let client = Client::open(context, Start::Always).await?;
    let client = client.ok_or_else(|| CommandError::unavailable("no daemon is running"))?;
    let mut named = BTreeSet::new();
    if !targets.ids.is_empty() {
        for target in targets.expand(&client, Scope::Living).await? {
            if let Some(error) = target.error {
                return Err(error);
            }
            named.insert(client.process(&target.id).await?.uuid);
        }
    }
    let waiting = wait(&client, named);
    let found = match timeout {
        None => waiting.await?,
        Some(timeout) => match tokio::time::timeout(timeout, waiting).await {
            Ok(found) => found?,
            Err(_) => {
                let message = format!("nothing needs you after {}", elapsed(as_millis(timeout)));
                return Err(CommandError::new(ErrorCode::Timeout, message).with_hint("relive inbox"));
            }
        },
    };
    match found {
        Some(item) if context.json => context.print_json(&json!({ "item": item }))?,
        Some(item) => {
            let name = item.name.as_deref().map(|name| format!(" ({})", exact(name))).unwrap_or_default();
            context.print_line(&format!("PID {}{name}: {}: {}", item.pid, item.kind.word(), exact(&item.text)))?;
        }
        None if context.json => context.print_json(&json!({ "item": null }))?,
        None => context.say("all of them have ended, and nothing needs you"),
    }
    Ok(0)
}

/// Waits for the first item, of these processes if any are named; `None` if all of those have ended without one.
async fn wait(client: &Client<'_>, mut named: BTreeSet<Uuid>) -> Outcome<Option<Item>> {
    let is_any = named.is_empty();
    let mut last = None;
    loop {
        let read = client.follow_all(&mut last, async |event| {
            let Ok(change) = serde_json::from_str::<Change>(&event.data) else { return Ok(()) };
            if !is_any && !named.contains(&change.uuid) {
                return Ok(());
            }
            if let Some(item) = change.item {
                return Err(Stopped::Needs(Box::new(item)));
            }
            let has_ended = change.process.is_none_or(|process| process.dead_at.is_some());
            if has_ended && named.remove(&change.uuid) && named.is_empty() {
                return Err(Stopped::Over);
            }
            Ok(())
        });
        match read.await {
            Err(Stopped::Needs(item)) => return Ok(Some(*item)),
            Err(Stopped::Over) => return Ok(None),
            Err(Stopped::Failed(error)) if !error.is_transient() => return Err(error.into()),
            Err(Stopped::Failed(_)) | Ok(()) => {
                tokio::time::sleep(AGAIN_AFTER).await;
                // Starts a daemon if there is none.
                client.inbox().await?;
            }
        }
    }
}
