//! Going on with what ended or was stopped.

use std::fs;

use serde_json::{Value, json};

use super::recovery::steps_then_hang;
use crate::world::{World, assert_untouched, contents};

#[test]
fn case_18_a_dead_process_resumes_from_its_journals_end_with_or_without_a_checkpoint() {
    let check = |every: u32, steps: u32, damage: bool| {
        let world = World::with_config(&format!("checkpoint: {{every_steps: {every}, every_seconds: 3600}}"));
        let process = world.run(&steps_then_hang(steps));
        world.await_step(&process, steps + 1);
        world.end(&process);
        let checkpoint = world.directory(&process.uuid).join("checkpoint.json");
        assert_eq!(checkpoint.exists(), every <= steps);
        world.kill_daemon();
        if damage {
            fs::write(&checkpoint, "{").unwrap();
        }
        let told = world.relive(&["resume", &process.uuid]).ok().stderr;
        assert!(told.contains(&format!("from its journal (step {steps})")), "{told}");
        assert!(told.contains(" running (script/"), "{told}");
        world.await_records(&process, "model_started", steps as usize + 2);
        assert_eq!(world.records(&process.uuid, "model_started").last().unwrap()["step"], steps + 1);
        assert_eq!(world.records(&process.uuid, "call_ended").len(), steps as usize, "no step twice");
        assert_eq!(world.info(&process.uuid)["step"], steps);
        assert_eq!(world.records(&process.uuid, "input").len(), 1, "nothing is put into its mouth");
    };
    check(1000, 10, false);
    check(5, 12, false);
    check(5, 12, true);
}

#[test]
fn case_21_a_completed_agent_continues_with_its_new_message() {
    let world = World::new();
    let process = world.run("turns: [{text: first}, {text: second}, {text: third}]");
    world.relive(&["wait", "1"]).ok();
    let resumed = world.relive(&["resume", "--json", "--input", "and now?", "1"]).ok().json();
    assert_eq!(resumed["uuid"], process.uuid.as_str());
    assert!(resumed["pid"].as_u64().unwrap() > 1);
    world.relive(&["wait", &process.uuid]).ok();
    let said = |kind: &str| -> Vec<Value> {
        world.records(&process.uuid, kind).iter().map(|record| record["text"].clone()).collect()
    };
    assert_eq!(said("input"), ["do it", "and now?"]);
    assert_eq!(said("model_ended"), ["first", "second"]);
    assert_eq!(world.relive(&["wait", "--json", "1"]).ok().json()["pid"], 1, "the old PID answers for its own end");
    world.kill_daemon();
    world.relive(&["resume", &process.uuid]).ok();
    world.relive(&["wait", &process.uuid]).ok();
    assert_eq!(said("input"), ["do it", "and now?", "Continue."]);
    assert_eq!(said("model_ended").len(), 3);
}

#[test]
fn case_21_never_existed_and_garbage_collected_are_two_things() {
    let world = World::with_config("gc: {retention_days: 0, max_entries: 1}");
    let unknown = "01999999-9999-7999-8999-999999999999";
    let model = world.script("turns: [{text: done}]");
    let [gone, kept] = [(); 2].map(|()| {
        let process = world.run_model(&model, &[]);
        world.relive(&["wait", &process.uuid]).ok();
        world.await_retired(&process.uuid);
        process
    });
    for verb in ["resume", "info", "wait", "logs", "kill"] {
        world.relive(&[verb, unknown]).fails(4, &[unknown, "never existed"]);
    }
    assert_eq!(world.relive(&["gc", "--json"]).ok().json()["uuids"], json!([gone.uuid]));
    let check = || {
        for verb in ["resume", "info", "logs", "steps"] {
            world.relive(&[verb, &gone.uuid]).fails(4, &[&gone.uuid, "garbage collected"]);
        }
        world.relive(&["resume", "--fork", &gone.uuid]).fails(4, &["garbage collected"]);
        world.relive(&["info", "1"]).fails(4, &["garbage collected"]);
        assert_eq!(world.info(&kept.uuid)["display"], "dead");
        assert_eq!(world.relive(&["ps", "-aq"]).ok().stdout, "2\n");
    };
    check();
    world.kill_daemon();
    check();
    // No history is left at all, and no daemon runs.
    world.kill_daemon();
    fs::remove_dir_all(world.directory(&kept.uuid)).unwrap();
    world.relive(&["resume", &gone.uuid]).fails(4, &["garbage collected"]);
}

