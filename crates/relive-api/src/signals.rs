//! Signals: sending, blocking and handling them.

use relive_types::{Pid, Uuid};
use serde::{Deserialize, Serialize};

/// A signal, by its name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SignalRequest {
    /// `SIGTERM` and so on; `SIG` may be left out. Programs also know the operating system's signals, such as `SIGHUP`.
    pub signal: String,
    /// Includes all descendants.
    #[serde(default)]
    pub subtree: bool,
}

/// The signals that a process is to block and to handle. An absent set stays as it is.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct SignalMaskRequest {
    /// The signals to block, and no others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocked: Option<Vec<String>>,
    /// Signals that it blocks from now on, beside the others.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub block: Vec<String>,
    /// Signals that it blocks no longer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unblock: Vec<String>,
    /// The signals it handles itself, and no others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handled: Option<Vec<String>>,
    /// A signal that the program which asks handles from now on by a command of its own, beside the others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on: Option<OnSignal>,
    /// Signals that it handles no longer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub off: Vec<String>,
}

/// The command of a program for a signal. The program runs it, for each record `signal_mask` of its journal that has the
/// signal as `delivered`, after the one that has this as `on`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OnSignal {
    pub signal: String,
    /// An id that the program chose.
    pub id: Uuid,
}

/// The signals that a process blocks, handles and has pending.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SignalState {
    pub pid: Pid,
    pub blocked: Vec<String>,
    /// The signals it handles itself.
    pub handled: Vec<String>,
    /// The signals that wait to be unblocked, in the order in which they land.
    pub pending: Vec<String>,
    /// Says that the PID in the request continues as another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}
