//! `relive exec`: runs any program as a process, in the foreground or the background.

mod background;
mod failure;
mod foreground;
mod typed;

use std::ffi::OsString;
use std::io::{self, IsTerminal as _};
use std::path::PathBuf;
use std::time::Duration;

use relive_api::{ExecRequest, Isolation, Namespace, NamespaceKind, Network, Resources, Stdio};
use relive_core::Limits;
use relive_types::program::quote;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::interrupts::INTERRUPTED;
use crate::client::{Client, Start, refuse_output};
use crate::context::{Context, new_uuid};
use crate::environment;
use crate::error::{CommandError, Outcome};
use crate::render::size::{parse_processors, parse_size};
use crate::render::time::as_millis;
use crate::terminal::key::{self, Key, parse_key};
use crate::terminal::raw;

/// Run a program
///
/// In the foreground, the program behaves as if you had typed it: same input, output and exit code. Ctrl-C asks it to stop
/// and a second Ctrl-C kills it; with -t, the program has its own terminal and receives Ctrl-C as a key. The program keeps
/// running when the terminal closes or the daemon dies.
///
/// Exit codes: 125 if it was aborted at the gate, 126 if it cannot be run, 127 if it was not found, 128+N if signal N
/// ended it. --json requires -d, because stdout belongs to the program.
#[derive(Debug, clap::Args)]
// As people type it. The `--` may be left out.
#[command(override_usage = "relive exec [OPTIONS] -- <COMMAND>...")]
#[command(before_long_help = "\
Examples:
  relive exec -- make test
      The same as typing `make test`.
  relive exec -t --name shell -- bash
      Run in a terminal of its own; Ctrl-] detaches and bash keeps running.
  relive exec -d -i --name calc -- bc
      Run in the background with an open input: `relive send calc '6*7'`.
  relive exec -d --memory 2G --timeout 1h -- ./train.sh --epochs 3
  while read x; do relive exec -n -- ./one $x; done < list")]
pub(crate) struct Args {
    /// Run in the background and print the PID
    #[arg(short, long)]
    detach: bool,
    /// Give the program a terminal of its own
    #[arg(short, long)]
    tty: bool,
    /// With -d: keep standard input open for `send` and `attach`
    #[arg(short, long, conflicts_with = "no_input")]
    interactive: bool,
    /// Do not read standard input; the program gets an empty one
    #[arg(short = 'n', long, conflicts_with = "tty")]
    no_input: bool,
    /// Hold the program before its first instruction, until `proceed` or `abort`
    #[arg(long)]
    gate: bool,
    #[command(flatten)]
    environment: environment::EnvironmentArgs,
    /// The working directory of the program; default: this directory
    #[arg(long, value_name = "DIRECTORY", value_hint = clap::ValueHint::DirPath)]
    cwd: Option<PathBuf>,
    /// End the program after this time; pauses and the wait at its gate do not count
    #[arg(long, value_name = "DURATION", value_parser = super::limits::parse_time_limit)]
    timeout: Option<Duration>,
    /// A name for the process
    #[arg(long)]
    name: Option<String>,
    /// What the program may reach: everything (`none`); only this directory, caches and private temporary directories for
    /// writing, and no secrets (`confined`); also no caches and no network (`sealed`)
    #[arg(long, value_name = "none|confined|sealed")]
    isolation: Option<Isolation>,
    /// Give the program namespaces of its own: user, pid, mount, net, ipc, uts, cgroup, time
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    ns: Vec<NamespaceKind>,
    /// Which part of the network the program reaches: all of it (`full`); only a loopback of its own (`none`); these
    /// hosts through a proxy (`allow:github.com,*.crates.io`); default: full or `isolation.network` in config.yaml, and none
    /// at --isolation sealed
    #[arg(long, value_name = "full|none|allow:DOMAIN,...")]
    net: Option<Network>,
    /// In a PID namespace: run a small init as PID 1 that reaps processes and forwards signals; `false` makes the program PID 1
    #[arg(long, value_name = "BOOL", default_value_t = true, action = clap::ArgAction::Set)]
    init: bool,
    /// Maximum memory of the program and its children, such as 512M or 2G
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    memory: Option<u64>,
    /// Maximum number of processes and threads
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pids: Option<u32>,
    /// Maximum number of processors for the program and its children, such as 2 or 0.5
    #[arg(long, value_name = "N", value_parser = parse_processors)]
    cpu: Option<u32>,
    /// Run the program even if this machine cannot enforce a limit or the isolation; `info` then shows `degraded`
    #[arg(long)]
    allow_degraded: bool,
    /// With -t: the key that detaches; the program keeps running
    #[arg(long, value_name = "KEY", default_value = key::DETACH, value_parser = parse_key)]
    detach_key: Key,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
    argv: Vec<OsString>,
}

