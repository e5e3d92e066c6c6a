//! `relive pause`: pauses a process at its next boundary.

use relive_api::{Affected, PauseRequest};
use relive_core::{ErrorCode, SuspendReason};

use super::targets::{Batch, Scope, Targets};
use super::tell_affected;
use crate::client::Client;
use crate::context::Context;
use crate::error::{CommandError, Outcome};

/// Pause processes at their next step boundary
#[derive(Debug, clap::Args)]
#[command(before_long_help = "\
Examples:
  relive pause 5             finish the current model call, then pause
  relive pause 5 --now       cancel the current model call
  relive pause 5 --subtree   pause its descendants as well
  relive pause 'test-*' 7    pause several processes
  relive pause --all         pause every running process")]
pub(crate) struct Args {
    #[command(flatten)]
    targets: Targets,
    /// Include all descendants of the process
    #[arg(long)]
    subtree: bool,
    /// Cancel the current model call instead of waiting for it
    #[arg(long)]
    now: bool,
}

pub(crate) async fn run(context: &Context, args: &Args) -> Outcome<u8> {
    let mut batch = Batch::new(context, &args.targets);
    let Some(client) = args.targets.client(context).await? else { return batch.finish("no process is running") };
    let subtree = if args.subtree { " --subtree" } else { "" };
    for target in args.targets.expand(&client, Scope::Running).await? {
        let is_named = target.found.is_none();
        let paused = match target.error {
            Some(error) => Err(error),
            None => client.pause(&target.id, &PauseRequest { subtree: args.subtree, now: args.now }).await,
        };
        match paused {
            Ok(affected) => {
                if let Some(refused) = refused(&client, &target.id, &affected).await.filter(|_| is_named) {
                    batch.failure(&target.id, refused)?;
                    continue;
                }
                let undo = format!("relive resume {}{subtree}", target.id);
                let (told, code) = tell_affected(context, &target.id, &affected, "paused", Some(&undo));
                batch.answer(&target.id, &affected, &told, code)?;
            }
            Err(error) => batch.failure(&target.id, error)?,
        }
    }
    batch.finish("no process is running")
}

/// Returns why a process cannot be paused. A pattern and `--all` only mean those that can.
async fn refused(client: &Client<'_>, id: &str, affected: &Affected) -> Option<CommandError> {
    let Affected { pids, pending, handled, failed, .. } = affected;
    let reached = !pids.is_empty() || !pending.is_empty() || !handled.is_empty() || !failed.is_empty();
    if reached {
        return None;
    }
    // Only for the words: it was not paused whatever becomes of this.
    let process = std::ops::Deref::deref(client).process(id).await.ok()?;
    let conflict = |message: String| CommandError::new(ErrorCode::Conflict, message);
    let pid = process.pid;
    if process.dead_at.is_some() {
        return Some(conflict(format!("PID {pid} has ended, so it cannot be paused")));
    }
    let waits_for = match process.suspend_reason {
        Some(SuspendReason::Approval) => "approval",
        Some(SuspendReason::Question) => "answer",
        Some(_) | None => return None,
    };
    Some(
        conflict(format!("PID {pid} waits for your {waits_for}, so it cannot be paused"))
            .with_hint(format!("relive resolve {id}")),
    )
}
