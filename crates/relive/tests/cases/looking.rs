//! What a crash left open is settled by looking: files by their hash, children by their name, sleeps by the clock.

use std::collections::HashSet;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use relive_fake_model::{Failure, FakeModel, Turn};
use serde_json::json;

use crate::world::{Begun, World, wait_until};

/// A result is on the disk this soon after it exists.
const RECORDED_WITHIN: Duration = Duration::from_secs(2);

#[test]
fn case_48_killed_between_an_edit_and_its_result_the_hash_decides() {
    for edited in [true, false] {
        let world = World::new();
        fs::write(world.work().join("file"), "one two\n").unwrap();
        let process = world.run(
            "turns: [{calls: [{name: edit, args: {path: file, old: one, new: one one}}]}, {text: waiting, hang: true}]",
        );
        world.await_step(&process, 2);
        world.kill_daemon();
        // As if the daemon had died before the result was written.
        let path = world.steps_file(&process.uuid);
        let journal = fs::read(&path).unwrap();
        let mut kept = Vec::new();
        for line in journal.split_inclusive(|byte| *byte == b'\n') {
            kept.extend_from_slice(line);
            if String::from_utf8_lossy(line).contains("\"call_started\"") {
                break;
            }
        }
        fs::write(&path, kept).unwrap();
        for derived in ["checkpoint.json", "checkpoint.prev.json", "proc-info.json"] {
            let _ = fs::remove_file(world.directory(&process.uuid).join(derived));
        }
        if !edited {
            fs::write(world.work().join("file"), "one two\n").unwrap();
        }
        world.relive(&["ps"]).ok();
        world.await_step(&process, 2);
        assert_eq!(fs::read_to_string(world.work().join("file")).unwrap(), "one one two\n", "the edit is there once");
        let ended = &world.records(&process.uuid, "call_ended")[0];
        assert_eq!((&ended["settled"], &ended["ok"]), (&json!("check"), &json!(true)));
    }
}

/// The user restores a file that an agent has written with its last call, while the agent waits and the daemon is dead.
#[track_caller]
fn assert_is_not_written_again(world: &World, process: &Begun, path: &Path, results: usize) {
    wait_until("the file is written", || fs::read_to_string(path).is_ok_and(|text| text == "written"));
    // Where the result is not recorded in this time, it is not recorded before the agent's next step.
    let begun = Instant::now();
    while begun.elapsed() < RECORDED_WITHIN && world.records(&process.uuid, "call_ended").len() < results {
        std::thread::sleep(Duration::from_millis(20));
    }
    world.kill_daemon();
    fs::write(path, "restored").unwrap();
    world.relive(&["ps"]).ok();
    world.await_records(process, "opened", 2);
    world.await_records(process, "call_ended", results);
    assert_eq!(fs::read_to_string(path).unwrap(), "restored", "what was done is not done again");
    assert_eq!(world.records(&process.uuid, "call_ended")[results - 1].get("settled"), None, "nobody had to look");
}

#[test]
fn case_48_a_finished_write_is_recorded_before_the_agent_waits_for_its_budget() {
    let world = World::new();
    let path = world.work().join("file");
    fs::write(&path, "restored").unwrap();
    // The child's call may use all that is left, and never ends.
    let child = world.script("turns: [{hang: true, usage: {input: 1000, output: 1000}}]");
    let usage = json!({"input": 1, "output": 1});
    let spawn = json!({"name": "spawn_agent", "args": {"intent": "help", "name": "child", "model": child}});
    let write = json!({"name": "write", "args": {"path": "file", "content": "written"}});
    let model = json!({"turns": [{"calls": [spawn, write], "usage": usage}, {"hang": true, "usage": usage}]});
    let parent = world.run_with(&model.to_string(), &["--max-tokens", "100", "--ask", "write"]);
    world.await_display(&parent.uuid, "approval");
    world.await_records(&world.named("child"), "model_started", 1);
    world.relive(&["resolve", &parent.uuid, "--allow"]).ok();
    assert_is_not_written_again(&world, &parent, &path, 2);
}

#[test]
fn case_48_a_finished_write_is_recorded_before_the_agent_asks_again() {
    let limited = Failure::Status(429, Some("60".to_owned()));
    let write = Turn::calls("write", json!({"path": "file", "content": "written"}));
    let server = FakeModel::start([write, Turn::text("done").after(limited.clone()).after(limited)]);
    let world =
        World::new().with_env("ANTHROPIC_BASE_URL", server.base_url()).with_env("ANTHROPIC_API_KEY", "sk-0123456789");
    let path = world.work().join("file");
    fs::write(&path, "restored").unwrap();
    let process = world.run_model("anthropic/claude-sonnet-4-5", &[]);
    wait_until("it waits", || server.requests().len() == 2);
    assert_is_not_written_again(&world, &process, &path, 1);
}

#[test]
fn case_49_a_parent_and_the_child_it_waits_for_both_continue() {
    let world = World::new();
    let child = world.script("turns: [{calls: [{name: sleep, args: {duration: 2s}}]}, {text: the last word}]");
    let turns = json!({"turns": [
        {"calls": [{"name": "spawn_agent", "args": {"intent": "help", "name": "child", "model": child}}]},
        {"calls": [{"name": "wait_agent", "args": {"uuid": "{{child}}"}}]},
        {"text": "waiting", "hang": true},
    ]});
    let parent = world.run(&turns.to_string());
    let child = world.named("child");
    world.await_records(&child, "call_started", 1);
    world.await_records(&parent, "call_started", 2);
    world.kill_daemon();
    world.relive(&["ps"]).ok();
    world.await_records(&parent, "call_ended", 2);
    let answer = world.records(&parent.uuid, "call_ended")[1]["result"].to_string();
    assert!(answer.contains("the last word"), "the wait answers: {answer}");
    assert_eq!(world.records(&child.uuid, "spawned").len(), 1);
    let list = world.relive(&["ps", "-a", "--json"]).ok().json();
    let uuids: HashSet<String> =
        list["processes"].as_array().unwrap().iter().map(|process| process["uuid"].to_string()).collect();
    assert_eq!(uuids.len(), 2, "there is one child");
}

#[test]
fn case_49_a_sleep_lasts_only_for_the_rest_of_its_time() {
    let world = World::new();
    let process = world.run("turns: [{calls: [{name: sleep, args: {duration: 4s}}]}, {text: waiting, hang: true}]");
    world.await_records(&process, "call_started", 1);
    let begun = SystemTime::now();
    wait_until("half of it is over", || begun.elapsed().unwrap().as_millis() > 2000);
    world.kill_daemon();
    world.relive(&["ps"]).ok();
    world.await_records(&process, "call_ended", 1);
    let millis = |kind: &str| {
        let at = world.records(&process.uuid, kind)[0]["at"].as_str().unwrap().parse::<jiff::Timestamp>().unwrap();
        at.as_millisecond()
    };
    let slept = millis("call_ended") - millis("call_started");
    assert!((4000..6000).contains(&slept), "slept {slept} ms, not the whole of it again");
}
