//! The background of `exec`: the command returns when the program runs, or could not be started.

use std::time::Duration;

use relive_api::{Created, ErrorDetail, ExecStarted};
use relive_core::{ErrorCode, ProcessStatus};
use relive_session::exit::ExitRecord;
use relive_session::stage::{Failure, SessionResult, Stage};
use serde::Serialize;

use super::{Attachment, failure};
use crate::client::Client;
use crate::error::{CommandError, Outcome};
use crate::report;
use crate::session::{self, Opened, exit_code};

/// How long a program may take to start before the command leaves it alone.
const STARTED_WITHIN: Duration = Duration::from_secs(10);

/// A program that exists as a process, and could not be started.
#[derive(Serialize)]
struct NotStarted {
    #[serde(flatten)]
    created: Created,
    error: ErrorDetail,
}

/// Prints the PID of a program that runs or waits at its gate; fails like a shell for one that could not be started.
pub(super) async fn run(client: &Client<'_>, args: Attachment<'_>, started: &ExecStarted) -> Outcome<u8> {
    let context = client.context();
    let created = Created { pid: started.pid, uuid: started.uuid };
    // The program exists, whatever becomes of the wait for it.
    let failure = tokio::time::timeout(STARTED_WITHIN, failure_of(client, args, started)).await.ok().flatten();
    let Some(failure) = failure else {
        let pid = created.pid;
        let told = if context.json { context.print_json(&created) } else { context.print_line(&pid.to_string()) };
        return told.map(|()| 0).map_err(|error| error.beside_running(pid, format!("relive attach {pid}")));
    };
    let code = exit_code(&SessionResult::Error(failure.clone()));
    let kind = if failure.errno == "ENOENT" { ErrorCode::NotFound } else { ErrorCode::Invalid };
    let error = CommandError::new(kind, failure::told(args, started.pid, &failure, None));
    let error = match failure::hint(client, args, &failure).await {
        Some(hint) => error.with_hint(hint),
        None => error,
    };
    if context.json {
        context.print_json(&NotStarted { created, error: error.detail() })?;
    } else {
        context.say_on(&report::as_text(&error, &context.err));
    }
    Ok(code)
}

/// Waits until a program runs, or waits at its gate. Returns why it could not be started.
async fn failure_of(client: &Client<'_>, args: Attachment<'_>, started: &ExecStarted) -> Option<Failure> {
    let connection = match session::open(&started.folder).await.ok()? {
        Opened::Live(connection) => connection,
        Opened::Ended(record) => return of_record(record),
        Opened::Lost => return recorded(client, started).await,
    };
    let enough = if args.gate { Stage::Ready } else { Stage::Running };
    match connection.wait_for(|seen| seen.ended.is_some() || seen.snapshot.stage >= enough).await {
        Ok(seen) => match seen.ended {
            Some(record) => of_record(record),
            // The end of a session that is over is told by its record.
            None if seen.snapshot.stage == Stage::Errored => of_record(connection.ended().await.ok()?),
            None => None,
        },
        Err(_) => recorded(client, started).await,
    }
}

/// Returns why a program never ran. One that was lost or killed did, or was not to.
fn of_record(record: ExitRecord) -> Option<Failure> {
    match record.result {
        SessionResult::Error(failure) if record.why.is_none() => Some(failure),
        SessionResult::Error(_) | SessionResult::Exited(_) | SessionResult::Signaled(_) | SessionResult::Aborted => {
            None
        }
    }
}

/// Returns what the daemon has recorded of a program without a session.
async fn recorded(client: &Client<'_>, started: &ExecStarted) -> Option<Failure> {
    match client.process(&started.uuid.to_string()).await.ok()?.status? {
        ProcessStatus::StartupFailed { stage, errno, code } => Some(Failure { stage, errno, code }),
        ProcessStatus::Exited { .. }
        | ProcessStatus::Abandoned
        | ProcessStatus::Killed { .. }
        | ProcessStatus::Faulted { .. } => None,
    }
}
