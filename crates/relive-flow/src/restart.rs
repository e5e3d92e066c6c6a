//! When something that ended is started again, and when that has happened too often.

use serde::{Deserialize, Serialize};

/// Which ends start a child again. An end that a person asked for never does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Policy {
    /// Every end.
    #[default]
    Permanent,
    /// A failure.
    Transient,
    /// None.
    Temporary,
}

impl Policy {
    pub(crate) const WORDS: [(&'static str, Self); 3] =
        [("permanent", Self::Permanent), ("transient", Self::Transient), ("temporary", Self::Temporary)];

    /// Tells whether a child that ended by itself is started again.
    #[must_use]
    pub fn restarts(self, succeeded: bool) -> bool {
        match self {
            Self::Permanent => true,
            Self::Transient => !succeeded,
            Self::Temporary => false,
        }
    }
}

/// Which children are restarted with one that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Strategy {
    /// It alone.
    #[default]
    OneForOne,
    /// All that run.
    OneForAll,
    /// Those that run and come after it in the file.
    RestForOne,
}

impl Strategy {
    pub(crate) const WORDS: [(&'static str, Self); 3] = [
        (Self::OneForOne.word(), Self::OneForOne),
        (Self::OneForAll.word(), Self::OneForAll),
        (Self::RestForOne.word(), Self::RestForOne),
    ];

    /// Returns the word in the file.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::OneForOne => "one_for_one",
            Self::OneForAll => "one_for_all",
            Self::RestForOne => "rest_for_one",
        }
    }

    /// Tells whether the restart of one child restarts another one, by their places in the file.
    #[must_use]
    pub fn takes_along(self, failed: usize, other: usize) -> bool {
        match self {
            Self::OneForOne => false,
            Self::OneForAll => failed != other,
            Self::RestForOne => other > failed,
        }
    }
}

/// How many restarts are too many.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Intensity {
    /// The most restarts within the window.
    pub max_restarts: u32,
    pub within_ms: u64,
}

impl Default for Intensity {
    fn default() -> Self {
        Self { max_restarts: 5, within_ms: 60_000 }
    }
}

impl Intensity {
    /// Adds a restart to those of the window; `None` if it is one too many.
    #[must_use]
    pub fn admit(self, restarts: &[u64], now_ms: u64) -> Option<Vec<u64>> {
        // A clock that was set back does not keep old restarts for ever.
        let counts = |at: &&u64| **at <= now_ms && now_ms - **at < self.within_ms;
        let mut window: Vec<u64> = restarts.iter().filter(counts).copied().collect();
        if window.len() >= self.max_restarts as usize {
            return None;
        }
        window.push(now_ms);
        Some(window)
    }
}

/// How long to wait before something is started again: longer each time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Backoff {
    /// Before the first time. It doubles with each further one.
    pub first_ms: u64,
    pub max_ms: u64,
}

impl Backoff {
    pub(crate) const LONGEST_MS: u64 = 60_000;

    /// Returns a backoff whose waits grow up to a minute, or stay at `first_ms` if that is longer.
    #[must_use]
    pub fn from_first(first_ms: u64) -> Self {
        Self { first_ms, max_ms: first_ms.max(Self::LONGEST_MS) }
    }

    /// Returns the wait before the n-th time, which is counted from 1.
    #[must_use]
    pub fn delay_ms(self, time: u32) -> u64 {
        let factor = 1_u64.checked_shl(time.saturating_sub(1)).unwrap_or(u64::MAX);
        self.first_ms.saturating_mul(factor).min(self.max_ms)
    }
}

impl Default for Backoff {
    fn default() -> Self {
        Self::from_first(100)
    }
}

/// How one child is kept running.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Restart {
    pub policy: Policy,
    /// Starts a new process each time, instead of resuming the one that ended.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub fresh: bool,
    #[serde(default)]
    pub intensity: Intensity,
    #[serde(default)]
    pub backoff: Backoff,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_end_under_every_policy() {
        let table: Vec<(Policy, bool, bool)> = vec![
            (Policy::Permanent, true, true),
            (Policy::Permanent, false, true),
            (Policy::Transient, true, false),
            (Policy::Transient, false, true),
            (Policy::Temporary, true, false),
            (Policy::Temporary, false, false),
        ];
        for (policy, succeeded, restarts) in table {
            assert_eq!(policy.restarts(succeeded), restarts, "{policy:?} {succeeded}");
        }
    }

    #[test]
    fn restarts_leave_the_window_and_one_too_many_is_refused() {
        let intensity = Intensity { max_restarts: 2, within_ms: 100 };
        let window = intensity.admit(&[], 1000).unwrap();
        let window = intensity.admit(&window, 1050).unwrap();
        assert_eq!(intensity.admit(&window, 1099), None);
        assert_eq!(intensity.admit(&window, 1100), Some(vec![1050, 1100]));
        assert_eq!(Intensity { max_restarts: 0, within_ms: 100 }.admit(&[], 1), None);
    }

    #[test]
    fn waits_double_up_to_the_longest() {
        let backoff = Backoff { first_ms: 100, max_ms: 1000 };
        let waits: Vec<u64> = (1..7).map(|time| backoff.delay_ms(time)).collect();
        assert_eq!(waits, [100, 200, 400, 800, 1000, 1000]);
        assert_eq!(backoff.delay_ms(u32::MAX), 1000);
        assert_eq!(Backoff::from_first(0).delay_ms(9), 0);
    }
}
