//! `relive rename`: another name for a process.

use relive_api::RenameRequest;

use super::report_affected;
use crate::client::Client;
use crate::context::Context;
use crate::error::Outcome;

/// Rename a process
///
/// The name is recorded in the journal. Processes that have ended can be renamed as well. Two processes that have not
/// ended cannot have the same name.
#[derive(Debug, clap::Args)]
#[command(before_long_help = "\
Examples:
  relive rename 5 fixer
  relive rename fixer fixer-old")]
pub(crate) struct Args {
    /// The PID, the name, or the UUID of a process; the first or last digits of a UUID are enough
    id: String,
    /// The new name: letters, digits, `.`, `_` and `-`; it must not look like a PID or part of a UUID
    #[arg(allow_hyphen_values = true)]
    name: String,
}

pub(crate) async fn run(context: &Context, args: &Args) -> Outcome<u8> {
    let client = Client::about(context, &args.id).await?;
    let affected = client.rename(&args.id, &RenameRequest { name: args.name.clone() }).await?;
    report_affected(context, &args.id, &affected, &format!("renamed to {}", args.name), None)
}
