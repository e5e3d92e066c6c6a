//! `relive rewind`: the files of a process as they were after a step.

use relive_api::{RewindRequest, Rewound};
use relive_types::text::exact;

use crate::client::Client;
use crate::context::Context;
use crate::error::{CommandError, Outcome};
use crate::render::files::{count, stat, summary_of};

/// Put the files of a process back to how they were after a step
///
/// Changes made by commands are put back as well. A running process is paused first, and its model is told. The files as
/// they were before are kept, so a rewind can be undone. If somebody else changed one of the files, nothing is written
/// without --force.
#[derive(Debug, clap::Args)]
#[command(before_long_help = "\
Examples:
  relive rewind 5 --to-step 12             asks first
  relive rewind 5 --to-step 12 --dry-run   show what would change
  relive rewind 5 --to-step 12 -y          do not ask
  relive rewind 5 --undo                   undo the last rewind or restore")]
pub(crate) struct Args {
    /// The PID, the name, or the UUID of a process; the first or last digits of a UUID are enough
    id: String,
    /// Restore the files as they were after this step
    #[arg(long, value_name = "N", required_unless_present = "undo")]
    to_step: Option<u32>,
    /// Restore the files as they were before the last rewind or restore
    #[arg(long, conflicts_with = "to_step")]
    undo: bool,
    /// Put back the files without telling the model
    #[arg(long)]
    files_only: bool,
    /// Overwrite changes made by others, and accept a state that is not exact
    #[arg(long)]
    force: bool,
    /// Show what would change, and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Do not ask for confirmation
    #[arg(short, long)]
    yes: bool,
}

impl Args {
    /// The state that was asked for, as it is typed.
    fn goal(&self) -> String {
        self.to_step.map_or_else(|| "--undo".to_owned(), |step| format!("--to-step {step}"))
    }

    /// The state that was asked for, in words.
    fn state(&self, told: &Rewound) -> String {
        match self.undo {
            true => "the state before the last rewind or restore".to_owned(),
            false => format!("the state after step {}", told.to_step),
        }
    }
}

pub(crate) async fn run(context: &Context, args: &Args) -> Outcome<u8> {
    let client = Client::about(context, &args.id).await?;
    let Args { to_step, undo, files_only, force, .. } = *args;
    let request = RewindRequest { to_step: to_step.unwrap_or(0), undo, files_only, force, dry_run: true };
    // A script that uses --force has decided; a person on a terminal is shown the files of others first.
    if !args.dry_run && !args.yes && (!args.force || context.can_ask()) {
        let plan = client.rewind(&args.id, &request).await?;
        if !plan.files.is_empty() && !confirm(context, args, &plan)? {
            context.say("nothing was changed");
            return Ok(0);
        }
    }
    let done = client.rewind(&args.id, &RewindRequest { dry_run: args.dry_run, ..request }).await?;
    let code = u8::from(!done.verified && !done.dry_run);
    if context.json {
        context.print_json(&done)?;
        return Ok(code);
    }
    tell(context, args, &done)?;
    Ok(code)
}

fn confirm(context: &Context, args: &Args, plan: &Rewound) -> Outcome<bool> {
    let count = count(plan.files.len() as u64);
    if !context.can_ask() {
        let message = format!("{}: this would change {count}, and there is no terminal to ask on", args.id);
        return Err(CommandError::invalid(message).with_hint(format!("relive rewind {} {} -y", args.id, args.goal())));
    }
    context.say(stat(&plan.files, &context.err).trim_end());
    Ok(context.ask(&format!("Put {count} back to {}?", args.state(plan))))
}

fn tell(context: &Context, args: &Args, done: &Rewound) -> Outcome<()> {
    if let Some(note) = &done.note {
        context.say(&format!("note: {}", exact(note)));
    }
    if done.files.is_empty() {
        match &done.note {
            // It may name files that stay.
            Some(_) => context.say("nothing was changed"),
            None => context.say(&format!("nothing to do: the files are already in {}", args.state(done))),
        }
        return Ok(());
    }
    context.print(&stat(&done.files, &context.out))?;
    if done.dry_run {
        context.say(&format!("{} would change", summary_of(&done.files)));
        return Ok(());
    }
    let verified = if done.verified { "verified" } else { "NOT verified" };
    let undo = done.undo.as_ref().map(|undo| format!(" (undo: {undo})")).unwrap_or_default();
    let (count, state) = (count(done.restored), args.state(done));
    context.say(&format!("put {count} back to {state}, {verified}{undo}"));
    if done.paused {
        context.say(&format!("paused {} (resume: relive resume {})", args.id, args.id));
    }
    Ok(())
}
