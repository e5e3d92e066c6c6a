//! The environment that a process gets from the shell of its command.
//!
//! It is the whole environment of this command, with the flags on top. Variables that are not UTF-8 are left out, which is
//! said, and so are those by which Relive's own parts find each other.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use relive_api::Environment;
use relive_session::tree::MARKER;

use crate::context::say;
use crate::error::{CommandError, Outcome};
use crate::terminal::without_controls;
use crate::user_file;

/// Relive's own variables that are for people.
const OURS_FOR_PEOPLE: [&str; 3] = ["RELIVE_ASCII", "RELIVE_DATA_DIR", "RELIVE_LOG"];

/// The variables that the daemon needs from the shell that starts it: paths, locale, network. No keys: every process
/// has its own.
const FOR_THE_DAEMON: [&str; 15] = [
    "PATH",
    "HOME",
    "TMPDIR",
    "LANG",
    "TZ",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
    "NO_PROXY",
    "http_proxy",
    "https_proxy",
    "all_proxy",
    "no_proxy",
];

/// The flags of every command that creates a process.
#[derive(Debug, clap::Args)]
pub(crate) struct EnvironmentArgs {
    /// Set an environment variable, in addition to those of this shell; use --env-file for keys
    #[arg(long, value_name = "K=V")]
    env: Vec<String>,
    /// Set the environment variables in this file: K=V lines, # starts a comment; a file of at most 1 MiB, or `<(command)`
    #[arg(long, value_name = "FILE")]
    env_file: Vec<PathBuf>,
}

impl EnvironmentArgs {
    /// Returns this shell's environment, with the files and then the flags on top. `example` is the same command with a
    /// variable that is set: the hint where one is not.
    pub(crate) fn environment(&self, example: &str) -> Outcome<Environment> {
        let (mut environment, left_out) = split(std::env::vars_os());
        for path in &self.env_file {
            for (name, value) in parse_file(path, &user_file::read(path)?)? {
                environment.set(name, value);
            }
        }
        for given in &self.env {
            let (name, value) = variable(given).ok_or_else(|| not_a_variable(given).with_hint(example))?;
            environment.set(name, value);
        }
        // One that a flag sets is not missing.
        for name in left_out.iter().filter(|name| environment.get(name).is_none()) {
            say(&not_text(name));
        }
        Ok(environment)
    }
}

/// Returns this shell's environment, and says what is left out of it.
pub(crate) fn of_this_shell() -> Environment {
    let (environment, left_out) = split(std::env::vars_os());
    for name in &left_out {
        say(&not_text(name));
    }
    environment
}

/// Returns the variables for a process, and the names of those that cannot be passed on because they are not UTF-8.
fn split(variables: impl Iterator<Item = (OsString, OsString)>) -> (Environment, Vec<String>) {
    let meant = |name: &str| !name.starts_with("RELIVE_") || OURS_FOR_PEOPLE.contains(&name);
    let mut left_out = Vec::new();
    let mut text = |(name, value): (OsString, OsString)| match (name.into_string(), value.into_string()) {
        (Ok(name), Ok(value)) => Some((name, value)),
        (Ok(name), Err(_)) => {
            left_out.push(name);
            None
        }
        (Err(name), _) => {
            left_out.push(name.to_string_lossy().into_owned());
            None
        }
    };
    let environment = variables.filter_map(&mut text).filter(|(name, _)| meant(name)).collect();
    left_out.retain(|name| meant(name));
    (environment, left_out)
}

fn not_text(name: &str) -> String {
    let name = without_controls(name);
    format!("warning: the environment variable {name} is not UTF-8 and is not passed on")
}

/// Returns the part of this shell's environment for the daemon.
pub(crate) fn for_the_daemon() -> impl Iterator<Item = (OsString, OsString)> {
    std::env::vars_os().filter(|(name, _)| is_for_the_daemon(name))
}

fn is_for_the_daemon(name: &OsStr) -> bool {
    let Some(name) = name.to_str() else { return false };
    // The daemon belongs to no session, even if a program of a session starts it.
    if name == MARKER || name == "RELIVE_SELF" {
        return false;
    }
    FOR_THE_DAEMON.contains(&name) || ["XDG_", "RELIVE_", "LC_"].iter().any(|start| name.starts_with(start))
}

