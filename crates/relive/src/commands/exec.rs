//! `relive exec`: any program as a process, in the foreground or not.

mod foreground;
mod inherited;

use std::ffi::OsString;
use std::io::{self, IsTerminal as _};
use std::path::PathBuf;
use std::time::Duration;

use relive_api::{Created, ExecRequest, Namespace, Stdio};
use relive_core::Limits;
use tokio::signal::unix::{SignalKind, signal};

use super::interrupts::INTERRUPTED;
use crate::client::{Client, Start};
use crate::context::{Context, new_uuid};
use crate::environment;
use crate::error::{CommandError, Outcome};
use crate::render::size::{parse_processors, parse_size};
use crate::render::time::as_millis;
use crate::terminal::key::{self, Key, parse_key};
use crate::terminal::raw;

/// Run a program
///
/// In the foreground it is as if the program had been typed: its input, its output, its exit code. Ctrl-C asks it to stop
/// and a second one kills it; with -t the program has a terminal of its own and Ctrl-C is typed to it. It keeps running
/// when the terminal is closed or the daemon dies. 125: aborted at the gate. 126, 127: cannot run, not found. 128+N: ended
/// by signal N. --json is for -d, because the output is the program's.
#[derive(Debug, clap::Args)]
#[command(before_long_help = "\
Examples:
  relive exec -- make test                     as if you had typed make test
  relive exec -t --name shell -- bash          in a terminal of its own; Ctrl-] leaves it running
  while read x; do relive exec -n -- ./one $x; done < list
  relive exec -d -i --name calc -- bc          then: relive send calc 6*7
  relive exec -d --memory 2G --timeout 1h -- ./train.sh --epochs 3")]
pub(crate) struct Args {
    /// In the background: print its PID and return
    #[arg(short, long)]
    detach: bool,
    /// Give it a terminal of its own
    #[arg(short, long)]
    tty: bool,
    /// With -d: keep its standard input open, for `send` and `attach`
    #[arg(short, long, conflicts_with = "no_input")]
    interactive: bool,
    /// Do not read the standard input: the program gets none
    #[arg(short = 'n', long, conflicts_with = "tty")]
    no_input: bool,
    /// Hold it before its first instruction, until `proceed` or `abort`
    #[arg(long)]
    gate: bool,
    #[command(flatten)]
    environment: environment::EnvironmentArgs,
    /// The directory it begins in; yours if absent
    #[arg(long, value_name = "DIRECTORY")]
    cwd: Option<PathBuf>,
    /// It is ended after this long, pauses not counted
    #[arg(long, value_name = "DURATION", value_parser = relive_types::duration::parse)]
    timeout: Option<Duration>,
    /// A name to call it by
    #[arg(long)]
    name: Option<String>,
    /// Give it a PID namespace of its own: it sees no other processes
    #[arg(long, value_name = "pid", value_parser = ["pid"])]
    ns: Option<String>,
    /// With --ns pid: a small init reaps and forwards signals; false makes the program PID 1 itself
    #[arg(long, value_name = "BOOL", default_value_t = true, action = clap::ArgAction::Set)]
    init: bool,
    /// Memory it and all it starts may use
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    memory: Option<u64>,
    /// Processes and threads there may be of it
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pids: Option<u32>,
    /// Processors it and all it starts may use: 2, or 0.5 for half of one
    #[arg(long, value_name = "N", value_parser = parse_processors)]
    cpu: Option<u32>,
    /// Run it without a limit that this machine cannot hold; `info` then shows it as degraded
    #[arg(long)]
    allow_degraded: bool,
    /// With -t: the key that leaves it running
    #[arg(long, value_name = "KEY", default_value = key::DETACH, value_parser = parse_key)]
    detach_key: Key,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
    argv: Vec<OsString>,
}

