//! `relive top`: the dashboard.

mod content;
mod context;

use relive_top::{Failure, Look, Options};

use crate::client::{Client, Start};
use crate::context::Context;
use crate::error::{CommandError, Outcome};

/// Show everything that waits for you and everything that runs, live
///
/// Press ? for the keys. A key acts at once; only a text that you type is ended with Enter. Each action shows the command
/// that does the same. Leaving stops nothing.
#[derive(Debug, clap::Args)]
#[command(before_long_help = "\
Examples:
  relive top
  NO_COLOR=1 relive top
  relive dashboard         the same")]
pub(crate) struct Args {}

pub(crate) async fn run(context: &Context) -> Outcome<u8> {
    if context.json || !context.out.is_terminal || !context.can_ask() {
        return Err(CommandError::invalid("the dashboard needs a terminal").with_hint("relive ps"));
    }
    if crate::terminal::is_dumb() {
        let message = "the dashboard needs a terminal that can move the cursor, and TERM says that this one cannot";
        return Err(CommandError::invalid(message).with_hint("relive inbox --list"));
    }
    let client = Client::open(context, Start::Always).await?;
    let client = client.ok_or_else(|| CommandError::unavailable("no daemon is running"))?;
    // Before the screen is taken: from inside of a process it is refused.
    client.inbox().await?;
    let look = Look { color: context.out.color, ascii: context.out.ascii };
    // What is shown of a process starts no daemon: only the stream of all of them knows why there is none.
    let reader = Client::open(context, Start::Never).await?;
    let reader = reader.ok_or_else(|| CommandError::unavailable("no daemon is running"))?;
    let pages = content::Pages { client: &reader };
    match relive_top::run(Options { client: &client, content: &pages, look }).await {
        Ok(code) => {
            context.say("the processes continue: relive ps");
            Ok(code)
        }
        Err(Failure::Terminal(error)) => Err(CommandError::internal("the terminal cannot be used").because(error)),
        Err(Failure::Daemon(error)) => Err(error.into()),
    }
}
