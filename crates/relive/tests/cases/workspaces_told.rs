//! What is said of files: unknown, not kept, foreign, or not done.

use std::fs;

use serde_json::{Value, json};

use crate::workspaces_support::shell;
use crate::world::{Begun, World, wait_until};

impl World {
    /// What `steps --json` says of the files of each step.
    #[track_caller]
    fn files_of_steps(&self, process: &Begun) -> Vec<(Value, Value)> {
        let steps = self.relive(&["steps", "--json", &process.uuid]).ok().json();
        let files = |step: &Value| (step["files"]["changed"].clone(), step["files_unknown"].clone());
        steps["steps"].as_array().unwrap().iter().map(files).collect()
    }

    /// Changes as `diff --json` and others list them.
    #[track_caller]
    fn changes(&self, args: &[&str]) -> Vec<(String, String)> {
        let told = self.relive(&[args, &["--json"]].concat()).ok().json();
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        told["files"].as_array().unwrap().iter().map(|file| (text(&file["path"]), text(&file["change"]))).collect()
    }

    /// Waits until the store has so many packs: each snapshot with something new is one.
    fn await_snapshots(&self, count: usize) {
        let packs = self.data().join("snapshots/objects/pack");
        let is_pack = |entry: &fs::DirEntry| entry.path().extension().is_some_and(|end| end == "pack");
        let taken = || fs::read_dir(&packs).map_or(0, |all| all.filter_map(Result::ok).filter(is_pack).count());
        wait_until("the snapshots", || taken() >= count);
    }
}

#[test]
fn case_71_steps_without_a_snapshot_are_unknown_and_not_without_changes() {
    let world = World::with_config("workspace: {max_files: 20}\n");
    let commands = ["echo 1 > a", "for n in $(seq 40); do echo $n > f$n; done", "echo 3 > b"];
    let process = world.run_commands(&commands, &[]);
    let unknown = (json!(null), json!(true));
    assert_eq!(
        world.files_of_steps(&process),
        [(json!(1), json!(null)), unknown.clone(), unknown, (json!(null), json!(null))]
    );
    let shown = world.relive(&["steps", &process.uuid]).ok().stdout;
    assert!(shown.matches("unknown").count() == 2 && !shown.contains("none"), "{shown}");
    let diff = world.relive(&["diff", &process.uuid, "--json"]).ok().json();
    assert_eq!((&diff["files"][0]["path"], &diff["files"][1]), (&json!("a"), &json!(null)));
    assert!(diff["note"].as_str().unwrap().contains("no snapshot was taken after step 2"), "{diff}");
    world.relive(&["diff", &process.uuid, "3"]).fails(3, &["after step 3 are not known"]);
}

#[test]
fn case_71_steps_without_a_snapshot_say_why() {
    let world = World::with_config("workspace: {max_files: 20, max_file_mb: 1}\n");
    let commands = ["head -c 2000000 /dev/zero > big", "for n in $(seq 40); do echo $n > f$n; done", "echo 3 > b"];
    let process = world.run_commands(&commands, &[]);
    let steps = world.relive(&["steps", "--json", &process.uuid]).ok().json()["steps"].clone();
    assert_eq!(steps[0]["not_kept"], json!([{"path": "big", "reason": "too_large"}]), "{steps}");
    for step in [1, 2] {
        assert!(steps[step]["files_unknown_why"].as_str().unwrap().contains("more than 20 files"), "{steps}");
    }
    let shown = world.relive(&["steps", &process.uuid]).ok().stderr;
    let said = "note: the changes of steps 2 to 3 are unknown: no snapshots: ";
    assert!(
        shown.contains(said) && shown.contains("more than 20 files (the limit is `workspace: max_files`"),
        "{shown}"
    );
    assert_eq!(shown.matches(&world.work().display().to_string()).count(), 1, "{shown}");
    assert!(shown.contains("note: step 1: not kept: big (too large)"), "{shown}");
    // There never was one.
    let other = world.run_commands(&["echo 1 > c"], &[]);
    let shown = world.relive(&["steps", &other.uuid]).ok();
    let said = "note: the changes of step 1 are unknown: no snapshots: ";
    assert!(shown.stdout.contains("unknown") && shown.stderr.contains(said), "{shown:?}");
}

