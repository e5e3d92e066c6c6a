//! `relive pause`: pauses a process at its next boundary.

use relive_api::{Affected, PauseRequest};
use relive_core::{ErrorCode, SuspendReason};

use super::targets::{Batch, Scope, Targets, Told};
use super::tell_affected;
use crate::client::Client;
use crate::context::Context;
use crate::error::{CommandError, Outcome};
use crate::render::processes::{suspension_of, wanted_from_you};

/// Pause processes at their next step boundary
#[derive(Debug, clap::Args)]
#[command(before_long_help = "\
Examples:
  relive pause 5             finish the current model call, then pause
  relive pause 5 --now       cancel the current model call
  relive pause 5 --subtree   pause its descendants as well
  relive pause 'test-*' 7    pause several processes
  relive pause --all         pause every running process")]
#[command(mut_arg("all", |all| all.help("Select all processes that run")))]
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
                let untouched = untouched(&client, &target.id, &affected, args.now).await;
                let already = match untouched.filter(|_| is_named) {
                    Some(Untouched::Refused(error)) => {
                        batch.failure(&target.id, error)?;
                        continue;
                    }
                    Some(Untouched::Suspended(told)) => Some(told),
                    None => None,
                };
                // One that is frozen with another is not resumed alone.
                let undo = (!affected.frozen).then(|| format!("relive resume {}{subtree}", target.id));
                let (told, code) = match already {
                    Some(told) => (told, 0),
                    None => tell_affected(context, &target.id, &affected, "paused", undo.as_deref()),
                };
                batch.answer(&target.id, &affected, &Told::message(told), code)?;
            }
            Err(error) => batch.failure(&target.id, error)?,
        }
    }
    batch.finish("no process is running")
}

/// Why a pause changed nothing.
enum Untouched {
    Refused(CommandError),
    /// It was suspended before, which this says.
    Suspended(String),
}

/// Returns why a process was not paused. A pattern and `--all` only mean those that can be.
async fn untouched(client: &Client<'_>, id: &str, affected: &Affected, now: bool) -> Option<Untouched> {
    let Affected { pids, pending, handled, failed, pausing, kept, .. } = affected;
    let is_told = !pending.is_empty() || !handled.is_empty() || !failed.is_empty() || !kept.is_empty();
    let reached = !pids.is_empty() || is_told;
    if reached {
        return None;
    }
    // Only for the words: it was not paused whatever becomes of this.
    let process = std::ops::Deref::deref(client).process(id).await.ok()?;
    let conflict = |message: String| CommandError::new(ErrorCode::Conflict, message);
    let pid = process.pid;
    if process.dead_at.is_some() {
        return Some(Untouched::Refused(conflict(format!("PID {pid} has ended, so it cannot be paused"))));
    }
    let reason = process.suspend_reason?;
    let Some(waits_for) = wanted_from_you(reason) else {
        let told = match reason == SuspendReason::User {
            true if pausing.is_empty() => format!("PID {pid} is already paused: nothing changed\n"),
            true => {
                let cancel =
                    if now { String::new() } else { format!(" (to cancel its model call: relive pause --now {id})") };
                format!("PID {pid} is still pausing: it stops after this step{cancel}\n")
            }
            false => {
                format!("PID {pid} is already suspended ({}): nothing changed\n", suspension_of(&process, reason))
            }
        };
        return Some(Untouched::Suspended(told));
    };
    // Any other would keep the pause.
    let message = format!("PID {pid} waits for your {waits_for} and was told to end, so it was not paused");
    Some(Untouched::Refused(conflict(message).with_hint(format!("relive wait {id}"))))
}
