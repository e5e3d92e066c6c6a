//! Watching a process while it runs.

use std::io::{BufRead as _, BufReader};

use serde_json::Value;

use crate::world::{World, finish, wait_until};

/// What tells one event from another.
fn ids(events: &[Value]) -> Vec<String> {
    events.iter().map(|event| format!("{} {}", event["id"].as_str().unwrap(), event["kind"])).collect()
}

/// The ids of the files themselves.
fn written(world: &World, uuid: &str) -> Vec<String> {
    let part = |event: &Value| event["part"].as_u64().map(|part| format!(".{part}")).unwrap_or_default();
    let id = |event: &Value| format!("{}.{}{} {}", event["epoch"], event["seq"], part(event), event["kind"]);
    world.events(uuid).iter().map(id).collect()
}

#[test]
fn case_10_two_tracers_both_see_every_event_from_where_they_joined() {
    let world = World::new();
    let script = "turns: [{text: a, calls: [{name: list, args: {path: .}}], repeat: 3}, {text: c, hang: true}]";
    let process = world.run(script);
    let first = world.start(&["strace", "-f", "--json", "1"]);
    world.await_text(&process, "c");
    let mut second = world.start(&["strace", "-f", "-n", "1", "--json", "1"]);
    let mut lines = BufReader::new(second.stdout.take().unwrap()).lines();
    let joined: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
    for _ in 0..3 {
        world.relive(&["pause", "--now", "1"]).ok();
        world.await_display("1", "suspended");
        world.relive(&["resume", "1"]).ok();
        world.await_display("1", "running");
    }
    world.relive(&["kill", "1"]).ok();
    world.relive(&["wait", "1"]).exits(1);
    let all = written(&world, &process.uuid);
    let released: Vec<Value> = world.relive(&["strace", "--json", "1"]).ok().json_lines();
    let released = released.iter().filter(|event| event["kind"] == "release").map(|event| event["phase"].clone());
    let phases = ["orphans", "cancel", "join", "debug_channel", "context", "dead", "left"];
    assert_eq!(released.collect::<Vec<_>>(), phases);
    assert!(all.last().unwrap().contains("release"), "{all:?}");
    assert_eq!(ids(&finish(first).ok().json_lines()), all);
    let mut seen = vec![joined];
    seen.extend(lines.map(|line| serde_json::from_str(&line.unwrap()).unwrap()));
    let seen = ids(&seen);
    assert_eq!(seen, all[all.len() - seen.len()..]);
    assert!(seen.len() >= 7, "{seen:?}");
    second.wait().unwrap();
    assert_eq!(ids(&world.relive(&["strace", "--json", "1"]).ok().json_lines()), all, "read once, no more and no less");
}

#[test]
fn case_10_a_reader_that_comes_back_with_its_last_id_misses_none() {
    let world = World::new();
    let script = "turns: [{text: a, calls: [{name: list, args: {path: .}}], repeat: 4}, {text: b}]";
    let process = world.run(script);
    world.relive(&["wait", "1"]).ok();
    let all = written(&world, &process.uuid);
    for (place, last) in all.iter().enumerate() {
        let last = last.split(' ').next().unwrap();
        let path = format!("/v1/processes/1/events?after={last}");
        let (status, body) = world.http("GET", &path, "", "");
        assert_eq!(status, 200);
        let rest: Vec<&str> = body.lines().filter_map(|line| line.strip_prefix("id: ")).collect();
        let expected: Vec<&str> = all[place + 1..].iter().map(|id| id.split(' ').next().unwrap()).collect();
        assert_eq!(rest, expected, "after {last}");
    }
}

#[test]
fn case_10_a_tracer_continues_across_daemons_and_sees_nothing_twice() {
    let world = World::new();
    let process = world.run("turns: [{text: a, calls: [{name: list, args: {path: .}}]}, {text: b, hang: true}]");
    let tracer = world.start(&["strace", "-f", "--json", &process.uuid]);
    let log = world.start(&["logs", "-f", "--json", &process.uuid]);
    world.await_text(&process, "b");
    for opened in [2, 3] {
        world.kill_daemon();
        world.await_records(&process, "opened", opened);
        let count = |text: &str| world.events(&process.uuid).iter().filter(|event| event["text"] == text).count();
        wait_until("it speaks again", || count("b") >= opened);
    }
    world.relive(&["kill", &process.uuid]).ok();
    assert_eq!(ids(&finish(tracer).ok().json_lines()), written(&world, &process.uuid));
    let journal: Vec<String> = world
        .journal(&process.uuid)
        .iter()
        .map(|record| format!("{}.{} {}", record["epoch"], record["seq"], record["kind"]))
        .collect();
    assert_eq!(ids(&finish(log).ok().json_lines()), journal);
}

/// The daemon may die at any moment between the record of an end and the removal of the marker.
#[test]
fn case_70_the_events_of_an_end_are_completed_once_by_the_next_daemon() {
    let world = World::new();
    let process = world.exec(&[], &["sleep", "1000"]);
    world.relive(&["kill", "-s", "KILL", &process.uuid]).ok();
    world.relive(&["wait", &process.uuid]);
    world.await_retired(&process.uuid);
    let file = world.directory(&process.uuid).join("events.jsonl");
    let told = |events: &[serde_json::Value]| -> Vec<String> {
        let of = |event: &serde_json::Value| match event["kind"].as_str().unwrap() {
            "ended" => Some(format!("ended {} {}", event["code"], event["by"])),
            "release" => Some(event["phase"].as_str().unwrap().to_owned()),
            _ => None,
        };
        events.iter().filter_map(of).collect()
    };
    let all = told(&world.events(&process.uuid));
    assert_eq!(all.len(), 8, "{all:?}");
    for missing in 0..=8 {
        world.kill_daemon();
        let whole = std::fs::read_to_string(&file).unwrap();
        let lines: Vec<&str> = whole.lines().collect();
        let left: String = lines[..lines.len() - missing].iter().map(|line| format!("{line}\n")).collect();
        std::fs::write(&file, left).unwrap();
        std::fs::write(world.data().join("live").join(&process.uuid), "").unwrap();
        world.relive(&["ps"]).ok();
        assert_eq!(told(&world.events(&process.uuid)), all, "{missing} were missing");
        assert!(!world.data().join("live").join(&process.uuid).exists());
    }
}
