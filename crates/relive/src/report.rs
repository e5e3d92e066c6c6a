//! Reports errors: for a person on stderr, with `--json` as an object on stdout.

use std::ffi::OsString;
use std::io::Write as _;
use std::process::ExitCode;

use clap::error::ErrorKind;
use relive_api::ErrorBody;

use crate::cli::advice::{Advice, advise};
use crate::context::Context;
use crate::error::{CommandError, Kind, Outcome};
use crate::stdout;
use crate::terminal::{ColorChoice, Look, Paint};

/// The exit code of a command whose output nobody reads any more: 128 and the number of SIGPIPE.
const CLOSED_PIPE: u8 = 128 + 13;

/// Reports an error, and returns its exit code.
pub(crate) fn error(error: &CommandError, json: bool, color: ColorChoice) -> ExitCode {
    if error.kind != Kind::ClosedPipe {
        // If neither stream accepts it nobody can be told; the exit code is still correct.
        let is_told = json && stdout::write(format!("{}\n", as_json(error)).as_bytes()).is_ok();
        if !is_told {
            let _ = write!(std::io::stderr(), "{}", as_text(error, &Look::of_stderr(color)));
        }
    }
    ExitCode::from(error.exit_code())
}

/// Says what became of a process whose output could not be shown, and what to do next; the process is not affected by it.
/// Returns the exit code if nobody reads the output any more, and otherwise the error.
pub(crate) fn output_failed(
    context: &Context,
    error: CommandError,
    process: &str,
    next: Option<String>,
) -> Outcome<u8> {
    if error.kind == Kind::ClosedPipe {
        let next = next.map(|next| format!(": {next}")).unwrap_or_default();
        context.say(&format!("nobody reads the output any more, {process}{next}"));
        return Ok(CLOSED_PIPE);
    }
    Err(error.beside(process, next))
}

fn as_json(error: &CommandError) -> String {
    serde_json::to_string(&ErrorBody { error: error.detail() }).unwrap_or_default()
}

pub(crate) fn as_text(error: &CommandError, look: &Look) -> String {
    let mut text = look.paint(Paint::Red, "error:").into_owned();
    for (place, line) in error.lines().iter().enumerate() {
        let indented = line.trim_end().replace('\n', "\n  ");
        text.push_str(if place == 0 { " " } else { "  " });
        text.push_str(&crate::terminal::without_controls(&indented));
        text.push('\n');
    }
    if let Some(hint) = &error.hint {
        text.push_str(&format!("\n{} {hint}\n", look.paint(Paint::Cyan, "hint:")));
    }
    text
}

/// Reports a usage error; help and version take the same path.
pub(crate) fn usage(error: &clap::Error, typed: &[OsString]) -> ExitCode {
    let text = error.render().to_string();
    let json = typed.iter().take_while(|arg| *arg != "--").any(|arg| arg == "--json");
    let is_bare = typed.iter().skip(1).all(|arg| arg == "--json");
    let is_asked_for = matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion)
        || (error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand && is_bare);
    if is_asked_for {
        let text = if !json {
            text
        } else if error.kind() == ErrorKind::DisplayVersion {
            format!("{}\n", crate::commands::version::as_json())
        } else {
            format!("{}\n", serde_json::json!({ "help": text }))
        };
        return match stdout::write(text.as_bytes()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => self::error(&error.into(), false, ColorChoice::Never),
        };
    }
    let advice = advise(error, typed);
    let text = apply(&advice, &text);
    if json {
        return self::error(&as_command_error(&text), true, ColorChoice::Never);
    }
    let _ = write!(std::io::stderr(), "{}", text.replace("\n  tip: ", "\nhint: "));
    ExitCode::from(2)
}

/// Puts better words in the place of clap's.
fn apply(advice: &Advice, text: &str) -> String {
    // Typed so, it is an argument that nobody wants.
    let is_bad = |part: &str| part.starts_with(if advice.no_tip { "  tip: " } else { "  tip: to pass " });
    let mut text = text.split("\n\n").filter(|part| !is_bad(part)).collect::<Vec<_>>().join("\n\n");
    if let (Some(message), Some((first, rest))) = (&advice.message, text.split_once("\n\n")) {
        // The values that are possible are still shown.
        let more: String = first
            .lines()
            .skip(1)
            .filter(|line| line.contains('[') && !line.contains("[subcommands: "))
            .map(|line| format!("\n{line}"))
            .collect();
        // Clap's usage is made for its own idea of what was meant.
        let rest = if advice.no_tip { rest.rsplit("\n\n").next().unwrap_or_default() } else { rest };
        text = format!("error: {}{more}\n\n{rest}", crate::terminal::without_controls(message));
    }
    match &advice.hint {
        Some(hint) => {
            let first = text.split("\n\n").next().unwrap_or_default();
            format!("{first}\n\n  tip: {}\n", crate::terminal::without_controls(hint))
        }
        None => text,
    }
}

fn as_command_error(text: &str) -> CommandError {
    let mut hints = Vec::new();
    let mut said = Vec::new();
    let mut help = "relive --help".to_owned();
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        if let Some(tip) = line.strip_prefix("tip: ") {
            hints.push(tip);
        } else if let Some(usage) = line.strip_prefix("Usage: ") {
            help = help_of(usage);
            break;
        } else if line.starts_with("For more information") {
            break;
        } else {
            said.push(line.strip_prefix("error: ").unwrap_or(line));
        }
    }
    let error = CommandError::invalid(said.join(" "));
    if hints.is_empty() { error.with_hint(help) } else { error.with_hint(hints.join("; ")) }
}

/// The help of the command that a usage is of.
fn help_of(usage: &str) -> String {
    let is_command = |word: &&str| {
        let is_plain = word.chars().all(|letter| letter.is_ascii_lowercase() || letter == '-');
        is_plain && !word.starts_with('-')
    };
    let words: Vec<&str> = usage.split(' ').take_while(is_command).collect();
    format!("{} --help", words.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_shows_message_cause_and_hint_in_this_order() {
        let plain = CommandError::unavailable("the daemon did not start").because("locked by pid 7\nsee there");
        assert_eq!(
            as_text(&plain.with_hint("relive daemon status"), &Look::plain()),
            "error: the daemon did not start\n  locked by pid 7\n  see there\n\nhint: relive daemon status\n"
        );
        let check = |usage: &str, help: &str| assert_eq!(help_of(usage), help, "{usage}");
        check("relive ps [OPTIONS]", "relive ps --help");
        check("relive compose up [OPTIONS] <FILE>", "relive compose up --help");
        check("relive kill --signal <SIGNAL> [ID]...", "relive kill --help");
        check("relive [OPTIONS] <COMMAND>", "relive --help");
        let json = as_json(&CommandError::not_found("x"));
        assert_eq!(json, r#"{"error":{"code":"NOT_FOUND","message":"no process `x`","hint":"relive ps -a"}}"#);
    }
}