#[test]
fn case_71_steps_after_snapshots_were_turned_off_are_unknown() {
    let world = World::new();
    let process = world.run_commands(&["echo 1 > f"], &[]);
    world.configure("workspace: {snapshots: off}\n");
    let path = world.root().join("more.yaml");
    let turns: String = ["echo 2 > f", "echo 3 > f"].iter().map(|command| shell(command)).collect();
    // The model continues with the turn after those that it has taken.
    fs::write(&path, format!("turns:\n  - text: x\n  - text: x\n{turns}  - text: over\n")).unwrap();
    let model = format!("script/{}", path.display());
    world.relive(&["resume", &process.uuid, "--input", "go on", "--model", &model]).ok();
    world.relive(&["wait", &process.uuid]).ok();
    world.await_retired(&process.uuid);
    let (known, none, unknown) = ((json!(1), json!(null)), (json!(null), json!(null)), (json!(null), json!(true)));
    assert_eq!(world.files_of_steps(&process), [known, none.clone(), unknown.clone(), unknown, none]);
    let why = world.relive(&["steps", &process.uuid]).ok().stderr;
    assert!(why.contains("note: the changes of steps 3 to 4 are unknown: no snapshots: the configuration"), "{why}");
    for step in ["3", "4"] {
        world.relive(&["rewind", &process.uuid, "--to-step", step, "--force"]).fails(3, &["not known"]);
    }
    world.relive(&["rewind", &process.uuid, "--to-step", "2", "--force"]).ok();
    assert_eq!(fs::read_to_string(world.work().join("f")).unwrap(), "1\n");
}

/// A snapshot gets into the journal with the next record.
#[test]
fn case_71_steps_whose_snapshot_was_lost_with_the_daemon_are_unknown() {
    let world = World::new();
    let process = world.begin_commands(&["echo 1 > f", "echo 2 > f"], "  - {text: waiting, hang: true}\n", &[]);
    world.await_step(&process, 3);
    world.kill_daemon();
    world.relive(&["kill", &process.uuid]).ok();
    world.relive(&["wait", &process.uuid]);
    world.await_retired(&process.uuid);
    let steps = world.files_of_steps(&process);
    assert_eq!(steps[..2], [(json!(1), json!(null)), (json!(null), json!(true))]);
    let shown = world.relive(&["steps", &process.uuid]).ok();
    let why = "note: the changes of step 2 are unknown: the daemon ended before it had recorded a snapshot\n";
    assert!(shown.stdout.contains("unknown") && shown.stderr.contains(why), "{shown:?}");
    // So a fork cannot work on a copy, and the command that works beside the original names the step.
    let fork = world.relive(&["resume", "--fork", "--workspace", "own", "--from-step", "2", &process.uuid]);
    let hint = format!("relive resume --fork --from-step 2 --workspace here {}", process.uuid);
    fork.fails(3, &["the files of step 2 are not known", &hint]);
    let living = world.begin_commands(&["echo 1 > g"], "  - {text: waiting, hang: true}\n", &[]);
    world.await_step(&living, 2);
    world.kill_daemon();
    world.await_display(&living.uuid, "running");
    let hint = format!("relive resume --fork --from-step 1 --workspace here {}", living.uuid);
    world.relive(&["resume", "--fork", "--from-step", "1", &living.uuid]).fails(3, &["beside the original", &hint]);
}

#[test]
fn case_71_lines_that_were_not_counted_are_said_to_be_missing() {
    let world = World::new();
    let process = world.run_commands(&["for n in $(seq 510); do echo $n > f$n; done"], &[]);
    let steps = world.relive(&["steps", "--json", &process.uuid]).ok().json()["steps"].clone();
    let files = json!({"changed": 510, "added": 500, "removed": 0, "foreign": 0, "uncounted": 10});
    assert_eq!(steps[0]["files"], files);
    let shown = world.relive(&["steps", &process.uuid]).ok().stdout;
    assert!(shown.contains("at least +500 -0 in 510 files"), "{shown}");
}

#[test]
fn case_74_files_that_no_snapshot_keeps_are_named() {
    let world = World::with_config("workspace: {max_file_mb: 1}\n");
    let process = world.run_commands(&["head -c 2000000 /dev/zero > big; mkfifo pipe; echo 1 > small"], &[]);
    let skipped = json!(["big", "pipe"]);
    assert_eq!(world.info(&process.uuid)["workspace"]["skipped"], skipped);
    let info = world.relive(&["info", &process.uuid]).ok().stdout;
    let named = "big (too large), pipe (a pipe, socket or device)\n";
    assert!(info.contains(&format!("NOT KEPT   {named}")), "{info}");
    assert_eq!(world.relive(&["diff", &process.uuid, "--json"]).ok().json()["skipped"], skipped);
    let diff = world.relive(&["diff", &process.uuid]).ok();
    assert!(
        diff.stderr.contains(&format!("note: in no snapshot: {named}")) && diff.stdout.contains("small"),
        "{diff:?}"
    );
}

