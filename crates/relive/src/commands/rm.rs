//! `relive rm`: remove the history of processes that have ended.

use relive_api::Process;

use super::targets::{Batch, Scope, Target, Targets, Told};
use crate::client::Client;
use crate::context::Context;
use crate::error::{CommandError, Outcome};
use crate::render::size::bytes;
use crate::terminal::one_line;

/// How many processes are listed before the question.
const LISTED_MAX: usize = 20;

/// Remove processes that have ended, with their journals
///
/// A removed process can no longer be resumed, forked or read. Processes that have not ended are not removed.
#[derive(Debug, clap::Args)]
#[command(before_long_help = "\
Examples:
  relive rm 5
  relive rm -y 5 fixer 'test-*'
  relive rm --all               remove everything that has ended; asks first")]
pub(crate) struct Args {
    #[command(flatten)]
    targets: Targets,
    /// Do not ask for confirmation
    #[arg(short, long)]
    yes: bool,
}

pub(crate) async fn run(context: &Context, args: &Args) -> Outcome<u8> {
    let mut batch = Batch::new(context, &args.targets);
    let Some(client) = args.targets.client(context).await? else { return batch.finish("nothing to remove") };
    let mut targets = args.targets.expand(&client, Scope::Ended).await?;
    if !args.yes && !confirm(context, args, &client, &mut targets).await? {
        context.say("nothing was removed");
        return Ok(0);
    }
    for target in targets {
        let removed = match target.error {
            Some(error) => Err(error),
            None => client.remove(&target.id).await,
        };
        match removed {
            Ok(removed) => {
                let told = format!("removed {} ({} freed)\n", target.id, bytes(removed.freed_bytes));
                batch.answer(&target.id, &removed, &Told::message(told), 0)?;
            }
            Err(error) => batch.failure(&target.id, error)?,
        }
    }
    batch.finish("nothing to remove")
}

/// Shows what would be removed, and asks. What does not exist is told afterwards, as of any other.
async fn confirm(context: &Context, args: &Args, client: &Client<'_>, targets: &mut [Target]) -> Outcome<bool> {
    for target in targets.iter_mut().filter(|target| target.found.is_none() && target.error.is_none()) {
        match client.process(&target.id).await {
            Ok(process) => target.found = Some(Box::new(process)),
            Err(error) => target.error = Some(error),
        }
    }
    // The daemon refuses the others, and says why.
    let has_ended = |process: &&Process| process.dead_at.is_some();
    let found: Vec<&Process> = targets.iter().filter_map(|target| target.found.as_deref()).filter(has_ended).collect();
    if found.is_empty() {
        return Ok(true);
    }
    if !context.can_ask() {
        let message = format!("this would remove {}, and there is no terminal to ask on", count(found.len()));
        return Err(CommandError::invalid(message).with_hint(format!("relive rm -y {}", args.targets.typed())));
    }
    context.say("This permanently removes:");
    for process in found.iter().take(LISTED_MAX) {
        let name = one_line(process.name.as_ref().unwrap_or(&process.intent));
        context.say(&format!("  PID {} {} {name}", process.pid, process.short));
    }
    if found.len() > LISTED_MAX {
        context.say(&format!("  and {} more", found.len() - LISTED_MAX));
    }
    Ok(context.ask(&format!("Remove {}?", count(found.len()))))
}

/// `1 process`, `2 processes`.
pub(super) fn count(processes: usize) -> String {
    if processes == 1 { "1 process".to_owned() } else { format!("{processes} processes") }
}
