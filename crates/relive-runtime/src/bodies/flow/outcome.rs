//! How a process of a tree ended, and what it said last.

use std::path::Path;
use std::sync::Arc;

use relive_core::{End, ErrorCode, Pid, ProcessStatus, Uuid, Why};
use relive_flow::{AtEnd, Outcome, RESULT_MAX};
use relive_session::log::{Item, Reader, Stream};
use relive_session::stage::Stage;

use crate::bodies::{LiveSession, Shim};
use crate::error::{Error, Result};
use crate::runtime::Runtime;

/// How a process of a tree ended, as far as it decides anything for the tree.
#[derive(Debug)]
pub(crate) struct ProcessEnd {
    pub(crate) outcome: Outcome,
    /// Why it failed, or who ended it.
    pub(crate) note: Option<String>,
    pub(crate) at_end: AtEnd,
}

impl ProcessEnd {
    pub(crate) fn of(outcome: Outcome, note: Option<String>) -> Self {
        Self { outcome, note, at_end: AtEnd::default() }
    }
}

impl Runtime {
    /// Returns how the last incarnation of a process ended; `None` if it has not ended.
    pub(crate) async fn outcome_of(self: &Arc<Self>, uuid: Uuid) -> Result<Option<ProcessEnd>> {
        let read = self.on_journal(move |data| data.history(uuid)).await?;
        let history = match read {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Err(Error::new(ErrorCode::NotFound, format!("process {uuid} is gone")));
            }
            read => read?.0,
        };
        let pid = history.incarnation().map(|incarnation| incarnation.pid);
        let Some((_, end)) = history.ended() else { return Ok(None) };
        let outcome = outcome(end, pid);
        let note = match outcome {
            Outcome::Succeeded | Outcome::Halted | Outcome::NeverRan => None,
            Outcome::Stopped => end.cause.map(|cause| {
                format!("ended by {}", self.in_words_now(cause, crate::attribution::signal_of(end).as_deref()))
            }),
            Outcome::Failed { .. } => Some(self.reason_of(uuid, end).await),
        };
        let at_end = match outcome {
            Outcome::Failed { .. } | Outcome::Halted => self.at_end(uuid, end, &history).await?,
            Outcome::Succeeded | Outcome::Stopped | Outcome::NeverRan => AtEnd::default(),
        };
        Ok(Some(ProcessEnd { outcome, note, at_end }))
    }

    /// Waits until a process has started, and tells whether its program could not be started.
    pub(crate) async fn could_not_start(self: &Arc<Self>, uuid: Uuid) -> bool {
        if !self.runs_program(uuid).await {
            return false;
        }
        if let Some(LiveSession { shim: Shim::Answers { connection, .. }, .. }) = self.live_session(uuid).await {
            let seen = connection.wait_for(|seen| seen.ended.is_some() || seen.snapshot.stage >= Stage::Running).await;
            let stage = seen.map(|seen| seen.snapshot.stage);
            if matches!(stage, Ok(Stage::Running | Stage::Exited | Stage::Signaled)) {
                return false;
            }
        }
        // It has ended, or is about to.
        let _ = self.wait(&uuid.to_string(), None).await;
        let read = self.on_journal(move |data| data.history(uuid)).await;
        let Ok(Ok((history, _))) = read else { return false };
        history.ended().is_some_and(|(_, end)| matches!(end.status, ProcessStatus::StartupFailed { .. }))
    }

    /// Returns what a process said last: the last text of an agent, the standard output of a program.
    pub(crate) async fn result_of(&self, uuid: Uuid) -> Option<String> {
        let text = match self.last_session(uuid).await.ok().flatten() {
            Some(session) if self.runs_program(uuid).await => {
                self.pools.reads.run(move || output_of(&session)).await.ok()?.ok()
            }
            Some(_) | None => self.on_disk(move |data| crate::wait::last_text(data, uuid)).await.ok().flatten(),
        };
        text.map(|text| shortened(&text))
    }

    /// Says why a process failed, with the last thing that a program said about it.
    async fn reason_of(&self, uuid: Uuid, end: &End) -> String {
        let reason = match &end.status {
            ProcessStatus::Killed { signal } => killed(end, &signal.name()),
            ProcessStatus::StartupFailed { stage, errno, .. } => {
                let (program, cwd) = self.program_of(uuid).await.unwrap_or_default();
                not_started(stage, errno, (&program, &cwd)).unwrap_or_else(|| end.exit().reason.into_owned())
            }
            ProcessStatus::Exited { .. } | ProcessStatus::Abandoned | ProcessStatus::Faulted { .. } => {
                end.exit().reason.into_owned()
            }
        };
        let exited_by_itself = matches!(end.status, ProcessStatus::Exited { .. }) && end.reason.is_none();
        let said = match self.last_session(uuid).await.ok().flatten().filter(|_| exited_by_itself) {
            Some(session) if self.runs_program(uuid).await => {
                self.pools.reads.run(move || last_error(&session)).await.ok().and_then(Result::ok).flatten()
            }
            Some(_) | None => None,
        };
        match said {
            // The code is shown beside it, and says that it exited.
            Some(said) if reason == "exited" => said,
            Some(said) => format!("{reason}: {said}"),
            None => reason,
        }
    }

    /// Returns the name of the program that a process runs, and where.
    async fn program_of(&self, uuid: Uuid) -> Option<(String, String)> {
        let (history, _) = self.on_journal(move |data| data.history(uuid)).await.ok()?.ok()?;
        let spawned = history.identity?.spawned;
        Some((spawned.program?.argv.first()?.clone(), spawned.cwd))
    }

    async fn runs_program(&self, uuid: Uuid) -> bool {
        let read = self.on_journal(move |data| data.history(uuid)).await;
        let spawned = read.ok().and_then(Result::ok).and_then(|(history, _)| history.identity);
        spawned.is_some_and(|identity| identity.spawned.body == "exec")
    }
}

