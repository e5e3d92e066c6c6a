//! Rewinds that are undone, and whose work is whose afterwards.

use std::fs;

use serde_json::{Value, json};

use crate::workspaces_support::{look, shell};
use crate::world::{Begun, World};

impl World {
    /// Rewinds, and returns the answer.
    #[track_caller]
    fn rewind(&self, process: &Begun, step: u32, consent: &str) -> Value {
        let step = step.to_string();
        self.relive(&["rewind", &process.uuid, "--to-step", &step, consent, "--json"]).ok().json()
    }

    /// Types the command that an answer names.
    #[track_caller]
    fn undo(&self, told: &Value) -> Value {
        let command = told["undo"].as_str().unwrap().strip_prefix("relive ").unwrap().to_owned();
        let mut typed: Vec<_> = command.split(' ').collect();
        typed.push("--json");
        self.relive(&typed).ok().json()
    }

    fn read(&self, path: &str) -> String {
        fs::read_to_string(self.work().join(path)).unwrap()
    }
}

#[test]
fn case_72_a_second_rewind_is_undone_to_the_state_before_it() {
    let world = World::new();
    let process = world.run_commands(&["echo 1 > f", "echo 2 > f", "echo 3 > f"], &[]);
    world.relive(&["rewind", &process.uuid, "--undo", "-y"]).fails(3, &["nothing to undo"]);
    world.rewind(&process, 1, "-y");
    let second = world.rewind(&process, 2, "-y");
    assert_eq!(world.read("f"), "2\n");
    let undone = world.undo(&second);
    assert_eq!((world.read("f").as_str(), &undone["verified"], &undone["to_step"]), ("1\n", &json!(true), &json!(1)));
    // An undo is undone like any other.
    world.undo(&undone);
    assert_eq!(world.read("f"), "2\n");
    assert_eq!(world.rewind(&process, 3, "-y")["restored"], 1, "every step still has its own files");
    assert_eq!(world.read("f"), "3\n");
    let restored = world.relive(&["restore", &process.uuid, "--step", "1", "f"]).ok().stderr;
    assert!(restored.contains("restored 1 file in "), "{restored}");
    let told = world.relive(&["rewind", &process.uuid, "--undo", "-y"]).ok().stderr;
    assert!(told.contains("put 1 file back to the state before the last rewind or restore, verified"), "{told}");
    assert_eq!(world.read("f"), "3\n");
}

