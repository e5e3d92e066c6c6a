//! Properties of random trees with random ends, with a crash at every point.

use std::collections::{HashMap, HashSet};

use proptest::prelude::*;
use relive_flow::{AtEnd, Decision, Definition, Event, Flow, Origin, Outcome, SlotState, Verdict};

use crate::support::{Driven, compose, supervisor};

/// A graph: for each node its retries, and its conditions on earlier nodes.
fn graphs() -> impl Strategy<Value = String> {
    let node = (0_u32..3, proptest::collection::vec((any::<proptest::sample::Index>(), 0_usize..3), 0..4), 0_usize..6);
    proptest::collection::vec(node, 1..14).prop_map(|nodes| {
        let mut text = "nodes:\n".to_owned();
        for (place, (retries, on, restart)) in nodes.iter().enumerate() {
            let mut conditions = HashMap::new();
            for (other, condition) in on.iter().filter(|_| place > 0) {
                let other = other.index(place);
                // Only the start of a service can be waited for.
                let condition = if nodes[other].2 == 1 { 2 } else { *condition };
                conditions.insert(other, ["succeeded", "completed", "started"][condition]);
            }
            let on: Vec<String> =
                conditions.iter().map(|(other, condition)| format!("n{other}: {condition}")).collect();
            let again = match restart {
                0 => "restart: {policy: transient, max_restarts: 2, backoff: 10ms}".to_owned(),
                1 => "restart: {policy: permanent, max_restarts: 2, backoff: 10ms}".to_owned(),
                _ => format!("retries: {{max: {retries}, backoff: 10ms}}"),
            };
            text.push_str(&format!("  n{place}: {{command: [x], depends_on: {{{}}}, {again}}}\n", on.join(", ")));
        }
        text
    })
}

fn outcomes() -> impl Strategy<Value = Vec<(proptest::sample::Index, Outcome)>> {
    let outcome = prop_oneof![
        4 => Just(Outcome::Succeeded),
        3 => Just(Outcome::Failed { code: 1 }),
        1 => Just(Outcome::Stopped),
        1 => Just(Outcome::Halted),
        1 => Just(Outcome::NeverRan),
    ];
    proptest::collection::vec((any::<proptest::sample::Index>(), outcome), 400)
}

fn living(flow: &Flow) -> Vec<String> {
    flow.slots().filter(|slot| slot.state.living().is_some()).map(|slot| slot.name.to_owned()).collect()
}

/// Runs a tree to its end, or as far as the outcomes reach, and checks each step.
fn drive(tree: &mut Driven, outcomes: &[(proptest::sample::Index, Outcome)]) -> Option<Verdict> {
    for (which, outcome) in outcomes {
        tree.start();
        // Eager: whatever can start has started.
        let decisions = tree.decide();
        assert!(!decisions.iter().any(|decision| matches!(decision, Decision::Start { .. })), "{decisions:?}");
        // A crash here changes nothing.
        let recovered = tree.recovered();
        assert_eq!(recovered, tree.flow);
        if let [Decision::Finish(verdict)] = &decisions[..] {
            assert!(living(&tree.flow).is_empty());
            return Some(verdict.clone());
        }
        let stops: Vec<String> = decisions
            .iter()
            .filter_map(|decision| match decision {
                Decision::Stop { slot, .. } => Some(slot.clone()),
                Decision::Start { .. } | Decision::Wait { .. } | Decision::Finish(_) => None,
            })
            .collect();
        let running = living(&tree.flow);
        if let Some(slot) = stops.first() {
            tree.end(slot, Outcome::Halted);
        } else if let Some((slot, uuid)) = stopped_while_due(&tree.flow, outcome) {
            tree.apply(Event::Stopped { slot, uuid, note: None });
        } else if running.is_empty() {
            let until = decisions.iter().find_map(|decision| match decision {
                Decision::Wait { until_ms } => Some(*until_ms),
                Decision::Start { .. } | Decision::Stop { .. } | Decision::Finish(_) => None,
            });
            // Nothing runs and nothing is over: there is something to wait for.
            tree.now_ms = until.unwrap();
        } else {
            let at_end = AtEnd { limit: which.index(5) == 0, paused: which.index(7) == 0 };
            tree.end_as(&running[which.index(running.len())], *outcome, at_end);
            tree.now_ms += 1;
        }
    }
    None
}

/// The first slot that waits for its next start, if a person ends something now.
fn stopped_while_due(flow: &Flow, outcome: &Outcome) -> Option<(String, relive_types::Uuid)> {
    let due = flow.slots().find(|slot| matches!(slot.state, SlotState::Due { .. }) && slot.uuid.is_some())?;
    (*outcome == Outcome::Stopped).then(|| (due.name.to_owned(), due.uuid.unwrap()))
}

