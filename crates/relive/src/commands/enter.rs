//! `relive enter`: runs a program inside of a running session.

use std::ffi::OsString;
use std::path::PathBuf;

use relive_api::{EnterRequest, ExecRequest, NamespaceKind};
use relive_types::program::quote;

use super::exec::{self, Attachment};
use crate::context::Context;
use crate::environment;
use crate::error::Outcome;
use crate::terminal::key::{self, Key, parse_key};

/// Run a program inside the session of another program
///
/// The program joins the namespaces, the root and the cgroups of the session: it sees the same files, processes and network as
/// the program that runs there, and has the same limits. It is a separate process. Its end does not end the session; the end of
/// the session ends it. Unlike the program of the session, it keeps your privileges in these namespaces.
///
/// Exit codes are those of `exec`.
#[derive(Debug, clap::Args)]
#[command(before_long_help = "\
Examples:
  relive enter build -- ps aux
      Show the processes that the program `build` sees.
  relive enter -t build -- bash
      A shell in its files, processes and network; Ctrl-] detaches.
  relive enter --ns net 7 -- ss -ltn
      Join its network namespace only.")]
pub(crate) struct Args {
    /// The PID, the name, or the UUID of a program; the first or last digits of a UUID are enough
    id: String,
    /// Join only these namespaces: user, pid, mount, net, ipc, uts, cgroup, time; default: all namespaces of the session.
    /// Without root, `user` is joined as well
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    ns: Option<Vec<NamespaceKind>>,
    /// Run in the background and print the PID
    #[arg(short, long)]
    detach: bool,
    /// Give the program a terminal of its own
    #[arg(short, long)]
    tty: bool,
    /// Do not read standard input; the program gets an empty one
    #[arg(short = 'n', long, conflicts_with = "tty")]
    no_input: bool,
    #[command(flatten)]
    environment: environment::EnvironmentArgs,
    /// The working directory of the program; default: that of the session
    #[arg(long, value_name = "DIRECTORY")]
    cwd: Option<PathBuf>,
    /// A name for the process
    #[arg(long)]
    name: Option<String>,
    /// With -t: the key that detaches; the program keeps running
    #[arg(long, value_name = "KEY", default_value = key::DETACH, value_parser = parse_key)]
    detach_key: Key,
    /// The program and its arguments
    #[arg(required = true, last = true, value_name = "COMMAND")]
    argv: Vec<OsString>,
}

pub(crate) async fn run(context: &Context, args: &Args) -> Outcome<u8> {
    let attachment = Attachment {
        command: "enter",
        detach: args.detach,
        tty: args.tty,
        no_input: args.no_input,
        gate: false,
        detach_key: args.detach_key,
        argv: &args.argv,
    };
    exec::check_attachment(context, attachment)?;
    let cwd = args.cwd.clone().map(|cwd| exec::utf8("the name of the directory", cwd.into_os_string()));
    let request = ExecRequest {
        name: args.name.clone(),
        // As written: it is a directory of the session.
        cwd: cwd.transpose()?.unwrap_or_default(),
        enter: Some(EnterRequest { id: args.id.clone(), namespaces: args.ns.clone() }),
        ..exec::plain_request(attachment, &args.argv, &args.environment, &format!("enter {}", quote(&args.id)))?
    };
    exec::start(context, attachment, request).await
}
