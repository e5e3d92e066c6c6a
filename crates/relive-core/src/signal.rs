//! Signals: their names, numbers, and the order in which pending ones land.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A signal. The numbers are Relive's own, not the operating system's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[repr(u8)]
pub enum Signal {
    /// End, in your own time: KILL follows after the grace.
    #[serde(rename = "SIGTERM")]
    Term = 1,
    /// End now. Cannot be blocked or handled.
    #[serde(rename = "SIGKILL")]
    Kill = 2,
    /// What Ctrl-C sends.
    #[serde(rename = "SIGINT")]
    Int = 3,
    /// Stop at the next boundary.
    #[serde(rename = "SIGPAUSE")]
    Pause = 4,
    /// Go on.
    #[serde(rename = "SIGRESUME")]
    Resume = 5,
}

impl Signal {
    /// Every signal, by number.
    pub const ALL: [Self; 5] = [Self::Term, Self::Kill, Self::Int, Self::Pause, Self::Resume];

    /// `SIGTERM` and so on.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Term => "SIGTERM",
            Self::Kill => "SIGKILL",
            Self::Int => "SIGINT",
            Self::Pause => "SIGPAUSE",
            Self::Resume => "SIGRESUME",
        }
    }
}

impl fmt::Display for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
