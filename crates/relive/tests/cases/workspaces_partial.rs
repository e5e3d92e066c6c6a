//! States that are not whole, sides that are not merged, and settings that change.

use std::fs;

use serde_json::json;

use crate::workspaces_support::{look, shell};
use crate::world::{World, begun};

#[test]
fn case_71_a_fork_of_a_partial_step_stays_partial() {
    let world = World::new();
    let process = world.run_commands(&["mkfifo pipe; echo 1 > a", "echo 2 > a"], &[]);
    let told = world.relive(&["resume", "--fork", "--from-step", "1", "--json", &process.uuid]).ok().json();
    assert_eq!((&told["workspace"]["kind"], &told["workspace"]["grade"]), (&json!("own"), &json!("partial")));
    let fork = begun(&told);
    world.relive(&["wait", &fork.uuid]).ok();
    world.await_retired(&fork.uuid);
    assert_eq!(fs::read_to_string(world.own(&fork).join("a")).unwrap(), "2\n", "it has worked on");
    assert_eq!(world.info(&fork.uuid)["workspace"]["grade"], "partial");
    let snapshots = world.records(&fork.uuid, "snapshot");
    let mut own = snapshots.iter().filter(|snapshot| snapshot["after"] != 0);
    assert!(own.all(|snapshot| snapshot["grade"] == "partial"), "{snapshots:?}");
    let again = world.relive(&["resume", "--fork", "--json", &fork.uuid]).ok().json();
    assert_eq!(again["workspace"]["grade"], "partial");
    world.relive(&["wait", &begun(&again).uuid]);
    let refused = world.relive(&["rewind", &process.uuid, "--to-step", "1", "-y"]);
    let said = "the snapshot is partial: some files could not be kept; these cannot be kept now: pipe\n";
    refused.fails(3, &[said, "--force"]);
}

#[test]
fn case_72_a_directory_that_outgrew_the_limits_goes_back_with_force() {
    let world = World::with_config("workspace: {max_files: 20}\n");
    let grow = "for i in $(seq 50); do echo $i > f$i; done; echo BAD > a";
    let process = world.run_commands(&["echo 1 > a", grow], &[]);
    let before = look(&world.work());
    let refused = world.relive(&["rewind", &process.uuid, "--to-step", "1", "-y"]);
    let way_out = format!("hint: relive rewind {} --to-step 1 --force\n", process.uuid);
    refused.fails(3, &["work has more than 20 files, the limit for snapshots", &way_out]);
    let refused = world.relive(&["restore", &process.uuid, "--step", "1", "a"]);
    refused.fails(3, &[&format!("hint: relive restore {} --step 1 --force a\n", process.uuid)]);
    assert_eq!(look(&world.work()), before);
    world.relive(&["restore", &process.uuid, "--step", "1", "--force", "a"]).ok();
    assert_eq!((fs::read_to_string(world.work().join("a")).unwrap().as_str(), look(&world.work()).len()), ("1\n", 51));
    let told = world.relive(&["rewind", &process.uuid, "--to-step", "1", "--force", "--json"]).ok().json();
    assert_eq!((&told["verified"], look(&world.work()).len()), (&json!(true), 1));
    // It is small again, so the next steps have snapshots.
    let args = ["resume", &process.uuid, "--input", "go on", "--model"];
    // The model continues with the turn after those that it has taken.
    let turns =
        "{text: x}, {text: x}, {text: x}, {calls: [{name: shell, args: {command: 'echo 2 > a'}}]}, {text: over}";
    let more = world.script(&format!("turns: [{turns}]"));
    world.relive(&[&args[..], &[&more]].concat()).ok();
    world.relive(&["wait", &process.uuid]).ok();
    world.await_retired(&process.uuid);
    let shown = world.relive(&["steps", "--json", &process.uuid]).ok().json();
    let changed: Vec<_> = shown["steps"].as_array().unwrap().iter().map(|step| &step["files"]["changed"]).collect();
    assert!(changed.iter().rev().take(2).any(|changed| **changed == json!(1)), "{shown}");
}

