//! `relive daemon`: the daemon itself. Most people never type this: other commands start it.

mod restart;
mod serve;
mod start;
mod status;
mod stop;

use super::block_on;
use crate::context::Context;
use crate::error::Outcome;

/// Start, stop or look at the daemon
#[derive(Debug, clap::Args)]
#[command(before_long_help = "\
Examples:
  relive daemon status    exits with 3 if it is not running
  relive daemon restart   agents pause and resume; programs keep running
  relive daemon stop")]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Start the daemon if it is not running
    Start,
    /// Pause the agents at their boundaries and stop the daemon
    Stop,
    /// Stop the daemon if it is running, and start it
    Restart,
    /// Say whether the daemon is running; exit code 3 if it is not
    Status,
    /// Run the daemon in the foreground
    #[command(hide = true)]
    Serve,
}

pub(crate) fn run(context: &Context, args: &Args) -> Outcome<u8> {
    match args.verb {
        Verb::Start => block_on(start::run(context)),
        Verb::Stop => block_on(stop::run(context)),
        Verb::Restart => block_on(restart::run(context)),
        Verb::Status => block_on(status::run(context)),
        Verb::Serve => serve::run(context),
    }
}
