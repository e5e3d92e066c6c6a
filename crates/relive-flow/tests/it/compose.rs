//! Decisions about compose files.

use relive_flow::{AtEnd, Decision, Event, Origin, Outcome, Rejected, Start, Verdict};
use relive_types::{Limits, Uuid};

use crate::support::{Driven, FAILED, compose};

const DIAMOND: &str = "
nodes:
  plan: {command: [plan]}
  left: {command: [left], depends_on: [plan]}
  right: {command: [right], depends_on: [plan]}
  join: {command: [join], depends_on: [left, right]}
";

#[test]
fn a_node_starts_when_its_last_input_is_there() {
    let mut run = Driven::new(compose(DIAMOND));
    assert_eq!(run.start(), ["plan"]);
    run.end("plan", Outcome::Succeeded);
    assert_eq!(run.start(), ["left", "right"]);
    run.end("right", Outcome::Succeeded);
    assert!(run.start().is_empty());
    run.end("left", Outcome::Succeeded);
    assert_eq!(run.start(), ["join"]);
    run.end("join", Outcome::Succeeded);
    assert_eq!(run.decide(), [Decision::Finish(Verdict::Succeeded)]);
}

#[test]
fn every_condition_against_every_end_of_the_node_it_names() {
    let check = |condition: &str, outcome: Option<Outcome>, expect: &str| {
        let text = format!("nodes: {{a: {{command: [a]}}, b: {{command: [b], depends_on: {{a: {condition}}}}}}}");
        let mut run = Driven::new(compose(&text));
        run.start();
        if let Some(outcome) = outcome {
            run.end("a", outcome);
        }
        run.start();
        assert_eq!(run.state("b").word(), expect, "{condition} {outcome:?}");
    };
    let mut never_there =
        Driven::new(compose("nodes: {a: {command: [a]}, b: {command: [b], depends_on: {a: started}}}"));
    let uuid = Uuid::from_u128(7);
    never_there.apply(Event::Starting { slot: "a".to_owned(), uuid, start: Start::New });
    assert!(never_there.decide().is_empty(), "a start that is recorded has not happened yet");
    never_there.end("a", FAILED);
    assert_eq!(never_there.state("b").word(), "skipped");
    for (condition, running, succeeded, failed) in [
        ("succeeded", "waiting", "running", "skipped"),
        ("completed", "waiting", "running", "running"),
        ("started", "running", "running", "running"),
    ] {
        check(condition, None, running);
        check(condition, Some(Outcome::Succeeded), succeeded);
        for outcome in [FAILED, Outcome::Stopped, Outcome::Halted] {
            check(condition, Some(outcome), failed);
        }
    }
}

#[test]
fn copies_of_nodes_that_succeeded_are_merged_before_what_waits_for_their_end() {
    let mut run = Driven::new(compose(
        "
nodes:
  good: {command: [a], workspace: own, cwd: sub}
  bad: {command: [b], workspace: own}
  here: {command: [c]}
  begun: {command: [d], workspace: own}
  join: {command: [e], depends_on: {good: completed, bad: completed, here: succeeded, begun: started}}
",
    ));
    run.start();
    run.end("good", Outcome::Succeeded);
    run.end("bad", FAILED);
    run.end("here", Outcome::Succeeded);
    let merged = run.flow.merged_before("join");
    let merged: Vec<_> = merged.iter().map(|own| (own.slot.as_str(), Some(own.uuid), own.cwd.as_deref())).collect();
    assert_eq!(merged, [("good", run.uuid("good"), Some("sub"))]);
    assert!(run.flow.merged_before("good").is_empty());
}

#[test]
fn a_failure_skips_all_that_depends_on_it_and_the_rest_goes_on() {
    let mut run = Driven::new(compose(&DIAMOND.replace("join: {", "other: {command: [o]}\n  join: {")));
    assert_eq!(run.start(), ["plan", "other"]);
    run.end("plan", Outcome::Succeeded);
    run.start();
    run.end("left", FAILED);
    assert_eq!(run.words(), "plan=succeeded left=failed right=running other=running join=skipped");
    run.end("right", Outcome::Succeeded);
    run.end("other", Outcome::Succeeded);
    assert_eq!(run.decide(), [Decision::Finish(Verdict::Failed { slots: vec!["left".to_owned()] })]);
}