impl Args {
    fn resources(&self) -> Resources {
        Resources { memory: self.memory, pids: self.pids, cpu: self.cpu, allow_degraded: self.allow_degraded }
    }

    fn command_line(&self) -> String {
        command_line(&self.argv)
    }
}

/// Returns whether a program is searched in the `PATH`.
fn is_name(argv: &[OsString]) -> bool {
    argv.first().is_some_and(|name| !name.as_encoded_bytes().contains(&b'/'))
}

/// Returns a program and its arguments as they can be typed again.
pub(super) fn command_line(argv: &[OsString]) -> String {
    argv.iter().map(|word| quote(&word.to_string_lossy())).collect::<Vec<_>>().join(" ")
}

/// The exit code of a shell for a command that SIGTERM ended.
const TERMINATED: u8 = 143;

/// How a command is connected to the program that it starts.
#[derive(Debug, Clone, Copy)]
pub(super) struct Attachment<'a> {
    /// The name of the command.
    pub(super) command: &'static str,
    pub(super) detach: bool,
    pub(super) tty: bool,
    pub(super) no_input: bool,
    pub(super) gate: bool,
    pub(super) detach_key: Key,
    /// The program, with its arguments.
    pub(super) argv: &'a [OsString],
}

/// The signals that are passed on to a program in the foreground.
struct Pressed {
    interrupts: Signal,
    terminations: Signal,
}

pub(crate) async fn run(context: &Context, args: &Args) -> Outcome<u8> {
    let attachment = Attachment {
        command: "exec",
        detach: args.detach,
        tty: args.tty,
        no_input: args.no_input,
        gate: args.gate,
        detach_key: args.detach_key,
        argv: &args.argv,
    };
    check_attachment(context, attachment)?;
    check(args)?;
    if !args.detach {
        // Before there is a program that nobody follows.
        refuse_output(&context.paths, "a program").map_err(|error| {
            let quiet = quote(&format!("{} > output 2>&1", command_line(&args.argv)));
            error.with_hint(format!("relive exec -d -- sh -c {quiet}"))
        })?;
    }
    start(context, attachment, request(args, attachment)?).await
}

/// Starts a program, and stays with it unless it is to run in the background.
pub(super) async fn start(context: &Context, attachment: Attachment<'_>, request: ExecRequest) -> Outcome<u8> {
    let cannot = |error| CommandError::internal("cannot listen for signals").because(error);
    let mut interrupts = signal(SignalKind::interrupt()).map_err(cannot)?;
    // Before there is a program: every SIGTERM is passed on to it, or said to have come too early.
    let mut terminations = signal(SignalKind::terminate()).map_err(cannot)?;
    let begin = async {
        let client = Client::open(context, Start::Always).await?;
        let client = client.ok_or_else(|| CommandError::unavailable("no daemon is running"))?;
        let started = client.exec(&request).await?;
        Ok::<_, CommandError>((client, started))
    };
    let begun = tokio::select! {
        begun = begin => Ok(begun?),
        _ = interrupts.recv() => Err(INTERRUPTED),
        _ = terminations.recv() => Err(TERMINATED),
    };
    let (client, started) = match begun {
        Ok(begun) => begun,
        Err(code) => {
            context.say("interrupted before the daemon answered: `relive ps` shows whether the process was created");
            return Ok(code);
        }
    };
    if attachment.detach {
        return background::run(&client, attachment, &started).await;
    }
    let pid = started.pid;
    let ran = foreground::run(&client, attachment, started, Pressed { interrupts, terminations }).await;
    // The log has the output, whether the program has ended or not.
    ran.map_err(|error| if error.is_about_output() { error.with_hint(format!("relive logs {pid}")) } else { error })
}

