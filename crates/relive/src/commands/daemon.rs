//! `relive daemon`: manages the daemon. Most people never need this: other commands start it.

mod install;
mod restart;
mod serve;
mod start;
mod status;
mod stop;

use super::block_on;
use crate::context::Context;
use crate::error::Outcome;

/// Start, stop, restart, inspect or install the daemon
#[derive(Debug, clap::Args)]
#[command(before_long_help = "\
Examples:
  relive daemon status    exits with 3 if the daemon is not running
  relive daemon restart   agents are paused and resumed; programs keep running
  relive daemon stop
  relive daemon install   start the daemon at login, with systemd")]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Start the daemon if it is not running
    #[command(before_long_help = "\
Examples:
  relive daemon start
  relive daemon start --json | jq .daemon.os_pid")]
    Start,
    /// Pause all agents at their next step boundary and stop the daemon
    #[command(before_long_help = "\
Examples:
  relive daemon stop
  relive daemon stop && relive daemon status")]
    Stop,
    /// Stop the daemon if it is running, then start it
    #[command(before_long_help = "\
Examples:
  relive daemon restart
  RELIVE_LOG=debug relive daemon restart")]
    Restart,
    /// Show whether the daemon is running; exit with 3 if it is not
    #[command(before_long_help = "\
Examples:
  relive daemon status
  relive daemon status --json | jq .running")]
    Status,
    /// Write a systemd user unit that starts the daemon at login and after a crash
    #[command(before_long_help = "\
Examples:
  relive daemon install
  relive daemon install --dry-run")]
    Install(install::Args),
    /// Run the daemon in the foreground
    #[command(hide = true)]
    Serve,
}

pub(crate) fn run(context: &Context, args: &Args) -> Outcome<u8> {
    match &args.verb {
        Verb::Start => block_on(start::run(context)),
        Verb::Stop => block_on(stop::run(context)),
        Verb::Restart => block_on(restart::run(context)),
        Verb::Status => block_on(status::run(context)),
        Verb::Install(args) => install::run(context, args),
        Verb::Serve => serve::run(context),
    }
}
