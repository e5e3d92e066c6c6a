//! `relive attach`: watches a process again. Leaving never stops it.

use std::future::Future;
use std::io::{self, IsTerminal as _};
use std::path::Path;

use relive_api::{Created, Process, Session};
use relive_core::{Body, ErrorCode, State};
use relive_session::log::Reader;
use rustix::fs::FileType;
use tokio::signal::unix::{SignalKind, signal};

use super::interrupts::{Asked, INTERRUPTED};
use super::run::foreground::{self, AtQuestion};
use super::targets::resumed_as;
use super::wait::{Blocked, blocked};
use crate::client::{Client, loses_sight, refuse_output};
use crate::context::Context;
use crate::error::{CommandError, Outcome};
use crate::render;
use crate::session::input::AtEnd;
use crate::session::output::{Output, plainly, unreadable};
use crate::session::watch::{Arrival, Left, Manner, Pace, watch};
use crate::session::{self, Opened};
use crate::terminal::key::{self, Key, parse_key};

/// The number that a shell adds to the signal that ended a command.
const SIGNALED: u8 = 128;
/// The exit code of a command whose terminal was closed: 128 and the number of SIGHUP.
const HUNG_UP: u8 = SIGNALED + 1;
/// How much of the latest output is shown first: more than a screenful.
const RECENT_BYTES: u64 = 16 * 1024;

/// Watch a process while it runs, and type to it
///
/// An agent receives each typed line as a message, or as the answer to its question. A program with a terminal receives
/// every key except the detach key, including Ctrl-C. Any other program receives each typed line on its standard input; Ctrl-C
/// detaches. Without anything to type from (`< /dev/null`) the latest output is shown; `relive logs -f` follows it.
/// Detaching never stops a process.
#[derive(Debug, clap::Args)]
#[command(before_long_help = "\
Examples:
  relive attach fixer                   watch an agent and type messages to it
  relive attach shell                   use the terminal of a program
  relive attach 5 --detach-key ctrl-a")]
pub(crate) struct Args {
    /// The PID, the name, or the UUID of a process; the first or last digits of a UUID are enough
    id: String,
    /// The key that detaches; the process keeps running
    #[arg(long, value_name = "KEY", default_value = key::DETACH, value_parser = parse_key)]
    detach_key: Key,
}

pub(crate) async fn run(context: &Context, args: &Args) -> Outcome<u8> {
    let client = Client::about(context, &args.id).await?;
    let process = client.process(&args.id).await?;
    let pid = process.pid;
    match process.state {
        State::Created | State::Running => {}
        State::Zombie | State::Dead => return Err(ended(&client, &process).await),
    }
    let mut interrupts = signal(SignalKind::interrupt())
        .map_err(|error| CommandError::internal("cannot listen for Ctrl-C").because(error))?;
    let input = Input::of_stdin();
    // Without a terminal to type on, nobody could detach from an agent any more.
    let stays = input == Input::Open || context.err.is_terminal;
    let leave = async {
        if stays {
            interrupts.recv().await;
        }
    };
    match (process.body, &process.session) {
        (Body::Exec | Body::Cli, Some(session)) if process.body == Body::Exec || session.pty => tokio::select! {
            left = program(&client, args.detach_key, &process, session, input, leave) => left,
            refused = loses_sight(&client, &args.id, process.uuid) => Err(refused),
        },
        (Body::Agent | Body::Cli, _) => {
            if args.detach_key.is_taken() {
                let error = CommandError::invalid(key::taken(args.detach_key));
                return Err(error.with_hint(format!("relive attach {}", args.id)));
            }
            let manner = foreground::Manner {
                detach: args.detach_key,
                unasked: AtQuestion::Wait,
                arrival: foreground::Arrival::Again,
                generation: process.generation.0,
            };
            let created = Created { pid, uuid: process.uuid };
            let code = foreground::run(&client, created, manner, &Asked::default(), leave).await?;
            Ok(if stays || code != INTERRUPTED { code } else { 0 })
        }
        (Body::Exec | Body::Compose | Body::Supervisor, _) => {
            let error = CommandError::new(ErrorCode::Conflict, format!("PID {pid}: there is nothing to attach to"));
            Err(error.with_hint(format!("relive info {pid}")))
        }
    }
}

