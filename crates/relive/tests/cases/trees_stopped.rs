//! Processes of trees that wait to be started again, causes of failures, and services.

use serde_json::json;

use super::sessions_support::is_alive;
use crate::world::{Begun, World, wait_until};

#[test]
fn a_node_that_waits_to_be_tried_again_is_stopped_by_kill_and_stays_so() {
    let world = World::new();
    let run = world.up("nodes:
  flaky: {command: [sh, -c, 'echo ran >> ran; exit 3'], retries: {max: 5, backoff: 1h}}
  after: {command: [sh, -c, 'echo after >> ran'], depends_on: [flaky]}
  slow: {command: [sh, -c, 'while [ ! -e go ]; do sleep 0.01; done']}
");
    let due = world.await_node(&run, "flaky", "due");
    let uuid = due["uuid"].as_str().unwrap().to_owned();
    let killed = world.relive(&["kill", "--json", &uuid]).ok().json();
    assert_eq!(killed["affected"], 1, "{killed}");
    assert!(killed["note"].as_str().unwrap().contains("flaky of run"), "{killed}");
    // Acknowledged means durable.
    world.kill_daemon();
    assert_eq!(world.states(&run), "flaky=stopped after=skipped slow=running");
    let again = world.relive(&["kill", "--json", &uuid]).ok().json();
    assert_eq!(again["affected"], 0, "{again}");
    world.file("go", "");
    world.relive(&["wait", &run.uuid]).exits(1);
    assert_eq!(world.ran(), ["ran"]);
    assert_eq!(world.node(&run, "flaky")["reason"], "ended by you (SIGTERM)");
    assert_eq!(world.node(&run, "after")["reason"], "flaky stopped");
}

#[test]
fn a_child_that_waits_for_its_restart_is_stopped_by_kill_also_while_its_supervisor_is_suspended() {
    let world = World::new();
    let keep = world.supervise(
        "backoff: 1h
children:
  a: {command: [sh, -c, 'echo a >> ran; exit 3']}
  b: {command: [sh, -c, 'echo b >> ran; exit 3']}
  c: {command: [sleep, '1000']}
",
    );
    for child in ["a", "b"] {
        world.await_node(&keep, child, "due");
    }
    world.relive(&["kill", "-9", &format!("a.{}", short(&keep.uuid))]).ok();
    assert_eq!(world.states(&keep), "a=stopped b=due c=running");
    world.relive(&["pause", "--subtree", &keep.uuid]).ok();
    world.await_display(&keep.uuid, "suspended");
    let uuid = world.node(&keep, "b")["uuid"].as_str().unwrap().to_owned();
    assert_eq!(world.relive(&["kill", "--json", &uuid]).ok().json()["affected"], 1);
    world.kill_daemon();
    assert_eq!(world.states(&keep), "a=stopped b=stopped c=running");
    world.relive(&["compose", "down", &keep.uuid]).ok();
    assert_eq!(world.ran(), ["a", "b"]);
}

/// As people see it.
fn short(uuid: &str) -> String {
    relive_types::short_id::short(uuid.parse().unwrap())
}

#[test]
fn the_status_of_a_run_says_why_each_node_failed() {
    let world = World::new();
    let model = world.script("turns: [{text: one, calls: [{name: list}]}, {text: two, calls: [{name: list}]}]");
    let run = world.up(&format!(
        "nodes:
  loud: {{command: [sh, -c, 'echo first >&2; echo the disk is full >&2; exit 7']}}
  missing: {{command: [no-such-program-anywhere]}}
  slow: {{command: [sleep, '1000'], timeout: 200ms}}
  crashed: {{command: [sh, -c, 'kill -SEGV $$']}}
  thinks: {{intent: think, model: {model}, max_steps: 1}}
  fine: {{command: [sh, -c, 'echo said >&2']}}
  never: {{command: [x], depends_on: [missing]}}
"
    ));
    world.relive(&["wait", &run.uuid]).exits(1);
    let reason = |node: &str| world.node(&run, node)["reason"].clone();
    assert_eq!(reason("loud"), "the disk is full");
    assert_eq!(reason("missing"), "program not found: no-such-program-anywhere (execve: ENOENT)");
    assert_eq!(reason("crashed"), "ended by SIGSEGV");
    assert_eq!(reason("slow"), "timed out");
    assert!(reason("thinks").as_str().unwrap().contains("max steps exceeded"), "{}", reason("thinks"));
    assert_eq!(reason("fine"), json!(null));
    assert_eq!(reason("never"), "missing failed");
    assert_eq!(world.node(&run, "loud")["exit"], json!({"code": 7, "reason": "the disk is full", "err": null}));
    let table = world.relive(&["compose", "status", &run.uuid]).ok().stdout;
    for words in ["the disk is full", "program not found: no-such", "timed out", "missing failed"] {
        assert!(table.contains(words), "{table}");
    }
    // The next daemon says the same.
    world.kill_daemon();
    assert_eq!(reason("loud"), "the disk is full");
}

#[test]
fn a_tree_whose_services_leave_no_place_is_refused_and_nothing_is_started() {
    let world = World::with_config("limits: {max_children: 2}");
    let file = |services: usize| {
        let mut text = "nodes:\n  test: {command: [sh, -c, 'echo test >> ran']}\n".to_owned();
        for service in 0..services {
            text.push_str(&format!("  s{service}: {{command: [sleep, '1000'], restart: permanent}}\n"));
        }
        text
    };
    world.file("tree.yaml", &file(2));
    let refused = world.relive(&["compose", "up", "-d", "tree.yaml"]);
    refused.fails(
        2,
        &["2 services (`restart: permanent`) need 3 places, but limits.max_children is 2", "relive config edit"],
    );
    assert_eq!(world.relive(&["ps", "-aq"]).ok().stdout, "");
    let run = world.up(&file(1));
    world.relive(&["wait", &run.uuid]).ok();
    assert_eq!(world.ran(), ["test"]);
    world.file(
        "tree.yaml",
        "nodes:\n  db: {command: [db], restart: permanent}\n  test: {command: [t], depends_on: [db]}\n",
    );
    let refused = world.relive(&["compose", "up", "-d", "tree.yaml"]);
    refused.fails(2, &["tree.yaml:3:", "`db` never ends", "{db: started}", "^"]);
}

#[test]
fn compose_down_of_a_paused_run_returns_when_its_processes_have_ended_and_its_undo_works() {
    let world = World::new();
    let run = world.up("nodes:
  slow: {command: [sh, -c, 'trap \"sleep 1; exit 0\" TERM; echo slow >> ran; while [ ! -e go ]; do sleep 0.01; done']}
  after: {command: [sh, -c, 'echo after >> ran'], depends_on: [slow]}
");
    let slow = world.await_node(&run, "slow", "running")["uuid"].as_str().unwrap().to_owned();
    for (begun, crash) in [(1, false), (2, true)] {
        wait_until("it has begun", || world.ran().len() == begun);
        let stage = world.await_stage(&Begun { pid: 0, uuid: slow.clone() }, "running");
        let host = stage["host_pid"].as_u64().unwrap();
        world.relive(&["pause", "--subtree", &run.uuid]).ok();
        world.await_display(&run.uuid, "suspended");
        if crash {
            world.kill_daemon();
        }
        let down = world.relive(&["compose", "down", &run.uuid]).ok();
        assert!(!is_alive(host), "{down:?}");
        assert_eq!(world.relive(&["ps", "-q"]).ok().stdout, "");
        assert_eq!(world.states(&run), "slow=halted after=halted");
        // What was ended has no exit code of its own, and what never ran has none at all.
        let (slow, after) = (world.node(&run, "slow"), world.node(&run, "after"));
        assert_eq!((&slow["exit"]["code"], &after["exit"]), (&1.into(), &serde_json::Value::Null));
        assert_eq!(after["reason"], "ended with the run");
        let table = world.relive(&["compose", "status", &run.uuid]).ok().stdout;
        assert_eq!(table.matches(" -     ended with the run").count(), 2, "{table}");
        let undo = down.stderr.split("(undo: relive ").nth(1).unwrap().split(')').next().unwrap().to_owned();
        world.relive(&undo.split(' ').collect::<Vec<_>>()).ok();
    }
    world.file("go", "");
    world.relive(&["wait", &run.uuid]).ok();
    assert_eq!(world.states(&run), "slow=succeeded after=succeeded");
}

const MASKS_TERM: &str = concat!(env!("CARGO_BIN_EXE_relive"), " self mask TERM && touch masked; exec sleep 1000");

#[test]
fn a_child_that_blocks_term_is_killed_when_it_is_restarted_with_another() {
    let world = World::new();
    let keep = world.supervise(&format!(
        "strategy: one_for_all
backoff: 10ms
children:
  m: {{command: [sh, -c, '{MASKS_TERM}']}}
  n: {{command: [sh, -c, 'test -e again && exec sleep 1000; while [ ! -e masked ]; do sleep 0.01; done; touch again; exit 1']}}
"
    ));
    wait_until("both run again", || {
        let generations = |node: &str| {
            let uuid = world.node(&keep, node)["uuid"].as_str().map(str::to_owned);
            uuid.map_or(0, |uuid| world.generations(&uuid))
        };
        generations("m") == 2 && generations("n") == 2 && world.states(&keep) == "m=running n=running"
    });
}

#[test]
fn a_run_that_blocks_term_itself_is_killed_by_compose_down_after_the_grace_period() {
    let world = World::new();
    let run = world.up(&format!("nodes: {{slow: {{command: [sh, -c, '{MASKS_TERM}']}}}}"));
    wait_until("the node blocks TERM", || world.work().join("masked").exists());
    world.relive(&["signals", &run.uuid, "--block", "TERM"]).ok();
    let down = world.relive(&["compose", "down", &run.uuid]).ok();
    let said = format!("run {} blocks SIGTERM: it is killed if it is still there after 10 s\n", run.pid);
    assert!(down.stderr.contains(&said) && down.stderr.contains("(undo: relive resume"), "{down:?}");
    assert_eq!(world.relive(&["ps", "-q"]).ok().stdout, "");
    assert_eq!(world.states(&run), "slow=halted");
}

#[test]
fn a_service_that_blocks_term_is_killed_when_all_else_has_ended_and_so_is_a_node_whose_run_is_over_its_time() {
    let world = World::new();
    let run = world.up(&format!(
        "nodes:
  db: {{command: [sh, -c, '{MASKS_TERM}'], restart: permanent}}
  test: {{command: [sh, -c, 'while [ ! -e masked ]; do sleep 0.01; done']}}
"
    ));
    world.relive(&["wait", "--timeout", "60s", &run.uuid]).ok();
    world.file("late.yaml", &format!("nodes: {{slow: {{command: [sh, -c, '{MASKS_TERM}']}}}}"));
    let late = world.relive(&["compose", "up", "-d", "--json", "--timeout", "2s", "late.yaml"]).ok().json();
    world.relive(&["wait", "--timeout", "60s", late["uuid"].as_str().unwrap()]).exits(1);
}
