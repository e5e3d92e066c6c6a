//! The foreground of `exec`: as if the program itself had been typed.

use std::cell::Cell;
use std::path::Path;
use std::time::Duration;

use relive_api::{ExecStarted, WaitAnswer};
use relive_core::{Body, ErrorCode, ProcessStatus, Why};
use relive_session::exit::{EndedBy, ExitRecord};
use relive_session::stage::{Failure, SessionResult};
use relive_types::program::quote;

use super::{Attachment, Pressed};
use crate::client::Client;
use crate::commands::interrupts::{INTERRUPTED, obey};
use crate::context::Context;
use crate::error::Outcome;
use crate::render;
use crate::render::processes::{killed_for_memory, pids};
use crate::session::input::AtEnd;
use crate::session::output::{OUTPUT_LOST, Output, plainly, unreadable};
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
            let pressed = Cell::new(false);
            let leave = obey(client, (pid, &uuid), told.interrupts, Some(told.terminations), &pressed);
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
        // Its last message may have been cut off, but be on the disk.
        Left::Lost => match session::open(&started.folder).await? {
            Opened::Ended(record) => Left::Ended(record),
            Opened::Live(_) | Opened::Lost => Left::Lost,
        },
        other @ (Left::Ended(_) | Left::Detached | Left::Interrupted | Left::HungUp | Left::Signaled(_)) => other,
    };
    match left {
        Left::Ended(record) => conclude(client, args, &started, &record).await,
        Left::Lost => {
            let answer = client.wait_for_end(&uuid).await?;
            say_why(context, &answer);
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

/// Shows a log that is complete.
async fn show_all(folder: &Path) -> Outcome<()> {
    let mut output = Output::start(folder, 0, plainly).map_err(unreadable)?;
    output.end();
    Ok(output.finished().await?)
}

/// Says in words why a program could not be started.
fn cause(failure: &Failure) -> String {
    let Failure { stage, errno, .. } = failure;
    match (stage.as_str(), errno.as_str()) {
        ("execve", "ENOENT") => "no such file, or its interpreter does not exist".to_owned(),
        ("memory.max", _) => format!("this machine cannot limit its memory ({stage}: {errno})"),
        ("pids.max", _) => format!("this machine cannot limit its number of processes ({stage}: {errno})"),
        ("cpu.max", _) => format!("this machine cannot limit its processors ({stage}: {errno})"),
        ("execve", "EACCES") => "permission denied".to_owned(),
        ("execve", "ENOEXEC") => "it is not in a format that can be executed".to_owned(),
        ("chdir", "ENOENT") => "its working directory does not exist".to_owned(),
        ("enter", "ESRCH") => "the session that it was to enter has ended".to_owned(),
        // Its cause is a sentence of its own.
        ("isolation", sentence) => sentence.to_owned(),
        _ => format!("{stage} failed with {errno}"),
    }
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
        let not_run = not_run(args, failure).filter(|_| record.why.is_none());
        let why = not_run.unwrap_or_else(|| format!("PID {}: {}", started.pid, explain(failure, record.why)));
        context.say(&format!("error: {}", crate::terminal::without_controls(&why)));
        if let Some(hint) = meant_process(client, args, failure).await {
            context.say(&format!("\nhint: {hint}"));
        }
    }
    if is_unheld_limit(&record.result) {
        context.say("hint: `relive doctor` shows why this limit cannot be enforced; --allow-degraded runs the program without it");
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
    // A reader must not take incomplete output for complete.
    let incomplete = record.output_lost && code == 0;
    Ok(if incomplete { ErrorCode::Internal.exit_code() } else { code })
}

/// Says why a program cannot be run as a shell does, with its name in front.
fn not_run(args: Attachment<'_>, failure: &Failure) -> Option<String> {
    let program = args.argv.first()?.to_string_lossy();
    let why = match (failure.stage.as_str(), failure.errno.as_str()) {
        ("execve", "ENOENT") if super::is_name(args.argv) => "command not found".to_owned(),
        ("execve", _) => cause(failure),
        _ => return None,
    };
    Some(format!("{program}: {why}"))
}

/// Returns the command for who typed the name of a process where a program belongs, as with `docker exec NAME CMD`.
async fn meant_process(client: &Client<'_>, args: Attachment<'_>, failure: &Failure) -> Option<String> {
    let is_missing = (failure.stage.as_str(), failure.errno.as_str()) == ("execve", "ENOENT");
    let [name, command @ ..] = args.argv else { return None };
    if args.command != "exec" || !is_missing || command.is_empty() {
        return None;
    }
    let process = std::ops::Deref::deref(client).process(name.to_str()?).await.ok()?;
    // What this command has started itself has no such name.
    (process.dead_at.is_none() && process.body == Body::Exec).then(|| {
        let tty = if args.tty { "-t " } else { "" };
        format!("relive enter {tty}{} -- {}", quote(&name.to_string_lossy()), super::command_line(command))
    })
}

/// Says why a session has no exit code.
fn explain(failure: &Failure, why: Option<EndedBy>) -> String {
    match why {
        Some(EndedBy::ShimLost) => "its shim, the process above it, was lost, and the program was killed".to_owned(),
        Some(EndedBy::HostLost) => "the machine went down while the program ran".to_owned(),
        Some(EndedBy::Version) => "its shim could not be used, and the program was killed".to_owned(),
        Some(EndedBy::Oom | EndedBy::Abort | EndedBy::Kill | EndedBy::Signal) | None => {
            format!("the program cannot be run: {}", cause(failure))
        }
    }
}

fn is_unheld_limit(result: &SessionResult) -> bool {
    match result {
        SessionResult::Error(failure) => ["memory.max", "cpu.max", "pids.max"].contains(&failure.stage.as_str()),
        SessionResult::Exited(_) | SessionResult::Signaled(_) | SessionResult::Aborted => false,
    }
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
            say_why(client.context(), &answer);
            answer.exit_code
        }
        Ok(None) | Err(_) => exit_code(&record.result),
    }
}