#[test]
fn case_71_the_steps_of_a_fork_show_what_the_step_it_began_with_changed() {
    let world = World::new();
    let process = world.run_commands(&["echo 1 > a", "echo 2 > a; echo 2 > b", "echo 3 > a"], &[]);
    let (fork, _) = world.fork_at(&process, 2, &[]);
    let steps = world.relive(&["steps", "--json", &fork.uuid]).ok().json();
    assert_eq!(steps["steps"][0]["files"]["changed"], 1, "{steps}");
    assert_eq!(steps["steps"][1]["files"], json!({"changed": 2, "added": 2, "removed": 1, "foreign": 0}));
    let diff = world.relive(&["diff", "--json", &fork.uuid, "2"]).ok().json();
    assert_eq!(diff["files"].as_array().unwrap().len(), 2, "{diff}");
    // The lines stay those of the original.
    let blamed = world.relive(&["blame", "b", "--json"]).ok().json();
    assert_eq!(blamed["lines"][0]["uuid"], json!(process.uuid));
}

#[test]
fn case_71_a_step_whose_snapshot_failed_has_no_files_and_says_so() {
    let world = World::new();
    let objects = world.data().join("snapshots/objects");
    let objects = objects.display();
    let process = world.run_commands(
        &[
            "echo 1 > f",
            &format!("echo 2 > f; mv {objects} {objects}.away; touch {objects}"),
            &format!("echo 3 > f; rm {objects}; mv {objects}.away {objects}"),
        ],
        &[],
    );
    let missing: Vec<_> =
        world.events(&process.uuid).into_iter().filter(|event| event["kind"] == "snapshot_missing").collect();
    assert_eq!((missing.len(), &missing[0]["after"]), (1, &json!(2)), "{missing:?}");
    world.relive(&["rewind", &process.uuid, "--to-step", "2", "--force"]).fails(3, &["step 2", "not known"]);
    world.relive(&["diff", &process.uuid, "2"]).fails(3, &["step 2", "not known"]);
    let (_, told) = world.fork_at(&process, 2, &[]);
    assert_eq!(told["workspace"]["kind"], "here");
    for (step, expect) in [("1", "1\n"), ("3", "3\n")] {
        world.relive(&["rewind", &process.uuid, "--to-step", step, "-y"]).ok();
        assert_eq!(fs::read_to_string(world.work().join("f")).unwrap(), expect);
    }
}

#[test]
fn run_says_after_which_steps_it_has_no_snapshot() {
    let world = World::new();
    let objects = world.data().join("snapshots/objects");
    let objects = objects.display();
    let commands = [
        "echo 1 > f".to_owned(),
        format!("echo 2 > f; mv {objects} {objects}.away; touch {objects}"),
        "echo 3 > f".to_owned(),
        format!("echo 4 > f; rm {objects}; mv {objects}.away {objects}"),
    ];
    let turns: String = commands.iter().map(|command| shell(command)).collect();
    let path = world.root().join("missing.yaml");
    fs::write(&path, format!("turns:\n{turns}  - text: over\n")).unwrap();
    let model = format!("script/{}", path.display());
    let said = world.relive(&["run", "-n", "-y", "--isolation", "none", "--model", &model, "go"]).ok();
    assert!(said.stderr.contains("no snapshot after steps 2 and 3: relive steps 1"), "{said:?}");
    world.relive(&["steps", "1"]).ok();
    let path = world.root().join("all.yaml");
    fs::write(&path, format!("turns:\n{}  - text: over\n", shell("echo 5 > f"))).unwrap();
    let model = format!("script/{}", path.display());
    let said = world.relive(&["run", "-n", "-y", "--isolation", "none", "--model", &model, "go"]).ok();
    assert!(!said.stderr.contains("no snapshot"), "{said:?}");
}