#[test]
fn case_71_empty_directories_permissions_and_hard_links_are_shown_and_merged() {
    let world = World::new();
    let commands =
        ["mkdir -p d/empty; echo 1 > f; chmod 600 f", "ln f g; chmod 700 d; echo 1 > h", "rm -r d; rm h; echo 1 > h"];
    let process = world.run_commands(&commands, &["--workspace", "own"]);
    let diff = |step: &str| world.changes(&["diff", &process.uuid, step]);
    let change = |path: &str, change: &str| (path.to_owned(), change.to_owned());
    assert_eq!(diff("1"), [change("d/empty/", "added"), change("f", "added")]);
    assert_eq!(diff("2"), [change("d/", "mode"), change("g", "added"), change("h", "added")]);
    assert_eq!(diff("3"), [change("d/empty/", "deleted")]);
    assert_eq!(world.files_of_steps(&process)[2].0, json!(1));
    world.relive(&["merge", &process.uuid]).ok();
    let links = |name: &str| std::os::unix::fs::MetadataExt::nlink(&fs::metadata(world.work().join(name)).unwrap());
    assert_eq!((links("f"), links("g"), links("h")), (2, 2, 1));
    // A directory alone is a change too.
    let other = world.run_commands(&["mkdir alone"], &["--workspace", "own"]);
    let told = world.relive(&["merge", &other.uuid]).ok();
    assert!(told.stdout.contains("alone/") && told.stderr.contains("merged 1 file in"), "{told:?}");
    assert!(world.work().join("alone").is_dir());
}

#[test]
fn case_72_a_refused_rewind_is_refused_before_the_process_is_paused() {
    let world = World::new();
    let process = world.begin_commands(&["echo 1 > f", "echo 2 > f"], "  - hang: true\n", &[]);
    world.await_step(&process, 3);
    // Before the first step, and after two.
    world.await_snapshots(3);
    let asked = world.records(&process.uuid, "model_started").len();
    let plan = ["rewind", &process.uuid, "--to-step", "1", "--dry-run", "--json"];
    let planned = world.relive(&plan).ok().json();
    let (restored, verified, undo) = (&planned["restored"], &planned["verified"], &planned["undo"]);
    assert_eq!(
        (restored, verified, undo),
        (&json!(1), &json!(false), &json!(null)),
        "its own step is its own: {planned}"
    );
    fs::write(world.work().join("theirs"), "of somebody else").unwrap();
    world.relive(&["rewind", &process.uuid, "--to-step", "1", "-y"]).fails(3, &["theirs", "--force"]);
    world.relive(&plan[..5]).fails(3, &["theirs", "--force"]);
    let records = |kind: &str| world.records(&process.uuid, kind).len();
    assert_eq!((records("paused"), records("model_started")), (0, asked), "its model was not disturbed");
    fs::remove_file(world.work().join("theirs")).unwrap();
    let done = world.relive(&["rewind", &process.uuid, "--to-step", "1", "-y", "--json"]).ok().json();
    assert_eq!((&done["verified"], &done["paused"]), (&json!(true), &json!(true)));
    assert_eq!(fs::read_to_string(world.work().join("f")).unwrap(), "1\n");
    world.end(&process);
}

#[test]
fn case_72_a_plan_is_never_called_verified() {
    let world = World::new();
    let process = world.run_commands(&["echo 1 > f", "echo 2 > f"], &["--workspace", "own"]);
    for args in [
        &["merge", &*process.uuid] as &[&str],
        &["restore", &process.uuid, "--step", "1", "f"],
        &["rewind", &process.uuid, "--to-step", "1"],
    ] {
        let told = world.relive(&[args, &["--dry-run", "--json"]].concat()).ok().json();
        assert_eq!((&told["verified"], &told["dry_run"]), (&json!(false), &json!(true)), "{told}");
    }
    assert_eq!(world.relive(&["merge", &process.uuid, "--json"]).ok().json()["verified"], true);
}

#[test]
fn case_72_the_model_is_told_what_was_really_done_while_it_was_not_running() {
    let world = World::new();
    let process =
        world.run_commands(&["echo 1 > f; echo 1 > g", "echo 2 > f; echo 2 > g", "echo 3 > f; echo 3 > g"], &[]);
    world.relive(&["rewind", &process.uuid, "--to-step", "1", "-y"]).ok();
    world.relive(&["restore", &process.uuid, "--step", "2", "f"]).ok();
    world.relive(&["rewind", &process.uuid, "--undo", "-y"]).ok();
    let log = world.relive(&["logs", &process.uuid]).ok().stdout;
    assert!(log.contains("1 file was put back by undoing the last rewind or restore"), "{log}");
    let model = world.script("turns:\n  - text: over\n");
    world.relive(&["resume", &process.uuid, "--model", &model, "--input", "go on"]).ok();
    world.relive(&["wait", &process.uuid]).ok();
    let inputs = world.records(&process.uuid, "input");
    let told = inputs.iter().find(|input| input["id"].as_str().unwrap().starts_with("rewind:")).unwrap();
    let text = told["text"].as_str().unwrap();
    let expected = "put your files back to how they were after step 1, then put single files back to how they were after step \
                    2, then undid the last of that.";
    assert!(text.contains(expected), "{text}");
}

