//! The daemon is killed with -9, and comes back.

use std::fs;

use serde_json::{Value, json};

use super::killing::parent_of;
use crate::world::{World, wait_until};

/// So many steps, each of which writes a file, and then a model that never answers.
pub(super) fn steps_then_hang(steps: u32) -> String {
    let call = "calls: [{name: write, args: {path: 'file-{{turn}}', content: '{{turn}}'}}]";
    format!(
        "turns: [{{text: working, usage: {{input: 1, output: 1}}, {call}, repeat: {steps}}}, {{text: waiting, hang: true}}]"
    )
}

fn resumable(world: &World) -> Vec<Value> {
    world.relive(&["list-resumable", "--json"]).ok().json()["processes"].as_array().unwrap().clone()
}

#[test]
fn case_16_suspended_parent_and_child_survive_the_daemon() {
    let world = World::new();
    let parent = world.run_model(&parent_of(&world, &[("child", &world.hanging())]), &[]);
    let child = world.named("child");
    world.await_step(&parent, 2);
    world.await_step(&child, 1);
    world.relive(&["pause", "--subtree", "--now", "1"]).ok();
    world.await_display(&parent.uuid, "suspended");
    world.await_display(&child.uuid, "suspended");
    let mut last_pid = child.pid;
    for graceful in [false, true] {
        let journals = [&parent, &child].map(|process| fs::read(world.steps_file(&process.uuid)).unwrap());
        if graceful {
            world.relive(&["daemon", "stop"]).ok();
        } else {
            world.kill_daemon();
        }
        let infos = [&parent, &child].map(|process| world.info(&process.uuid));
        for (info, process) in infos.iter().zip([&parent, &child]) {
            assert_eq!((&info["display"], &info["suspend_reason"]), (&json!("suspended"), &json!("user")));
            assert_eq!(info["uuid"], process.uuid.as_str());
            assert!(info["pid"].as_u64().unwrap() > last_pid, "a new PID");
        }
        assert_eq!(infos[1]["ppid"], infos[0]["pid"]);
        assert_eq!(infos[0]["suspended_below"], 1);
        let after = [&parent, &child].map(|process| fs::read(world.steps_file(&process.uuid)).unwrap());
        assert_eq!(after, journals, "no step runs");
        last_pid = infos[1]["pid"].as_u64().unwrap();
    }
    let listed = resumable(&world);
    assert_eq!(listed.len(), 2);
    assert_eq!(listed[0]["reason"], "user");
    let resumed = world.relive(&["resume", "--subtree", "--json", &parent.uuid]).ok().json();
    assert_eq!((&resumed["affected"], &resumed["uuid"]), (&json!(2), &json!(parent.uuid)));
    for process in [&parent, &child] {
        let info = world.await_display(&process.uuid, "running");
        assert!(info["pid"].as_u64().unwrap() <= last_pid, "it keeps the PID it was listed with");
    }
    world.await_records(&parent, "model_started", 3);
    world.await_records(&child, "model_started", 2);
    assert_eq!(world.records(&parent.uuid, "call_ended").len(), 1, "the child is not spawned again");
    assert!(resumable(&world).is_empty());
}

#[test]
fn case_17_a_running_process_is_recovered_and_continues() {
    let world = World::new();
    let process = world.run(&steps_then_hang(7));
    world.await_step(&process, 8);
    assert_eq!(world.info(1)["step"], 7);
    world.kill_daemon();
    let info = world.info(&process.uuid);
    assert_eq!((&info["display"], &info["step"]), (&json!("running"), &json!(7)));
    let pid = info["pid"].as_u64().unwrap();
    assert!(pid > 1);
    let old = world.info(1);
    assert_eq!((&old["uuid"], &old["pid"], &old["display"]), (&info["uuid"], &json!(pid), &json!("running")));
    assert_eq!(old["note"], format!("PID 1 continues as {pid}"));
    assert!(resumable(&world).is_empty());
    world.await_records(&process, "model_started", 9);
    let steps: Vec<_> =
        world.records(&process.uuid, "model_started").iter().map(|record| record["step"].clone()).collect();
    assert_eq!(steps, [1, 2, 3, 4, 5, 6, 7, 8, 8]);
    assert_eq!(world.records(&process.uuid, "call_ended").len(), 7);
}

