//! What can be typed.

use std::ffi::OsString;

use clap::{Parser, Subcommand};

use crate::commands::{
    abort, agent_events, attach, config, daemon, demo, doctor, exec, gc, info, kill, lineage, list_resumable, logs,
    paths, pause, proceed, ps, resolve, resume, run, send, signals, steps, strace, wait,
};
use crate::terminal::ColorChoice;

const EXAMPLES: &str = "\
Examples:
  relive run \"fix the failing test\"     run an agent here and watch it
  relive ps                             what runs, and what waits for you
  relive resume --fork --from-step 5 3  go back to step 5 of process 3, as another one";

/// Makes an AI agent a process: a PID, signals, a typed end, and a journal it can be recovered from
#[derive(Debug, Parser)]
#[command(name = "relive", version, before_long_help = EXAMPLES, disable_help_subcommand = true, max_term_width = 100)]
#[command(subcommand_required = true, arg_required_else_help = false)]
pub(crate) struct Cli {
    /// Answer in JSON: one document, or one object a line for streams
    #[arg(long, global = true, help_heading = "Options of every command")]
    pub json: bool,
    /// When to colour
    #[arg(long, global = true, help_heading = "Options of every command")]
    #[arg(value_name = "auto|always|never", value_enum, default_value_t, hide_possible_values = true)]
    pub color: ColorChoice,
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Run(Box<run::Args>),
    Exec(exec::Args),
    Proceed(proceed::Args),
    Abort(abort::Args),
    Attach(attach::Args),
    Ps(ps::Args),
    Info(info::Args),
    Wait(wait::Args),
    Logs(logs::Args),
    Strace(strace::Args),
    Steps(steps::Args),
    Send(send::Args),
    Pause(pause::Args),
    Signals(signals::Args),
    Resume(resume::Args),
    Kill(kill::Args),
    Resolve(resolve::Args),
    Lineage(lineage::Args),
    ListResumable(list_resumable::Args),
    Gc(gc::Args),
    Daemon(daemon::Args),
    Config(config::Args),
    Paths(paths::Args),
    Doctor(doctor::Args),
    Demo(demo::Args),
    AgentEvents(agent_events::Args),
}

pub(crate) fn parse(typed: &[OsString]) -> Result<Cli, clap::Error> {
    Cli::try_parse_from(kill::spell_out(typed))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn the_definitions_hold_together() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_command_says_what_it_does_and_shows_examples_in_its_long_help() {
        for command in Cli::command().get_subcommands().filter(|command| !command.is_hide_set()) {
            let name = command.get_name();
            assert!(command.get_about().is_some(), "{name}");
            let examples = command.get_before_long_help().map(ToString::to_string).unwrap_or_default();
            assert!(examples.starts_with("Examples:\n  relive "), "{name}");
        }
    }
}
