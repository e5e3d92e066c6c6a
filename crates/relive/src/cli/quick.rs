//! Parses the commands that scripts repeat without defining all the others, which takes longer than everything else that
//! such a command does before it asks the daemon.

use std::ffi::OsString;

use clap::{Args, FromArgMatches as _};

use super::{Cli, Command, Global};

/// Returns what was typed if it is complete and right; `None` for every other command line, of which only the whole
/// definition can say what is wrong with it.
pub(super) fn parse(words: &[OsString]) -> Option<Cli> {
    match words.get(1)?.to_str()? {
        "exec" => only("exec", words, Command::Exec),
        "info" => only("info", words, Command::Info),
        "ps" => only("ps", words, Command::Ps),
        "send" => only("send", words, Command::Send),
        "wait" => only("wait", words, Command::Wait),
        _ => None,
    }
}

fn only<A: Args>(name: &'static str, words: &[OsString], command: fn(A) -> Command) -> Option<Cli> {
    let defined = Global::augment_args(clap::Command::new("relive"))
        .subcommand_required(true)
        .subcommand(A::augment_args(clap::Command::new(name)));
    let typed = defined.try_get_matches_from(words).ok()?;
    let (_, arguments) = typed.subcommand()?;
    Some(Cli { global: Global::from_arg_matches(&typed).ok()?, command: command(A::from_arg_matches(arguments).ok()?) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::groups;

    /// Returns what the whole definition makes of it.
    fn whole(words: &[OsString]) -> Option<Cli> {
        Cli::from_arg_matches(&groups::command().try_get_matches_from(words).ok()?).ok()
    }

    #[test]
    fn a_command_is_parsed_as_by_the_whole_definition() {
        let lines = [
            "exec -- true",
            "exec -n -- sh -c --json",
            "exec --json -d --name x -- sleep 1",
            "--json exec -- true",
            "exec",
            "exec --help",
            "exec --no-such-flag -- true",
            "ps",
            "ps -a --json --color never",
            "ps --color sometimes",
            "ps --json --json",
            "info 3",
            "info --color=always 3 --json",
            "info",
            "wait 3 4 --timeout 5s",
            "send 3 hello",
            "send -h",
            "version",
        ];
        for line in lines {
            let words: Vec<OsString> = std::iter::once("relive").chain(line.split(' ')).map(OsString::from).collect();
            let (quick, whole) = (parse(&words), whole(&words));
            if let Some(quick) = &quick {
                assert_eq!(Some(format!("{quick:?}")), whole.as_ref().map(|whole| format!("{whole:?}")), "{line}");
            }
            let is_quick = ["exec", "info", "ps", "send", "wait"].contains(&line.split(' ').next().unwrap_or_default());
            assert_eq!(quick.is_some(), is_quick && whole.is_some(), "{line}");
        }
    }
}