#[test]
fn case_17_with_manual_recovery_it_is_listed_with_its_real_last_step() {
    let world = World::with_config("recovery: manual");
    let process = world.run(&steps_then_hang(7));
    world.await_step(&process, 8);
    assert!(world.directory(&process.uuid).join("checkpoint.json").exists(), "one of step 5");
    world.kill_daemon();
    let listed = resumable(&world);
    assert_eq!(listed.len(), 1);
    assert_eq!((&listed[0]["uuid"], &listed[0]["step"]), (&json!(process.uuid), &json!(7)));
    assert_eq!((&listed[0]["reason"], &listed[0]["display"]), (&json!("interrupted"), &json!("dead")));
    assert_eq!(world.relive(&["ps", "-q"]).ok().stdout, "");
    world.relive(&["wait", &process.uuid]).exits(1);
    let resumed = world.relive(&["resume", "--json", &process.uuid]).ok().json();
    assert_eq!((&resumed["uuid"], &resumed["resumed_from_step"]), (&json!(process.uuid), &json!(7)));
    let pid = resumed["pid"].as_u64().unwrap();
    assert!(pid > 1);
    assert_eq!(world.info(1)["pid"], pid, "an interrupted PID stands for the process as it is now");
    assert!(resumable(&world).is_empty());
    world.await_records(&process, "model_started", 9);
    assert_eq!(world.records(&process.uuid, "model_started").last().unwrap()["step"], 8);
    world.kill_daemon();
    assert_eq!(world.info(1)["uuid"], process.uuid.as_str(), "an old PID is known for ever");
}

#[test]
fn case_17_three_resumes_without_a_record_are_a_crash_loop() {
    let world = World::new();
    // It sleeps on after each crash, and records nothing by that.
    let process = world.run("turns: [{calls: [{name: sleep, args: {duration: 1h}}]}]");
    world.await_records(&process, "call_started", 1);
    for opened in 2..=4 {
        world.kill_daemon();
        assert_eq!(world.info(&process.uuid)["display"], "running");
        world.await_records(&process, "opened", opened);
    }
    world.kill_daemon();
    let info = world.info(&process.uuid);
    assert_eq!((&info["display"], &info["suspend_reason"]), (&json!("suspended"), &json!("crash_loop")));
    world.kill_daemon();
    assert_eq!(world.info(&process.uuid)["suspend_reason"], "crash_loop", "it waits for a person");
    world.relive(&["resume", &process.uuid]).ok();
    world.await_display(&process.uuid, "running");
    world.kill_daemon();
    assert_eq!(world.info(&process.uuid)["display"], "running", "and begins to count anew");
}

#[test]
fn case_17_a_crash_loop_can_be_resumed_and_paused_again() {
    let world = World::new();
    let process = world.run("turns: [{calls: [{name: sleep, args: {duration: 1h}}]}]");
    world.await_records(&process, "call_started", 1);
    for _ in 0..4 {
        world.kill_daemon();
        world.relive(&["ps"]).ok();
    }
    world.await_field(&process.uuid, "suspend_reason", "crash_loop");
    for _ in 0..2 {
        world.relive(&["resume", &process.uuid]).ok();
        world.await_display(&process.uuid, "running");
        world.relive(&["pause", &process.uuid]).ok();
        world.await_field(&process.uuid, "suspend_reason", "user");
        world.await_display(&process.uuid, "suspended");
    }
}

