//! The commands in groups by purpose, in the help of `relive` itself: one list of more than forty helps nobody.

use std::fmt::Write as _;

use clap::{Command, CommandFactory as _};

use super::Cli;

/// Every command that is not hidden, once.
const GROUPS: [(&str, &[&str]); 8] = [
    ("Run", &["run", "exec", "attach", "send", "enter", "compose", "supervise"]),
    (
        "Look",
        &[
            "ps",
            "top",
            "inbox",
            "next",
            "info",
            "logs",
            "steps",
            "strace",
            "lineage",
            "usage",
            "pool",
            "list-resumable",
        ],
    ),
    (
        "Control",
        &["pause", "resume", "kill", "wait", "retry", "resolve", "rename", "proceed", "abort", "signals", "handle"],
    ),
    ("Files", &["diff", "rewind", "restore", "merge", "blame", "workspace"]),
    ("Clean up", &["rm", "gc"]),
    ("Inside a process", &["self"]),
    ("Set up", &["daemon", "config", "doctor", "paths", "completions", "agent-events"]),
    ("Learn", &["demo", "version", "help"]),
];

const ABOUT_HELP: &str = "Show this list, or the help of a command";

/// The width that the longest name needs, and two spaces.
const NAME_WIDTH: usize = 16;
const LINE_WIDTH: usize = 80;

/// Returns the definition of the command line, with the help that shows the groups.
pub(super) fn command() -> Command {
    let command = Cli::command();
    let mut listed = String::new();
    for (heading, names) in GROUPS {
        let style = command.get_styles().get_header();
        let _ = writeln!(listed, "{style}{heading}:{style:#}");
        for name in names {
            list(&command, name, &mut listed);
        }
        listed.push('\n');
    }
    let template =
        format!("{{before-help}}{{about}}\n\n{{usage-heading}} {{usage}}\n\n{listed}{{options}}{{after-help}}");
    command.help_template(template)
}

/// Puts plain words in the place of clap's own. Only a command that is built has them, and building it takes a while.
pub(crate) fn in_plain_words(mut command: Command) -> Command {
    command.build();
    reworded(command)
}

fn reworded(command: Command) -> Command {
    let command = if command.get_name() == "help" { command.about(ABOUT_HELP) } else { command };
    let command = command.mut_subcommands(reworded);
    command.mut_args(|arg| match arg.get_id().as_str() {
        "help" if arg.get_long_help().is_some() => {
            arg.help("Show this help; --help shows more").long_help("Show this help; -h shows less")
        }
        "help" => arg.help("Show this help"),
        "version" => arg.help("Show the version"),
        _ => arg,
    })
}

fn list(command: &Command, name: &str, listed: &mut String) {
    let about = match command.find_subcommand(name).and_then(Command::get_about) {
        Some(about) => about.to_string(),
        // Added only when the definition is built.
        None => ABOUT_HELP.to_owned(),
    };
    let style = command.get_styles().get_literal();
    let _ = write!(listed, "  {style}{name}{style:#}");
    let mut column = 2 + name.len();
    for word in about.split(' ') {
        let start = 2 + NAME_WIDTH;
        if column < start {
            let _ = write!(listed, "{:1$}", "", start - column);
            column = start;
        } else if column + 1 + word.len() > LINE_WIDTH {
            let _ = write!(listed, "\n{:1$}", "", start);
            column = start;
        } else {
            listed.push(' ');
            column += 1;
        }
        listed.push_str(word);
        column += word.len();
    }
    listed.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_is_in_one_group() {
        let mut grouped: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| names.iter().copied()).collect();
        grouped.sort_unstable();
        let mut command = Cli::command();
        command.build();
        let shown = command.get_subcommands().filter(|command| !command.is_hide_set());
        let mut names: Vec<&str> = shown.map(Command::get_name).collect();
        names.sort_unstable();
        assert_eq!(grouped, names);
    }
}
