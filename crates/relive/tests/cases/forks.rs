//! Forks.

use std::fs;

use serde_json::json;

use super::recovery::steps_then_hang;
use crate::world::{Begun, World, assert_untouched, begun, contents, short};

/// A dead process of 50 steps.
fn fifty_steps() -> (World, Begun) {
    let world = World::new();
    let process = world.run(&steps_then_hang(50));
    world.await_step(&process, 51);
    world.end(&process);
    (world, process)
}

#[test]
fn case_19_a_fork_is_another_process_and_the_original_is_untouched() {
    let (world, original) = fifty_steps();
    let before = contents(&world.directory(&original.uuid));
    let told = world.relive(&["resume", "--fork", "--json", "--name", "twin", "1"]).ok().json();
    let fork = begun(&told);
    assert_ne!(fork.uuid, original.uuid);
    assert_eq!((&told["origin_uuid"], &told["resumed_from_step"]), (&json!(original.uuid), &json!(50)));
    world.await_step(&fork, 51);
    let info = world.info("twin");
    assert_eq!((&info["origin_uuid"], &info["origin_step"]), (&json!(original.uuid), &json!(50)));
    assert_untouched(&world.directory(&original.uuid), &before);
    let lineage = world.relive(&["lineage", "--json", "twin"]).ok().json();
    assert_eq!(lineage["ancestors"][0]["uuid"], original.uuid.as_str());
    assert_eq!(world.info(&original.uuid)["resumable"], true);
    assert_eq!(world.relive(&["resume", "--json", &original.uuid]).ok().json()["resumed_from_step"], 50);
    world.await_records(&original, "model_started", 52);
}

#[test]
fn case_19_a_fork_from_a_step_continues_at_the_next_with_or_without_a_checkpoint() {
    let (world, original) = fifty_steps();
    let check = |id: &str, from: u32| {
        let before = contents(&world.directory(&original.uuid));
        let step = from.to_string();
        let told = world.relive(&["resume", "--fork", "--from-step", &step, "--json", id]).ok().json();
        assert_eq!((&told["origin_uuid"], &told["resumed_from_step"]), (&json!(original.uuid), &json!(from)));
        let fork = begun(&told);
        world.await_step(&fork, from + 1);
        assert_eq!(world.info(&fork.uuid)["origin_step"], from);
        let mut own = world.records(&fork.uuid, "model_started");
        own.retain(|record| record["epoch"].as_u64() > Some(1));
        assert_eq!(own[0]["step"], from + 1);
        assert_untouched(&world.directory(&original.uuid), &before);
        world.relive(&["kill", &fork.uuid]).ok();
    };
    check("1", 30);
    check("1", 0);
    world.kill_daemon();
    for file in fs::read_dir(world.directory(&original.uuid)).unwrap() {
        let path = file.unwrap().path();
        if path.file_name().unwrap().to_string_lossy().starts_with("checkpoint") {
            fs::remove_file(path).unwrap();
        }
    }
    check(&original.uuid, 30);
    let told = world.relive(&["resume", "--fork", "--from-step", "30", &original.uuid]).ok().stderr;
    let fork = world.relive(&["ps", "--json"]).ok().json()["processes"][0]["short"].as_str().unwrap().to_owned();
    let origin = short(&original.uuid);
    assert_ne!(fork, origin, "what is shown tells them apart");
    assert!(told.starts_with(&format!("forking {origin} at step 30 -> {fork}\n")), "{told}");
    assert_eq!(world.info(&fork)["origin_uuid"], original.uuid.as_str());
}

#[test]
fn case_19_a_fork_of_one_that_runs_leaves_it_running() {
    let world = World::new();
    let original = world.run(&steps_then_hang(3));
    world.await_step(&original, 4);
    let before = fs::read(world.steps_file(&original.uuid)).unwrap();
    let fork = begun(&world.relive(&["resume", "--fork", "--from-step", "2", "--json", "1"]).ok().json());
    world.await_step(&fork, 4);
    assert_eq!(fs::read(world.steps_file(&original.uuid)).unwrap(), before);
    assert_eq!(world.info(1)["display"], "running");
    assert_eq!(world.info(&fork.uuid)["tokens_in"], 1, "what the original spent is not spent again");
}

#[test]
fn case_20_a_step_that_is_not_there_is_refused_by_name() {
    let (world, original) = fifty_steps();
    let before = contents(&world.directory(&original.uuid));
    world
        .relive(&["resume", "--fork", "--from-step", "999", "1"])
        .fails(2, &["999", "hint: relive resume --fork --from-step 50 "]);
    let error = world.relive(&["resume", "--fork", "--from-step", "999", "--json", "1"]).exits(2).json();
    assert_eq!(error["error"]["code"], "INVALID");
    world.relive(&["resume", "--fork", "--from-step", "51", "1"]).fails(2, &["50"]);
    world.relive(&["resume", "--fork", "--from-step", "-1", "1"]).fails(2, &["-1"]);
    world.relive(&["resume", "--from-step", "3", "1"]).fails(2, &["hint: ", "--fork", "--from-step 3"]);
    let error = world.relive(&["resume", "--from-step", "3", "--json", "1"]).exits(2).json();
    assert_eq!(error["error"]["code"], "INVALID");
    // As another client may ask.
    let (status, body) = world.http("POST", "/v1/processes/1/resume", "", "{\"from_step\": 3}");
    assert!(status == 400 && body.contains("--fork"), "{status} {body}");
    assert_untouched(&world.directory(&original.uuid), &before);
    assert_eq!(world.relive(&["ps", "-q"]).ok().stdout, "", "nothing was begun");
}

/// Each fork has the files of the step at which it was asked for, however many steps follow while they are copied.
#[test]
fn case_19_an_agent_that_completes_steps_all_the_time_can_be_forked_with_its_files() {
    let world = World::new();
    let step = "{calls: [{name: write, args: {path: 'f{{turn}}', content: x}}], repeat: 2000}";
    let original =
        world.run_model(&world.script(&format!("turns: [{step}, {{hang: true}}]")), &["-y", "--max-steps", "3000"]);
    world.await_step(&original, 2);
    for _ in 0..10 {
        let told =
            world.relive(&["resume", "--fork", "--workspace", "own", "--max-steps", "1", "--json", &original.uuid]);
        assert_eq!(told.ok().json()["workspace"]["kind"], "own");
    }
}
