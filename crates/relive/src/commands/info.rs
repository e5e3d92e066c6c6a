//! `relive info`: all there is to know about one process.

use crate::client::Client;
use crate::context::Context;
use crate::error::Outcome;
use crate::render::processes;

/// Show one process
#[derive(Debug, clap::Args)]
#[command(before_long_help = "\
Examples:
  relive info 5
  relive info fixer --json | jq .exit")]
pub(crate) struct Args {
    /// A PID, a name, a UUID or its beginning
    id: String,
}

pub(crate) async fn run(context: &Context, args: &Args) -> Outcome<u8> {
    let process = Client::about(context, &args.id).await?.process(&args.id).await?;
    if context.json {
        context.print_json(&process)?;
    } else {
        context.print(&processes::details(&process, &context.out))?;
    }
    Ok(0)
}
