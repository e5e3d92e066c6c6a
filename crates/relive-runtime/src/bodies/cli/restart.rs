//! Whether the program of a CLI agent is started again after it has crashed: pure.

use std::time::Duration;

use relive_core::{End, ProcessStatus, Timestamp, Why};
use relive_journal::history::CliFacts;

/// How often a program is started again within the time that counts.
pub(super) const RESTARTS_MAX: usize = 3;
pub(super) const RESTARTS_WITHIN: Duration = Duration::from_secs(600);

/// What is known of a program that has ended, although nobody told it to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Crash {
    /// Whether it was in the middle of a turn.
    pub(super) in_turn: bool,
    /// Whether a signal ended it that Relive did not send.
    pub(super) by_signal: bool,
    /// Whether there are messages that it began no turn with.
    pub(super) has_unheard: bool,
}

impl Crash {
    /// Returns the crash by which a program ended; `None` if somebody or something else ended it.
    pub(super) fn of(end: &End, in_turn: bool, facts: &CliFacts) -> Option<Self> {
        let by_signal = match end.status {
            ProcessStatus::Killed { .. } => true,
            ProcessStatus::Exited { .. } => false,
            ProcessStatus::Abandoned | ProcessStatus::Faulted { .. } | ProcessStatus::StartupFailed { .. } => {
                return None;
            }
        };
        match end.cause.map(|cause| cause.why) {
            None | Some(Why::Oom | Why::ShimLost) => {
                Some(Self { in_turn, by_signal, has_unheard: facts.has_unheard() })
            }
            Some(
                Why::User
                | Why::Parent
                | Why::Timeout
                | Why::Budget
                | Why::Idle
                | Why::Stalled
                | Why::Limit
                | Why::Supervisor
                | Why::DaemonStop
                | Why::HostLost
                | Why::Aborted,
            ) => None,
        }
    }

    /// Tells whether the program had something to do, so that another one has to do it. One that exits by itself before it
    /// begins a turn would do so again.
    pub(super) fn leaves_work(self) -> bool {
        self.in_turn || (self.by_signal && self.has_unheard)
    }

    /// Tells whether another program is started in its place.
    pub(super) fn is_repaired(self, restarts: &[Timestamp], now: Timestamp) -> bool {
        let is_recent = |at: &&Timestamp| {
            let ago = Duration::try_from(now.duration_since(**at)).unwrap_or_default();
            ago < RESTARTS_WITHIN
        };
        self.leaves_work() && restarts.iter().filter(is_recent).count() < RESTARTS_MAX
    }
}

#[cfg(test)]
mod tests {
    use relive_core::{Cause, Signal};

    use super::*;

    const IN_TURN: Crash = Crash { in_turn: true, by_signal: false, has_unheard: false };

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn a_program_is_started_again_three_times_in_ten_minutes() {
        let check = |restarts: &[i64], now, expect| {
            let restarts: Vec<Timestamp> = restarts.iter().copied().map(at).collect();
            assert_eq!(IN_TURN.is_repaired(&restarts, at(now)), expect, "{restarts:?} {now}");
        };
        check(&[], 0, true);
        check(&[1, 2], 3, true);
        check(&[1, 2, 3], 4, false);
        check(&[1, 2, 3], 600, false);
        check(&[1, 2, 3], 601, true);
        // The clock was set back.
        check(&[900, 901, 902], 5, false);
    }

    #[test]
    fn a_program_without_work_is_not_started_again() {
        let check = |in_turn, by_signal, has_unheard, expect| {
            let crash = Crash { in_turn, by_signal, has_unheard };
            assert_eq!(crash.is_repaired(&[], at(0)), expect, "{crash:?}");
        };
        check(true, false, false, true);
        check(true, true, false, true);
        check(false, true, true, true);
        check(false, true, false, false);
        check(false, false, true, false);
        check(false, false, false, false);
    }

    #[test]
    fn an_end_that_somebody_asked_for_is_no_crash() {
        let facts = super::super::agents::tests::facts("claude", None, None);
        let check = |why: Option<Why>, expect| {
            let status = ProcessStatus::Killed { signal: Signal::Kill.into() };
            let end = End { cause: why.map(Cause::runtime), ..End::of(status) };
            assert_eq!(Crash::of(&end, true, &facts).is_some(), expect, "{why:?}");
        };
        check(None, true);
        check(Some(Why::ShimLost), true);
        check(Some(Why::Oom), true);
        for why in [Why::User, Why::Parent, Why::Timeout, Why::Budget, Why::Idle, Why::Stalled, Why::DaemonStop] {
            check(Some(why), false);
        }
        let unstarted = ProcessStatus::StartupFailed { stage: String::new(), errno: String::new(), code: 2 };
        assert_eq!(Crash::of(&End::of(unstarted), true, &facts), None);
    }
}
