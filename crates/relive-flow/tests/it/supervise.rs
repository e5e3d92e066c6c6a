//! Decisions of supervisors.

use relive_flow::{AtEnd, Decision, Event, Origin, Outcome, Start, Verdict};
use relive_types::Limits;

use crate::support::{Driven, FAILED, supervisor};

fn three(strategy: &str) -> Driven {
    let mut tree = Driven::new(supervisor(&format!(
        "strategy: {strategy}\nbackoff: 0s\nmax_restarts: 3\nchildren:\n  a: {{command: [a]}}\n  b: {{command: [b]}}\n  \
         c: {{command: [c]}}\n"
    )));
    assert_eq!(tree.start(), ["a", "b", "c"]);
    tree
}

fn stops(tree: &Driven) -> Vec<String> {
    let stop = |decision| match decision {
        Decision::Stop { slot, .. } => Some(slot),
        Decision::Start { .. } | Decision::Wait { .. } | Decision::Finish(_) => None,
    };
    tree.decide().into_iter().filter_map(stop).collect()
}

#[test]
fn each_strategy_restarts_its_own() {
    let check = |strategy: &str, stopped: &[&str], restarted: &[&str]| {
        let mut tree = three(strategy);
        let before: Vec<_> = ["a", "b", "c"].map(|slot| tree.uuid(slot)).into();
        tree.end("b", FAILED);
        assert_eq!(stops(&tree), stopped, "{strategy}");
        for slot in stopped {
            assert!(tree.start().is_empty(), "{strategy}: nothing starts before all have ended");
            tree.end(slot, Outcome::Halted);
        }
        assert_eq!(tree.start(), restarted, "{strategy}");
        let after: Vec<_> = ["a", "b", "c"].map(|slot| tree.uuid(slot)).into();
        assert_eq!(before, after, "{strategy}: a restart resumes");
    };
    check("one_for_one", &[], &["b"]);
    check("one_for_all", &["a", "c"], &["a", "b", "c"]);
    check("rest_for_one", &["c"], &["b", "c"]);
}

#[test]
fn what_is_restarted_with_a_child_does_not_start_before_it() {
    for strategy in ["one_for_all", "rest_for_one"] {
        let text = format!("strategy: {strategy}\nbackoff: 1s\nchildren: {{a: {{command: [a]}}, b: {{command: [b]}}}}");
        let mut tree = Driven::new(supervisor(&text));
        tree.start();
        tree.end("a", FAILED);
        tree.end("b", Outcome::Halted);
        assert_eq!(tree.decide(), [Decision::Wait { until_ms: tree.now_ms + 1000 }], "{strategy}");
        tree.now_ms += 1000;
        assert_eq!(tree.start(), ["a", "b"], "{strategy}");
    }
}

#[test]
fn every_end_of_a_child_under_every_policy() {
    let mut table = String::new();
    for policy in ["permanent", "transient", "temporary"] {
        for outcome in [Outcome::Succeeded, FAILED, Outcome::Stopped, Outcome::Halted, Outcome::NeverRan] {
            let text = format!("backoff: 0s\nchildren: {{a: {{command: [a], restart: {policy}}}}}");
            let mut tree = Driven::new(supervisor(&text));
            tree.start();
            tree.end("a", outcome);
            let after = tree.state("a").word();
            tree.apply(Event::Reopened { run: 1 });
            table.push_str(&format!("{policy:10} {outcome:?}: {after}, reopened {}\n", tree.state("a").word()));
        }
    }
    insta::assert_snapshot!(table);
}

#[test]
fn a_child_that_ends_too_often_ends_the_supervisor_and_its_children() {
    let mut tree = three("one_for_one");
    for _ in 0..3 {
        tree.end("a", FAILED);
        assert_eq!(tree.start(), ["a"]);
    }
    tree.end("a", FAILED);
    assert_eq!(stops(&tree), ["b", "c"]);
    tree.end("b", Outcome::Halted);
    tree.end("c", Outcome::Halted);
    assert_eq!(tree.decide(), [Decision::Finish(Verdict::Escalated { slot: "a".to_owned() })]);
    tree.apply(Event::Reopened { run: 1 });
    assert_eq!(tree.start(), ["a", "b", "c"]);
}

#[test]
fn restarts_that_left_the_window_do_not_count() {
    let mut tree = three("one_for_one");
    for _ in 0..20 {
        tree.end("a", FAILED);
        assert_eq!(tree.start(), ["a"]);
        tree.now_ms += 25_000;
    }
}

