//! `relive attach`: be in front of a process again. Leaving never stops it.

use std::future::Future;
use std::io::{self, IsTerminal as _};
use std::path::Path;

use relive_api::{Created, Process, Session};
use relive_core::{Body, ErrorCode, State};
use relive_session::log::Reader;
use tokio::signal::unix::{SignalKind, signal};

use super::interrupts::INTERRUPTED;
use crate::client::Client;
use crate::context::Context;
use crate::error::{CommandError, Outcome};
use crate::session::input::AtEnd;
use crate::session::watch::{Arrival, Left, Manner, Pace, watch};
use crate::session::{self, Opened};
use crate::terminal::key::{self, Key, parse_key};

/// What a shell adds to the number of the signal that ended a command.
const SIGNALED: u8 = 128;
/// How much of the latest output is shown first: more than a screenful.
const RECENT_BYTES: u64 = 16 * 1024;

/// Show a process as it runs, and type to it
///
/// A program with a terminal gets every key but the one that detaches; Ctrl-C is typed to it. To any other program lines
/// are sent, and Ctrl-C only leaves. Leaving never stops anything.
#[derive(Debug, clap::Args)]
#[command(before_long_help = "\
Examples:
  relive attach shell                      the key that leaves it running is shown
  relive attach 5 --detach-key ctrl-q")]
pub(crate) struct Args {
    /// A PID, a name, a UUID or its beginning
    id: String,
    /// The key that leaves it running, where it has a terminal
    #[arg(long, value_name = "KEY", default_value = key::DETACH, value_parser = parse_key)]
    detach_key: Key,
}

pub(crate) async fn run(context: &Context, args: &Args) -> Outcome<u8> {
    let client = Client::about(context, &args.id).await?;
    let process = client.process(&args.id).await?;
    let pid = process.pid;
    match process.state {
        State::Created | State::Running => {}
        State::Zombie | State::Dead => return Err(ended(&process)),
    }
    let mut interrupts = signal(SignalKind::interrupt())
        .map_err(|error| CommandError::internal("Ctrl-C cannot be listened to").because(error))?;
    let leave = async {
        interrupts.recv().await;
    };
    match (process.body, &process.session) {
        (Body::Exec, Some(session)) => program(context, args, &process, session, leave).await,
        (Body::Agent, _) => {
            context.say(&format!("attached to PID {pid}; Ctrl-C leaves it running"));
            super::run::attach::run(&client, Created { pid, uuid: process.uuid }, leave).await
        }
        (Body::Exec | Body::Cli | Body::Compose | Body::Supervisor, _) => {
            let error = CommandError::new(ErrorCode::Conflict, format!("PID {pid}: there is nothing to attach to"));
            Err(error.with_hint(format!("relive info {pid}")))
        }
    }
}

async fn program(
    context: &Context,
    args: &Args,
    process: &Process,
    session: &Session,
    leave: impl Future<Output = ()>,
) -> Outcome<u8> {
    let pid = process.pid;
    if context.json {
        let message = format!("PID {pid}: attach has no JSON: what it prints is the program's own");
        return Err(CommandError::invalid(message).with_hint(format!("relive logs -f --json {pid}")));
    }
    let connection = match session::open(&session.folder).await? {
        Opened::Live(connection) => connection,
        Opened::Ended(_) | Opened::Lost => return Err(ended(process)),
    };
    let folder = Path::new(&session.folder);
    let detach = (session.pty && io::stdin().is_terminal()).then_some(args.detach_key);
    context.say(&match detach {
        Some(key) => format!("attached to PID {pid}; detach with {key}; Ctrl-C is typed to it"),
        None => format!("attached to PID {pid}; Ctrl-C leaves it running"),
    });
    let manner = Manner {
        from: Reader::tail(folder, RECENT_BYTES)?,
        detach,
        at_end: AtEnd::Leave,
        pace: Pace::Free,
        arrival: Arrival::Again,
    };
    match watch(context, &connection, folder, &manner, leave).await? {
        Left::Ended(_) | Left::Lost => {
            context.say(&format!("PID {pid} has ended: relive info {pid}"));
            Ok(0)
        }
        Left::Detached => {
            // The program's line was not ended.
            context.say(&format!("\nleft running: relive attach {pid}"));
            Ok(0)
        }
        Left::Interrupted => {
            context.say(&format!("left running: relive attach {pid}"));
            Ok(INTERRUPTED)
        }
        Left::HungUp => Ok(0),
        Left::Signaled(number) => Ok(SIGNALED + number),
    }
}

fn ended(process: &Process) -> CommandError {
    let pid = process.pid;
    let error = CommandError::new(ErrorCode::Conflict, format!("PID {pid} has ended: there is nothing to attach to"));
    error.with_hint(format!("relive logs {pid}"))
}
