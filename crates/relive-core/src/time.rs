//! Arithmetic on moments that never fails.

use jiff::{SignedDuration, Timestamp};

/// Returns the milliseconds from one moment to a later one; 0 where the clock went back.
pub(crate) fn millis_between(from: Timestamp, to: Timestamp) -> u64 {
    u64::try_from(to.as_millisecond() - from.as_millisecond()).unwrap_or(0)
}

/// Returns the moment this many milliseconds later, at the latest the last one there is.
pub(crate) fn after(moment: Timestamp, millis: u64) -> Timestamp {
    let millis = i64::try_from(millis).unwrap_or(i64::MAX);
    moment.saturating_add(SignedDuration::from_millis(millis)).unwrap_or(Timestamp::MAX)
}
