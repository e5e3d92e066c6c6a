//! `relive proceed`: open the gate.

use super::report_affected;
use crate::client::Client;
use crate::context::Context;
use crate::error::Outcome;

/// Let a program that waits at the gate run
#[derive(Debug, clap::Args)]
#[command(before_long_help = "\
Examples:
  relive exec -d --gate --name job -- make
  relive proceed job")]
pub(crate) struct Args {
    /// A PID, a name, a UUID or its beginning
    id: String,
}

pub(crate) async fn run(context: &Context, args: &Args) -> Outcome<u8> {
    let client = Client::about(context, &args.id).await?;
    let affected = client.proceed(&args.id).await?;
    report_affected(context, &args.id, &affected, "runs now", None)
}
