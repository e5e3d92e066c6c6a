//! `relive proceed`: open the gate.

use super::report_affected;
use crate::client::Client;
use crate::context::Context;
use crate::error::Outcome;

/// Start a program that waits at its gate
#[derive(Debug, clap::Args)]
#[command(before_long_help = "\
Examples:
  relive exec -d --gate --name job -- make
  relive proceed job")]
pub(crate) struct Args {
    /// The PID, the name, or the UUID of a process; the first or last digits of a UUID are enough
    id: String,
}

pub(crate) async fn run(context: &Context, args: &Args) -> Outcome<u8> {
    let client = Client::about(context, &args.id).await?;
    let affected = client.proceed(&args.id).await?;
    report_affected(context, &args.id, &affected, "started", None)
}