/// Reports all mistakes in how a program is connected that can be found without the daemon.
pub(super) fn check_attachment(context: &Context, attachment: Attachment<'_>) -> Outcome<()> {
    let Attachment { command, detach, tty, .. } = attachment;
    if context.json && !detach {
        let message = format!("{command} in the foreground has no JSON: stdout belongs to the program");
        return Err(CommandError::invalid(message).with_hint(typed::in_background(command)));
    }
    if tty && !detach && !io::stdin().is_terminal() {
        let message = "-t needs a terminal on stdin, and there is none";
        return Err(CommandError::invalid(message).with_hint(typed::without_terminal(command)));
    }
    Ok(())
}

fn check(args: &Args) -> Outcome<()> {
    let own_pids = args.ns.contains(&NamespaceKind::Pid) || args.isolation.is_some_and(|word| word != Isolation::None);
    if !args.init && !own_pids {
        let message = "--init=false only makes sense in a PID namespace";
        return Err(CommandError::invalid(message)
            .with_hint(format!("relive exec --ns pid --init=false -- {}", args.command_line())));
    }
    Ok(())
}

/// Returns whether both outputs lead to the same place: a terminal, or one file or pipe for both.
pub(crate) fn have_one_output() -> bool {
    let place = |stat: rustix::fs::Stat| (stat.st_dev, stat.st_ino, stat.st_rdev);
    let out = rustix::fs::fstat(io::stdout()).map(place);
    out.is_ok_and(|out| rustix::fs::fstat(io::stderr()).map(place) == Ok(out))
}

pub(super) fn utf8(what: &str, text: OsString) -> Outcome<String> {
    text.into_string().map_err(|text| CommandError::invalid(format!("{}: {what} is not UTF-8", text.display())))
}

/// Returns a request for a program without a directory that is as the attachment says, and otherwise like one typed in this
/// shell. `command` is the beginning of what was typed, for hints.
pub(super) fn plain_request(
    attachment: Attachment<'_>,
    argv: &[OsString],
    environment: &environment::EnvironmentArgs,
    command: &str,
) -> Outcome<ExecRequest> {
    let (rows, columns) = raw::size();
    let argv = argv.iter().map(|arg| utf8("an argument", arg.clone())).collect::<Outcome<Vec<String>>>()?;
    if let Some(message) = relive_api::too_many_arguments(&argv) {
        return Err(CommandError::invalid(message));
    }
    let typed: Vec<_> = argv.iter().map(|arg| quote(arg)).collect();
    let example = format!("relive {command} --env NAME=VALUE -- {}", typed.join(" "));
    Ok(ExecRequest {
        uuid: new_uuid()?,
        name: None,
        env: environment.environment(&example)?,
        argv,
        cwd: String::new(),
        stdio: match attachment {
            Attachment { tty: true, .. } => Stdio::Pty { rows, columns },
            Attachment { detach: true, .. } | Attachment { no_input: true, .. } => Stdio::Null,
            Attachment { .. } => Stdio::Pipes,
        },
        gate: attachment.gate,
        namespace: Namespace::Host,
        isolation: Isolation::None,
        namespaces: Vec::new(),
        network: None,
        limits: Limits::default(),
        resources: Resources::default(),
        foreground: !attachment.detach,
        shell: crate::inherited::inherited(),
        // Also in the background: the log keeps the order of one pipe, as the terminal would, and not that of two.
        one_output: !attachment.tty && have_one_output(),
        enter: None,
    })
}

fn request(args: &Args, attachment: Attachment<'_>) -> Outcome<ExecRequest> {
    let here = super::run::here()?;
    let cwd = args.cwd.as_ref().map_or(here.clone(), |cwd| here.join(cwd));
    let plain = plain_request(attachment, &args.argv, &args.environment, "exec")?;
    Ok(ExecRequest {
        name: args.name.clone(),
        cwd: utf8("the name of the directory", cwd.into_os_string())?,
        stdio: if args.detach && args.interactive && !args.tty { Stdio::Pipes } else { plain.stdio },
        namespace: match (args.ns.contains(&NamespaceKind::Pid), args.init) {
            (_, false) => Namespace::PidWithoutInit,
            (true, true) => Namespace::Pid,
            (false, true) => Namespace::Host,
        },
        isolation: args.isolation.unwrap_or_default(),
        namespaces: args.ns.iter().copied().filter(|kind| *kind != NamespaceKind::Pid).collect(),
        network: args.net.clone(),
        limits: Limits { timeout_ms: args.timeout.map(as_millis), ..Limits::default() },
        resources: args.resources(),
        ..plain
    })
}