pub(super) async fn program(
    client: &Client<'_>,
    detach_key: Key,
    process: &Process,
    session: &Session,
    input: Input,
    leave: impl Future<Output = ()>,
) -> Outcome<u8> {
    let (context, pid) = (client.context(), process.pid);
    if context.json {
        let message = format!("PID {pid}: attach has no JSON: stdout belongs to the program");
        return Err(CommandError::invalid(message).with_hint(format!("relive logs -f --json {pid}")));
    }
    refuse_output(&context.paths, &format!("PID {pid}"))?;
    let connection = match session::open(&session.folder).await? {
        Opened::Live(connection) => connection,
        Opened::Ended(_) | Opened::Lost => return Err(ended(client, process).await),
    };
    let folder = Path::new(&session.folder);
    let from = Reader::tail(folder, RECENT_BYTES).map_err(unreadable)?;
    if input == Input::Ended {
        let mut output = Output::start(folder, from, plainly).map_err(unreadable)?;
        output.end();
        output.finished().await?;
        context.say(&match blocked(process, &pid.to_string()) {
            Some(Blocked { why, next }) => format!("detached; PID {pid} {why}: {next}"),
            None => format!("detached; PID {pid} keeps running: relive logs -f {pid}"),
        });
        return Ok(0);
    }
    let detach = (session.pty && io::stdin().is_terminal()).then_some(detach_key);
    context.say(&match detach {
        Some(key) => format!("attached to PID {pid}; detach with {key}; Ctrl-C goes to the program"),
        None => format!("attached to PID {pid}; Ctrl-C detaches"),
    });
    let manner = Manner { from, detach, at_end: AtEnd::Leave, pace: Pace::Free, arrival: Arrival::Again };
    match watch(context, &connection, folder, &manner, leave).await? {
        Left::Ended(record) => {
            let code = session::exit_code(&record.result);
            context.say(&format!("PID {pid} has ended with exit code {code}: relive info {pid}"));
            Ok(code)
        }
        Left::Lost { .. } => lost(client, process).await,
        Left::Detached => {
            // The last line of the program was not ended.
            context.say(&format!("\ndetached, PID {pid} keeps running: relive attach {pid}"));
            Ok(0)
        }
        Left::Interrupted => {
            context.say(&format!("detached, PID {pid} keeps running: relive attach {pid}"));
            Ok(INTERRUPTED)
        }
        Left::HungUp => Ok(HUNG_UP),
        Left::Signaled(number) => Ok(SIGNALED + number),
    }
}

/// Says how a program ended whose session was lost: only the daemon knows.
async fn lost(client: &Client<'_>, process: &Process) -> Outcome<u8> {
    let answer = client.wait_for_end(&process.uuid.to_string()).await?;
    let (pid, code) = (process.pid, answer.exit_code);
    let reason = answer.exit.map(|exit| format!(": {}", render::exit::reason(answer.status.as_ref(), &exit.reason)));
    let reason = reason.unwrap_or_default();
    client.context().say(&format!("PID {pid} has ended with exit code {code}{reason}: relive info {pid}"));
    Ok(code)
}

/// Whether something can be typed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Input {
    Open,
    /// Standard input is closed, an empty file or `/dev/null`, as in a script or a service.
    Ended,
}

impl Input {
    pub(super) fn of_stdin() -> Self {
        let Ok(stdin) = rustix::fs::fstat(io::stdin()) else { return Self::Ended };
        let is_null = rustix::fs::stat("/dev/null").is_ok_and(|null| null.st_rdev == stdin.st_rdev);
        let kind = FileType::from_raw_mode(stdin.st_mode);
        let is_null = is_null && kind == FileType::CharacterDevice;
        let is_empty = kind == FileType::RegularFile && stdin.st_size == 0;
        if is_null || is_empty { Self::Ended } else { Self::Open }
    }
}

async fn ended(client: &Client<'_>, process: &Process) -> CommandError {
    let pid = process.pid;
    if let Some(now) = resumed_as(client, process).await {
        let message = format!("PID {pid} has ended and was resumed as PID {now}");
        return CommandError::new(ErrorCode::Conflict, message).with_hint(format!("relive attach {now}"));
    }
    let error = CommandError::new(ErrorCode::Conflict, format!("PID {pid} has ended: there is nothing to attach to"));
    error.with_hint(format!("relive logs {pid}"))
}
