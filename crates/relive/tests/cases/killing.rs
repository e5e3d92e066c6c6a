//! `ps`, `kill`, and what becomes of a tree.

use std::fs;

use serde_json::{Value, json};

use crate::world::World;

const ENDS_AT_ONCE: &str = "turns: [{text: done}]";

#[test]
fn case_01_ps_with_no_daemon_is_an_empty_list() {
    let world = World::new();
    assert_eq!(world.relive(&["ps", "--json"]).ok().json(), json!({ "processes": [] }));
    assert_eq!(world.relive(&["ps", "-q"]).ok().stdout, "");
    assert_eq!(world.relive(&["ps"]).ok().stdout.lines().count(), 1);
    assert_eq!(world.relive(&["list-resumable", "--json"]).ok().json(), json!({ "processes": [] }));
    assert_eq!(world.daemon_pid(), None);
    assert!(!world.data().exists(), "nothing is made for a question");
}

#[test]
fn case_01_ps_quiet_is_one_pid_a_line_ascending() {
    let world = World::new();
    let model = world.script(ENDS_AT_ONCE);
    let hanging = world.run_hanging(&[]);
    for _ in 0..10 {
        world.run_model(&model, &[]);
    }
    let pids: String = (1..=11).map(|pid| format!("{pid}\n")).collect();
    assert_eq!(world.relive(&["ps", "-aq"]).ok().stdout, pids);
    for pid in 2..=11 {
        world.relive(&["wait", &pid.to_string()]).ok();
    }
    assert_eq!(world.relive(&["ps", "-q"]).ok().stdout, format!("{}\n", hanging.pid));
    world.kill_daemon();
    let pids: Vec<u64> = world.relive(&["ps", "-aq"]).ok().stdout.lines().map(|line| line.parse().unwrap()).collect();
    assert!(pids.is_sorted() && pids.len() >= 11, "{pids:?}");
}

#[test]
fn case_02_kill_of_an_unknown_process_suggests_a_similar_name() {
    let world = World::new();
    world.relive(&["kill", "abc"]).fails(4, &["abc", "hint: "]);
    world.relive(&["kill", "999"]).fails(4, &["999", "hint: "]);
    world.run_hanging(&["--name", "builder"]);
    world.relive(&["kill", "biulder"]).fails(4, &["biulder", "hint: ", "builder"]);
    world.relive(&["kill", "abc"]).fails(4, &["hint: relive ps"]);
    world.relive(&["kill", "999"]).fails(4, &["hint: relive ps"]);
    let error = world.relive(&["kill", "--json", "999"]).exits(4).json();
    assert_eq!(error["error"]["code"], "NOT_FOUND");
    assert_eq!(world.info("builder")["display"], "running");
}

#[test]
fn case_02_kill_of_an_ended_process_does_nothing_and_says_so() {
    let world = World::new();
    let dead = world.run_with(ENDS_AT_ONCE, &["--name", "early"]);
    world.relive(&["wait", "early"]).ok();
    let check = |id: &str| {
        let journal = fs::read(world.steps_file(&dead.uuid)).unwrap();
        let said = world.relive(&["kill", id]).ok().stderr;
        assert!(said.contains("has ended already"), "{said}");
        let counted = world.relive(&["kill", "--json", "-s", "KILL", id]).ok().json();
        assert_eq!(counted["affected"], 0);
        assert_eq!(world.relive(&["pause", "--json", id]).exits(3).json()["error"]["code"], "CONFLICT");
        assert_eq!(fs::read(world.steps_file(&dead.uuid)).unwrap(), journal);
    };
    check("1");
    check("early");
    world.kill_daemon();
    check("1");
    check("early");
    check(&dead.uuid);
}

/// A parent that spawns `children` (name, model) and then waits for its model for ever.
pub(super) fn parent_of(world: &World, children: &[(&str, &str)]) -> String {
    let calls: Vec<Value> = children
        .iter()
        .map(|(name, model)| json!({"name": "spawn_agent", "args": {"intent": "help", "name": name, "model": model}}))
        .collect();
    world.script(&json!({"turns": [{"calls": calls}, {"hang": true}]}).to_string())
}

#[test]
fn case_06_a_parent_that_ends_leaves_its_children_to_pid_0() {
    let world = World::new();
    let (hanging, quick) = (world.hanging(), world.script(ENDS_AT_ONCE));
    let model = parent_of(&world, &[("one", &hanging), ("two", &hanging), ("three", &quick)]);
    let parent = world.run_model(&model, &[]);
    let [one, two, three] = ["one", "two", "three"].map(|name| world.named(name));
    for child in [&one, &two] {
        world.await_records(child, "model_started", 1);
        assert_eq!(world.info(child.pid)["ppid"], parent.pid);
    }
    world.relive(&["pause", "--now", "two"]).ok();
    world.await_display("two", "suspended");
    world.relive(&["wait", "three"]).ok();
    assert_eq!(world.info(three.pid)["state"], "dead", "nobody has to wait for it");
    world.relive(&["kill", &parent.pid.to_string()]).ok();
    world.relive(&["wait", &parent.pid.to_string()]).exits(1);
    let (one, two) = (world.info(one.pid), world.info(two.pid));
    assert_eq!((&one["ppid"], &one["display"]), (&json!(0), &json!("running")));
    assert_eq!(
        (&two["ppid"], &two["display"], &two["suspend_reason"]),
        (&json!(0), &json!("suspended"), &json!("user"))
    );
    assert_eq!(one["parent_uuid"], parent.uuid.as_str(), "who began it is history");
    assert_eq!(world.info(three.pid)["display"], "dead");
}

#[cfg(feature = "faults")]
#[test]
fn a_panic_in_one_agent_ends_that_agent_and_nothing_else() {
    let world = World::new();
    let other = world.run_model(&world.hanging(), &[]);
    let daemon = world.daemon_pid();
    let broken = world.run("turns: [{calls: [{name: panic, args: {}}]}]");
    let answer = world.relive(&["wait", "--json", &broken.uuid]).exits(1).json();
    assert_eq!(answer["status"], json!({"kind": "faulted", "fault": ""}));
    assert_eq!(world.info(&other.uuid)["display"], "running");
    assert_eq!(world.daemon_pid(), daemon, "the same daemon");
    world.kill_daemon();
    assert_eq!(world.info(&broken.uuid)["state"], "dead", "its end is on the disk");
}
