//! The environment that a process gets from whoever types its command.
//!
//! It is the whole of this command's own, with what the flags say on top. What is not UTF-8 stays behind, and so do the
//! variables by which Relive's own parts find each other.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use relive_api::Environment;
use relive_session::tree::MARKER;

use crate::error::{CommandError, Outcome};

/// Those of our own variables that are for people.
const OURS_FOR_PEOPLE: [&str; 3] = ["RELIVE_ASCII", "RELIVE_DATA_DIR", "RELIVE_LOG"];

/// What the daemon needs of whoever starts it: where things are, how to write, how to reach the network. No key: every
/// process has its own.
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

/// The flags of every command that begins a process.
#[derive(Debug, clap::Args)]
pub(crate) struct EnvironmentArgs {
    /// Set a variable of its environment, on top of this shell's; for keys better --env-file
    #[arg(long, value_name = "K=V")]
    env: Vec<String>,
    /// Set the variables in this file: K=V lines, # for remarks
    #[arg(long, value_name = "FILE")]
    env_file: Vec<PathBuf>,
}

impl EnvironmentArgs {
    /// This shell's environment, then the files, then the flags.
    pub(crate) fn environment(&self) -> Outcome<Environment> {
        let mut environment = of_this_shell();
        for path in &self.env_file {
            let text = std::fs::read_to_string(path)
                .map_err(|error| CommandError::invalid(format!("{}: cannot be read", path.display())).because(error))?;
            for (name, value) in parse_file(path, &text)? {
                environment.set(name, value);
            }
        }
        for given in &self.env {
            // What is not understood is not repeated: it may be a key.
            let (name, value) = variable(given).ok_or_else(|| {
                CommandError::invalid("--env takes a variable and its value").with_hint("--env NAME=VALUE")
            })?;
            environment.set(name, value);
        }
        Ok(environment)
    }
}

/// This shell's environment.
pub(crate) fn of_this_shell() -> Environment {
    let text = |(name, value): (OsString, OsString)| Some((name.into_string().ok()?, value.into_string().ok()?));
    let meant = |name: &str| !name.starts_with("RELIVE_") || OURS_FOR_PEOPLE.contains(&name);
    std::env::vars_os().filter_map(text).filter(|(name, _)| meant(name)).collect()
}

/// What of this shell's environment the daemon is started with.
pub(crate) fn for_the_daemon() -> impl Iterator<Item = (OsString, OsString)> {
    std::env::vars_os().filter(|(name, _)| is_for_the_daemon(name))
}

fn is_for_the_daemon(name: &OsStr) -> bool {
    let Some(name) = name.to_str() else { return false };
    // It is nobody's program, whoever starts it.
    if name == MARKER {
        return false;
    }
    FOR_THE_DAEMON.contains(&name) || ["XDG_", "RELIVE_", "LC_"].iter().any(|start| name.starts_with(start))
}

/// All the lines of a file, or all that are wrong.
fn parse_file(path: &Path, text: &str) -> Outcome<Vec<(String, String)>> {
    let (mut variables, mut wrong) = (Vec::new(), Vec::new());
    for (line, number) in text.lines().map(str::trim).zip(1..) {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        match variable(line.strip_prefix("export ").unwrap_or(line)) {
            Some((name, value)) => variables.push((name, unquoted(&value).to_owned())),
            // Not shown: it may be a key.
            None => wrong.push(format!("{}:{number}: not a line like NAME=VALUE", path.display())),
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

/// A value in quotes, without them; nothing in it is replaced.
fn unquoted(value: &str) -> &str {
    let value = value.trim();
    let within = |quote| value.strip_prefix(quote).and_then(|rest: &str| rest.strip_suffix(quote));
    within('"').or_else(|| within('\'')).unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_variables() {
        let text = "# keys\n\nA=1\n export B = two words \nC=\"x # y\"\nD='$HOME'\nE=\nF=a=b\nG=\"\n";
        let variables = parse_file(Path::new("f"), text).unwrap();
        let shown: Vec<String> = variables.iter().map(|(name, value)| format!("{name}:{value}")).collect();
        assert_eq!(shown, ["A:1", "B:two words", "C:x # y", "D:$HOME", "E:", "F:a=b", "G:\""]);
    }

    #[test]
    fn every_line_that_is_none_is_named_and_none_is_shown() {
        let error = parse_file(Path::new("f.env"), "A=1\nsk-secret\n=x\nB-C=x\n").unwrap_err();
        assert_eq!(
            error.message,
            "f.env:2: not a line like NAME=VALUE\nf.env:3: not a line like NAME=VALUE\n\
             f.env:4: not a line like NAME=VALUE"
        );
    }

    #[test]
    fn the_daemon_is_started_with_no_key() {
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
