//! The definition of the command line.

pub(crate) mod advice;
#[cfg(test)]
mod documented;
pub(crate) mod groups;
mod quick;
#[cfg(test)]
mod snapshots;

use std::ffi::OsString;

use clap::{FromArgMatches as _, Parser, Subcommand};

use crate::commands::{
    abort, agent_events, attach, blame, completions, compose, config, daemon, demo, diff, doctor, enter, exec, gc,
    handle, inbox, info, kill, lineage, list_resumable, logs, man, merge, myself, paths, pause, pool, proceed, ps,
    rename, resolve, restore, resume, retry, rewind, rm, run, send, signals, steps, strace, supervise, top, usage,
    version, wait, workspace,
};
use crate::terminal::ColorChoice;

const EXAMPLES: &str = "\
Examples:
  relive run \"fix the failing test\"     run an agent in this directory
  relive ps                             list running and suspended processes
  relive attach 3                       watch process 3, and type messages to it
  relive pause 3                        pause it; `relive resume 3` continues it
  relive resume --fork --from-step 5 3  fork process 3 after its step 5";

/// Longer lines of help are hard to read.
const HELP_WIDTH_MAX: usize = 100;

/// Makes an AI agent a process: a PID, signals, an exit status, and a journal it can be recovered from
#[derive(Debug, Parser)]
#[command(name = "relive", version, before_long_help = EXAMPLES, max_term_width = HELP_WIDTH_MAX)]
#[command(subcommand_required = true, arg_required_else_help = true)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub global: Global,
    #[command(subcommand)]
    pub command: Command,
}

// The options of every command. Not a doc comment: that would be taken for the description of `relive`.
#[derive(Debug, clap::Args)]
pub(crate) struct Global {
    /// Print JSON: one document, or one object per line for streams
    #[arg(long, global = true, help_heading = "Global options")]
    pub json: bool,
    /// When to use colors
    #[arg(long, global = true, help_heading = "Global options")]
    #[arg(value_name = "auto|always|never", value_enum, default_value_t, hide_possible_values = true)]
    pub color: ColorChoice,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Run(Box<run::Args>),
    Exec(exec::Args),
    Enter(enter::Args),
    Compose(compose::Args),
    Supervise(supervise::Args),
    Proceed(proceed::Args),
    Abort(abort::Args),
    Attach(attach::Args),
    Ps(ps::Args),
    Inbox(inbox::Args),
    // Not a visible alias: Tab offers one name for a command, and would offer this one instead of `top`.
    #[command(alias = "dashboard")]
    Top(top::Args),
    Next(inbox::NextArgs),
    Info(info::Args),
    Wait(wait::Args),
    Logs(logs::Args),
    Strace(strace::Args),
    Steps(steps::Args),
    #[command(name = "self")]
    MySelf(myself::Args),
    Send(send::Args),
    Pause(pause::Args),
    Signals(signals::Args),
    Resume(resume::Args),
    Kill(kill::Args),
    Retry(retry::Args),
    Rename(rename::Args),
    Rm(rm::Args),
    Resolve(resolve::Args),
    Lineage(lineage::Args),
    ListResumable(list_resumable::Args),
    Handle(handle::Args),
    Gc(gc::Args),
    Usage(usage::Args),
    Pool(pool::Args),
    Diff(diff::Args),
    Rewind(rewind::Args),
    Restore(restore::Args),
    Merge(merge::Args),
    Blame(blame::Args),
    Workspace(workspace::Args),
    Daemon(daemon::Args),
    Config(config::Args),
    Completions(completions::Args),
    #[command(hide = true)]
    Man(man::Args),
    Paths(paths::Args),
    Doctor(doctor::Args),
    Demo(demo::Args),
    Version(version::Args),
    AgentEvents(agent_events::Args),
}

pub(crate) fn parse(typed: &[OsString]) -> Result<Cli, clap::Error> {
    let mut words = kill::spell_out(typed);
    if words.get(1).is_some_and(|word| word == "help") || words.iter().skip(1).all(|word| word == "--json") {
        // Help, which the report puts into a document.
        words.retain(|word| word != "--json");
    }
    // The help of `help` itself.
    if let [_, help, flag, ..] = words.as_mut_slice()
        && help == "help"
        && (flag == "--help" || flag == "-h")
    {
        *flag = "help".into();
    }
    if let Some(cli) = quick::parse(&words) {
        return Ok(cli);
    }
    let matches = match groups::command().try_get_matches_from(&words) {
        Err(error) if is_help(&error) => groups::in_plain_words(groups::command()).try_get_matches_from(words)?,
        matches => matches?,
    };
    Cli::from_arg_matches(&matches)
}