#[test]
fn a_node_is_tried_again_after_a_growing_wait_and_then_has_failed() {
    let mut run = Driven::new(compose("nodes: {a: {command: [a], retries: {max: 2, backoff: 1s}}}"));
    for wait in [1000, 2000] {
        run.start();
        run.end("a", FAILED);
        assert_eq!(run.decide(), [Decision::Wait { until_ms: run.now_ms + wait }]);
        assert!(run.start().is_empty());
        run.now_ms += wait;
        assert_eq!(run.decide(), [Decision::Start { slot: "a".to_owned(), start: Start::New }]);
    }
    run.start();
    run.end("a", FAILED);
    assert_eq!(run.state("a").word(), "failed");
}

#[test]
fn a_node_that_a_person_ended_is_not_tried_again() {
    let mut run = Driven::new(compose("nodes: {a: {command: [a], retries: 3}}"));
    run.start();
    run.end("a", Outcome::Stopped);
    assert_eq!(run.decide(), [Decision::Finish(Verdict::Failed { slots: vec!["a".to_owned()] })]);
}

fn redo(slot: &str) -> Event {
    Event::Redo { slot: slot.to_owned(), origin: Origin::End { input: None, limits: Limits::default() }, run: 1 }
}

#[test]
fn a_node_that_is_resumed_runs_what_depends_on_it_and_nothing_else() {
    let mut run = Driven::new(compose(DIAMOND));
    run.start();
    run.end("plan", Outcome::Succeeded);
    run.start();
    run.end("left", FAILED);
    run.end("right", Outcome::Succeeded);
    let before = (run.uuid("plan"), run.uuid("left"), run.uuid("right"));
    run.apply(redo("left"));
    assert_eq!(run.decide(), [Decision::Start { slot: "left".to_owned(), start: Start::resume() }]);
    assert_eq!(run.start(), ["left"]);
    run.end("left", Outcome::Succeeded);
    assert_eq!(run.start(), ["join"]);
    run.end("join", Outcome::Succeeded);
    assert_eq!(run.decide(), [Decision::Finish(Verdict::Succeeded)]);
    assert_eq!((run.uuid("plan"), run.uuid("left"), run.uuid("right")), before);
}

#[test]
fn a_fork_of_a_node_takes_its_place() {
    let mut run = Driven::new(compose(DIAMOND));
    run.start();
    run.end("plan", FAILED);
    let from = run.uuid("plan").unwrap();
    let more = Limits { max_steps: Some(9), ..Limits::default() };
    let origin = Origin::Fork { from_step: Some(4), input: Some("go on".to_owned()), limits: more };
    run.apply(Event::Redo { slot: "plan".to_owned(), origin, run: 1 });
    let start = Start::Fork { from, from_step: Some(4), input: Some("go on".to_owned()), limits: more };
    assert_eq!(run.decide(), [Decision::Start { slot: "plan".to_owned(), start }]);
    run.start();
    assert_ne!(run.uuid("plan"), Some(from));
}

#[test]
fn what_cannot_be_resumed_is_refused_and_nothing_changes() {
    let mut run = Driven::new(compose(&DIAMOND.replace("depends_on: [left, right]", "depends_on: {left: started}")));
    let check = |run: &Driven, slot: &str, expect: Rejected| {
        let mut flow = run.flow.clone();
        assert_eq!(flow.apply(&redo(slot)), Err(expect));
        assert_eq!(flow, run.flow);
    };
    check(&run, "nobody", Rejected::NoSuchSlot { name: "nobody".to_owned(), suggestion: None });
    check(&run, "join", Rejected::NeverRan("join".to_owned()));
    run.start();
    check(&run, "plan", Rejected::Runs("plan".to_owned()));
    run.end("plan", Outcome::Succeeded);
    run.start();
    run.end("left", FAILED);
    let dependent = "join".to_owned();
    check(&run, "left", Rejected::DependentRuns { slot: "left".to_owned(), dependent });
}

#[test]
fn a_run_that_is_resumed_continues_what_did_not_succeed() {
    let mut run = Driven::new(compose(DIAMOND));
    run.start();
    run.end("plan", Outcome::Succeeded);
    run.start();
    run.end("left", Outcome::Halted);
    run.end("right", FAILED);
    run.apply(Event::Reopened { run: 1 });
    assert_eq!(run.words(), "plan=succeeded left=due right=due join=waiting");
    assert_eq!(run.start(), ["left", "right"]);
}

