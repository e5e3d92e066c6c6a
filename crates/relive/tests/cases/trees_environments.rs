//! The environments of what a tree starts again, and of a tree that has lost its own.

use std::fs;

use super::environments::{SECRET, kept, typed, with_keeper};
use crate::world::{Begun, World, begun, wait_until};

/// Starts a tree in a shell that has this variable.
#[track_caller]
fn started(world: &World, verb: &[&str], token: &str, text: &str) -> Begun {
    world.file("tree.yaml", text);
    let args = [verb, &["-d", "--json", "tree.yaml"]].concat();
    begun(&typed(world, &[("TOKEN", token)], &args).ok().json())
}

/// Loses all environments, as kill -9 of the daemon and of the keeper would.
fn lose_all(world: &World) {
    with_keeper(world, |keeper| {
        let keys: Vec<u128> = keeper.list().unwrap().into_iter().flat_map(|(keys, _)| keys).collect();
        keeper.remove(&keys).unwrap();
    });
}

#[test]
fn nodes_that_are_resumed_have_the_environment_of_the_shell_if_theirs_is_lost() {
    let world = World::new();
    let run = started(
        &world,
        &["compose", "up"],
        "one",
        "nodes:
  a: {command: [sh, -c, 'echo \"a $TOKEN ${HOME:+home}\" >> ran; test -e ok']}
  b: {command: [sh, -c, 'echo \"b $TOKEN\" >> ran'], depends_on: [a]}
",
    );
    world.relive(&["wait", &run.uuid]).exits(1);
    assert_eq!(world.ran(), ["a one home"]);
    world.relive(&["daemon", "stop"]).ok();
    typed(&world, &[("TOKEN", "two")], &["compose", "resume", &run.uuid, "--node", "a"]).ok();
    world.relive(&["wait", &run.uuid]).exits(1);
    assert_eq!(world.ran(), ["a one home", "a two home"]);
    world.relive(&["daemon", "stop"]).ok();
    world.file("ok", "");
    typed(&world, &[("TOKEN", "three")], &["resume", &run.uuid]).ok();
    world.relive(&["wait", &run.uuid]).ok();
    assert_eq!(world.ran(), ["a one home", "a three home", "a two home", "b three"]);
}

#[test]
fn results_are_there_for_a_command_that_is_resumed_without_its_environment() {
    let world = World::new();
    let run = started(
        &world,
        &["compose", "up"],
        "one",
        "nodes:
  a: {command: [echo, said]}
  b: {command: [sh, -c, 'echo \"$TOKEN $RELIVE_RESULT_a\" >> ran; test -e ok'], depends_on: [a], results: [a]}
",
    );
    world.relive(&["wait", &run.uuid]).exits(1);
    world.relive(&["daemon", "stop"]).ok();
    world.file("ok", "");
    typed(&world, &[("TOKEN", "two")], &["resume", &run.uuid]).ok();
    world.relive(&["wait", &run.uuid]).ok();
    assert_eq!(world.ran(), ["one said", "two said"]);
}

#[test]
fn an_agent_of_a_run_continues_with_the_key_of_the_shell_that_resumes_the_run() {
    let world = World::new();
    let server = [("OPENAI_BASE_URL", "http://127.0.0.1:9/v1"), ("OPENAI_API_KEY", SECRET)];
    world.file("tree.yaml", "nodes: {a: {intent: think, model: openai/gpt-5}}");
    let run = begun(&typed(&world, &server, &["compose", "up", "-d", "--json", "tree.yaml"]).ok().json());
    let agent = world.await_node(&run, "a", "running")["uuid"].as_str().unwrap().to_owned();
    world.relive(&["compose", "down", &run.uuid]).ok();
    world.relive(&["daemon", "stop"]).ok();
    typed(&world, &server, &["resume", &run.uuid]).ok();
    world.await_node(&run, "a", "running");
    wait_until("it runs again", || world.generations(&agent) == 2);
    assert_eq!(kept(&world)[&agent]["OPENAI_API_KEY"], SECRET);
}

#[test]
fn a_run_that_has_lost_its_environment_waits_for_another_and_starts_nothing() {
    let world = World::new();
    let run = started(
        &world,
        &["compose", "up"],
        "one",
        "nodes:
  a: {command: [sh, -c, 'while [ ! -e go ]; do sleep 0.01; done']}
  b: {command: [sh, -c, 'echo \"b $TOKEN\" >> ran'], depends_on: [a]}
",
    );
    world.await_node(&run, "a", "running");
    lose_all(&world);
    world.relive(&["ps"]).ok();
    world.file("go", "");
    let info = world.await_display(&run.uuid, "suspended");
    assert_eq!(info["suspend_reason"], "needs_credentials");
    let status = world.status(&run);
    let pid = &status["pid"];
    assert_eq!(status["resume"], format!("relive resume {pid}"), "{status}");
    assert!(status["reason"].as_str().unwrap().contains("environment"), "{status}");
    assert!(world.ran().is_empty());
    typed(&world, &[("TOKEN", "two")], &["resume", &run.uuid]).ok();
    world.relive(&["wait", &run.uuid]).ok();
    assert_eq!((world.ran(), world.states(&run)), (vec!["b two".to_owned()], "a=succeeded b=succeeded".to_owned()));
}

#[test]
fn a_supervisor_that_has_lost_its_environment_restarts_nothing_without_another() {
    let world = World::new();
    let keep = started(
        &world,
        &["supervise"],
        "one",
        "
backoff: 1ms
children:
  a: {command: [sh, -c, 'echo \"a $TOKEN\" >> ran; while [ ! -e end ]; do sleep 0.01; done; rm end']}
  web: {supervisor: {children: {b: {command: [sh, -c, 'echo \"b $TOKEN\" >> ran; exec sleep 1000']}}}}
",
    );
    wait_until("both run", || world.ran() == ["a one", "b one"]);
    lose_all(&world);
    world.relive(&["ps"]).ok();
    world.file("end", "");
    world.await_display(&keep.uuid, "suspended");
    typed(&world, &[("TOKEN", "two")], &["resume", &keep.uuid]).ok();
    wait_until("it is restarted", || world.ran() == ["a one", "a two", "b one"]);
    world.relive(&["compose", "down", &keep.uuid]).ok();
    world.relive(&["daemon", "stop"]).ok();
    fs::remove_file(world.work().join("ran")).unwrap();
    typed(&world, &[("TOKEN", "three")], &["resume", &keep.uuid]).ok();
    wait_until("all run again", || world.ran() == ["a three", "b three"]);
    world.relive(&["compose", "down", &keep.uuid]).ok();
}