#[test]
fn case_75_a_merge_in_the_middle_of_a_command_is_refused() {
    let world = World::new();
    let go = world.root().join("go");
    let waits = world.root().join("waits");
    let command = format!(
        "echo half > f; touch {}; until [ -e {} ]; do sleep 0.02; done; echo whole > f",
        waits.display(),
        go.display()
    );
    let process = world.begin_commands(&[&command], "  - text: over\n", &["--workspace", "own"]);
    wait_until("the command waits", || waits.exists());
    world.relive(&["merge", &process.uuid]).fails(3, &["in the middle of a command", "--force"]);
    assert!(!world.work().join("f").exists());
    let forced = world.relive(&["merge", &process.uuid, "--force"]).ok();
    assert!(forced.stderr.contains("in the middle of a command"), "{forced:?}");
    assert_eq!(fs::read_to_string(world.work().join("f")).unwrap(), "half\n");
    fs::write(&go, "").unwrap();
    world.relive(&["wait", &process.uuid]).ok();
    world.await_retired(&process.uuid);
    world.relive(&["merge", &process.uuid]).ok();
    assert_eq!(fs::read_to_string(world.work().join("f")).unwrap(), "whole\n");
}

#[test]
fn case_75_copies_that_a_killed_fork_left_are_removed_and_no_others() {
    let world = World::new();
    let process = world.run_commands(&["echo 1 > f"], &["--workspace", "own"]);
    let copies = world.own(&process).parent().unwrap().to_owned();
    let names = || {
        let mut names: Vec<_> =
            fs::read_dir(&copies).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    };
    assert_eq!(names(), std::slice::from_ref(&process.uuid), "its mark is gone");
    world.relive(&["daemon", "stop"]).ok();
    // As a daemon leaves them that is killed after the copy and before the journal, or in the middle of the copy.
    let (unclaimed, unfinished) = ("01890000-0000-7000-8000-000000000001", "01890000-0000-7000-8000-000000000002");
    let removed = "01890000-0000-7000-8000-000000000003";
    for name in [unclaimed.to_owned(), format!(".{unfinished}.relive-copy"), removed.to_owned()] {
        fs::create_dir(copies.join(&name)).unwrap();
        fs::write(copies.join(&name).join("f"), "1").unwrap();
    }
    for marked in [unclaimed, unfinished, &process.uuid] {
        fs::write(copies.join(format!(".{marked}.unclaimed")), "").unwrap();
    }
    world.relive(&["daemon", "start"]).ok();
    let mut expected = vec![process.uuid.clone(), removed.to_owned()];
    expected.sort();
    wait_until("they are removed", || names() == expected);
    assert_eq!(fs::read_to_string(copies.join(&process.uuid).join("f")).unwrap(), "1\n");
}

#[test]
fn names_that_reorder_text_are_shown_with_escapes_and_are_exact_in_json() {
    let world = World::new();
    let (name, shown) = ("gpj.\u{202e}exe", r"gpj.\342\200\256exe");
    let command = format!("echo own > '{name}'");
    let own = world.run_commands(&[&command], &["--workspace", "own"]);
    let process = world.run_commands(&[&format!("echo here > '{name}'")], &[]);
    let typed = format!("\"{shown}\"");
    let conflict = world.relive(&["merge", &own.uuid]).exits(3);
    assert!(conflict.stderr.contains(shown) && !conflict.stderr.contains('\u{202e}'), "{conflict:?}");
    for args in [
        &["diff", &process.uuid] as &[&str],
        &["diff", &process.uuid, "--stat"],
        &["rewind", &process.uuid, "--to-step", "0", "--dry-run"],
        &["restore", &process.uuid, "--step", "0", "--dry-run", &typed],
        &["merge", &own.uuid, "--force"],
    ] {
        let told = world.relive(args).ok();
        assert!(told.stdout.contains(shown), "{args:?}: {told:?}");
        assert!(![told.stdout, told.stderr].concat().contains('\u{202e}'), "{args:?}");
    }
    assert_eq!(world.changes(&["diff", &process.uuid]), [(name.to_owned(), "added".to_owned())]);
}

#[test]
fn a_merge_of_a_process_without_a_copy_is_refused_for_that_also_while_it_runs_a_command() {
    let world = World::new();
    let process = world.begin_commands(&["touch begun; sleep 600"], "  - text: over\n", &[]);
    wait_until("the command", || world.work().join("begun").exists());
    world.relive(&["merge", &process.uuid]).fails(2, &["there is nothing to merge", "hint: relive diff"]);
    world.relive(&["kill", "-KILL", &process.uuid]).ok();
}
