//! `relive lineage`: shows the origins of a fork.

use crate::client::Client;
use crate::context::Context;
use crate::error::Outcome;

/// Show the processes that a process was forked from
#[derive(Debug, clap::Args)]
#[command(before_long_help = "\
Examples:
  relive lineage 7
  relive lineage 7 --json | jq '.ancestors[0].uuid'")]
pub(crate) struct Args {
    /// The PID, the name, or the UUID of a process; the first or last digits of a UUID are enough
    id: String,
}

pub(crate) async fn run(context: &Context, args: &Args) -> Outcome<u8> {
    let lineage = Client::about(context, &args.id).await?.lineage(&args.id).await?;
    if context.json {
        context.print_json(&lineage)?;
        return Ok(0);
    }
    context.print_line(&lineage.uuid.to_string())?;
    for ancestor in &lineage.ancestors {
        let gone = if ancestor.gone { "  (garbage collected)" } else { "" };
        context.print_line(&format!("  forked at step {} of {}{gone}", ancestor.step, ancestor.uuid))?;
    }
    Ok(0)
}
