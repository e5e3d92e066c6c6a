//! `relive pause`: stop at the next boundary.

use relive_api::PauseRequest;

use super::report_affected;
use crate::client::Client;
use crate::context::Context;
use crate::error::Outcome;

/// Pause a process at its next boundary
#[derive(Debug, clap::Args)]
#[command(before_long_help = "\
Examples:
  relive pause 5             the model call under way is finished first
  relive pause 5 --now       it is cancelled
  relive pause 5 --subtree   and everything below it")]
pub(crate) struct Args {
    /// A PID, a name, a UUID or its beginning
    id: String,
    /// Everything below as well
    #[arg(long)]
    subtree: bool,
    /// Do not wait for the model call that is under way
    #[arg(long)]
    now: bool,
}

pub(crate) async fn run(context: &Context, args: &Args) -> Outcome<u8> {
    let client = Client::about(context, &args.id).await?;
    let affected = client.pause(&args.id, &PauseRequest { subtree: args.subtree, now: args.now }).await?;
    let subtree = if args.subtree { " --subtree" } else { "" };
    let undo = format!("relive resume {}{subtree}", args.id);
    report_affected(context, &args.id, &affected, "paused", Some(&undo))
}