pub(crate) async fn run(context: &Context, args: &Args) -> Outcome<u8> {
    check(context, args)?;
    let request = request(args)?;
    let cannot = |error| CommandError::internal("Ctrl-C cannot be listened to").because(error);
    let mut interrupts = signal(SignalKind::interrupt()).map_err(cannot)?;
    let begin = async {
        let client = Client::open(context, Start::Always).await?;
        let client = client.ok_or_else(|| CommandError::unavailable("no daemon is running"))?;
        let started = client.exec(&request).await?;
        Ok::<_, CommandError>((client, started))
    };
    let (client, started) = tokio::select! {
        begun = begin => begun?,
        _ = interrupts.recv() => {
            context.say("interrupted before the daemon answered: `relive ps` shows whether it runs");
            return Ok(INTERRUPTED);
        }
    };
    if !args.detach {
        return foreground::run(&client, args, started, interrupts).await;
    }
    if context.json {
        context.print_json(&Created { pid: started.pid, uuid: started.uuid })?;
    } else {
        context.print_line(&started.pid.to_string())?;
    }
    Ok(0)
}

/// What cannot be, all of it that can be known without the daemon.
fn check(context: &Context, args: &Args) -> Outcome<()> {
    if context.json && !args.detach {
        let message = "exec in the foreground has no JSON: what it prints is the program's own";
        return Err(
            CommandError::invalid(message).with_hint("relive exec -d --json -- ..., then relive logs -f --json")
        );
    }
    if args.tty && !args.detach && !io::stdin().is_terminal() {
        let message = "-t needs a terminal on stdin, and there is none";
        return Err(
            CommandError::invalid(message).with_hint("leave -t out, or add -d and come back with relive attach")
        );
    }
    if !args.init && args.ns.is_none() {
        let message = "--init=false only makes sense in a PID namespace";
        return Err(CommandError::invalid(message).with_hint("relive exec --ns pid --init=false -- ..."));
    }
    Ok(())
}

/// Whether our two outputs lead to the same place: a terminal, or one file or pipe for both.
fn have_one_output() -> bool {
    let place = |stat: rustix::fs::Stat| (stat.st_dev, stat.st_ino, stat.st_rdev);
    let out = rustix::fs::fstat(io::stdout()).map(place);
    out.is_ok_and(|out| rustix::fs::fstat(io::stderr()).map(place) == Ok(out))
}

fn request(args: &Args) -> Outcome<ExecRequest> {
    let utf8 = |what: &str, text: OsString| {
        text.into_string().map_err(|text| CommandError::invalid(format!("{}: {what} is not UTF-8", text.display())))
    };
    let here = std::env::current_dir()
        .map_err(|error| CommandError::invalid("there is no current directory").because(error))?;
    let cwd = args.cwd.as_ref().map_or(here.clone(), |cwd| here.join(cwd));
    let (rows, columns) = raw::size();
    Ok(ExecRequest {
        uuid: new_uuid()?,
        name: args.name.clone(),
        argv: args.argv.iter().map(|arg| utf8("an argument", arg.clone())).collect::<Outcome<_>>()?,
        env: args.environment.environment()?,
        cwd: utf8("the name of the directory", cwd.into_os_string())?,
        stdio: match (args.tty, args.detach) {
            (true, _) => Stdio::Pty { rows, columns },
            (false, true) if args.interactive => Stdio::Pipes,
            (false, true) => Stdio::Null,
            (false, false) if args.no_input => Stdio::Null,
            (false, false) => Stdio::Pipes,
        },
        gate: args.gate,
        namespace: match (&args.ns, args.init) {
            (None, _) => Namespace::Host,
            (Some(_), true) => Namespace::Pid,
            (Some(_), false) => Namespace::PidWithoutInit,
        },
        limits: Limits { timeout_ms: args.timeout.map(as_millis), ..Limits::default() },
        memory: args.memory,
        pids: args.pids,
        cpu: args.cpu,
        allow_degraded: args.allow_degraded,
        foreground: !args.detach,
        shell: inherited::inherited(),
        one_output: !args.detach && !args.tty && have_one_output(),
    })
}