/// Returns all variables of a file, or all its mistakes.
fn parse_file(path: &Path, text: &str) -> Outcome<Vec<(String, String)>> {
    let (mut variables, mut wrong) = (Vec::new(), Vec::new());
    for (line, number) in text.lines().map(str::trim).zip(1..) {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        match variable(line.strip_prefix("export ").unwrap_or(line)) {
            Some((name, value)) => variables.push((name, unquoted(&value).to_owned())),
            // Not shown: it may be a key.
            None => wrong.push(format!("{}:{number}: not a line of the form NAME=VALUE", path.display())),
        }
    }
    if wrong.is_empty() { Ok(variables) } else { Err(CommandError::invalid(wrong.join("\n"))) }
}

fn variable(text: &str) -> Option<(String, String)> {
    let (name, value) = text.split_once('=')?;
    let name = name.trim();
    let is_name = !name.is_empty() && name.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_');
    (is_name && !value.contains('\0')).then(|| (name.to_owned(), value.to_owned()))
}

/// Says what is wrong with an argument of `--env`. The value is not repeated, nor an argument without one: it may be a key.
fn not_a_variable(given: &str) -> CommandError {
    let message = match given.split_once('=') {
        None => "--env needs the name of a variable and its value".to_owned(),
        Some((_, value)) if value.contains('\0') => "--env: the value contains a zero byte".to_owned(),
        Some((name, _)) if name.trim().is_empty() => "--env: there is no name before the `=`".to_owned(),
        Some((name, _)) => {
            format!("--env: `{name}` cannot be the name of a variable: use letters, digits and underscores")
        }
    };
    CommandError::invalid(message)
}

/// Removes the quotes around a value; nothing in it is replaced.
fn unquoted(value: &str) -> &str {
    let value = value.trim();
    let within = |quote| value.strip_prefix(quote).and_then(|rest: &str| rest.strip_suffix(quote));
    within('"').or_else(|| within('\'')).unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_variables_is_parsed() {
        let text = "# keys\n\nA=1\n export B = two words \nC=\"x # y\"\nD='$HOME'\nE=\nF=a=b\nG=\"\n";
        let variables = parse_file(Path::new("f"), text).unwrap();
        let shown: Vec<String> = variables.iter().map(|(name, value)| format!("{name}:{value}")).collect();
        assert_eq!(shown, ["A:1", "B:two words", "C:x # y", "D:$HOME", "E:", "F:a=b", "G:\""]);
    }

    #[test]
    fn invalid_lines_are_reported_by_number_without_their_text() {
        let error = parse_file(Path::new("f.env"), "A=1\nsk-secret\n=x\nB-C=x\n").unwrap_err();
        assert_eq!(
            error.message,
            "f.env:2: not a line of the form NAME=VALUE\nf.env:3: not a line of the form NAME=VALUE\n\
             f.env:4: not a line of the form NAME=VALUE"
        );
    }

    #[test]
    fn an_invalid_name_of_a_variable_is_named_and_a_value_is_not() {
        let check = |given: &str, expect: &str| assert_eq!(not_a_variable(given).message, expect, "{given}");
        check("A B=c", "--env: `A B` cannot be the name of a variable: use letters, digits and underscores");
        check("sk-secret", "--env needs the name of a variable and its value");
        check("=secret", "--env: there is no name before the `=`");
    }

    #[test]
    fn a_variable_that_is_not_text_is_named_and_the_others_are_passed_on() {
        use std::os::unix::ffi::OsStringExt as _;
        let bytes = |bytes: &[u8]| OsString::from_vec(bytes.to_vec());
        let variables =
            [(b"A" as &[u8], b"1" as &[u8]), (b"B", b"caf\xe9"), (b"N\xff", b"x"), (b"RELIVE_SELF", b"\xff")];
        let (environment, left_out) = split(variables.into_iter().map(|(name, value)| (bytes(name), bytes(value))));
        assert_eq!(environment.variables().collect::<Vec<_>>(), [("A", "1")]);
        assert_eq!(left_out, ["B", "N\u{fffd}"]);
        assert!(!not_text(&left_out[0]).contains("caf"));
    }

    #[test]
    fn the_daemon_is_started_without_keys() {
        let check = |name: &str, kept: bool| assert_eq!(is_for_the_daemon(name.as_ref()), kept, "{name}");
        for name in ["PATH", "HOME", "XDG_RUNTIME_DIR", "RELIVE_DATA_DIR", "LANG", "LC_ALL", "TMPDIR", "https_proxy"] {
            check(name, true);
        }
        for name in [
            "RELIVE_SESSION",
            "ANTHROPIC_API_KEY",
            "OPENAI_BASE_URL",
            "PATHX",
            "SSH_AUTH_SOCK",
            "AWS_SECRET_ACCESS_KEY",
            "",
        ] {
            check(name, false);
        }
    }
}