#[test]
fn case_21_a_uuid_with_a_slash_never_reaches_the_file_system() {
    let world = World::new();
    let process = world.run_hanging(&[]);
    let bait = world.data().join("bait");
    fs::create_dir_all(&bait).unwrap();
    fs::copy(world.steps_file(&process.uuid), bait.join("steps.jsonl")).unwrap();
    let before = contents(&bait);
    let with_slash = format!("{}/", process.uuid);
    let through = format!("{}/../{}", process.uuid, process.uuid);
    for id in ["../bait", "..", ".", "/etc/passwd", "a/b", &with_slash, &through, "..%2fbait", "\u{2028}", " "] {
        for verb in ["resume", "info", "logs", "kill", "wait", "steps", "pause"] {
            let told = world.relive(&[verb, id]);
            assert_eq!(told.code, 4, "{verb} {id:?}: {told:?}");
        }
        world.relive(&["resume", "--fork", id]).exits(4);
    }
    world.relive(&["info", ""]).exits(2);
    assert_untouched(&bait, &before);
    assert_eq!(world.info(1)["display"], "running");
    let body = world.run_request("../../bait", &world.hanging(), "x");
    assert_eq!(world.http("POST", "/v1/processes", "", &body).0, 400);
    assert_untouched(&bait, &before);
}

#[test]
fn case_24_a_process_over_its_budget_resumes_with_a_higher_one() {
    let world = World::new();
    let call = "usage: {input: 40, output: 20}, calls: [{name: list, args: {path: .}}]";
    let script = format!("turns: [{{{call}, repeat: 3}}, {{text: done, usage: {{input: 0, output: 0}}}}]");
    let process = world.run_with(&script, &["--max-tokens", "100", "--on-budget", "suspend"]);
    let info = world.await_display(&process.uuid, "suspended");
    assert_eq!(info["suspend_reason"], "budget_exceeded");
    assert_eq!((&info["tokens_in"], &info["tokens_out"], &info["step"]), (&json!(80), &json!(40), &json!(2)));
    let check_still = |id: &str| {
        world.relive(&["resume", id]).fails(3, &["so it would be suspended again at once", "--max-tokens 240"]);
        assert_eq!(world.await_display(id, "suspended")["suspend_reason"], "budget_exceeded");
        assert_eq!(world.info(id)["step"], 2, "no step was taken");
    };
    check_still("1");
    world.kill_daemon();
    let info = world.info(&process.uuid);
    assert_eq!((&info["display"], &info["suspend_reason"]), (&json!("suspended"), &json!("budget_exceeded")));
    world.relive(&["resume", "--max-tokens", "1000", &process.uuid]).ok();
    world.relive(&["wait", &process.uuid]).ok();
    let info = world.info(&process.uuid);
    assert_eq!((&info["max_tokens"], &info["tokens_in"]), (&json!(1000), &json!(120)));
    assert_eq!(world.records(&process.uuid, "limits")[0]["max_tokens"], 1000, "it is journaled");
}

#[test]
fn case_24_limits_of_a_running_process_can_be_changed() {
    let world = World::new();
    let process = world.run_hanging(&[]);
    world.relive(&["resume", "--max-tokens", "5", "1"]).ok();
    assert_eq!(world.info(1)["max_tokens"], 5);
    assert_eq!(world.records(&process.uuid, "limits")[0]["max_tokens"], 5, "it is journaled");
}

#[test]
fn case_25_a_resumed_process_works_in_its_own_directory() {
    let world = World::new();
    let elsewhere = world.root().join("elsewhere");
    fs::create_dir_all(&elsewhere).unwrap();
    fs::write(world.work().join("own.yaml"), "turns: [{hang: true}]").unwrap();
    let process = world.run_model("script/own.yaml", &[]);
    world.await_step(&process, 1);
    world.relive(&["pause", "--now", "1"]).ok();
    world.await_display("1", "suspended");
    world.kill_daemon();
    let write = "turns: [{calls: [{name: write, args: {path: here.txt, content: x}}]}, {text: done}]";
    fs::write(world.work().join("own.yaml"), write).unwrap();
    fs::write(elsewhere.join("own.yaml"), "turns: [{fail: the wrong directory}]").unwrap();
    let typed_elsewhere =
        |args: &[&str]| crate::world::output(world.command(args).current_dir(&elsewhere).output().unwrap());
    typed_elsewhere(&["resume", &process.uuid]).ok();
    typed_elsewhere(&["wait", &process.uuid]).ok();
    assert!(world.work().join("here.txt").exists());
    assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 1);
    let info: Value = typed_elsewhere(&["info", "--json", &process.uuid]).ok().json();
    assert_eq!(info["cwd"], world.work().to_str().unwrap());
    fs::remove_file(world.work().join("here.txt")).unwrap();
    let here: &[&str] = &["--workspace", "here"];
    let fork = typed_elsewhere(&[&["resume", "--fork", "--from-step", "0", "--json"], here, &[&process.uuid]].concat())
        .ok()
        .json();
    typed_elsewhere(&["wait", fork["uuid"].as_str().unwrap()]).ok();
    assert!(world.work().join("here.txt").exists(), "a fork's directory is the original's");
}