fn outcome(end: &End, pid: Option<Pid>) -> Outcome {
    if let Some(cause) = end.cause {
        let from_above = cause.root.is_some() && cause.root != pid;
        match cause.why {
            Why::Supervisor | Why::DaemonStop => return Outcome::Halted,
            Why::User | Why::Parent if from_above => return Outcome::Halted,
            Why::User | Why::Parent => return Outcome::Stopped,
            Why::Timeout
            | Why::Budget
            | Why::Idle
            | Why::Stalled
            | Why::Oom
            | Why::Limit
            | Why::HostLost
            | Why::ShimLost
            | Why::Aborted => {}
        }
    }
    match end.status {
        ProcessStatus::Exited { code: 0 } => Outcome::Succeeded,
        ProcessStatus::Exited { .. }
        | ProcessStatus::Abandoned
        | ProcessStatus::Killed { .. }
        | ProcessStatus::Faulted { .. }
        | ProcessStatus::StartupFailed { .. } => Outcome::Failed { code: i32::from(end.exit_code()) },
    }
}

/// Says what ended a process: the signal, unless Relive had a reason of its own to send it.
fn killed(end: &End, signal: &str) -> String {
    let reason = end.exit().reason;
    match &*reason {
        "interrupted" => format!("ended by {signal}"),
        "context cancelled while paused" => format!("ended by {signal} while suspended"),
        _ => reason.into_owned(),
    }
}

/// Says why a program could not be started, if there are words for it.
fn not_started(stage: &str, errno: &str, (program, cwd): (&str, &str)) -> Option<String> {
    if (stage, errno) == ("chdir", "ENOENT") {
        return Some(format!("no such directory: {cwd} ({stage}: {errno})"));
    }
    let words = match (stage, errno) {
        ("execve", "ENOENT") => "program not found",
        ("execve", "EACCES") => "permission denied",
        ("execve", "ENOEXEC") => "not in a format that can be executed",
        ("execve", "E2BIG") => "its arguments and environment variables are longer than the system allows",
        _ => return None,
    };
    Some(format!("{words}: {program} ({stage}: {errno})"))
}

/// Reads the end of the standard output of a session.
fn output_of(session: &Path) -> std::io::Result<String> {
    // Somewhat more than is kept: a character may be cut at the beginning.
    end_of(session, Stream::Out, 2 * RESULT_MAX)
}

/// Returns the last line that a program wrote to its standard error.
fn last_error(session: &Path) -> std::io::Result<Option<String>> {
    /// The longest line that is kept, in characters.
    const LINE_MAX: usize = 200;
    let said = end_of(session, Stream::Err, 4 * LINE_MAX)?;
    let line = said.lines().map(str::trim).rfind(|line| !line.is_empty());
    Ok(line.map(|line| line.chars().filter(|c| !c.is_control()).take(LINE_MAX).collect()))
}

/// Reads the last bytes of one of the streams of a session.
fn end_of(session: &Path, stream: Stream, bytes: usize) -> std::io::Result<String> {
    let (tail, oldest) = (Reader::tail(session, 2 * bytes as u64)?, Reader::oldest(session)?);
    let mut output = read_from(session, stream, bytes, tail)?;
    if output.len() < bytes && tail > oldest {
        // Both streams are in one log, and the other one may have filled the end of it.
        output = read_from(session, stream, bytes, oldest)?;
    }
    Ok(String::from_utf8_lossy(&output).into_owned())
}

/// Reads one of the streams from an offset of the log, and returns its last bytes.
fn read_from(session: &Path, stream: Stream, bytes: usize, from: u64) -> std::io::Result<Vec<u8>> {
    let mut reader = Reader::open(session, from)?;
    let mut output = Vec::new();
    while let Some(item) = reader.next()? {
        if let Item::Chunk(chunk) = item
            && chunk.stream == stream
        {
            output.extend_from_slice(&chunk.bytes);
            if output.len() > 2 * bytes {
                output.drain(..output.len() - bytes);
            }
        }
    }
    output.drain(..output.len().saturating_sub(bytes));
    Ok(output)
}

/// Keeps the end of a long text, without the newlines after it and without NUL, which no program can be given.
fn shortened(text: &str) -> String {
    let text = text.trim_end_matches(['\n', '\r']).replace('\0', "\u{fffd}");
    let mut start = text.len().saturating_sub(RESULT_MAX);
    while !text.is_char_boundary(start) {
        start += 1;
    }
    text[start..].to_owned()
}