#[test]
fn case_75_a_side_that_a_forced_merge_left_out_is_not_removed() {
    let world = World::new();
    fs::write(world.work().join("binary"), b"0\0").unwrap();
    let process = world.run_commands(&["printf '1\\000' > binary; echo new > new"], &["--workspace", "own"]);
    fs::write(world.work().join("binary"), b"2\0").unwrap();
    let refused = world.relive(&["merge", &process.uuid]).exits(3);
    assert!(refused.stderr.contains("both sides changed 1 file, so"), "{refused:?}");
    assert!(!refused.stderr.contains("markers") && refused.stderr.contains("leaves these files"), "{refused:?}");
    let merged = world.relive(&["merge", &process.uuid, "--force"]).ok();
    assert!(merged.stderr.contains("only in the workspace") && merged.stderr.contains("binary"), "{merged:?}");
    assert_eq!(fs::read(world.work().join("binary")).unwrap(), b"2\0");
    assert_eq!(fs::read_to_string(world.work().join("new")).unwrap(), "new\n");
    world.relive(&["workspace", "rm", "-y", &process.uuid]).fails(3, &["left out binary", "--force"]);
    let own = world.own(&process);
    assert_eq!(fs::read(own.join("binary")).unwrap(), b"1\0");
    world.relive(&["merge", &process.uuid]).ok();
    world.relive(&["workspace", "rm", "-y", &process.uuid]).fails(3, &["left out binary"]);
    // Nothing of it can be merged by force either: the next merge begins where this one did.
    fs::write(own.join("binary"), b"3\0").unwrap();
    let refused = world.relive(&["merge", "--force", &process.uuid]).exits(3);
    assert!(refused.stderr.contains("relive workspace path"), "{refused:?}");
    world.relive(&["merge", &process.uuid]).fails(3, &["conflict: binary"]);
    world.relive(&["workspace", "rm", "--force", &process.uuid]).ok();
    world.relive(&["workspace", "path", &process.uuid]).fails(4, &["was removed", own.to_str().unwrap()]);
}

#[test]
fn case_71_other_settings_hold_for_the_next_snapshots_without_a_restart() {
    let world = World::with_config("workspace: {snapshots: off}\n");
    let off = world.run_commands(&["echo 1 > f"], &[]);
    assert_eq!(world.records(&off.uuid, "snapshot").len(), 0);
    world.configure("workspace: {max_files: 1}\n");
    fs::write(world.work().join("g"), "").unwrap();
    let small = world.run_commands(&["echo 2 > f"], &[]);
    assert_eq!(world.records(&small.uuid, "snapshot").len(), 0);
    world.configure("workspace: {exclude: ['*.iso']}\n");
    let on = world.run_commands(&["echo 3 > f; echo x > x.iso"], &[]);
    assert_eq!(world.records(&on.uuid, "snapshot").len(), 2);
    let changed = |uuid: &str| {
        let diff = world.relive(&["diff", "--json", uuid]).ok().json();
        diff["files"].as_array().unwrap().iter().map(|file| file["path"].clone()).collect::<Vec<_>>()
    };
    assert_eq!(changed(&on.uuid), [json!("f")]);
    world.configure("workspace: {}\n");
    let all = world.run_commands(&["echo 4 > f; echo y > x.iso"], &[]);
    assert_eq!(changed(&all.uuid), [json!("f"), json!("x.iso")]);
    let before = look(&world.work());
    world.relive(&["rewind", &on.uuid, "--to-step", "1", "--force"]).ok();
    assert_eq!(
        look(&world.work())[std::path::Path::new("x.iso")],
        before[std::path::Path::new("x.iso")],
        "excluded then"
    );
    let warnings = world.relive(&["daemon", "status", "--json"]).ok().json()["daemon"]["warnings"].to_string();
    assert!(!warnings.contains("restart"), "{warnings}");
}

#[test]
fn a_call_that_writes_is_shown_as_a_diff_also_as_json() {
    let world = World::new();
    fs::write(world.work().join("f"), "1\n2\n3\n").unwrap();
    let turns = "turns:\n  - calls: [{name: write, args: {path: f, content: \"1\\ntwo\\n3\\n\"}}]\n  - text: over\n";
    let process = world.run_with(turns, &["--ask", "write"]);
    world.await_display(&process.uuid, "approval");
    let expect = "  |  1\n  | -2\n  | +two\n  |  3\n";
    let told = world.relive(&["resolve", &process.uuid]).ok().stdout;
    assert!(told.contains("asks to overwrite f:") && told.contains(expect), "{told}");
    let told = world.relive(&["resolve", "--json", &process.uuid]).ok().json();
    assert!(told["diff"].as_str().unwrap().ends_with(expect), "{told}");
    world.relive(&["resolve", &process.uuid, "--allow"]).ok();
    world.relive(&["wait", &process.uuid]).ok();
}
