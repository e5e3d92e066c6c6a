//! The stages of a session: computed from facts, never stored. Pure.
//!
//! [`Session`] holds the facts and returns the answer to a verb and the consequences of an event; the shim carries them
//! out.

mod machine;
#[cfg(test)]
mod tests;

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::exit::ExitRecord;

pub use machine::{Answer, Due, End, Event, KEPT_SIGNALS_MAX, Rejected, Session};

/// The stage of a session, in the order of its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// Nothing has been cloned yet.
    Starting,
    /// The child exists and prepares itself.
    Spawned,
    /// The child waits at the gate.
    Ready,
    Running,
    Exited,
    Signaled,
    /// Aborted at the gate; the program never ran.
    Aborted,
    /// The program could not be started, or its end is not known.
    Errored,
}

/// How a session was created.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    Spawn,
    /// In the namespaces, the root and the cgroups of another session.
    Enter,
}

/// How a session ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SessionResult {
    /// With this code.
    Exited(i32),
    /// By this OS signal.
    Signaled(i32),
    /// At the gate.
    Aborted,
    /// The program could not be started, or its end is not known.
    Error(Failure),
}

impl SessionResult {
    /// Returns whether the shim was lost, so that somebody else wrote the record of this end.
    #[must_use]
    pub fn shim_was_lost(&self) -> bool {
        match self {
            Self::Error(failure) => matches!(failure.stage.as_str(), Failure::SHIM | Failure::BOOT | Failure::HELLO),
            Self::Exited(_) | Self::Signaled(_) | Self::Aborted => false,
        }
    }
}

/// A failed system call or step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// The system call, or the step of the launch: `execve`, `chdir`, `shim`, `boot`, `hello`.
    pub stage: String,
    pub errno: String,
    pub code: i32,
}

impl Failure {
    /// The stage of a session whose shim is gone,
    pub const SHIM: &str = "shim";
    /// whose machine went down,
    pub const BOOT: &str = "boot";
    /// and whose socket answers, but not as a shim does.
    pub const HELLO: &str = "hello";
}

/// The state of a session that `info` shows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    pub mode: Mode,
    pub stage: Stage,
    /// The program's OS pid; absent before it was spawned, kept after the end.
    pub host_pid: Option<i32>,
    /// The pid that the program sees as its own; absent before it was ready. In a PID namespace of its own it is 2 with
    /// Relive's init and 1 without.
    pub child_pid: Option<i32>,
    /// The OS pid of the init, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub init_pid: Option<i32>,
    pub pty: bool,
    pub result: Option<SessionResult>,
}

impl Snapshot {
    /// Updates the state after the end.
    pub fn end(&mut self, record: &ExitRecord) {
        self.stage = match record.result {
            SessionResult::Exited(_) => Stage::Exited,
            SessionResult::Signaled(_) => Stage::Signaled,
            SessionResult::Aborted => Stage::Aborted,
            SessionResult::Error(_) => Stage::Errored,
        };
        (self.host_pid, self.child_pid) = (record.host_pid, record.child_pid);
        self.result = Some(record.result.clone());
    }
}

/// Compact: `<spawn running host=12345 pty>`, `<spawn exited(0) host=12345>`, `<spawn errored(execve/2) host=12345>`.
impl fmt::Display for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.mode {
            Mode::Spawn => f.write_str("<spawn ")?,
            Mode::Enter => f.write_str("<enter ")?,
        }
        match (&self.result, self.stage) {
            (Some(SessionResult::Exited(code)), _) => write!(f, "exited({code})")?,
            (Some(SessionResult::Signaled(number)), _) => write!(f, "signaled({number})")?,
            (Some(SessionResult::Aborted), _) => f.write_str("aborted")?,
            (Some(SessionResult::Error(failure)), _) => write!(f, "errored({}/{})", failure.stage, failure.code)?,
            (None, stage) => f.write_str(stage.name())?,
        }
        if let Some(pid) = self.host_pid {
            write!(f, " host={pid}")?;
        }
        f.write_str(if self.pty { " pty>" } else { ">" })
    }
}

impl SessionResult {
    /// Returns the stage of a session that ended like this.
    #[must_use]
    pub fn stage(&self) -> Stage {
        match self {
            Self::Exited(_) => Stage::Exited,
            Self::Signaled(_) => Stage::Signaled,
            Self::Aborted => Stage::Aborted,
            Self::Error(_) => Stage::Errored,
        }
    }
}

impl Stage {
    /// Returns whether no stage follows.
    #[must_use]
    pub fn is_terminal(self) -> bool {
        match self {
            Self::Starting | Self::Spawned | Self::Ready | Self::Running => false,
            Self::Exited | Self::Signaled | Self::Aborted | Self::Errored => true,
        }
    }

    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Spawned => "spawned",
            Self::Ready => "ready",
            Self::Running => "running",
            Self::Exited => "exited",
            Self::Signaled => "signaled",
            Self::Aborted => "aborted",
            Self::Errored => "errored",
        }
    }
}