#[test]
fn case_17_a_parent_that_waits_finds_its_child_again() {
    let world = World::new();
    let child = world.script("turns: [{calls: [{name: sleep, args: {duration: 1s}}]}, {text: done}]");
    let spawn = json!({"name": "spawn_agent", "args": {"intent": "help", "name": "child", "model": child}});
    let wait = json!({"name": "wait_agent", "args": {"uuid": "{{child}}"}});
    let parent =
        world.run(&json!({"turns": [{"calls": [spawn]}, {"calls": [wait]}, {"text": "{{result}}"}]}).to_string());
    world.await_records(&parent, "call_started", 2);
    world.kill_daemon();
    world.relive(&["wait", &parent.uuid]).ok();
    let results = world.records(&parent.uuid, "call_ended");
    let answer: Value = serde_json::from_str(results[1]["result"].as_str().unwrap()).unwrap();
    assert_eq!((&answer["code"], &answer["text"]), (&json!(0), &json!("done")));
    assert_eq!(world.histories(), 2, "one child");
}

#[test]
fn case_17_a_graceful_stop_is_no_crash() {
    let world = World::new();
    let process = world.run("turns: [{calls: [{name: sleep, args: {duration: 1h}}]}]");
    world.await_records(&process, "call_started", 1);
    world.relive(&["daemon", "stop"]).ok();
    assert_eq!(world.daemon_pid(), None);
    let last = world.journal(&process.uuid).pop().unwrap();
    assert_eq!((&last["kind"], &last["reason"]), (&json!("paused"), &json!("daemon_stop")));
    world.relive(&["daemon", "status"]).exits(3);
    let info = world.info(&process.uuid);
    assert_eq!(info["display"], "running");
    wait_until("it went on", || world.records(&process.uuid, "resumed").len() == 1);
    assert_eq!(world.records(&process.uuid, "resumed")[0]["by"], "daemon_start");
    assert_eq!(world.records(&process.uuid, "call_started").len(), 1);
}

#[test]
fn case_22_pids_after_a_restart_are_above_every_pid_ever_used() {
    let world = World::with_config("gc: {retention_days: 0, max_entries: 1}");
    let first = world.run_hanging(&[]);
    let highest = world.run("turns: [{text: done}]");
    world.relive(&["wait", "2"]).ok();
    world.await_retired(&highest.uuid);
    world.end(&first);
    let removed = world.relive(&["gc", "--json"]).ok().json();
    assert_eq!(removed["uuids"], json!([highest.uuid]), "the one with the highest PID");
    for _ in 0..2 {
        world.kill_daemon();
        let next = world.run("turns: [{text: done}]");
        assert!(next.pid > 2, "{next:?}");
    }
    let info = world.info(1);
    assert_eq!(info["uuid"], first.uuid.as_str());
    assert!(info["model"].as_str().unwrap().starts_with("script/"), "{info}");
    fs::remove_file(world.data().join("pids")).unwrap();
    let known: Vec<u64> = world.relive(&["ps", "-aq"]).ok().stdout.lines().map(|pid| pid.parse().unwrap()).collect();
    world.kill_daemon();
    let next = world.run("turns: [{text: done}]");
    assert!(next.pid > *known.last().unwrap(), "also when the file is lost: {next:?} {known:?}");
}

#[test]
fn case_23_the_system_prompt_after_kill_9_is_that_of_the_start() {
    let world = World::new();
    let process = world.run_with(&steps_then_hang(1), &["--system", "Answer in verse."]);
    world.await_step(&process, 2);
    let meta = world.directory(&process.uuid).join("process-meta.json");
    let before = fs::read(&meta).unwrap();
    let told: Value = serde_json::from_slice(&before).unwrap();
    assert_eq!(told["system_prompt"], "Answer in verse.");
    assert!(told["tools"].as_array().unwrap().iter().any(|tool| tool["name"] == "write"));
    world.kill_daemon();
    world.configure("default_model: script/other.yaml");
    assert_eq!(world.info(&process.uuid)["display"], "running");
    world.await_records(&process, "model_started", 3);
    assert_eq!(fs::read(&meta).unwrap(), before);
    let fork = world.relive(&["resume", "--fork", "--workspace", "here", "--json", &process.uuid]).ok().json();
    let of_fork = world.directory(fork["uuid"].as_str().unwrap()).join("process-meta.json");
    let told_fork: Value = serde_json::from_slice(&fs::read(of_fork).unwrap()).unwrap();
    assert_eq!((&told_fork["system_prompt"], &told_fork["tools"]), (&told["system_prompt"], &told["tools"]));
}
