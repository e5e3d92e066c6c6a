//! The limits of a process, and amounts of money.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// An amount of dollars, counted in billionths so that sums are exact. In JSON a plain number of dollars.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Usd {
    nanos: u64,
}

impl Usd {
    /// Creates an amount from billionths of a dollar.
    #[must_use]
    pub fn from_nanos(nanos: u64) -> Self {
        Self { nanos }
    }

    /// Returns the amount in billionths of a dollar.
    #[must_use]
    pub fn nanos(self) -> u64 {
        self.nanos
    }

    /// Creates an amount from dollars; `None` if the number is negative or not finite.
    #[must_use]
    pub fn from_dollars(dollars: f64) -> Option<Self> {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked; `as` saturates")]
        (dollars >= 0.0 && dollars.is_finite()).then(|| Self { nanos: (dollars * 1e9).round() as u64 })
    }

    /// Adds, saturating at the largest amount.
    #[must_use]
    pub fn saturating_add(self, other: Self) -> Self {
        Self { nanos: self.nanos.saturating_add(other.nanos) }
    }
}

impl fmt::Display for Usd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:09}", self.nanos / 1_000_000_000, self.nanos % 1_000_000_000)
    }
}

impl Serialize for Usd {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[expect(clippy::cast_precision_loss, reason = "exact below nine million dollars")]
        serializer.serialize_f64(self.nanos as f64 / 1e9)
    }
}

impl<'de> Deserialize<'de> for Usd {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let dollars = f64::deserialize(deserializer)?;
        Self::from_dollars(dollars).ok_or_else(|| serde::de::Error::custom("an amount of dollars must be zero or more"))
    }
}

/// One of the limits of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LimitKind {
    MaxSteps,
    Timeout,
    MaxTokens,
    MaxCost,
}

/// The limits of a process. An absent field means no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Limits {
    /// Steps, counted from the beginning of the journal over all incarnations.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_steps: Option<u32>,
    /// Input and output tokens together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_cost_usd: Option<Usd>,
    /// Execution time, without pauses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dollars_survive_json_to_the_last_digit() {
        for nanos in [0, 1, 999_999_999, 1_000_000_001, 123_456_789_012] {
            let text = serde_json::to_string(&Usd::from_nanos(nanos)).unwrap();
            assert_eq!(serde_json::from_str::<Usd>(&text).unwrap().nanos(), nanos, "{text}");
        }
        for bad in ["-1", "1e999", "\"1\""] {
            assert!(serde_json::from_str::<Usd>(bad).is_err(), "{bad}");
        }
    }
}
