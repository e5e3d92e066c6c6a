//! Signals: their names, numbers and sets.

use std::borrow::Cow;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::os_signal::OsSignal;

/// A signal. The numbers are Relive's own, not the operating system's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[repr(u8)]
pub enum Signal {
    /// Asks the process to end; KILL follows after the grace period.
    #[serde(rename = "SIGTERM")]
    Term = 1,
    /// Ends the process now. Cannot be blocked or handled.
    #[serde(rename = "SIGKILL")]
    Kill = 2,
    /// Sent by Ctrl-C.
    #[serde(rename = "SIGINT")]
    Int = 3,
    /// Pauses the process at its next boundary.
    #[serde(rename = "SIGPAUSE")]
    Pause = 4,
    /// Resumes the process.
    #[serde(rename = "SIGRESUME")]
    Resume = 5,
}

impl Signal {
    /// Every signal, in the order of their numbers.
    pub const ALL: [Self; 5] = [Self::Term, Self::Kill, Self::Int, Self::Pause, Self::Resume];

    /// Every signal that can be pending, in order of delivery.
    pub const LANDING_ORDER: [Self; 4] = [Self::Term, Self::Int, Self::Pause, Self::Resume];

    /// Returns the name with its prefix: `SIGTERM`.
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

    /// Finds a signal by its name, with or without `SIG`, in either case. Numbers are not names.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        let upper = name.to_ascii_uppercase();
        let bare = upper.strip_prefix("SIG").unwrap_or(&upper);
        Self::ALL.into_iter().find(|signal| &signal.name()[3..] == bare)
    }

    /// Returns the signal that this one cancels while it is pending: PAUSE and RESUME cancel each other.
    #[must_use]
    pub fn opposite(self) -> Option<Self> {
        match self {
            Self::Pause => Some(Self::Resume),
            Self::Resume => Some(Self::Pause),
            Self::Term | Self::Kill | Self::Int => None,
        }
    }
}

impl fmt::Display for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A set of signals that can be blocked or handled. KILL is never in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SignalSet(u8);

impl SignalSet {
    /// The set without a signal.
    pub const EMPTY: Self = Self(0);

    /// Returns the set with this signal added. KILL is never added.
    #[must_use]
    pub fn with(self, signal: Signal) -> Self {
        match signal {
            Signal::Kill => self,
            Signal::Term | Signal::Int | Signal::Pause | Signal::Resume => Self(self.0 | Self::bit(signal)),
        }
    }

    /// Returns the set without this signal.
    #[must_use]
    pub fn without(self, signal: Signal) -> Self {
        Self(self.0 & !Self::bit(signal))
    }

    /// Returns whether the signal is in the set.
    #[must_use]
    pub fn contains(self, signal: Signal) -> bool {
        self.0 & Self::bit(signal) != 0
    }

    /// Returns whether the set has no signal.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    fn bit(signal: Signal) -> u8 {
        1 << (signal as u8)
    }
}

impl FromIterator<Signal> for SignalSet {
    fn from_iter<I: IntoIterator<Item = Signal>>(signals: I) -> Self {
        signals.into_iter().fold(Self::EMPTY, Self::with)
    }
}

/// The signal that killed a process: one of Relive's, or one of the operating system's.
///
/// In JSON `{"signal":"SIGTERM"}` for Relive's; the operating system's adds its number, `"os_signal":15`, because
/// only then `wait` exits with 128+n.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(into = "KillSignalJson", try_from = "KillSignalJson")]
pub enum KillSignal {
    /// The body stopped because Relive told it to.
    Relive(Signal),
    /// The operating system killed the program with its signal of this number.
    Os(u8),
}

impl KillSignal {
    /// Returns the name with its prefix: `SIGTERM`, `SIGSEGV`.
    #[must_use]
    pub fn name(self) -> Cow<'static, str> {
        match self {
            Self::Relive(signal) => Cow::Borrowed(signal.name()),
            Self::Os(number) => os_signal_name(number),
        }
    }
}

impl From<Signal> for KillSignal {
    fn from(signal: Signal) -> Self {
        Self::Relive(signal)
    }
}

#[derive(Serialize, Deserialize)]
struct KillSignalJson {
    signal: Cow<'static, str>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    os_signal: Option<u8>,
}

impl From<KillSignal> for KillSignalJson {
    fn from(signal: KillSignal) -> Self {
        let os_signal = match signal {
            KillSignal::Relive(_) => None,
            KillSignal::Os(number) => Some(number),
        };
        Self { signal: signal.name(), os_signal }
    }
}

impl TryFrom<KillSignalJson> for KillSignal {
    type Error = String;

    fn try_from(json: KillSignalJson) -> Result<Self, String> {
        match json.os_signal {
            Some(number) => Ok(Self::Os(number)),
            None => Signal::ALL
                .into_iter()
                .find(|signal| signal.name() == json.signal)
                .map(Self::Relive)
                .ok_or_else(|| format!("`{}` is not a signal", json.signal)),
        }
    }
}

/// Returns the name for a status, in which realtime signals have always been numbers.
fn os_signal_name(number: u8) -> Cow<'static, str> {
    let named = OsSignal::from_number(number).filter(|signal| !signal.is_realtime());
    named.map_or_else(|| Cow::Owned(format!("signal {number}")), OsSignal::name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signal_names_are_parsed_in_any_case_and_numbers_are_not_names() {
        for signal in Signal::ALL {
            let bare = signal.name().trim_start_matches("SIG");
            for spelling in [signal.name(), bare, &bare.to_lowercase(), &signal.name().to_lowercase()] {
                assert_eq!(Signal::from_name(spelling), Some(signal), "{spelling}");
            }
        }
        for bad in ["", "SIG", "9", "15", "HUP", "SIGSIGTERM"] {
            assert_eq!(Signal::from_name(bad), None, "{bad}");
        }
    }
}
