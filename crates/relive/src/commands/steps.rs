//! `relive steps`: lists the steps of a process, one line each.

use relive_api::Process;
use relive_client::{Error, Event, Source};
use relive_core::Body;
use serde_json::json;

use super::logs::refuse_unreadable;
use crate::client::Client;
use crate::context::Context;
use crate::error::Outcome;
use crate::render::steps::{Steps, table};
use crate::render::time::Clock;

/// List the steps of a process
#[derive(Debug, clap::Args)]
#[command(before_long_help = "\
Examples:
  relive steps 5                          find the step to go back to
  relive resume --fork --from-step 12 5   fork process 5 after its step 12")]
pub(crate) struct Args {
    /// The PID, the name, or the UUID of a process; the first or last digits of a UUID are enough
    id: String,
    /// Show times in UTC instead of local time
    #[arg(long)]
    utc: bool,
}

pub(crate) async fn run(context: &Context, args: &Args) -> Outcome<u8> {
    let client = Client::about(context, &args.id).await?;
    let process = client.process(&args.id).await?;
    let uuid = process.uuid.to_string();
    let mut steps = Steps::default();
    let each = async |event: Event| {
        steps.fold(&event.data);
        Ok::<_, Error>(())
    };
    client.read(&uuid, Source::Journal, &mut None, each).await?;
    if steps.rows.is_empty() {
        refuse_unreadable(context, &process)?;
    }
    // What was resumed, or has stopped, while its journal was read may have records that were not read.
    let after = client.process(&uuid).await?;
    steps.finish(is_at_rest(&process) && is_at_rest(&after) && process.pid == after.pid);
    if steps.wants_events() {
        let each = async |event: Event| {
            steps.fold_event(&event.data);
            Ok::<_, Error>(())
        };
        client.read(&uuid, Source::Events, &mut None, each).await?;
    }
    if context.json {
        context.print_json(&json!({ "steps": steps.rows }))?;
    } else {
        let clock = if args.utc { Clock::utc() } else { Clock::local() };
        context.print(&table(&steps.rows, &clock, &context.out))?;
        steps.reasons().iter().for_each(|reason| context.say(&format!("note: {reason}")));
        if process.body == Body::Exec {
            context.say(&format!("PID {0} is a program and has no steps: relive logs {0}", process.pid));
        }
    }
    Ok(0)
}

fn is_at_rest(process: &Process) -> bool {
    process.dead_at.is_some() || process.suspend_reason.is_some()
}
