//! What a crash left open is settled by looking: files by their hash, children by their name, sleeps by the clock.

use std::collections::HashSet;
use std::fs;
use std::time::SystemTime;

use serde_json::json;

use crate::world::{World, wait_until};

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
            let _ = fs::remove_file(world.folder(&process.uuid).join(derived));
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

#[test]
fn case_49_a_parent_and_the_child_it_waits_for_both_go_on() {
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
fn case_49_a_sleep_goes_on_with_what_is_left_of_it() {
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
