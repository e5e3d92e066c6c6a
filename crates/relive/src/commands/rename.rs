//! `relive rename`: another name for a process.

use relive_api::{Affected, RenameRequest};

use super::report_affected;
use super::targets::only_process;
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
    let process = only_process(&client, &args.id).await?;
    if process.name.as_ref() == Some(&args.name) {
        return report_affected(context, &args.id, &Affected::default(), "", None);
    }
    let request = RenameRequest { name: args.name.clone() };
    let affected = client.rename(&process.uuid.to_string(), &request).await?;
    report_affected(context, &args.id, &affected, &format!("renamed to {}", args.name), None)
}
