//! `relive info`: shows everything about one process.

use crate::client::Client;
use crate::context::Context;
use crate::error::Outcome;
use crate::render::processes;
use crate::render::time::Clock;

/// Show one process
#[derive(Debug, clap::Args)]
#[command(before_long_help = "\
Examples:
  relive info 5
  relive info fixer --json | jq .exit")]
pub(crate) struct Args {
    /// The PID, the name, or the UUID of a process; the first or last digits of a UUID are enough
    id: String,
    /// Show times in UTC instead of local time
    #[arg(long)]
    utc: bool,
}

pub(crate) async fn run(context: &Context, args: &Args) -> Outcome<u8> {
    let process = Client::about(context, &args.id).await?.process(&args.id).await?;
    let clock = if args.utc { Clock::utc() } else { Clock::local() };
    if context.json {
        context.print_json(&process)?;
    } else {
        context.print(&processes::details(&process, &clock, &context.out))?;
    }
    Ok(0)
}