fn is_help(error: &clap::Error) -> bool {
    use clap::error::ErrorKind::{DisplayHelp, DisplayHelpOnMissingArgumentOrSubcommand};
    matches!(error.kind(), DisplayHelp | DisplayHelpOnMissingArgumentOrSubcommand)
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
    fn the_help_of_help_is_help() {
        for flag in ["--help", "-h", "help"] {
            let words = ["relive", "help", flag].map(OsString::from);
            let said = parse(&words).unwrap_err();
            assert_eq!(said.kind(), clap::error::ErrorKind::DisplayHelp, "{flag}: {said}");
            assert!(said.to_string().contains("relive help [COMMAND]"), "{flag}: {said}");
        }
    }

    /// Calls `look` for every command that is shown, also for commands of commands.
    fn each(command: &clap::Command, name: &str, look: &mut impl FnMut(&str, &clap::Command)) {
        for command in command.get_subcommands().filter(|command| !command.is_hide_set()) {
            let name = format!("{name} {}", command.get_name());
            look(&name, command);
            each(command, &name, look);
        }
    }

    fn examples(command: &clap::Command) -> String {
        command.get_before_long_help().map(ToString::to_string).unwrap_or_default()
    }

    #[test]
    fn every_command_says_what_it_does_and_shows_examples_in_its_long_help() {
        each(&Cli::command(), "relive", &mut |name, command| {
            assert!(command.get_about().is_some(), "{name}");
            let examples = examples(command);
            assert!(examples.starts_with("Examples:\n  ") && examples.contains(name), "{name}");
            // Wrapped, an example looks like two.
            let longest = examples.lines().max_by_key(|line| line.len()).unwrap_or_default();
            assert!(longest.len() <= 80, "{name}: {longest}");
        });
    }

    /// Splits an example as a shell does, up to its end or to what is not an argument of `relive`.
    fn typed(example: &str) -> Vec<OsString> {
        let (mut words, mut word, mut quote): (Vec<OsString>, _, _) = (Vec::new(), None::<String>, None);
        for letter in example.chars() {
            match (letter, quote) {
                (letter, Some(open)) if letter == open => quote = None,
                (letter, Some(_)) => word.get_or_insert_default().push(letter),
                ('\'' | '"', None) => {
                    word.get_or_insert_default();
                    quote = Some(letter);
                }
                (' ', None) if word.is_none() => break,
                (' ', None) => words.extend(word.take().map(OsString::from)),
                ('|' | '>' | '<' | ';' | '&' | ')', None) => break,
                // Only quoted, the shell leaves it alone.
                (letter, None) => {
                    assert!(!"*?[".contains(letter), "unquoted: {example}");
                    word.get_or_insert_default().push(letter);
                }
            }
        }
        words.extend(word.map(OsString::from));
        words
    }

    #[test]
    fn every_example_can_be_typed() {
        let mut count = 0;
        let mut check = |name: &str, text: &str| {
            for (place, _) in text.match_indices("relive ").filter(|(place, _)| {
                text[..*place].ends_with("\n  ") || text[..*place].ends_with(['`', '(', ';', '|', '&'])
            }) {
                let example = text[place..].split(['\n', '`']).next().unwrap_or_default();
                if example.contains("$(") {
                    continue;
                }
                // The directory may not exist.
                assert!(!example.contains("> ~"), "{name}: {example}");
                count += 1;
                let said = parse(&typed(example)).map(|_| ()).map_err(|error| (error.kind(), error.to_string()));
                assert!(
                    matches!(said, Ok(()) | Err((clap::error::ErrorKind::DisplayHelp, _))),
                    "{name}: {example}: {said:?}"
                );
            }
        };
        check("relive", EXAMPLES);
        each(&Cli::command(), "relive", &mut |name, command| check(name, &examples(command)));
        assert!(count > 150, "{count}");
    }
}
