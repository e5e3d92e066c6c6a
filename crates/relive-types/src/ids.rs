//! The ids of a process: UUID, PID, generation.
//!
//! The UUID identifies a process for ever and its journal belongs to it. PID and generation identify one *incarnation*,
//! one run of the process. A PID is never used twice, so it identifies its incarnation for ever.

use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
pub use uuid::Uuid;

/// A process id: a small integer, never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Pid(pub u32);

impl Pid {
    /// PID 0, the parent of every process that has no other.
    pub const RUNTIME: Self = Self(0);
}

impl fmt::Display for Pid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Counts the incarnations of a process, from 1. In the journal it is the epoch of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Generation(pub u32);

impl Generation {
    /// Returns the generation after this one.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

impl fmt::Display for Generation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// One run of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Incarnation {
    /// Never used by another incarnation.
    pub pid: Pid,
    /// Larger than that of every earlier incarnation of the process.
    pub generation: Generation,
}

impl fmt::Display for Incarnation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.pid, self.generation)
    }
}

/// Builds a version 7 UUID from a moment and ten random bytes.
#[must_use]
pub fn uuid_v7(at: Timestamp, random: [u8; 10]) -> Uuid {
    let millis = u64::try_from(at.as_millisecond()).unwrap_or(0);
    uuid::Builder::from_unix_timestamp_millis(millis, &random).into_uuid()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uuids_are_version_7_and_sort_by_time() {
        let at = |ms| Timestamp::from_millisecond(ms).unwrap();
        let early = uuid_v7(at(1_000), [0xff; 10]);
        let late = uuid_v7(at(1_001), [0; 10]);
        assert_eq!(early.get_version_num(), 7);
        assert!(early < late);
        assert_eq!(uuid_v7(at(-5), [0; 10]).get_version_num(), 7);
    }
}