#[test]
fn a_service_ends_with_the_last_of_the_other_nodes() {
    let mut run = Driven::new(compose(
        "nodes: {db: {command: [db], restart: permanent}, test: {command: [t], depends_on: {db: started}}}",
    ));
    assert_eq!(run.start(), ["db", "test"]);
    run.end("db", FAILED);
    assert_eq!(run.decide(), [Decision::Wait { until_ms: run.now_ms + 100 }]);
    run.now_ms += 100;
    assert_eq!(run.start(), ["db"]);
    run.end("test", Outcome::Succeeded);
    let uuid = run.uuid("db").unwrap();
    assert_eq!(run.decide(), [Decision::Stop { slot: "db".to_owned(), uuid }]);
    run.end("db", Outcome::Halted);
    assert_eq!(run.decide(), [Decision::Finish(Verdict::Succeeded)]);
}

#[test]
fn a_node_that_is_restarted_too_often_has_failed() {
    let text = "nodes: {a: {command: [a], restart: {policy: transient, max_restarts: 1, within: 1m, backoff: 0s}}}";
    let mut run = Driven::new(compose(text));
    run.start();
    let first = run.uuid("a");
    run.end("a", FAILED);
    assert_eq!(run.start(), ["a"]);
    assert_eq!(run.uuid("a"), first);
    run.end("a", FAILED);
    assert_eq!(run.decide(), [Decision::Finish(Verdict::Failed { slots: vec!["a".to_owned()] })]);
}

#[test]
fn a_node_that_a_person_ends_while_it_waits_to_be_tried_again_stays_stopped() {
    let mut run = Driven::new(compose(
        "nodes: {a: {command: [a], retries: {max: 3, backoff: 1h}}, b: {command: [b], depends_on: [a]}}",
    ));
    run.start();
    run.end("a", FAILED);
    let (uuid, other) = (run.uuid("a").unwrap(), Uuid::from_u128(99));
    let stopped = |uuid| Event::Stopped { slot: "a".to_owned(), uuid, note: Some("you (SIGTERM)".to_owned()) };
    assert!(run.flow.apply(&stopped(other)).is_err());
    run.apply(stopped(uuid));
    assert_eq!(run.words(), "a=stopped b=skipped");
    assert_eq!(run.flow.slot("a").unwrap().note, Some("you (SIGTERM)"));
    assert_eq!(run.decide(), [Decision::Finish(Verdict::Failed { slots: vec!["a".to_owned()] })]);
    assert!(run.flow.apply(&stopped(uuid)).is_err());
}

#[test]
fn the_reason_of_a_failure_is_kept_until_the_next_start() {
    let mut run = Driven::new(compose("nodes: {a: {command: [a], retries: {max: 1, backoff: 0s}}}"));
    let ended = |uuid| Event::Ended {
        slot: "a".to_owned(),
        uuid,
        outcome: FAILED,
        at_ms: 1,
        result: None,
        note: Some("no room".to_owned()),
        at_end: AtEnd::default(),
    };
    run.start();
    run.apply(ended(run.uuid("a").unwrap()));
    assert_eq!(run.flow.slot("a").unwrap().note, Some("no room"));
    run.start();
    assert_eq!(run.flow.slot("a").unwrap().note, None);
    run.apply(ended(run.uuid("a").unwrap()));
    assert_eq!(run.flow.slot("a").unwrap().note, Some("no room"));
}

#[test]
fn services_run_again_when_the_run_continues() {
    let text = "
nodes:
  db: {command: [db], restart: permanent}
  cache: {command: [c], restart: permanent}
  test: {command: [t], depends_on: {db: started}}
";
    for event in [redo("test"), Event::Reopened { run: 1 }] {
        let mut run = Driven::new(compose(text));
        run.start();
        run.end("cache", Outcome::Stopped);
        run.end("test", FAILED);
        run.end("db", Outcome::Halted);
        assert_eq!(run.words(), "db=succeeded cache=stopped test=failed");
        let reopened = event == Event::Reopened { run: 1 };
        run.apply(event);
        let expect = if reopened { vec!["db", "cache", "test"] } else { vec!["db", "test"] };
        assert_eq!(run.start(), expect);
        assert_eq!(run.state("cache").word(), if reopened { "running" } else { "stopped" });
    }
}

#[test]
fn a_service_that_needs_a_node_waits_for_it_when_it_is_done_again() {
    let mut run = Driven::new(compose(
        "
nodes:
  migrate: {command: [m]}
  db: {command: [db], restart: {policy: permanent, fresh: true}, depends_on: [migrate]}
  test: {command: [t], depends_on: {db: started}}
",
    ));
    run.start();
    run.end("migrate", Outcome::Succeeded);
    assert_eq!(run.start(), ["db", "test"]);
    run.end("test", FAILED);
    run.end("db", Outcome::Halted);
    run.apply(redo("migrate"));
    assert_eq!(run.start(), ["migrate"]);
    run.end("migrate", Outcome::Succeeded);
    assert_eq!(run.start(), ["db", "test"]);
    // Taken down: a fresh one is not resumed.
    run.end("db", Outcome::Halted);
    run.end("test", Outcome::Halted);
    run.apply(Event::Reopened { run: 2 });
    assert_eq!(run.decide(), [Decision::Start { slot: "db".to_owned(), start: Start::New }]);
}

