//! What a freezer is told: every order, at every stage, whatever it was told before.

use relive_core::Urgency;

use super::*;

const STAGES: [Stage; 8] = [
    Stage::Starting,
    Stage::Spawned,
    Stage::Ready,
    Stage::Running,
    Stage::Exited,
    Stage::Signaled,
    Stage::Aborted,
    Stage::Errored,
];

fn all_orders() -> Vec<Orders> {
    let mut all = Vec::new();
    for stop in [None, Some(Urgency::Boundary), Some(Urgency::Now)] {
        for end in [None, Some(Signal::Int), Some(Signal::Term), Some(Signal::Kill)] {
            for leave_sessions in [false, true] {
                for deadline in [None, Some(tokio::time::Instant::now())] {
                    all.push(Orders { stop, leave_sessions, end, deadline });
                }
            }
        }
    }
    all
}

fn all_freezers() -> impl Iterator<Item = Freezer> {
    [Freezer::Unknown, Freezer::Thawed].into_iter().chain(STAGES.map(Freezer::Frozen))
}

/// Checks each combination of orders that the filter lets through, and counts them.
fn check(only: impl Fn(&Orders) -> bool, expect: impl Fn(Stage, Freezer) -> Option<Freezer>) -> usize {
    let mut checked = 0;
    for orders in all_orders().into_iter().filter(only) {
        for stage in STAGES {
            for freezer in all_freezers() {
                let found = wanted(&orders, stage, freezer);
                assert_eq!(found, expect(stage, freezer), "{orders:?} at {stage:?}, told {freezer:?}");
                checked += 1;
            }
        }
    }
    checked
}

/// Tells whether nothing but a pause is ordered.
fn is_paused(orders: &Orders) -> bool {
    orders.stop.is_some() && orders.end.is_none() && !orders.leave_sessions
}

#[test]
fn a_pause_freezes_a_program_that_runs_or_waits_at_its_gate_and_once() {
    let expect = |stage, freezer| match (stage, freezer) {
        (Stage::Running, Freezer::Frozen(Stage::Running)) | (Stage::Ready, Freezer::Frozen(Stage::Ready)) => None,
        // Frozen at its gate means nothing for the program behind it.
        (Stage::Running | Stage::Ready, _) => Some(Freezer::Frozen(stage)),
        (Stage::Starting | Stage::Spawned | Stage::Exited | Stage::Signaled | Stage::Aborted | Stage::Errored, _) => {
            None
        }
    };
    assert_eq!(check(is_paused, expect), 4 * 8 * 10);
}

#[test]
fn without_a_pause_everything_that_may_be_frozen_is_thawed_also_to_end() {
    let expect = |_, freezer| match freezer {
        Freezer::Thawed => None,
        Freezer::Unknown | Freezer::Frozen(_) => Some(Freezer::Thawed),
    };
    assert_eq!(check(|orders| !is_paused(orders), expect), 44 * 8 * 10);
}
