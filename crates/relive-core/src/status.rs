//! How a process ended, and why we ended it.
//!
//! The status is typed; `why` is a field of its own. The plain view (code, reason) and the exit code of
//! `wait`, `run` and `exec` are computed from the two and stored nowhere. The table of causes is the test below.

use serde::{Deserialize, Serialize};

use crate::signal::Signal;

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
        signal: Signal,
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
