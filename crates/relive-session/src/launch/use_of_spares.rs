//! Whether spares are of use on this machine.

use std::time::{Duration, Instant};

/// After so many spares in a row that were of no use none is started for a while.
const USELESS_MAX: u32 = 3;
/// How long none is started at first,
const PAUSE: Duration = Duration::from_secs(30);
/// and at most: it doubles with each further one that was of no use.
const PAUSE_MAX: Duration = Duration::from_secs(600);

/// What became of the last spares.
#[derive(Debug, Default)]
pub(super) struct UseOfSpares {
    /// How many in a row were of no use.
    useless: u32,
    not_before: Option<Instant>,
}

impl UseOfSpares {
    pub(super) fn was_of_use(&mut self) {
        *self = Self::default();
    }

    pub(super) fn was_of_no_use(&mut self, now: Instant) {
        self.useless = self.useless.saturating_add(1);
        if let Some(more) = self.useless.checked_sub(USELESS_MAX) {
            let pause = PAUSE.saturating_mul(2_u32.saturating_pow(more)).min(PAUSE_MAX);
            self.not_before = Some(now + pause);
        }
    }

    /// Returns whether another one may be started.
    pub(super) fn may_start(&self, now: Instant) -> bool {
        self.not_before.is_none_or(|moment| now >= moment)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn useless_ones_are_tried_again_after_a_pause_that_grows_and_is_bounded() {
        let (mut spares, mut now) = (UseOfSpares::default(), Instant::now());
        for _ in 1..USELESS_MAX {
            spares.was_of_no_use(now);
            assert!(spares.may_start(now));
        }
        for pause in [PAUSE, PAUSE * 2, PAUSE * 4, PAUSE * 8, PAUSE * 16, PAUSE_MAX, PAUSE_MAX] {
            spares.was_of_no_use(now);
            let pause = pause.min(PAUSE_MAX);
            assert!(!spares.may_start(now + pause - Duration::from_millis(1)));
            now += pause;
            assert!(spares.may_start(now));
        }
        for _ in 0..100 {
            spares.was_of_no_use(now);
        }
        assert!(spares.may_start(now + PAUSE_MAX));
        spares.was_of_use();
        assert!(spares.may_start(now));
    }
}