#[test]
fn what_finished_stays_finished_when_others_are_restarted() {
    let mut tree = Driven::new(supervisor(
        "strategy: one_for_all\nbackoff: 0s\nchildren:\n  done: {command: [d], restart: transient}\n  work: {command: [w]}\n  \
         late: {command: [l], restart: transient}\n",
    ));
    tree.start();
    tree.end("done", Outcome::Succeeded);
    tree.end("work", FAILED);
    // It finished while it was about to be ended.
    tree.end("late", Outcome::Succeeded);
    assert_eq!(tree.start(), ["work"]);
    assert_eq!(tree.words(), "done=succeeded work=running late=succeeded");
}

#[test]
fn a_child_that_ends_with_another_one_says_so() {
    let text = "strategy: rest_for_one\nbackoff: 0s\nmax_restarts: 1\nchildren:\n  a: {command: [a]}\n  \
                once: {command: [o], restart: temporary}\n  b: {command: [b]}\n";
    let mut tree = Driven::new(supervisor(text));
    tree.start();
    tree.end("a", FAILED);
    tree.end("once", Outcome::Halted);
    tree.end("b", Outcome::Halted);
    let note = |tree: &Driven, slot: &str| tree.flow.slot(slot).unwrap().note.map(str::to_owned);
    let taken = "ended because another child was restarted; `restart: temporary` starts it once";
    assert_eq!(note(&tree, "once").as_deref(), Some(taken));
    assert_eq!(tree.start(), ["a", "b"]);
    tree.end("a", FAILED);
    tree.end("b", Outcome::Halted);
    assert_eq!(note(&tree, "b").as_deref(), Some("ended because a was restarted too often"));
    assert_eq!(tree.recovered(), tree.flow);
}

#[test]
fn a_child_that_a_person_stopped_stays_stopped_even_when_the_supervisor_is_resumed() {
    let mut tree = three("one_for_all");
    tree.end("a", Outcome::Stopped);
    assert!(tree.decide().is_empty());
    tree.end("b", FAILED);
    tree.end("c", Outcome::Halted);
    assert_eq!(tree.start(), ["b", "c"]);
    tree.apply(Event::Reopened { run: 1 });
    assert_eq!(tree.state("a").word(), "stopped");
}

#[test]
fn a_child_that_a_person_ends_while_it_waits_for_its_restart_stays_stopped() {
    let mut tree = Driven::new(supervisor("backoff: 1h\nchildren: {a: {command: [a]}, b: {command: [b]}}"));
    tree.start();
    tree.end("a", FAILED);
    let uuid = tree.uuid("a").unwrap();
    tree.apply(relive_flow::Event::Stopped { slot: "a".to_owned(), uuid, note: None });
    tree.now_ms += 7_200_000;
    assert_eq!(tree.start(), [] as [String; 0]);
    assert_eq!(tree.words(), "a=stopped b=running");
    assert_eq!(tree.recovered(), tree.flow);
}

#[test]
fn a_child_that_is_fresh_starts_as_a_new_process() {
    let mut tree = Driven::new(supervisor("backoff: 0s\nchildren: {a: {command: [a], fresh: true}}"));
    tree.start();
    let first = tree.uuid("a");
    tree.end("a", FAILED);
    assert_eq!(tree.decide(), [Decision::Start { slot: "a".to_owned(), start: Start::New }]);
    tree.start();
    assert_ne!(tree.uuid("a"), first);
}

#[test]
fn a_restart_waits_longer_each_time() {
    let mut tree = Driven::new(supervisor("backoff: 1s\nchildren: {a: {command: [a]}}"));
    for wait in [1000, 2000, 4000] {
        tree.start();
        tree.end("a", FAILED);
        assert_eq!(tree.decide(), [Decision::Wait { until_ms: tree.now_ms + wait }]);
        tree.now_ms += wait;
    }
}

#[test]
fn a_supervisor_ends_when_its_children_have() {
    let mut tree = Driven::new(supervisor("children: {a: {command: [a], restart: transient}}"));
    tree.start();
    tree.end("a", Outcome::Succeeded);
    assert_eq!(tree.decide(), [Decision::Finish(Verdict::Succeeded)]);
}

const AT_LIMIT: AtEnd = AtEnd { limit: true, paused: false };

