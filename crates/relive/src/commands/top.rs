//! `relive top`: the dashboard.

mod content;
mod context;

use relive_top::{Failure, Look, Options};

use crate::client::{Client, Start};
use crate::context::Context;
use crate::error::{CommandError, Outcome};

/// Show everything that waits for you and everything that runs, live
///
/// Press ? for the keys. Each action shows the command that does the same. Leaving stops nothing.
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
    let client = Client::open(context, Start::Always).await?;
    let client = client.ok_or_else(|| CommandError::unavailable("no daemon is running"))?;
    // Before the screen is taken: from inside of a process it is refused.
    client.inbox().await?;
    let look = Look { color: context.out.color, ascii: context.out.ascii };
    let pages = content::Pages { client: &client };
    match relive_top::run(Options { client: &client, content: &pages, look }).await {
        Ok(code) => {
            context.say("the processes continue: relive ps");
            Ok(code)
        }
        Err(Failure::Terminal(error)) => Err(CommandError::internal("the terminal cannot be used").because(error)),
        Err(Failure::Daemon(error)) => Err(error.into()),
    }
}
