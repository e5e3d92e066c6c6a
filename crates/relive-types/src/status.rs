//! How a process ended, and why we ended it.
//!
//! The status is typed; `why` is a field of its own. The plain view (code, reason, err) and the exit code of
//! `wait`, `run` and `exec` are computed from an [`End`] and stored nowhere. The table of causes is the test below.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::ids::Pid;
use crate::signal::KillSignal;

/// The fault of a process that used up its steps.
pub const MAX_STEPS_EXCEEDED: &str = "max steps exceeded";

const FAILED: u8 = 1;
const BUDGET: u8 = 2;
const ABORTED: u8 = 125;
const CANNOT_RUN: u8 = 126;
const NOT_FOUND: u8 = 127;
const SIGNAL_BASE: u8 = 128;
const KILLED_BY_LIMIT: u8 = SIGNAL_BASE + 9;

/// How a process ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum ProcessStatus {
    /// It came to its own end with this code.
    Exited {
        /// 0 is success.
        code: i32,
    },
    /// It gave itself up.
    Abandoned,
    /// Somebody ended it.
    Killed {
        /// With this signal.
        #[serde(flatten)]
        signal: KillSignal,
    },
    /// It failed: model, loop or panic. An empty text is an unexpected exit.
    Faulted {
        /// The error's text.
        fault: String,
    },
    /// It never ran.
    StartupFailed {
        /// What failed: a system call's name, or a stage of the launch.
        stage: String,
        /// The error's name, such as `ENOENT`.
        errno: String,
        /// The error's number.
        code: i32,
    },
}

/// Why we ended it. Absent where nobody did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "each name says it")]
pub enum Why {
    User,
    Parent,
    Timeout,
    Budget,
    Idle,
    Oom,
    Limit,
    Supervisor,
    DaemonStop,
    HostLost,
    ShimLost,
    Aborted,
}

/// Why a process is suspended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "each name says it")]
pub enum SuspendReason {
    User,
    BudgetExceeded,
    DiskFull,
    IoError,
    CrashLoop,
    InDoubt,
    Approval,
    Quota,
    NeedsCredentials,
    DaemonStop,
}

/// Who ended it, why, and where a signal to a whole tree was aimed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cause {
    /// Why.
    pub why: Why,
    /// Which process asked; 0 for the kernel, on its own or for the person who owns it.
    pub by: Pid,
    /// The root of the tree that was signalled, where it was a tree.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub root: Option<Pid>,
}

impl Cause {
    /// By the person, or by the kernel for a reason of its own.
    #[must_use]
    pub fn kernel(why: Why) -> Self {
        Self { why, by: Pid::KERNEL, root: None }
    }

    /// By a process.
    #[must_use]
    pub fn process(why: Why, by: Pid) -> Self {
        Self { why, by, root: None }
    }
}

/// The whole truth about an end: everything the plain view and the exit code are computed from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct End {
    /// How.
    pub status: ProcessStatus,
    /// Who and why, where somebody ended it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<Cause>,
    /// It stood still, suspended, when it ended.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub while_paused: bool,
    /// Which limit, in words, where `why` is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<Box<str>>,
}

/// The plain view of an end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Exit<'a> {
    /// 0 is success.
    pub code: i32,
    /// In a few words.
    pub reason: Cow<'a, str>,
    /// The error below it, where there is one.
    pub err: Option<Cow<'a, str>>,
}

impl End {
    /// An end nobody brought about.
    #[must_use]
    pub fn of(status: ProcessStatus) -> Self {
        Self { status, cause: None, while_paused: false, limit: None }
    }

    /// Why we ended it, if we did.
    #[must_use]
    pub fn why(&self) -> Option<Why> {
        self.cause.map(|cause| cause.why)
    }

    /// The plain view.
    #[must_use]
    pub fn exit(&self) -> Exit<'_> {
        let failed = |reason: Cow<'static, str>| Exit { code: 1, reason, err: None };
        match &self.status {
            ProcessStatus::Exited { code: 0 } => Exit { code: 0, reason: "completed".into(), err: None },
            ProcessStatus::Exited { code } => Exit { code: *code, reason: "exited".into(), err: None },
            ProcessStatus::Abandoned => failed("abandoned".into()),
            ProcessStatus::Killed { signal } => self.exit_of_killed(*signal),
            ProcessStatus::Faulted { fault } if fault.is_empty() => failed("unexpected exit".into()),
            ProcessStatus::Faulted { fault } => Exit { code: 1, reason: fault.into(), err: Some(fault.into()) },
            ProcessStatus::StartupFailed { .. } if self.why() == Some(Why::Aborted) => failed("aborted".into()),
            ProcessStatus::StartupFailed { stage, errno, code } => Exit {
                code: 1,
                reason: format!("{stage}: {errno}").into(),
                err: Some(format!("{stage}: {errno} ({code})").into()),
            },
        }
    }

    fn exit_of_killed(&self, signal: KillSignal) -> Exit<'_> {
        let code = if self.why() == Some(Why::Budget) { 2 } else { 1 };
        let reason = match self.why() {
            Some(Why::Budget) => "budget_exceeded".into(),
            Some(Why::Oom) => "out of memory".into(),
            Some(Why::Limit) => self.limit.as_deref().unwrap_or("limit exceeded").into(),
            Some(Why::Timeout) => "timed out".into(),
            Some(Why::Idle) => "idle".into(),
            Some(Why::Aborted) => "aborted".into(),
            None
            | Some(Why::User | Why::Parent | Why::Supervisor | Why::DaemonStop | Why::HostLost | Why::ShimLost) => {
                if self.while_paused { "context cancelled while paused" } else { "interrupted" }.into()
            }
        };
        let err = match signal {
            KillSignal::Os(_) => Some(format!("ended by {}", signal.name()).into()),
            KillSignal::Relive(_) => None,
        };
        Exit { code, reason, err }
    }

    /// What `wait`, `run` and `exec` exit with.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match &self.status {
            // A code that does not fit is a failure, never a success by accident.
            ProcessStatus::Exited { code } => u8::try_from(*code).unwrap_or(FAILED),
            ProcessStatus::Abandoned | ProcessStatus::Faulted { .. } => FAILED,
            ProcessStatus::Killed { signal } => match (self.why(), signal) {
                (Some(Why::Budget), _) => BUDGET,
                (Some(Why::Oom | Why::Limit), _) => KILLED_BY_LIMIT,
                (_, KillSignal::Os(number)) => SIGNAL_BASE.saturating_add(*number),
                (_, KillSignal::Relive(_)) => FAILED,
            },
            ProcessStatus::StartupFailed { .. } if self.why() == Some(Why::Aborted) => ABORTED,
            ProcessStatus::StartupFailed { stage, errno, .. } if stage == "execve" && errno == "ENOENT" => NOT_FOUND,
            ProcessStatus::StartupFailed { .. } => CANNOT_RUN,
        }
    }
}

#[cfg(test)]
mod tests;