/// A person resumes a child with more steps, `run` generations after the last end of the supervisor.
fn redo(slot: &str, run: u32) -> (Event, Start) {
    let limits = Limits { max_steps: Some(9), ..Limits::default() };
    let origin = Origin::End { input: None, limits };
    (Event::Redo { slot: slot.to_owned(), origin, run }, Start::Resume { input: None, limits })
}

#[test]
fn a_child_at_its_limit_is_not_restarted_and_leaves_the_others_alone() {
    for strategy in ["one_for_one", "one_for_all", "rest_for_one"] {
        let mut tree = three(strategy);
        tree.end_as("a", FAILED, AT_LIMIT);
        assert!(tree.decide().is_empty(), "{strategy}: {:?}", tree.decide());
        assert_eq!(tree.words(), "a=failed b=running c=running", "{strategy}");
        assert!(tree.flow.is_at_limit("a") && !tree.flow.is_at_limit("b"));
        // It reached its limit just when it was to be ended with another one.
        tree.end("b", FAILED);
        if tree.state("c").word() == "stopping" {
            tree.end_as("c", FAILED, AT_LIMIT);
            assert_eq!(tree.start(), ["b"], "{strategy}");
        }
        assert_eq!(tree.recovered(), tree.flow);
    }
}

#[test]
fn a_fresh_child_at_its_limit_is_restarted_as_a_new_process_has_used_nothing() {
    let mut tree = Driven::new(supervisor("backoff: 0s\nchildren: {a: {intent: work, fresh: true}}"));
    tree.start();
    tree.end_as("a", FAILED, AT_LIMIT);
    assert_eq!(tree.decide(), [Decision::Start { slot: "a".to_owned(), start: Start::New }]);
}

#[test]
fn a_supervisor_with_a_child_at_its_limit_fails_and_continues_when_that_is_resumed_with_more() {
    let text = "backoff: 0s\nchildren: {a: {intent: work, restart: transient}, b: {command: [b]}}";
    let mut tree = Driven::new(supervisor(text));
    tree.start();
    tree.end_as("a", FAILED, AT_LIMIT);
    // While the supervisor runs.
    let (event, start) = redo("a", 0);
    tree.apply(event);
    assert_eq!(tree.decide(), [Decision::Start { slot: "a".to_owned(), start }]);
    tree.start();
    tree.end_as("a", FAILED, AT_LIMIT);
    tree.end("b", Outcome::Stopped);
    assert_eq!(tree.decide(), [Decision::Finish(Verdict::Failed { slots: vec!["a".to_owned()] })]);
    assert!(tree.flow.has_limit_reached());
    // After it has ended: what it had not finished continues with it.
    let (event, start) = redo("a", 1);
    tree.apply(event);
    assert_eq!(tree.decide(), [Decision::Start { slot: "a".to_owned(), start }]);
    assert_eq!(tree.words(), "a=due b=stopped");
    assert_eq!(tree.recovered(), tree.flow);
}

#[test]
fn a_child_that_runs_is_not_resumed_once_more() {
    let mut tree = three("one_for_one");
    let (event, _) = redo("a", 0);
    assert_eq!(tree.flow.apply(&event), Err(relive_flow::Rejected::Runs("a".to_owned())));
    tree.end("a", Outcome::Stopped);
    tree.apply(event);
    assert_eq!(tree.start(), ["a"]);
}

#[test]
fn a_child_that_a_person_paused_comes_back_paused_until_somebody_resumes_it() {
    let paused = |tree: &Driven, slot: &str| tree.flow.slot(slot).unwrap().at_end.paused;
    for strategy in ["one_for_all", "rest_for_one"] {
        let mut tree = three(strategy);
        tree.end("a", FAILED);
        tree.end_as("b", Outcome::Halted, AtEnd { paused: true, limit: false });
        tree.end("c", Outcome::Halted);
        assert_eq!(tree.start(), ["a", "b", "c"]);
        assert_eq!(["a", "b", "c"].map(|slot| paused(&tree, slot)), [false, true, false], "{strategy}");
        assert_eq!(tree.recovered(), tree.flow);
        // Its pause was over when it ended for the next time.
        tree.end("b", FAILED);
        assert!(!paused(&tree, "b"), "{strategy}");
    }
    let mut tree = three("one_for_one");
    tree.end_as("a", Outcome::Halted, AtEnd { paused: true, limit: false });
    tree.apply(Event::Reopened { run: 1 });
    assert!(!paused(&tree, "a"), "whoever resumes the supervisor resumes its children");
}