fn starts(events: &[Event]) -> HashMap<String, u32> {
    let mut starts = HashMap::new();
    for event in events {
        match event {
            Event::Starting { slot, .. } => *starts.entry(slot.clone()).or_default() += 1,
            Event::Ended { slot, outcome: Outcome::NeverRan, .. } => *starts.entry(slot.clone()).or_default() -= 1,
            Event::Started { .. }
            | Event::Ended { .. }
            | Event::Stopped { .. }
            | Event::Redo { .. }
            | Event::Reopened { .. } => {}
        }
    }
    starts
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn a_run_ends_and_no_node_runs_without_its_inputs_or_too_often(text in graphs(), outcomes in outcomes()) {
        let mut run = Driven::new(compose(&text));
        let verdict = drive(&mut run, &outcomes);
        let Definition::Compose(file) = run.flow.definition().clone() else { unreachable!() };
        let only_services = file.nodes.iter().all(relive_flow::Node::is_service);
        prop_assert!(verdict.is_some() || only_services, "{}", run.words());
        for (slot, times) in starts(&run.events) {
            let node = file.nodes.iter().find(|node| node.name == slot).unwrap();
            if node.restart.is_none() {
                prop_assert!(times <= node.retries.max + 1, "{slot} was started {times} times");
            }
        }
        // Replays the events and looks at the inputs at each start.
        let mut flow = Flow::new(run.flow.definition().clone());
        for event in &run.events {
            if let Event::Starting { slot, .. } = event {
                let node = file.nodes.iter().find(|node| &node.name == slot).unwrap();
                for dependency in &node.depends_on {
                    let on = flow.slots().nth(dependency.node).unwrap();
                    let ended = on.state.is_over() && *on.state != SlotState::Skipped;
                    let met = match dependency.condition {
                        relive_flow::Condition::Succeeded => *on.state == SlotState::Succeeded,
                        relive_flow::Condition::Completed => ended,
                        relive_flow::Condition::Started => on.has_started,
                    };
                    let again = flow.slots().any(|other| other.name == slot && other.starts > 0);
                    prop_assert!(met || again, "{slot} was started without its inputs");
                }
            }
            flow.apply(event).unwrap();
        }
    }

    #[test]
    fn a_node_that_is_resumed_changes_its_dependents_and_nothing_else(
        text in graphs(), outcomes in outcomes(), which in any::<proptest::sample::Index>(),
    ) {
        let mut run = Driven::new(compose(&text));
        if drive(&mut run, &outcomes).is_none() {
            return Ok(());
        }
        let Definition::Compose(file) = run.flow.definition().clone() else { unreachable!() };
        let place = which.index(file.nodes.len());
        let slot = file.nodes[place].name.clone();
        let before: Vec<_> = run.flow.slots().map(|slot| (slot.name.to_owned(), slot.state.clone(), slot.uuid)).collect();
        let event = Event::Redo { slot: slot.clone(), origin: Origin::End { input: None, limits: relive_types::Limits::default() }, run: 1 };
        if run.flow.apply(&event).is_err() {
            prop_assert!(run.uuid(&slot).is_none());
            return Ok(());
        }
        run.events.push(event);
        let mark = run.events.len();
        drive(&mut run, &outcomes);
        let touched: HashSet<usize> = file.dependents(place).into_iter().chain([place]).collect();
        for (other, (name, state, uuid)) in before.iter().enumerate() {
            let is_service = file.nodes[other].restart.is_some_and(|restart| restart.policy == relive_flow::Policy::Permanent);
            if !touched.contains(&other) && !is_service {
                prop_assert_eq!(&run.state(name), state);
                prop_assert_eq!(run.uuid(name), *uuid);
                let again = run.events[mark..].iter().any(|event| matches!(event, Event::Starting { slot, .. } if slot == name));
                prop_assert!(!again, "{} ran again", name);
            }
        }
    }

    #[test]
    fn a_supervisor_never_restarts_what_finished_or_was_stopped_nor_too_often(
        strategy in 0_usize..3,
        policies in proptest::collection::vec((0_usize..3, any::<bool>()), 1..6),
        outcomes in outcomes(),
    ) {
        let strategy = ["one_for_one", "one_for_all", "rest_for_one"][strategy];
        let mut text = format!("strategy: {strategy}\nmax_restarts: 4\nwithin: 1h\nbackoff: 0s\nchildren:\n");
        for (place, (policy, fresh)) in policies.iter().enumerate() {
            let policy = ["permanent", "transient", "temporary"][*policy];
            text.push_str(&format!("  c{place}: {{command: [x], restart: {policy}, fresh: {fresh}}}\n"));
        }
        let mut tree = Driven::new(supervisor(&text));
        let verdict = drive(&mut tree, &outcomes);
        prop_assert!(verdict.is_some(), "{}", tree.words());
        let (mut over, mut restarts) = (HashSet::new(), 0);
        let mut flow = Flow::new(tree.flow.definition().clone());
        for event in &tree.events {
            if let Event::Starting { slot, .. } = event {
                prop_assert!(!over.contains(slot), "{slot} was started again");
            }
            let before = flow.clone();
            flow.apply(event).unwrap();
            if let Event::Ended { slot, outcome, .. } = event {
                let state = flow.slots().find(|other| other.name == slot).unwrap().state.clone();
                if state.is_over() {
                    over.insert(slot.clone());
                }
                if *outcome == Outcome::Stopped {
                    prop_assert!(state.is_over(), "{slot} was stopped by a person");
                }
                let ran = before.slots().any(|other| other.name == slot && matches!(other.state, SlotState::Running { .. }));
                let due = matches!(state, SlotState::Due { .. });
                if ran && due && *outcome != Outcome::NeverRan {
                    restarts += 1;
                }
            }
        }
        prop_assert!(restarts <= 4, "{restarts} restarts within the window");
    }
}