#[test]
fn case_72_an_undo_that_is_asked_for_again_after_a_crash_is_not_undone() {
    let world = World::new();
    let process = world.run_commands(&["echo 1 > f", "echo 2 > f"], &[]);
    world.rewind(&process, 1, "-y");
    let ask = || {
        let path = format!("/v1/processes/{}/rewind", process.uuid);
        let headers = "relive-request-id: one\r\ncontent-type: application/json\r\n";
        let (status, answer) = world.http("POST", &path, headers, r#"{"undo":true}"#);
        assert_eq!(status, 200, "{answer}");
        serde_json::from_str::<Value>(&answer).unwrap()
    };
    let first = ask();
    world.kill_daemon();
    world.relive(&["ps", "-a"]).ok();
    assert_eq!(ask(), first);
    assert_eq!((world.read("f").as_str(), &first["restored"], &first["verified"]), ("2\n", &json!(1), &json!(true)));
    assert_eq!(world.records(&process.uuid, "rewound").len(), 4, "two verbs, each begun and done");
}

#[test]
fn case_72_a_partial_state_is_undone_as_it_is_typed() {
    let world = World::new();
    let process = world.run_commands(&["mkfifo pipe; echo 1 > f", "echo 2 > f"], &[]);
    world.relive(&["rewind", &process.uuid, "--to-step", "1", "-y"]).fails(3, &["partial", "--force"]);
    let told = world.rewind(&process, 1, "--force");
    assert_eq!((world.read("f").as_str(), &told["verified"]), ("1\n", &json!(true)));
    world.undo(&told);
    assert_eq!(world.read("f"), "2\n");
    assert!(world.work().join("pipe").exists());
}

#[test]
fn case_75_blame_attributes_changes_that_a_forced_rewind_overwrote_to_nobody() {
    let world = World::new();
    fs::write(world.work().join("f"), "given\n").unwrap();
    let process = world.run_commands(&["echo one >> f", "echo two >> f"], &[]);
    fs::write(world.work().join("f"), "given\none\ntwo\nof the user\n").unwrap();
    let told = world.rewind(&process, 1, "--force");
    assert_eq!(world.read("f"), "given\none\n");
    world.undo(&told);
    let lines = world.relive(&["blame", "f", "--json"]).ok().json()["lines"].clone();
    let who = |at: usize| (lines[at]["step"].clone(), lines[at]["text"].clone());
    assert_eq!((who(1), who(2)), ((json!(1), json!("one")), (json!(2), json!("two"))));
    assert_eq!(who(3), (json!(null), json!("of the user")));
    world.relive(&["rewind", &process.uuid, "--to-step", "1", "-y"]).fails(3, &["others changed", "f"]);
    let steps = world.relive(&["steps", "--json", &process.uuid]).ok().json();
    let of_steps: Vec<_> = steps["steps"].as_array().unwrap().iter().map(|step| &step["files"]["changed"]).collect();
    assert_eq!(of_steps, [&json!(1), &json!(1), &json!(null)], "it is no change of a step");
}

#[test]
fn case_72_steps_after_a_rewind_begin_with_what_was_put_back() {
    let world = World::new();
    let hold = "until [ -e ../go ]; do sleep 0.02; done";
    let process = world.begin_commands(&["echo 1 > f", "echo 2 > f", hold, "cat f"], "  - text: over\n", &[]);
    world.await_step(&process, 3);
    // A command that runs is not rewound under.
    fs::write(world.root().join("go"), "").unwrap();
    world.relive(&["wait", &process.uuid]).ok();
    world.await_retired(&process.uuid);
    world.rewind(&process, 1, "-y");
    let model = world.root().join("more.yaml");
    fs::write(&model, "turns:\n  - calls: [{name: shell, args: {command: 'true'}}]\n  - text: over\n").unwrap();
    let model = format!("script/{}", model.display());
    world.relive(&["resume", &process.uuid, "--model", &model, "--input", "go on"]).ok();
    world.relive(&["wait", &process.uuid]).ok();
    world.await_retired(&process.uuid);
    let last = world.info(&process.uuid)["step"].as_u64().unwrap().to_string();
    let plan = world.relive(&["rewind", &process.uuid, "--to-step", &last, "--dry-run", "--json"]).ok().json();
    assert_eq!(plan["restored"], 0, "the last step had the files of the first: {plan}");
}

#[test]
fn case_72_paths_to_restore_may_have_dots_and_are_never_empty() {
    let world = World::new();
    let process = world.run_commands(&["mkdir d; echo 1 > f; echo 1 > d/g", "echo 2 > f; echo 2 > d/g"], &[]);
    let before = look(&world.work());
    let restore = |path: &str| {
        let args = ["restore", &process.uuid, "--step", "1", path];
        crate::world::output(world.command(&args).current_dir(world.work().join("d")).output().unwrap())
    };
    restore("").fails(2, &["a path is empty"]);
    restore("../../outside").fails(2, &["../../outside is not in the workspace"]);
    assert_eq!(look(&world.work()), before);
    restore("../f").ok();
    assert_eq!((world.read("f").as_str(), world.read("d/g").as_str()), ("1\n", "2\n"));
    restore("../d/./g").ok();
    assert_eq!(world.read("d/g"), "1\n");
}

#[test]
fn case_72_a_file_below_a_link_is_refused_with_the_reason() {
    let world = World::new();
    let process = world.run_commands(&["mkdir d; echo 1 > d/f; mkdir e", "rm -r d; ln -s e d"], &[]);
    let refused = world.relive(&["restore", &process.uuid, "--step", "1", "d/f"]);
    refused.fails(2, &["cannot restore d/f alone: d was a directory and is not one now"]);
    world.relive(&["restore", &process.uuid, "--step", "1", "d"]).ok();
    assert_eq!(world.read("d/f"), "1\n");
}

#[test]
fn case_72_an_undo_brings_back_what_the_rewind_removed_itself() {
    let world = World::new();
    let process = world.run_commands(&["echo 1 > x", "echo 2 > y"], &[]);
    fs::remove_file(world.work().join("x")).unwrap();
    world.rewind(&process, 2, "--force");
    let told = world.rewind(&process, 0, "-y");
    assert!(!world.work().join("x").exists());
    world.undo(&told);
    assert_eq!((world.read("x").as_str(), world.read("y").as_str()), ("1\n", "2\n"));
}

#[test]
fn case_72_a_removal_by_others_that_an_undo_repeated_is_theirs() {
    let world = World::new();
    let process = world.run_commands(&["echo 1 > x", "echo 2 > y"], &[]);
    fs::remove_file(world.work().join("x")).unwrap();
    let told = world.rewind(&process, 2, "--force");
    world.undo(&told);
    assert!(!world.work().join("x").exists());
    world.relive(&["rewind", &process.uuid, "--to-step", "1", "-y"]).fails(3, &["others changed", "x"]);
}

#[test]
fn case_72_a_rewind_without_a_goal_is_refused() {
    let world = World::new();
    let process = world.run_commands(&["echo 1 > f", "echo 2 > f"], &[]);
    world.rewind(&process, 1, "-y");
    let before = look(&world.work());
    let path = format!("/v1/processes/{}/rewind", process.uuid);
    let ask = |body: &str| world.http("POST", &path, "content-type: application/json\r\n", body);
    for body in [r#"{"step":1}"#, "{}", "[]", r#"{"to_step":1,"undo":true}"#, r#"{"to_step":1,"dryrun":true}"#] {
        let (status, answer) = ask(body);
        assert_eq!(status, 400, "{body}: {answer}");
    }
    let (_, answer) = ask(r#"{"to_step":"x"}"#);
    assert!(answer.contains("expected a whole number of at least 0") && !answer.contains("u32"), "{answer}");
    assert_eq!(look(&world.work()), before);
    // As clients send it.
    let sent = r#"{"to_step":0,"undo":true,"files_only":false,"force":false,"dry_run":true}"#;
    assert_eq!(ask(sent).0, 200);
}

#[test]
fn case_72_a_name_in_quotes_is_meant_as_it_is_typed_if_there_is_such_a_file() {
    let world = World::new();
    let process = world.run_commands(&[r#"echo 1 > a; echo 1 > '"a"'"#, r#"echo 2 > a; rm '"a"'"#], &[]);
    world.relive(&["restore", &process.uuid, "--step", "1", "\"a\""]).ok();
    assert_eq!((world.read("a").as_str(), world.read("\"a\"").as_str()), ("2\n", "1\n"));
}

#[test]
fn case_72_a_running_process_is_not_paused_if_there_is_nothing_to_do() {
    let world = World::new();
    let turns = [shell("echo 1 > f"), "  - calls: [{name: sleep, args: {duration: 1h}}]\n".to_owned()].concat();
    let process = world.run_with(&format!("turns:\n{turns}"), &["-y", "--isolation", "none"]);
    world.await_step(&process, 2);
    let told = world.relive(&["rewind", &process.uuid, "--to-step", "1", "-y", "--json"]).ok().json();
    assert_eq!((&told["paused"], &told["restored"], &told["verified"]), (&json!(false), &json!(0), &json!(true)));
    assert_ne!(world.info(&process.uuid)["display"], "paused");
    world.relive(&["kill", &process.uuid]).ok();
}

#[test]
fn case_72_a_rewind_while_an_approval_waits_pauses_the_process() {
    let world = World::new();
    let write = |text: &str| format!("  - calls: [{{name: write, args: {{path: f, content: {text}}}}}]\n");
    let turns = format!("turns:\n{}{}  - text: over\n", write("one"), write("two"));
    let process = world.run_with(&turns, &["--ask", "write"]);
    world.await_display(&process.uuid, "approval");
    world.relive(&["resolve", &process.uuid, "--allow"]).ok();
    world.await_step(&process, 2);
    world.await_display(&process.uuid, "approval");
    let nothing = world.rewind(&process, 1, "-y");
    assert_eq!((&nothing["paused"], &nothing["restored"]), (&json!(false), &json!(0)));
    assert_eq!(world.rewind(&process, 0, "-y")["paused"], true);
    world.relive(&["resolve", &process.uuid, "--allow"]).ok();
    world.await_display(&process.uuid, "suspended");
    assert!(!world.work().join("f").exists(), "the call does not run on other files than it was chosen for");
    world.relive(&["kill", &process.uuid]).ok();
}
