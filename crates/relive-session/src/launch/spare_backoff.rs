//! Whether a spare shim may be started: not for a while after several in a row could not be used.

use std::time::{Duration, Instant};

/// After this many failures in a row no spare is started for a while.
const FAILURES_MAX: u32 = 3;
/// How long no spare is started at first,
const PAUSE: Duration = Duration::from_secs(30);
/// and at most: it doubles with each further failure.
const PAUSE_MAX: Duration = Duration::from_secs(600);

/// How many of the latest spares could not be used.
#[derive(Debug, Default)]
pub(super) struct SpareBackoff {
    /// The number of failures in a row.
    failures: u32,
    not_before: Option<Instant>,
}

impl SpareBackoff {
    pub(super) fn succeeded(&mut self) {
        *self = Self::default();
    }

    pub(super) fn failed(&mut self, now: Instant) {
        self.failures = self.failures.saturating_add(1);
        if let Some(more) = self.failures.checked_sub(FAILURES_MAX) {
            let pause = PAUSE.saturating_mul(2_u32.saturating_pow(more)).min(PAUSE_MAX);
            self.not_before = Some(now + pause);
        }
    }

    /// Returns whether a spare may be started.
    pub(super) fn may_start(&self, now: Instant) -> bool {
        self.not_before.is_none_or(|moment| now >= moment)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spares_are_tried_again_after_a_pause_that_grows_and_is_bounded() {
        let (mut spares, mut now) = (SpareBackoff::default(), Instant::now());
        for _ in 1..FAILURES_MAX {
            spares.failed(now);
            assert!(spares.may_start(now));
        }
        for pause in [PAUSE, PAUSE * 2, PAUSE * 4, PAUSE * 8, PAUSE * 16, PAUSE_MAX, PAUSE_MAX] {
            spares.failed(now);
            let pause = pause.min(PAUSE_MAX);
            assert!(!spares.may_start(now + pause - Duration::from_millis(1)));
            now += pause;
            assert!(spares.may_start(now));
        }
        for _ in 0..100 {
            spares.failed(now);
        }
        assert!(spares.may_start(now + PAUSE_MAX));
        spares.succeeded();
        assert!(spares.may_start(now));
    }
}
