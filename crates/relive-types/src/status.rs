//! How a process ended, who ended it and why; and why a process is suspended.
//!
//! The status is typed; `why` is a field of its own. The plain view (code, reason, err) and the exit code of
//! `wait`, `run` and `exec` are computed from an [`End`] and stored nowhere. The table of causes is the test below.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::ids::Pid;
use crate::signal::{KillSignal, Signal};

/// The fault of a process that reached its limit of steps.
pub const MAX_STEPS_EXCEEDED: &str = "max steps exceeded";

/// The reason of a process that had nothing left to spend.
pub const BUDGET_EXCEEDED: &str = "budget_exceeded";

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
    /// It finished by itself.
    Exited {
        /// 0 is success.
        code: i32,
    },
    /// It gave itself up.
    Abandoned,
    /// A person, another process, Relive or the operating system ended it.
    Killed {
        /// The signal that did it.
        #[serde(flatten)]
        signal: KillSignal,
    },
    /// The model, the agent loop or a panic made it fail.
    Faulted {
        /// Empty after an unexpected exit.
        fault: String,
    },
    /// It never ran.
    StartupFailed {
        /// The system call or the stage of the launch that failed.
        stage: String,
        /// The name of the error, such as `ENOENT`.
        errno: String,
        /// The number of the error.
        code: i32,
    },
}

/// Why a process was ended. Absent from an end that nobody caused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Why {
    User,
    Parent,
    Timeout,
    Budget,
    Idle,
    Stalled,
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
pub enum SuspendReason {
    User,
    BudgetExceeded,
    DiskFull,
    IoError,
    CrashLoop,
    InDoubt,
    Approval,
    Question,
    Quota,
    NeedsCredentials,
    DaemonStop,
    Stalled,
}

impl SuspendReason {
    /// Returns whether a process that is suspended for this reason waits for a person's answer, which alone ends the
    /// suspension: a RESUME is not an answer.
    #[must_use]
    pub fn awaits_answer(self) -> bool {
        match self {
            Self::InDoubt | Self::Approval | Self::Question => true,
            Self::User
            | Self::BudgetExceeded
            | Self::DiskFull
            | Self::IoError
            | Self::CrashLoop
            | Self::Quota
            | Self::NeedsCredentials
            | Self::DaemonStop
            | Self::Stalled => false,
        }
    }

    /// Returns whether a suspension for this reason ends without a RESUME: with an answer, or when the reason is gone. A
    /// PAUSE that comes meanwhile is kept until then; otherwise the process would run although somebody has paused it.
    #[must_use]
    pub fn ends_without_resume(self) -> bool {
        match self {
            Self::InDoubt
            | Self::Approval
            | Self::Question
            | Self::Quota
            | Self::NeedsCredentials
            | Self::DaemonStop => true,
            Self::User | Self::BudgetExceeded | Self::DiskFull | Self::IoError | Self::CrashLoop | Self::Stalled => {
                false
            }
        }
    }
}

/// Who ended a process and why.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cause {
    pub why: Why,
    /// The process that asked; [`Pid::RUNTIME`] if it was a person or the runtime itself.
    pub by: Pid,
    /// The root of the process tree, if a whole tree was signalled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub root: Option<Pid>,
}

impl Cause {
    /// Creates the cause of an end that a person or the runtime asked for.
    #[must_use]
    pub fn runtime(why: Why) -> Self {
        Self { why, by: Pid::RUNTIME, root: None }
    }

    /// Creates the cause of an end that a process asked for.
    #[must_use]
    pub fn process(why: Why, by: Pid) -> Self {
        Self { why, by, root: None }
    }
}

/// The end of a process: everything the plain view and the exit code are computed from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct End {
    /// How it ended.
    pub status: ProcessStatus,
    /// Absent if nobody ended it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<Cause>,
    /// Whether it was suspended when it ended.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub while_paused: bool,
    /// Names the limit in words, if `why` is [`Why::Limit`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<Box<str>>,
    /// Why, in the words of the process itself, if it said so when it ended itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Box<str>>,
    /// The signal that asked it to end, if it then ended in another way than by that signal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sent_signal: Option<Signal>,
}

/// The plain view of an end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Exit<'a> {
    /// 0 is success.
    pub code: i32,
    /// A few words for people.
    pub reason: Cow<'a, str>,
    /// The underlying error, if there is one.
    pub err: Option<Cow<'a, str>>,
}

impl End {
    /// Creates an end that nobody caused.
    #[must_use]
    pub fn of(status: ProcessStatus) -> Self {
        Self { status, cause: None, while_paused: false, limit: None, reason: None, sent_signal: None }
    }

    /// Returns why it was ended, if somebody ended it.
    #[must_use]
    pub fn why(&self) -> Option<Why> {
        self.cause.map(|cause| cause.why)
    }

    /// Computes the plain view.
    #[must_use]
    pub fn exit(&self) -> Exit<'_> {
        let failed = |reason: Cow<'static, str>| Exit { code: 1, reason, err: None };
        match &self.status {
            ProcessStatus::Exited { code } => {
                let usual = if *code == 0 { "completed" } else { "exited" };
                Exit { code: *code, reason: self.reason.as_deref().unwrap_or(usual).into(), err: None }
            }
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
            Some(Why::Budget) => BUDGET_EXCEEDED.into(),
            Some(Why::Oom) => "out of memory".into(),
            Some(Why::Limit) => self.limit.as_deref().unwrap_or("limit exceeded").into(),
            Some(Why::Timeout) => "timed out".into(),
            Some(Why::Idle) => "idle".into(),
            Some(Why::Stalled) => "stalled".into(),
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

    /// Computes the exit code of `wait`, `run` and `exec`.
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
