//! The time limit of a program. Its owner counts as well, and takes precedence: this one is for the time without an
//! owner.

use std::time::{Duration, Instant};

/// How long a program may take to end once it was asked to.
const GRACE: Duration = Duration::from_secs(10);

/// The state of the time limit. It does not count while the tree is frozen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Deadline {
    #[default]
    None,
    At(Instant),
    /// Frozen, with this much time left.
    Held(Duration),
    /// It was asked to end, and is killed then.
    Grace(Instant),
    Over,
}

/// The action that is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Due {
    Term,
    Kill,
}

impl Deadline {
    pub(super) fn of(left: Option<Duration>, now: Instant) -> Self {
        // A time that no clock can represent is no limit.
        left.and_then(|left| now.checked_add(left)).map_or(Self::None, Self::At)
    }

    /// Sets the remaining time. A limit that was reached stays reached.
    pub(super) fn set(&mut self, left: Option<Duration>, now: Instant) {
        *self = match (*self, left) {
            (Self::None | Self::At(_), left) => Self::of(left, now),
            (Self::Held(_), Some(left)) => Self::Held(left),
            (Self::Held(_), None) => Self::None,
            (up @ (Self::Grace(_) | Self::Over), _) => up,
        };
    }

    pub(super) fn hold(&mut self, now: Instant) {
        if let Self::At(at) = *self {
            *self = Self::Held(at.saturating_duration_since(now));
        }
    }

    pub(super) fn release(&mut self, now: Instant) {
        if let Self::Held(left) = *self {
            *self = Self::of(Some(left), now);
        }
    }

    /// Returns when an action is due.
    pub(super) fn next(self) -> Option<Instant> {
        match self {
            Self::At(at) | Self::Grace(at) => Some(at),
            Self::None | Self::Held(_) | Self::Over => None,
        }
    }

    /// Returns the action that is due now.
    pub(super) fn take(&mut self, now: Instant) -> Option<Due> {
        match *self {
            Self::At(at) if at <= now => {
                *self = Self::Grace(now + GRACE);
                Some(Due::Term)
            }
            Self::Grace(at) if at <= now => {
                *self = Self::Over;
                Some(Due::Kill)
            }
            Self::None | Self::At(_) | Self::Held(_) | Self::Grace(_) | Self::Over => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_program_is_asked_to_end_and_killed_after_the_grace() {
        let now = Instant::now();
        let mut deadline = Deadline::of(Some(SECOND), now);
        assert_eq!(deadline.take(now), None);
        assert_eq!(deadline.take(now + SECOND), Some(Due::Term));
        assert_eq!(deadline.take(now + SECOND * 2), None);
        deadline.set(None, now + SECOND * 3);
        assert_eq!(deadline.take(now + SECOND + GRACE), Some(Due::Kill));
        assert_eq!((deadline.take(now + GRACE * 3), deadline.next()), (None, None));
    }

    #[test]
    fn the_time_limit_does_not_count_while_the_tree_is_frozen() {
        let now = Instant::now();
        let mut deadline = Deadline::of(Some(SECOND * 3), now);
        deadline.hold(now + SECOND);
        assert_eq!((deadline.next(), deadline.take(now + GRACE)), (None, None));
        deadline.release(now + GRACE);
        assert_eq!(deadline.next(), Some(now + GRACE + SECOND * 2));
        deadline.hold(now + GRACE);
        deadline.set(Some(SECOND * 9), now + GRACE);
        assert_eq!(deadline, Deadline::Held(SECOND * 9));
        deadline.set(None, now);
        assert_eq!(deadline, Deadline::None);
    }
}
