//! `relive rm`: remove the history of processes that have ended.

use relive_api::Process;
use relive_core::ErrorCode;

use super::targets::{Batch, Scope, Target, Targets, Told, only_process};
use crate::client::Client;
use crate::context::Context;
use crate::error::{CommandError, Outcome};
use crate::render::size::bytes;
use crate::render::table::fit;
use crate::terminal::one_line;

/// How much is shown of a name, or of an intent in its place.
const NAME_MAX: usize = 60;
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
#[command(mut_arg("all", |all| all.help("Select all processes that have ended")))]
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
    identify(&client, args, &mut targets).await;
    if !args.yes {
        leave_out_those_that_have_not_ended(&mut targets);
        if !confirm(context, args, &targets)? {
            context.say("nothing was removed");
            return Ok(0);
        }
    }
    for target in targets {
        // By its UUID: another process may have its name by now.
        let removed = match (target.error, target.found) {
            (Some(error), _) => Err(error),
            (None, Some(process)) => client.remove(&process.uuid.to_string()).await.map(|removed| (removed, process)),
            (None, None) => Err(CommandError::not_found(&target.id)),
        };
        match removed {
            Ok((removed, process)) => {
                let told = tell(&process, removed.freed_bytes);
                batch.answer(&target.id, &removed, &Told::message(told), 0)?;
            }
            Err(error) => batch.failure(&target.id, error)?,
        }
    }
    batch.finish("nothing to remove")
}

/// `removed PID 5 0c9d1e77 (1.2 KiB freed)`.
fn tell(process: &Process, freed_bytes: u64) -> String {
    format!("removed PID {} {} ({} freed)\n", process.pid, process.short, bytes(freed_bytes))
}

/// Finds the process that each id means now, so that what is shown is what is removed.
async fn identify(client: &Client<'_>, args: &Args, targets: &mut [Target]) {
    for target in targets.iter_mut().filter(|target| target.found.is_none() && target.error.is_none()) {
        match one(client, args, &target.id).await {
            Ok(process) => target.found = Some(Box::new(process)),
            Err(error) => target.error = Some(error),
        }
    }
}

/// Finds the process of an id. The PID of an earlier incarnation names how that one ended: with it the process would lose
/// what it did since, so the process is removed by its last PID only.
async fn one(client: &Client<'_>, args: &Args, id: &str) -> Outcome<Process> {
    let process = only_process(client, id).await?;
    if process.successor_pid.is_none() {
        return Ok(process);
    }
    let now = client.process(&process.uuid.to_string()).await?;
    if !has_ended(&now) {
        return Err(not_ended(&format!("PID {} continued as PID {}, which", process.pid, now.pid), &now));
    }
    let reason = now.exit.as_ref().map(|exit| one_line(&exit.reason)).unwrap_or_default();
    let (old, new) = (process.pid, now.pid);
    let message = format!("PID {old} is an earlier run of PID {new} ({reason}); nothing was removed");
    let yes = if args.yes { "-y " } else { "" };
    Err(CommandError::new(ErrorCode::Conflict, message).with_hint(format!("relive rm {yes}{new}")))
}

fn has_ended(process: &Process) -> bool {
    process.status.is_some() || process.dead_at.is_some()
}

fn not_ended(who: &str, process: &Process) -> CommandError {
    let (pid, message) = (process.pid, format!("{who} has not ended, so it cannot be removed"));
    let hint = format!("relive kill {pid}; relive wait {pid}; relive rm -y {pid}");
    CommandError::new(ErrorCode::Conflict, message).with_hint(hint)
}

/// Refuses the processes that have not ended: nobody is asked about them, also if they end before the answer.
fn leave_out_those_that_have_not_ended(targets: &mut [Target]) {
    for target in targets.iter_mut() {
        if let Some(living) = target.found.as_ref().filter(|process| !has_ended(process)) {
            target.error = Some(not_ended(&format!("PID {}", living.pid), living));
        }
    }
}

/// Shows what would be removed, and asks. What cannot be removed is told afterwards.
fn confirm(context: &Context, args: &Args, targets: &[Target]) -> Outcome<bool> {
    let found = targets.iter().filter(|target| target.error.is_none()).filter_map(|target| target.found.as_deref());
    let found: Vec<&Process> = found.collect();
    if found.is_empty() {
        return Ok(true);
    }
    if !context.can_ask() {
        let message = format!("this would remove {}, and there is no terminal to ask on", count(found.len()));
        return Err(CommandError::invalid(message).with_hint(format!("relive rm -y {}", args.targets.typed())));
    }
    context.say("This permanently removes:");
    for process in found.iter().take(LISTED_MAX) {
        let name = fit(&one_line(process.name.as_ref().unwrap_or(&process.intent)), NAME_MAX, &context.err);
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
