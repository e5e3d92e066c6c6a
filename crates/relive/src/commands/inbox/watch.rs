//! `inbox --watch`: the list again each second.

use std::time::Duration;

use relive_api::Inbox;
use relive_core::Timestamp;

use super::daemon::open;
use super::{listed, within};
use crate::client::{Client, Start};
use crate::commands::ps;
use crate::context::Context;
use crate::error::{CommandError, Outcome};
use crate::terminal::keys::Keys;

/// How often the inbox is looked at.
const EVERY: Duration = Duration::from_secs(1);
const STOPPED: &str = "the daemon was stopped; to start it: relive daemon start";

/// Shows the inbox until the person leaves; with `--json` one document for each change.
pub(super) async fn run(context: &Context, here: Option<&str>) -> Outcome<u8> {
    if !context.json && (!context.out.is_terminal || crate::terminal::is_dumb()) {
        let error = CommandError::invalid("--watch needs a terminal to draw on");
        return Err(error.with_hint("relive inbox --watch --json"));
    }
    let client = Client::open(context, Start::Always).await?;
    let client = client.ok_or_else(|| CommandError::unavailable("no daemon is running"))?;
    // Watching does not start a daemon that was stopped.
    client.set_stopped(true);
    if context.json {
        return crate::stdout::while_read(print_changes(context, &client, here)).await;
    }
    let cannot = |error| CommandError::internal("the terminal cannot be used").because(error);
    let mut keys = Keys::open().map_err(cannot)?;
    let code: Outcome<u8> = tokio::select! {
        drawn = draw(context, &client, here) => drawn,
        left = keys.quit() => left.map_err(cannot),
    };
    drop(keys);
    context.print("\n")?;
    code
}

async fn print_changes(context: &Context, client: &Client<'_>, here: Option<&str>) -> Outcome<u8> {
    let (mut last, mut was_told) = (None, false);
    loop {
        match open(client).await? {
            None if !was_told => {
                was_told = true;
                context.say(STOPPED);
            }
            None => {}
            Some(inbox) => {
                let inbox = within(inbox, here);
                was_told = false;
                if last.as_ref() != Some(&inbox) {
                    context.print_json(&inbox)?;
                    last = Some(inbox);
                }
            }
        }
        tokio::time::sleep(EVERY).await;
    }
}

async fn draw(context: &Context, client: &Client<'_>, here: Option<&str>) -> Outcome<u8> {
    let mut last = Inbox::default();
    loop {
        let found = open(client).await?;
        let note = if found.is_none() { format!("{STOPPED}\n") } else { String::new() };
        if let Some(inbox) = found {
            last = within(inbox, here);
        }
        let drawn = match last.items.is_empty() {
            true if note.is_empty() => "nothing waits for you\n".to_owned(),
            true => String::new(),
            false => listed(&last.items, Timestamp::now(), &context.out.resized()),
        };
        context.print(&ps::screen(&format!("{note}{drawn}"), ps::height()))?;
        tokio::time::sleep(EVERY).await;
    }
}
