//! `relive resolve`: what became of a call that is in doubt.

use relive_api::{Resolution, ResolveRequest};

use super::report_affected;
use crate::client::Client;
use crate::context::Context;
use crate::error::Outcome;

/// Say what became of a call that is in doubt
#[derive(Debug, clap::Args)]
#[command(before_long_help = "\
Examples:
  relive logs 5 -n 5            what it was about to do
  relive resolve 5 --done       it happened: go on
  relive resolve 5 --not-done   it did not, and shall not: go on")]
#[command(group(clap::ArgGroup::new("outcome").required(true)))]
pub(crate) struct Args {
    /// A PID, a name, a UUID or its beginning
    id: String,
    /// It happened
    #[arg(long, group = "outcome")]
    done: bool,
    /// It did not happen, and shall not
    #[arg(long, group = "outcome")]
    not_done: bool,
    /// Run it again, whatever it did
    #[arg(long, group = "outcome")]
    retry: bool,
}

pub(crate) async fn run(context: &Context, args: &Args) -> Outcome<u8> {
    let (outcome, done) = match (args.done, args.not_done) {
        (true, _) => (Resolution::Done, "goes on: the call happened"),
        (false, true) => (Resolution::NotDone, "goes on: the call did not happen"),
        (false, false) => (Resolution::Retry, "goes on: the call is run again"),
    };
    let client = Client::about(context, &args.id).await?;
    let affected = client.resolve(&args.id, &ResolveRequest { outcome }).await?;
    report_affected(context, &args.id, &affected, done, None)
}
