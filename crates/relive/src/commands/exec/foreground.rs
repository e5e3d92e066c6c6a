//! The foreground of `exec`: as if the program itself had been typed.

use std::io;
use std::path::Path;
use std::time::Duration;

use relive_api::{ExecStarted, WaitAnswer};
use relive_core::{ErrorCode, Pid, ProcessStatus, Why};
use relive_session::directory::SessionDirectory;
use relive_session::exit::ExitRecord;
use relive_session::stage::SessionResult;

use super::{Attachment, Pressed, failure};
use crate::client::Client;
use crate::commands::interrupts::{Asked, Front, INTERRUPTED, Reach, obey};
use crate::error::Outcome;
use crate::render;
use crate::render::processes::{killed_for_memory, pids};
use crate::session::input::AtEnd;
use crate::session::output::{MissingOutput, Output, plainly, unreadable};
use crate::session::watch::{Arrival, Left, Manner, Pace, watch};
use crate::session::{self, Opened, exit_code};

/// The number that a shell adds to the signal that ended a command.
const SIGNALED: u8 = 128;
/// The exit code of a shell for a command that lost its terminal.
const HUNG_UP: u8 = 129;
/// How long the daemon may take to record an end that the session has reported.
const TOLD_WITHIN: Duration = Duration::from_secs(5);

pub(super) async fn run(client: &Client<'_>, args: Attachment<'_>, started: ExecStarted, told: Pressed) -> Outcome<u8> {
    let context = client.context();
    let (pid, uuid) = (started.pid, started.uuid.to_string());
    if args.gate {
        context.say(&format!("PID {pid} waits at the gate: relive proceed {pid}, or relive abort {pid}"));
    }
    if args.tty {
        context.say(&format!("PID {pid}; detach with {}", args.detach_key));
    }
    let folder = Path::new(&started.folder);
    let left = match session::open(&started.folder).await? {
        Opened::Live(connection) => {
            let at_end = if args.no_input { AtEnd::Unread } else { AtEnd::Close };
            let manner = Manner {
                from: 0,
                detach: args.tty.then_some(args.detach_key),
                at_end,
                pace: Pace::Held,
                arrival: Arrival::First,
            };
            let asked = Asked::default();
            let front = Front { pid, uuid: &uuid, reach: Reach::Process };
            let leave = obey(client, front, told.interrupts, Some(told.terminations), &asked);
            watch(context, &connection, folder, &manner, leave).await?
        }
        Opened::Ended(record) => {
            show_all(folder).await?;
            Left::Ended(record)
        }
        Opened::Lost => Left::Lost { shown: 0 },
    };
    let left = match left {
        // Its last message may have been cut off, but be on the disk.
        Left::Lost { shown } => match session::open(&started.folder).await? {
            Opened::Ended(record) => {
                if shown == 0 {
                    show_all(folder).await?;
                }
                Left::Ended(record)
            }
            Opened::Live(_) | Opened::Lost => Left::Lost { shown },
        },
        other @ (Left::Ended(_) | Left::Detached | Left::Interrupted | Left::HungUp | Left::Signaled(_)) => other,
    };
    match left {
        Left::Ended(record) => conclude(client, args, &started, &record).await,
        Left::Lost { shown } => {
            let answer = client.wait_for_end(&uuid).await?;
            if shown == 0 {
                show_last(client, &uuid).await?;
            }
            let record = SessionDirectory::open(folder).and_then(|directory| directory.read_exit());
            if let Some(missing) = record.ok().flatten().as_ref().and_then(MissingOutput::of_record) {
                context.say(missing.after_output());
            }
            say_why(client, &answer).await;
            Ok(answer.exit_code)
        }
        Left::Detached => {
            // The last line of the program was not ended.
            context.say(&format!("\ndetached, PID {pid} keeps running: relive attach {pid}"));
            Ok(0)
        }
        Left::Interrupted => {
            context.say(&format!("stopped watching PID {pid} before it ended: relive wait {uuid}"));
            Ok(INTERRUPTED)
        }
        Left::HungUp => Ok(HUNG_UP),
        Left::Signaled(number) => Ok(SIGNALED + number),
    }
}

/// Shows the whole output of a session that has ended.
async fn show_all(folder: &Path) -> Outcome<()> {
    finish(Output::start(folder, 0, plainly)).await
}

/// Shows the output of the last session of a program that has ended, if one began. A shim that dies before its program runs is
/// replaced by another one, which may have run it since this command lost sight of it.
async fn show_last(client: &Client<'_>, uuid: &str) -> Outcome<()> {
    let Some(session) = client.process(uuid).await?.session else { return Ok(()) };
    match Output::start(Path::new(&session.folder), 0, plainly) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        started => finish(started).await,
    }
}

async fn finish(started: io::Result<Output>) -> Outcome<()> {
    let mut output = started.map_err(unreadable)?;
    output.end();
    Ok(output.finished().await?)
}

/// Returns the end from the daemon, so that the next caller finds it recorded; without a daemon, from the session.
async fn conclude(
    client: &Client<'_>,
    args: Attachment<'_>,
    started: &ExecStarted,
    record: &ExitRecord,
) -> Outcome<u8> {
    let context = client.context();
    if let SessionResult::Error(failure) = &record.result {
        let why = failure::told(args, started.pid, failure, record.why);
        context.say(&format!("error: {}", crate::terminal::without_controls(&why)));
        if let Some(hint) = failure::hint(client, args, failure).await {
            context.say(&format!("\nhint: {hint}"));
        }
    }
    if !record.left.is_empty() {
        context.say(&format!("PID {}: OS pids that could not be ended: {}", started.pid, pids(&record.left)));
    }
    if record.oom_kills > 0 {
        context.say(&format!("PID {}: {}", started.pid, killed_for_memory(record.oom_kills)));
    }
    let code = program_code(client, started, record).await;
    if let Some(missing) = MissingOutput::of_record(record) {
        context.say(missing.after_output());
    }
    // A reader must not take incomplete output for complete.
    let incomplete = record.output_lost && code == 0;
    Ok(if incomplete { ErrorCode::Internal.exit_code() } else { code })
}

/// Returns the exit code of the program.
async fn program_code(client: &Client<'_>, started: &ExecStarted, record: &ExitRecord) -> u8 {
    let uuid = started.uuid.to_string();
    // A daemon that is missing, or dies now, need not be started for this.
    client.set_stopped(true);
    let asked = async {
        client.connect().await.ok()?;
        client.wait_for_end(&uuid).await.ok()
    };
    match tokio::time::timeout(TOLD_WITHIN, asked).await {
        Ok(Some(answer)) => {
            say_why(client, &answer).await;
            answer.exit_code
        }
        Ok(None) | Err(_) => exit_code(&record.result),
    }
}

/// Reports why somebody ended it, unless that was the person in front of it.
async fn say_why(client: &Client<'_>, answer: &WaitAnswer) {
    if let (Some(why), Some(exit)) = (answer.why, &answer.exit)
        // Its exit code is its own; a cause has been reported.
        && !matches!(answer.status, Some(ProcessStatus::Exited { .. }))
        && !(why == Why::User && is_of_person(client, answer).await)
    {
        let end = render::exit::phrase(answer.status.as_ref(), exit);
        client.context().say(&format!("PID {} {end}", answer.pid));
    }
}

/// Returns whether the person ended it, and not a process that has a handle to it.
async fn is_of_person(client: &Client<'_>, answer: &WaitAnswer) -> bool {
    let process = client.process(&answer.uuid.to_string()).await;
    process.map_or(true, |process| process.killed_by.is_none_or(|by| by == Pid::RUNTIME))
}
