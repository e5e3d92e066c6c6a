//! Masks, handlers and what subtrees inherit, as a user meets them.

use serde_json::json;

use crate::world::World;

#[test]
fn case_08_a_blocked_signal_waits_once_survives_a_crash_and_lands_when_it_is_unblocked() {
    let world = World::new();
    let process = world.run_hanging(&[]);
    world.relive(&["signals", &process.uuid, "--block", "TERM,PAUSE,RESUME"]).ok();
    for _ in 0..3 {
        world.relive(&["kill", &process.uuid]).ok();
    }
    world.relive(&["pause", &process.uuid]).ok();
    let shown = world.relive(&["signals", "--json", &process.uuid]).ok().json();
    assert_eq!(shown["pending"], json!(["SIGTERM", "SIGPAUSE"]));
    world.relive(&["resume", &process.uuid]).ok();
    world.kill_daemon();
    let shown = world.relive(&["signals", "--json", &process.uuid]).ok().json();
    assert_eq!(shown["pending"], json!(["SIGTERM"]), "a pending PAUSE and RESUME cancel each other");
    assert_eq!(shown["blocked"], json!(["SIGTERM", "SIGPAUSE", "SIGRESUME"]));
    world.await_display(&process.uuid, "running");
    world.relive(&["signals", &process.uuid, "--block", "none"]).ok();
    world.relive(&["wait", &process.uuid]).exits(1);
    let info = world.info(&process.uuid);
    assert_eq!((&info["why"], &info["status"]["signal"]), (&json!("user"), &json!("SIGTERM")));
    world.relive(&["signals", &process.uuid]).fails(3, &["has ended"]);
}

#[test]
fn case_08_kill_ignores_the_mask_and_cannot_be_blocked() {
    let world = World::new();
    let process = world.run_hanging(&[]);
    world.relive(&["signals", &process.uuid, "--block", "KILL"]).fails(2, &["SIGKILL"]);
    world.relive(&["signals", &process.uuid, "--block", "TERM,INT", "--handle", "TERM,INT"]).ok();
    world.relive(&["kill", "-s", "KILL", &process.uuid]).ok();
    world.relive(&["wait", &process.uuid]).exits(1);
}

#[test]
fn an_agent_that_handles_term_hears_of_it_and_may_finish() {
    let world = World::new();
    let script = "turns: [{calls: [{name: sleep, args: {duration: 1h}}]}, {text: saved everything}]";
    let process = world.run(script);
    world.await_records(&process, "call_started", 1);
    world.relive(&["signals", &process.uuid, "--handle", "INT,TERM"]).ok();
    world.relive(&["kill", "-s", "INT", &process.uuid]).ok();
    world.await_records(&process, "input", 2);
    let inputs = world.records(&process.uuid, "input");
    assert!(inputs[1]["text"].as_str().unwrap().contains("SIGINT"), "{inputs:?}");
    assert_eq!(world.info(&process.uuid)["state"], "running");
    world.relive(&["kill", &process.uuid]).ok();
    world.await_records(&process, "input", 3);
    let inputs = world.records(&process.uuid, "input");
    assert!(inputs[2]["text"].as_str().unwrap().contains("SIGTERM"), "{inputs:?}");
    // It only sleeps on, so its grace ends it.
    world.relive(&["wait", &process.uuid]).exits(1);
    assert_eq!(world.info(&process.uuid)["status"]["signal"], "SIGKILL");
}

#[test]
fn a_child_that_is_created_after_its_parent_was_resumed_is_not_paused() {
    let world = World::new();
    let sleep = json!({"name": "sleep", "args": {"duration": "1s"}});
    let spawn = json!({"name": "spawn_agent", "args": {"intent": "help", "name": "child", "model": world.hanging()}});
    let turns = json!({"turns": [{"calls": [sleep]}, {"calls": [spawn]}, {"hang": true}]});
    let parent = world.run_model(&world.script(&turns.to_string()), &[]);
    world.await_records(&parent, "call_started", 1);
    world.relive(&["pause", "--subtree", &parent.uuid]).ok();
    world.await_display(&parent.uuid, "suspended");
    world.relive(&["resume", &parent.uuid]).ok();
    let child = world.named("child");
    world.await_display(&child.uuid, "running");
}

#[test]
fn a_request_id_counts_for_one_verb() {
    let world = World::new();
    let process = world.run_hanging(&[]);
    let path = |verb: &str| format!("/v1/processes/{}/{verb}", process.uuid);
    let id = "relive-request-id: the-same\r\n";
    assert_eq!(world.http("POST", &path("pause"), id, "{\"now\":true}").0, 200);
    world.await_display(&process.uuid, "suspended");
    assert_eq!(world.http("POST", &path("signal"), id, "{\"signal\":\"KILL\"}").0, 200);
    world.relive(&["wait", &process.uuid]).exits(1);
}
