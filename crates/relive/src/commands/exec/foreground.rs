//! The foreground: as if the program itself had been typed.

use std::path::Path;
use std::time::Duration;

use relive_api::{ExecStarted, WaitAnswer};
use relive_core::{ErrorCode, ProcessStatus, Why};
use relive_session::exit::ExitRecord;
use relive_session::stage::SessionResult;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::Args;
use crate::client::Client;
use crate::commands::interrupts::{INTERRUPTED, obey};
use crate::context::Context;
use crate::error::{CommandError, Outcome};
use crate::render::processes::{killed_for_memory, pids};
use crate::session::input::AtEnd;
use crate::session::output::{OUTPUT_LOST, Output, plainly};
use crate::session::watch::{Arrival, Left, Manner, Pace, watch};
use crate::session::{self, Opened, exit_code};

/// What a shell adds to the number of the signal that ended a command.
const SIGNALED: u8 = 128;
/// What a shell gives for a command that lost its terminal.
const HUNG_UP: u8 = 129;
/// How long the daemon may take to write down an end that its session has told us of.
const TOLD_WITHIN: Duration = Duration::from_secs(5);

pub(super) async fn run(client: &Client<'_>, args: &Args, started: ExecStarted, interrupts: Signal) -> Outcome<u8> {
    let context = client.context();
    let (pid, uuid) = (started.pid, started.uuid.to_string());
    if args.gate {
        context.say(&format!("PID {pid} waits at the gate: relive proceed {pid}, or relive abort {pid}"));
    }
    if args.tty {
        context.say(&format!("PID {pid}; leave it running with {}", args.detach_key));
    }
    let terminations = signal(SignalKind::terminate())
        .map_err(|error| CommandError::internal("SIGTERM cannot be listened to").because(error))?;
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
            let leave = obey(client, &uuid, interrupts, Some(terminations));
            watch(context, &connection, folder, &manner, leave).await?
        }
        Opened::Ended(record) => {
            show_all(folder).await?;
            Left::Ended(record)
        }
        Opened::Lost => {
            if !started.folder.is_empty() {
                show_all(folder).await?;
            }
            Left::Lost
        }
    };
    let left = match left {
        // Its last word may have been cut off, and yet be on the disk.
        Left::Lost => match session::open(&started.folder).await? {
            Opened::Ended(record) => Left::Ended(record),
            Opened::Live(_) | Opened::Lost => Left::Lost,
        },
        other @ (Left::Ended(_) | Left::Detached | Left::Interrupted | Left::HungUp | Left::Signaled(_)) => other,
    };
    match left {
        Left::Ended(record) => conclude(client, &started, &record).await,
        Left::Lost => {
            let answer = client.wait_for_end(&uuid).await?;
            say_why(context, &answer);
            Ok(answer.exit_code)
        }
        Left::Detached => {
            // The program's line was not ended.
            context.say(&format!("\nleft running: relive attach {pid}"));
            Ok(0)
        }
        Left::Interrupted => {
            context.say(&format!("left before its end was known: relive wait {uuid}"));
            Ok(INTERRUPTED)
        }
        Left::HungUp => Ok(HUNG_UP),
        Left::Signaled(number) => Ok(SIGNALED + number),
    }
}

/// Shows the log of a session to which nothing is added any more.
async fn show_all(folder: &Path) -> Outcome<()> {
    let mut output = Output::start(folder, 0, plainly)?;
    output.end();
    Ok(output.finished().await?)
}

/// The end as the daemon has it, so that whoever asks next finds it written down; without a daemon, as the session has it.
async fn conclude(client: &Client<'_>, started: &ExecStarted, record: &ExitRecord) -> Outcome<u8> {
    let context = client.context();
    if let SessionResult::Error(failure) = &record.result {
        let errno = &failure.errno;
        context.say(&format!("error: PID {}: the program cannot be run: {} {errno}", started.pid, failure.stage));
    }
    if is_unheld_limit(&record.result) {
        context.say("hint: `relive doctor` says why this limit cannot be held; --allow-degraded runs it without");
    }
    if !record.left.is_empty() {
        context.say(&format!("PID {}: OS pids that could not be ended: {}", started.pid, pids(&record.left)));
    }
    if record.oom_kills > 0 {
        context.say(&format!("PID {}: {}", started.pid, killed_for_memory(record.oom_kills)));
    }
    let code = program_code(client, started, record).await;
    if record.output_lost {
        context.say(OUTPUT_LOST);
    }
    // Whoever reads our output must not take half of it for all of it.
    let incomplete = record.output_lost && code == 0;
    Ok(if incomplete { ErrorCode::Internal.exit_code() } else { code })
}

fn is_unheld_limit(result: &SessionResult) -> bool {
    match result {
        SessionResult::Error(failure) => ["memory.max", "cpu.max", "pids.max"].contains(&failure.stage.as_str()),
        SessionResult::Exited(_) | SessionResult::Signaled(_) | SessionResult::Aborted => false,
    }
}

/// The code of the program's end.
async fn program_code(client: &Client<'_>, started: &ExecStarted, record: &ExitRecord) -> u8 {
    let uuid = started.uuid.to_string();
    // One that is not there, or dies now, need not be started for it.
    client.set_stopped(true);
    let asked = async {
        client.connect().await.ok()?;
        client.wait_for_end(&uuid).await.ok()
    };
    match tokio::time::timeout(TOLD_WITHIN, asked).await {
        Ok(Some(answer)) => {
            say_why(client.context(), &answer);
            answer.exit_code
        }
        Ok(None) | Err(_) => exit_code(&record.result),
    }
}

/// Why somebody ended it, unless that was the person in front of it.
fn say_why(context: &Context, answer: &WaitAnswer) {
    if let (Some(why), Some(exit)) = (answer.why, &answer.exit)
        && why != Why::User
        // What it exited with is its own; what was done to it has been said.
        && !matches!(answer.status, Some(ProcessStatus::Exited { .. }))
    {
        context.say(&format!("PID {} ended: {}", answer.pid, exit.reason));
    }
}