/// Reports why somebody ended it, unless that was the person in front of it.
fn say_why(context: &Context, answer: &WaitAnswer) {
    if let (Some(why), Some(exit)) = (answer.why, &answer.exit)
        && why != Why::User
        // Its exit code is its own; a cause has been reported.
        && !matches!(answer.status, Some(ProcessStatus::Exited { .. }))
    {
        let end = render::exit::phrase(answer.status.as_ref(), exit);
        context.say(&format!("PID {} {end}", answer.pid));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_cannot_be_run_is_named() {
        let check = |program: &str, stage: &str, errno: &str, expect: Option<&str>| {
            let argv = [std::ffi::OsString::from(program)];
            let detach_key = crate::terminal::key::parse_key(crate::terminal::key::DETACH).unwrap();
            let (tty, no_input) = (false, false);
            let args =
                Attachment { command: "exec", detach: false, tty, no_input, gate: false, detach_key, argv: &argv };
            let failure = Failure { stage: stage.to_owned(), errno: errno.to_owned(), code: 1 };
            assert_eq!(not_run(args, &failure).as_deref(), expect);
        };
        check("nosuchprog", "execve", "ENOENT", Some("nosuchprog: command not found"));
        check("./no", "execve", "ENOENT", Some("./no: no such file, or its interpreter does not exist"));
        check("/etc/passwd", "execve", "EACCES", Some("/etc/passwd: permission denied"));
        check("true", "memory.max", "ENOENT", None);
    }

    #[test]
    fn a_lost_program_is_not_called_one_that_cannot_be_run() {
        let check = |stage: &str, errno: &str, why, expect: &str| {
            let failure = Failure { stage: stage.to_owned(), errno: errno.to_owned(), code: 1 };
            assert_eq!(explain(&failure, why), expect);
        };
        let lost = "its shim, the process above it, was lost, and the program was killed";
        check("shim", "ESRCH", Some(EndedBy::ShimLost), lost);
        check("boot", "EHOSTDOWN", Some(EndedBy::HostLost), "the machine went down while the program ran");
        check("execve", "EACCES", None, "the program cannot be run: permission denied");
    }
}