#[test]
fn a_service_that_is_being_ended_when_a_node_is_resumed_runs_again() {
    let text = "
nodes:
  db: {command: [db], restart: permanent}
  test: {command: [t], depends_on: {db: started}}
";
    for outcome in [Outcome::Halted, Outcome::Succeeded, FAILED] {
        let mut run = Driven::new(compose(text));
        run.start();
        run.end("test", FAILED);
        let stop = Decision::Stop { slot: "db".to_owned(), uuid: run.uuid("db").unwrap() };
        assert_eq!(run.decide(), std::slice::from_ref(&stop));
        run.apply(redo("test"));
        assert_eq!(run.decide(), [stop], "it was told to end, and what needs it waits");
        run.end("db", outcome);
        assert_eq!(run.start(), ["db", "test"], "{outcome:?}");
        assert_eq!(run.recovered(), run.flow);
        run.end("test", Outcome::Succeeded);
        run.end("db", Outcome::Halted);
        assert_eq!(run.decide(), [Decision::Finish(Verdict::Succeeded)]);
    }
}

#[test]
fn the_starts_of_a_node_are_counted_over_all_runs() {
    let mut run = Driven::new(compose("nodes: {a: {command: [a], retries: {max: 1, backoff: 0s}}}"));
    let starts = |run: &Driven| run.flow.slot("a").unwrap().starts;
    for (event, expect) in [(None, 2), (Some(redo("a")), 4), (Some(Event::Reopened { run: 1 }), 6)] {
        event.into_iter().for_each(|event| run.apply(event));
        for _ in 0..2 {
            run.start();
            run.end("a", FAILED);
        }
        assert_eq!((run.state("a").word(), starts(&run)), ("failed", expect), "it has its retries again");
    }
    run.apply(redo("a"));
    run.start();
    run.end("a", Outcome::NeverRan);
    assert_eq!(starts(&run), 6);
}

#[test]
fn a_journal_from_before_the_start_of_a_node_was_recorded_is_read() {
    let mut run = Driven::new(compose(
        "nodes: {db: {command: [db]}, web: {command: [w], depends_on: {db: started}}, c: {command: [c], depends_on: [web]}}",
    ));
    let starting = |slot: &str, uuid| Event::Starting { slot: slot.to_owned(), uuid, start: Start::New };
    run.apply(starting("db", Uuid::from_u128(7)));
    run.end("db", FAILED);
    assert_eq!(run.words(), "db=failed web=skipped c=skipped");
    // The daemon of that time took a recorded start for a start.
    run.apply(starting("web", Uuid::from_u128(8)));
    assert_eq!(run.words(), "db=failed web=running c=waiting");
    run.end("web", Outcome::Succeeded);
    assert_eq!(run.start(), ["c"]);
    assert_eq!(run.recovered(), run.flow);
}

#[test]
fn a_fork_that_was_never_created_is_still_a_fork() {
    let mut run = Driven::new(compose("nodes: {a: {intent: a}}"));
    run.start();
    let first = run.uuid("a").unwrap();
    run.end("a", FAILED);
    let origin = Origin::Fork { from_step: Some(3), input: None, limits: Limits::default() };
    run.apply(Event::Redo { slot: "a".to_owned(), origin, run: 1 });
    run.start();
    run.end("a", Outcome::NeverRan);
    let start = Start::Fork { from: first, from_step: Some(3), input: None, limits: Limits::default() };
    assert_eq!(run.decide(), [Decision::Start { slot: "a".to_owned(), start }]);
    assert_eq!(run.uuid("a"), Some(first));
}

#[test]
fn a_process_that_was_never_created_is_started_as_a_new_one() {
    let mut run = Driven::new(compose("nodes: {a: {command: [a], retries: 1}}"));
    run.start();
    run.end("a", Outcome::NeverRan);
    assert_eq!(run.decide(), [Decision::Start { slot: "a".to_owned(), start: Start::New }]);
    assert_eq!(run.uuid("a"), None);
}

