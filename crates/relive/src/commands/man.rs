//! `relive man`: writes the manual pages for `make install`.

use std::path::{Path, PathBuf};

use clap::{Command, CommandFactory as _};
use clap_mangen::Man;

use crate::cli::Cli;
use crate::cli::groups::in_plain_words;
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
    write_pages(&in_plain_words(Cli::command().disable_help_subcommand(true)), directory)
}

#[expect(clippy::disallowed_methods, reason = "the directory is the user's, not ours")]
fn write_pages(command: &Command, directory: &Path) -> std::io::Result<()> {
    for verb in command.get_subcommands().filter(|verb| !verb.is_hide_set()) {
        write_pages(verb, directory)?;
    }
    let (name, text) = page(command)?;
    std::fs::write(directory.join(name), text)
}

/// Returns the name of a page, and its text. The examples are a section of their own.
fn page(command: &Command) -> std::io::Result<(String, Vec<u8>)> {
    let examples = command.get_before_long_help().map(ToString::to_string).unwrap_or_default();
    let man = Man::new(command.clone().before_long_help(""));
    let mut text = Vec::new();
    man.render_title(&mut text)?;
    man.render_name_section(&mut text)?;
    text.extend(synopsis_section(command).into_bytes());
    man.render_description_section(&mut text)?;
    text.extend(examples_section(&examples).into_bytes());
    man.render_options_section(&mut text)?;
    if command.has_subcommands() {
        man.render_subcommands_section(&mut text)?;
    }
    if command.get_version().is_some() {
        man.render_version_section(&mut text)?;
    }
    Ok((man.get_filename(), text))
}

/// Returns the usage as in the help. The generator would list the options without their values.
fn synopsis_section(command: &Command) -> String {
    let usage = command.clone().render_usage().to_string();
    let lines = usage.trim_start_matches("Usage:").lines().map(|line| verbatim(line.trim()));
    format!(".SH SYNOPSIS\n.nf\n{}.fi\n", lines.collect::<String>())
}

/// Returns the examples in lines that are not filled, as they were written.
fn examples_section(examples: &str) -> String {
    let Some((_, lines)) = examples.split_once('\n') else { return String::new() };
    let lines = lines.lines().map(|line| verbatim(line.strip_prefix("  ").unwrap_or(line)));
    format!(".SH EXAMPLES\n.nf\n{}.fi\n", lines.collect::<String>())
}

fn verbatim(line: &str) -> String {
    let escaped = line.replace('\\', "\\e").replace('-', "\\-").replace('\'', "\\(aq").replace('`', "\\(ga");
    // Otherwise the line would be a command.
    if escaped.starts_with('.') { format!("\\&{escaped}\n") } else { escaped + "\n" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn examples_are_a_section_and_keep_their_lines() {
        let section = examples_section("Examples:\n  relive kill -9 'a b'\n      Ends it.\n  ./x");
        let expected = ".SH EXAMPLES\n.nf\nrelive kill \\-9 \\(aqa b\\(aq\n    Ends it.\n\\&./x\n.fi\n";
        assert_eq!(section, expected);
        let mut root = Cli::command();
        root.build();
        let (name, text) = page(root.find_subcommand("compose").unwrap().find_subcommand("up").unwrap()).unwrap();
        let text = String::from_utf8(text).unwrap();
        assert_eq!(name, "relive-compose-up.1");
        assert!(text.contains("\n.SH EXAMPLES\n.nf\nrelive compose up build.yaml\n"), "{text}");
        assert!(!text.contains("Examples:") && !text.contains("EXTRA"), "{text}");
        assert!(text.contains("\n.SH SYNOPSIS\n.nf\nrelive compose up [OPTIONS] <FILE>\n.fi\n"), "{text}");
    }
}
