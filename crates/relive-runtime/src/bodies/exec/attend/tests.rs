//! The orders for a freezer: every combination, whatever its state was before.

use relive_core::Urgency;

use super::*;

fn all_orders(now: Instant) -> Vec<Orders> {
    let mut all = Vec::new();
    for stop in [None, Some(Urgency::Boundary), Some(Urgency::Now)] {
        for end in [None, Some(Signal::Int), Some(Signal::Term), Some(Signal::Kill)] {
            for leave_sessions in [false, true] {
                for deadline in [None, Some(now)] {
                    all.push(Orders { stop, leave_sessions, end, deadline });
                }
            }
        }
    }
    all
}

/// Checks each combination of orders that the filter lets through, and counts them.
fn check(only: impl Fn(&Orders) -> bool, expect: impl Fn(Freezer) -> Option<Wanted>) -> usize {
    let now = Instant::now();
    let (due, later) = (Freezer::Freezing(now), Freezer::Freezing(now + FREEZE_AGAIN));
    let mut checked = 0;
    for orders in all_orders(now).into_iter().filter(only) {
        for freezer in [Freezer::Unknown, Freezer::Thawed, due, later, Freezer::Frozen] {
            let expected =
                if freezer == later { expect(later).filter(|wanted| *wanted == Wanted::Thaw) } else { expect(freezer) };
            assert_eq!(wanted(&orders, freezer, now), expected, "{orders:?}, told {freezer:?}");
            checked += 1;
        }
    }
    checked
}

/// Returns whether only a pause is ordered.
fn is_paused(orders: &Orders) -> bool {
    orders.stop.is_some() && orders.end.is_none() && !orders.leave_sessions
}

#[test]
fn a_pause_freezes_once_and_asks_again_until_all_are_frozen() {
    let expect = |freezer| match freezer {
        Freezer::Frozen => None,
        Freezer::Unknown | Freezer::Thawed | Freezer::Freezing(_) => Some(Wanted::Freeze),
    };
    assert_eq!(check(is_paused, expect), 4 * 5);
}

#[test]
fn without_a_pause_everything_that_may_be_frozen_is_thawed_even_to_end() {
    let expect = |freezer| match freezer {
        Freezer::Thawed => None,
        Freezer::Unknown | Freezer::Freezing(_) | Freezer::Frozen => Some(Wanted::Thaw),
    };
    assert_eq!(check(|orders| !is_paused(orders), expect), 44 * 5);
}

/// Each order is a round trip to the shim while the client waits for its program.
#[test]
fn a_program_that_was_launched_now_is_told_nothing_it_knows() {
    let now = Instant::now();
    for deadline in [None, Some(now)] {
        let (told, freezer) = Beginning::Launched { deadline }.known();
        let orders = Orders { deadline, ..Orders::default() };
        assert_eq!((told, wanted(&orders, freezer, now)), (Some(deadline), None));
        let paused = Orders { stop: Some(Urgency::Now), ..orders };
        assert_eq!(wanted(&paused, freezer, now), Some(Wanted::Freeze));
    }
    let (told, freezer) = Beginning::Found.known();
    assert_eq!((told, wanted(&Orders::default(), freezer, now)), (None, Some(Wanted::Thaw)));
}

#[test]
fn a_program_that_waits_for_an_answer_is_stopped_only_if_somebody_pauses_it() {
    let check = |pausing, kept, waits_for_answer, is_boundary, expect| {
        let standing = Standing { pausing, kept, waits_for_answer };
        assert_eq!(may_stop(standing, is_boundary), expect, "{standing:?}, {is_boundary}");
    };
    let (now, boundary) = (Some(Urgency::Now), Some(Urgency::Boundary));
    for is_boundary in [false, true] {
        check(None, None, false, is_boundary, true);
        check(now, None, false, is_boundary, true);
        check(boundary, None, false, is_boundary, is_boundary);
        for pausing in [None, now, boundary] {
            check(pausing, None, true, is_boundary, false);
            check(pausing, now, true, is_boundary, true);
            check(pausing, boundary, true, is_boundary, is_boundary);
        }
    }
}