#[test]
fn results_are_put_into_what_depends_on_them() {
    let text = "nodes: {a: {command: [a]}, b: {intent: 'use {{ nodes.a.result }}', depends_on: [a]}}";
    let mut run = Driven::new(compose(text));
    run.start();
    assert!(run.flow.wants_result("a") && !run.flow.wants_result("b"));
    let uuid = run.uuid("a").unwrap();
    let (slot, result, at_ms, at_end) = ("a".to_owned(), Some("42".to_owned()), 0, AtEnd::default());
    run.apply(Event::Ended { slot, uuid, outcome: Outcome::Succeeded, at_ms, result, note: None, at_end });
    let runs = serde_json::to_value(run.flow.work_of("b").unwrap()).unwrap();
    assert_eq!(runs["work"]["agent"]["intent"], "use 42");
}

#[test]
fn only_as_many_start_as_there_is_room_for() {
    let text: String = (0..5).map(|n| format!("  n{n}: {{command: [x]}}\n")).collect();
    let run = Driven::new(compose(&format!("nodes:\n{text}")));
    assert_eq!(run.flow.decide(0, 2).len(), 2);
    assert!(run.flow.decide(0, 0).is_empty());
}

/// Each state of a node, and what each event does to it.
#[test]
fn every_event_in_every_state_of_a_node() {
    let uuid = Uuid::from_u128(7);
    let start = || Event::Starting { slot: "a".to_owned(), uuid, start: Start::New };
    let ended_in = |slot: &str, outcome| {
        let (slot, at_end) = (slot.to_owned(), AtEnd::default());
        Event::Ended { slot, uuid, outcome, at_ms: 5, result: None, note: None, at_end }
    };
    let ended = |outcome| ended_in("a", outcome);
    let (reopened, other) =
        (Event::Reopened { run: 1 }, Event::Starting { slot: "z".to_owned(), uuid, start: Start::New });
    let text = "nodes: {z: {command: [z]}, a: {command: [a], retries: 1, depends_on: {z: started}}}";
    let zed = |outcome| ended_in("z", outcome);
    let states: Vec<(&str, Vec<Event>)> = vec![
        ("waiting", vec![other.clone()]),
        ("due", vec![other.clone(), start(), ended(FAILED)]),
        ("running", vec![other.clone(), start()]),
        ("succeeded", vec![other.clone(), start(), ended(Outcome::Succeeded)]),
        ("failed", vec![other.clone(), start(), ended(FAILED), start(), ended(FAILED)]),
        ("stopped", vec![other.clone(), start(), ended(Outcome::Stopped)]),
        ("halted", vec![other.clone(), start(), ended(Outcome::Halted)]),
        ("skipped", vec![other.clone(), zed(FAILED)]),
    ];
    let events = [
        ("starting", start()),
        ("created", Event::Started { slot: "a".to_owned(), uuid }),
        ("succeeded", ended(Outcome::Succeeded)),
        ("failed", ended(FAILED)),
        ("stopped", ended(Outcome::Stopped)),
        ("halted", ended(Outcome::Halted)),
        ("never ran", ended(Outcome::NeverRan)),
        ("stopped while due", Event::Stopped { slot: "a".to_owned(), uuid, note: None }),
        ("redo", redo("a")),
        ("reopened", reopened),
        ("z ended", zed(FAILED)),
    ];
    let mut table = String::new();
    for (state, before) in &states {
        for (name, event) in &events {
            let mut flow = compose(text);
            for event in before {
                flow.apply(event).unwrap();
            }
            let word = |flow: &relive_flow::Flow| flow.slots().nth(1).unwrap().state.word();
            assert_eq!(word(&flow), *state);
            let was = flow.clone();
            let after = match flow.apply(event) {
                Ok(()) => word(&flow),
                Err(_) => {
                    assert_eq!(flow, was, "{state} {name}");
                    "-"
                }
            };
            table.push_str(&format!("{state:10} {name:17} {after}\n"));
        }
    }
    insta::assert_snapshot!(table);
}

#[test]
fn a_node_at_its_limit_is_tried_again_only_as_a_new_process() {
    let check = |restarted: &str, words: &str| {
        let mut run =
            Driven::new(compose(&format!("nodes: {{a: {{intent: work, {restarted}}}, b: {{command: [b]}}}}")));
        run.start();
        run.end_as("a", FAILED, AtEnd { limit: true, ..AtEnd::default() });
        assert_eq!(run.words(), words, "{restarted}");
    };
    check("restart: {policy: transient}", "a=failed b=running");
    check("restart: {policy: permanent}", "a=failed b=running");
    check("restart: {policy: permanent, fresh: true}", "a=due b=running");
    check("retries: 1", "a=due b=running");
}
