//! `relive man`: writes the manual pages for `make install`.

use std::path::{Path, PathBuf};

use clap::{Command, CommandFactory as _};

use crate::cli::Cli;
use crate::context::Context;
use crate::error::{CommandError, Outcome};

/// Write the manual pages into a directory
#[derive(Debug, clap::Args)]
#[command(before_long_help = "\
Examples:
  relive man ~/.local/share/man/man1")]
pub(crate) struct Args {
    /// The directory, created if it does not exist
    directory: PathBuf,
}

pub(crate) fn run(context: &Context, args: &Args) -> Outcome<u8> {
    write(&args.directory).map_err(|error| {
        CommandError::invalid(format!("cannot write manual pages into {}", args.directory.display())).because(error)
    })?;
    context.say(&format!("wrote the manual pages into {}", args.directory.display()));
    Ok(0)
}

#[expect(clippy::disallowed_methods, reason = "the directory is the user's, not ours")]
fn write(directory: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(directory)?;
    clap_mangen::generate_to(with_examples_last(Cli::command().disable_help_subcommand(true)), directory)
}

/// Moves the examples behind the options: a manual page has no place for text before its synopsis.
fn with_examples_last(command: Command) -> Command {
    let examples = command.get_before_long_help().map(ToString::to_string);
    let command = match examples {
        Some(examples) => command.before_long_help("").after_long_help(examples.replace("\n  ", "\n\n    ")),
        None => command,
    };
    let names: Vec<String> = command.get_subcommands().map(|verb| verb.get_name().to_owned()).collect();
    names.iter().fold(command, |command, name| command.mut_subcommand(name, with_examples_last))
}
