//! The command line: a client of the daemon, and the way to start it.
//!
//! Data goes to stdout, talk to stderr; how a command ends is its exit code. `cli` says what can be typed, `commands`
//! does it, one file a verb; `client` speaks to the daemon; `render` turns values into text and does nothing else.

mod cli;
mod client;
mod commands;
mod context;
mod environment;
mod error;
mod render;
mod report;
mod session;
mod terminal;

use std::process::ExitCode;

fn main() -> ExitCode {
    // Before anything else: a shim stays small, and its signals are its own.
    if std::env::args_os().next().is_some_and(|name| name == relive_session::SHIM) {
        relive_session::shim::main();
    }
    let typed: Vec<_> = std::env::args_os().collect();
    let cli = match cli::parse(&typed) {
        Ok(cli) => cli,
        Err(error) => return report::usage(&error, &typed),
    };
    let (json, color) = (cli.json, cli.color);
    match commands::run(cli) {
        Ok(code) => ExitCode::from(code),
        Err(error) => report::error(&error, json, color),
    }
}
