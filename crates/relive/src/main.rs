//! The command line: a client of the daemon, and the way to start it.
//!
//! Data goes to stdout, messages to stderr; the exit code tells how a command ended. `cli` defines the command line,
//! `commands` implements it, one file per command; `client` talks to the daemon; `render` turns values into text and
//! does nothing else.

mod cli;
mod client;
mod commands;
mod completion;
mod context;
mod environment;
mod error;
mod inherited;
mod render;
mod report;
mod session;
mod stdout;
mod terminal;
mod user_file;

use std::process::ExitCode;

fn main() -> ExitCode {
    // Before anything else: a shim, a keeper, a proxy, a gateway and a notifier stay small, and a shim sets up its own signals.
    let name = std::env::args_os().next().unwrap_or_default();
    if name == relive_session::SHIM {
        relive_session::shim::main();
    }
    if name == relive_keeper::KEEPER {
        relive_session::descriptors::close_inherited();
        relive_keeper::main(relive_session::peer::is_outside);
    }
    if name == relive_proxy::PROXY {
        relive_session::descriptors::close_inherited();
        relive_proxy::main();
    }
    if name == relive_gateway::GATEWAY {
        relive_session::descriptors::close_inherited();
        relive_gateway::main();
    }
    if name == relive_daemon::NOTIFIER {
        relive_session::descriptors::close_inherited();
        relive_daemon::run_notification();
    }
    completion::answer_the_shell();
    let typed: Vec<_> = std::env::args_os().collect();
    let cli = match cli::parse(&typed) {
        Ok(cli) => cli,
        Err(error) => return report::usage(&error, &typed),
    };
    let (json, color) = (cli.global.json, cli.global.color);
    match commands::run(cli) {
        Ok(code) => ExitCode::from(code),
        Err(error) => report::error(&error, json, color),
    }
}
