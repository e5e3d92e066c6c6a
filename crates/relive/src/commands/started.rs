//! Whether the program of a process that a command started runs, or could not be started.

use std::time::Duration;

use relive_api::{ErrorDetail, Process};
use relive_core::{Body, ErrorCode, Pid, ProcessStatus};
use serde::Serialize;

use crate::client::Client;
use crate::error::CommandError;
use crate::render::exit;

/// How long a program may take to start before the command leaves it alone.
const STARTED_WITHIN: Duration = Duration::from_secs(10);
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// The answer about a process that exists, and whose program could not be started.
#[derive(Serialize)]
pub(crate) struct Answer<T> {
    #[serde(flatten)]
    pub(crate) answer: T,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<ErrorDetail>,
}

/// A program that could not be started, and the exit code of a shell for it.
pub(crate) struct NotStarted {
    pub(crate) error: CommandError,
    pub(crate) code: u8,
}

/// Returns whether a process is a program that is started.
pub(crate) fn is_program(body: Body) -> bool {
    match body {
        Body::Exec | Body::Cli => true,
        Body::Agent | Body::Compose | Body::Supervisor => false,
    }
}

/// Waits until the program of a process runs or waits at its gate. Returns why it could not be started.
pub(crate) async fn failure_of(client: &Client<'_>, pid: Pid) -> Option<NotStarted> {
    let id = pid.to_string();
    let looks = async {
        loop {
            // The process exists, whatever becomes of the wait for it.
            let process = std::ops::Deref::deref(client).process(&id).await.ok()?;
            if process.status.is_some() || process.dead_at.is_some() {
                return not_started(&process);
            }
            // Until there is room for it, however long that takes.
            let is_queued = process.agent.as_ref().is_some_and(|agent| agent["queued"].is_object());
            // Each program passes the stage `ready`, but only one with a gate is shown as that.
            let is_at_gate = process.display == "ready";
            let has_begun = is_at_gate || process.session.as_ref().is_some_and(|session| session.stage == "running");
            if !is_program(process.body) || process.paused || is_queued || has_begun {
                return None;
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    };
    tokio::time::timeout(STARTED_WITHIN, looks).await.ok().flatten()
}

fn not_started(process: &Process) -> Option<NotStarted> {
    let Some(ProcessStatus::StartupFailed { errno, .. }) = &process.status else { return None };
    let ended = process.exit.as_ref();
    let why = exit::not_started(process)
        .or_else(|| ended.map(|ended| exit::reason(process.status.as_ref(), &ended.reason)))
        .unwrap_or_else(|| errno.clone());
    let kind = if errno == "ENOENT" { ErrorCode::NotFound } else { ErrorCode::Invalid };
    let error = CommandError::new(kind, format!("PID {} could not be started: {why}", process.pid));
    Some(NotStarted { code: process.exit_code.unwrap_or_else(|| error.exit_code()), error })
}
