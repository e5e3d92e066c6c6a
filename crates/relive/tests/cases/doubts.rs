//! A call whose outcome nobody can know, and the three things that may become of it.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::path::PathBuf;
use std::process::Command;

use serde_json::json;

use crate::world::{Begun, World, wait_until};

/// What a pipe holds before whoever writes to it has to wait.
const PIPE_BYTES: usize = 64 * 1024;

/// A pipe that is full: who writes to it waits until somebody reads.
fn full_pipe(world: &World) -> (PathBuf, File) {
    let path = world.root().join("pipe");
    assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
    let mut pipe = File::options().read(true).write(true).open(&path).unwrap();
    pipe.write_all(&[b'.'; PIPE_BYTES]).unwrap();
    (path, pipe)
}

/// Reads until the effect has come.
fn await_effect(mut pipe: File) {
    let mut bytes = [0; PIPE_BYTES];
    pipe.read_exact(&mut bytes).unwrap();
    let count = pipe.read(&mut bytes).unwrap();
    assert!(bytes[..count].ends_with(b"effect\n"));
}

/// One whose call was under way when the daemon was killed. Its effect cannot be looked up.
fn interrupted(world: &World, policy: &str) -> (Begun, File) {
    let (path, pipe) = full_pipe(world);
    let call = json!({"name": "append_outside", "args": {"path": path, "text": "effect"}});
    let script = json!({"turns": [{"calls": [call]}, {"text": "{{result}}"}]}).to_string();
    let process = world.run_with(&script, &["--on-in-doubt", policy]);
    world.await_records(&process, "call_started", 1);
    world.kill_daemon();
    (process, pipe)
}

fn last_text(world: &World, process: &Begun) -> String {
    world.records(&process.uuid, "model_ended").pop().unwrap()["text"].as_str().unwrap().to_owned()
}

#[test]
fn with_tell_model_the_model_is_told_to_look() {
    let world = World::new();
    let (process, _pipe) = interrupted(&world, "tell_model");
    world.relive(&["wait", &process.uuid]).ok();
    assert!(last_text(&world, &process).contains("Look before you act"));
    assert_eq!(world.records(&process.uuid, "call_started").len(), 1, "it is not run again");
}

#[test]
fn the_retry_policy_runs_a_call_in_doubt_again() {
    let world = World::new();
    let (process, pipe) = interrupted(&world, "retry");
    world.relive(&["ps"]).ok();
    world.await_records(&process, "call_started", 2);
    assert_eq!(world.records(&process.uuid, "resolved")[0]["by_policy"], true);
    await_effect(pipe);
    world.relive(&["wait", &process.uuid]).ok();
}

#[test]
fn a_parked_call_in_doubt_is_shown_and_resolved_by_a_person() {
    for (decision, told) in [("--done", "it took effect"), ("--not-done", "did not take effect")] {
        let world = World::new();
        let (process, _pipe) = interrupted(&world, "park");
        let info = world.await_display(&process.uuid, "in_doubt");
        let [call] = info["in_doubt"].as_array().unwrap().as_slice() else { panic!("{info}") };
        assert_eq!((&call["tool"], &call["args"]["text"]), (&json!("append_outside"), &json!("effect")));
        let started = world.records(&process.uuid, "call_started");
        assert_eq!(call["at"], started[0]["at"]);
        let known = world.relive(&["resolve", &process.uuid]).ok().stdout;
        for part in
            ["append_outside", "effect", "started at", "checked:\n  | nothing", "--done", "--not-done", "--retry"]
        {
            assert!(known.contains(part), "no {part} in {known}");
        }
        let known = world.relive(&["resolve", "--json", &process.uuid]).ok().json();
        assert_eq!((&known["suspend_reason"], &known["in_doubt"]), (&json!("in_doubt"), &info["in_doubt"]));
        world.relive(&["resume", &process.uuid]).fails(3, &["hint: relive resolve "]);
        world.relive(&["resolve", &process.uuid, "--allow"]).fails(3, &["hint: relive resolve "]);
        let answer = world.relive(&["resolve", &process.uuid, decision, "--json"]).ok().json();
        assert_eq!(answer["affected"], 1);
        // A daemon that dies right after the answer does not ask again.
        world.kill_daemon();
        world.relive(&["wait", &process.uuid]).ok();
        assert!(last_text(&world, &process).contains(told));
        assert_eq!((started.len(), world.records(&process.uuid, "resolved").len()), (1, 1));
        world
            .relive(&["resolve", &process.uuid, "--retry"])
            .fails(3, &[" has its answer already: the call ", " (at 20"]);
    }
}

#[test]
fn resolve_retry_repeats_a_parked_call() {
    let world = World::new();
    let (process, pipe) = interrupted(&world, "park");
    world.await_display(&process.uuid, "in_doubt");
    world.relive(&["resolve", "--retry", &process.uuid]).ok();
    wait_until("it is repeated", || world.records(&process.uuid, "call_started").len() == 2);
    await_effect(pipe);
    world.relive(&["wait", &process.uuid]).ok();
    assert_eq!(world.relive(&["logs", &process.uuid]).ok().stdout.matches("it is repeated").count(), 1);
}
