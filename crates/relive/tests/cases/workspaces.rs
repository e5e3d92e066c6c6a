//! Files and conversation move together: forks, diffs, rewinds, merges.

use std::fs;

use serde_json::{Value, json};

use crate::workspaces_support::look;
use crate::world::{World, wait_until};

/// Changes of every kind, by commands; each step keeps a copy of what it left.
const STEPS: [&str; 3] = [
    "mkdir -p src/deep; printf 'a\\nb\\n' > src/deep/text; head -c 9000 /dev/urandom > binary; ln -s src/deep/text link; \
     chmod 600 binary; mkdir empty; cp -a . ../one",
    "mv src/deep/text renamed; rm link; ln -s renamed link; chmod 755 binary; printf c >> renamed; rmdir empty; cp -a . ../two",
    "rm -r src; rm renamed; head -c 70000 /dev/zero > binary; cp -a . ../three",
];

#[test]
fn case_71_a_fork_has_the_files_of_its_step_byte_for_byte_and_the_original_is_untouched() {
    let world = World::new();
    fs::write(world.work().join("given"), "from before\n").unwrap();
    let original = world.run_commands(&STEPS, &[]);
    let left = look(&world.work());
    assert_eq!(left, look(&world.root().join("three")));
    for (step, state) in [(1, "one"), (2, "two"), (3, "three")] {
        let (fork, told) = world.fork_at(&original, step, &[]);
        let own = world.own(&fork);
        assert_ne!(own, world.work());
        assert_eq!((&told["workspace"]["kind"], &told["workspace"]["path"]), (&json!("own"), &json!(own)));
        assert_eq!(look(&own), look(&world.root().join(state)), "step {step}");
        assert_eq!(look(&world.work()), left, "the original is untouched");
        let said = world.records(&fork.uuid, "input");
        let text = said.iter().find(|input| input["id"] == "workspace").unwrap()["text"].as_str().unwrap().to_owned();
        assert!(text.contains(own.to_str().unwrap()), "the model is told where it works: {text}");
    }
}

#[test]
fn case_71_a_fork_works_here_where_the_files_are_not_known_or_it_is_asked_to() {
    let world = World::new();
    let original = world.run_commands(&STEPS[..1], &[]);
    let (fork, told) = world.fork_at(&original, 1, &["--workspace", "here"]);
    assert_eq!((&told["workspace"]["kind"], world.own(&fork)), (&json!("here"), world.work()));
    let off = World::with_config("workspace: {snapshots: off}\n");
    let original = off.run_commands(&STEPS[..1], &[]);
    let (fork, told) = off.fork_at(&original, 1, &[]);
    assert_eq!((&told["workspace"]["kind"], off.own(&fork)), (&json!("here"), off.work()));
    off.relive(&["resume", "--fork", "--workspace", "own", &original.uuid]).fails(3, &["not known", "hint: "]);
    assert_eq!(off.info(&original.uuid)["workspace"], json!(null));
    assert!(!off.data().join("snapshots").exists(), "nothing is kept");
}

#[test]
fn case_71_a_step_that_changes_nothing_is_not_recorded_and_one_that_does_is_shown() {
    let world = World::new();
    fs::write(world.work().join("f"), "1\n2\n").unwrap();
    let process = world.run_commands(&["cat f", "printf '1\\n3\\n4\\n' > f; echo n > g"], &[]);
    let snapshots = world.records(&process.uuid, "snapshot");
    let after: Vec<_> = snapshots.iter().map(|snapshot| snapshot["after"].as_u64().unwrap()).collect();
    assert_eq!(after, [0, 2], "{snapshots:?}");
    let steps = world.relive(&["steps", "--json", &process.uuid]).ok().json();
    assert_eq!(steps["steps"][1]["files"], json!({"changed": 2, "added": 3, "removed": 1, "foreign": 0}));
    assert!(world.relive(&["steps", &process.uuid]).ok().stdout.contains("+3 -1 in 2 files"));
    let diff = world.relive(&["diff", "--json", &process.uuid, "2"]).ok().json();
    assert_eq!(diff["files"][0], json!({"path": "f", "change": "modified", "added": 2, "removed": 1, "binary": false}));
    assert_eq!(world.relive(&["diff", "--json", &process.uuid, "1"]).ok().json()["files"], json!([]));
    let whole = world.relive(&["diff", &process.uuid]).ok().stdout;
    assert!(whole.contains("+++ b/f\n@@ -1,2 +1,3 @@\n 1\n-2\n+3\n+4\n"), "{whole}");
    let info = world.info(&process.uuid);
    assert_eq!((&info["workspace"]["kind"], &info["workspace"]["grade"]), (&json!("here"), &json!("exact")));
    assert_eq!(info["workspace"]["changed"], 2);
    // One that only reads leaves no trace at all.
    let reader = world.run("turns:\n  - calls: [{name: read, args: {path: f}}]\n  - text: over\n");
    world.relive(&["wait", &reader.uuid]).ok();
    assert_eq!(world.records(&reader.uuid, "snapshot"), Vec::<serde_json::Value>::new());
}

#[test]
fn case_72_a_rewind_is_verified_can_be_undone_and_refuses_what_others_changed() {
    let world = World::new();
    let process = world.run_commands(&STEPS, &[]);
    let left = look(&world.work());
    world.relive(&["rewind", &process.uuid, "--to-step", "1"]).fails(2, &["no terminal to ask on", "-y"]);
    let plan = world.relive(&["rewind", &process.uuid, "--to-step", "1", "--dry-run", "--json"]).ok().json();
    assert_eq!((plan["dry_run"].as_bool(), look(&world.work()) == left), (Some(true), true));
    fs::write(world.work().join("theirs"), "of somebody else").unwrap();
    let refused = world.relive(&["rewind", &process.uuid, "--to-step", "1", "-y"]).fails(3, &["theirs", "--force"]);
    assert!(world.work().join("theirs").exists() && !world.work().join("renamed").exists(), "{refused:?}");
    fs::remove_file(world.work().join("theirs")).unwrap();
    let done = world.relive(&["rewind", &process.uuid, "--to-step", "1", "-y", "--json"]).ok().json();
    assert_eq!((&done["verified"], &done["restored"]), (&json!(true), &json!(plan["restored"])));
    assert_eq!(look(&world.work()), look(&world.root().join("one")));
    let undo = done["undo"].as_str().unwrap().strip_prefix("relive ").unwrap().to_owned();
    world.relive(&undo.split(' ').collect::<Vec<_>>()).ok();
    assert_eq!(look(&world.work()), left);
    // With force also over what others changed; and that can be undone too.
    fs::write(world.work().join("theirs"), "of somebody else").unwrap();
    world.relive(&["rewind", &process.uuid, "--to-step", "2", "--force"]).ok();
    assert_eq!(look(&world.work()), look(&world.root().join("two")));
    world.relive(&["rewind", &process.uuid, "--undo", "-y"]).ok();
    assert_eq!(fs::read_to_string(world.work().join("theirs")).unwrap(), "of somebody else");
    world.relive(&["rewind", &process.uuid, "--to-step", "9", "-y"]).fails(3, &["has no step 9: its last one is"]);
}

#[test]
fn case_72_a_rewind_spares_what_others_changed_after_a_last_step_that_changed_nothing() {
    let world = World::new();
    let process = world.run_commands(&["echo 1 > f", "echo 2 > f", "true"], &[]);
    fs::write(world.work().join("theirs"), "of somebody else").unwrap();
    for verb in [["rewind", "--to-step"], ["restore", "--step"]] {
        let [verb, step] = verb;
        let mut typed = vec![verb, &process.uuid, step, "1", "-y"];
        if verb == "restore" {
            typed = vec![verb, &process.uuid, step, "1", "f"];
            fs::write(world.work().join("f"), "of somebody else").unwrap();
        }
        world.relive(&typed).fails(3, &["--force"]);
        assert!(world.work().join("theirs").exists(), "{verb}");
    }
    assert_eq!(fs::read_to_string(world.work().join("f")).unwrap(), "of somebody else");
}

#[test]
fn case_72_a_living_process_is_paused_for_a_rewind_and_its_model_is_told() {
    let world = World::new();
    let process = world.begin_commands(&["echo 1 > f", "echo 2 > f; echo 2 > g"], "  - hang: true\n", &[]);
    world.await_step(&process, 3);
    let done = world.relive(&["rewind", &process.uuid, "--to-step", "1", "-y", "--json"]).ok().json();
    assert_eq!((&done["paused"], &done["verified"], &done["restored"]), (&json!(true), &json!(true), &json!(2)));
    assert_eq!(fs::read_to_string(world.work().join("f")).unwrap(), "1\n");
    assert_eq!(world.info(&process.uuid)["display"], "suspended");
    let inputs = world.records(&process.uuid, "input");
    let told = inputs.last().unwrap()["text"].as_str().unwrap();
    assert!(told.contains("after step 1") && told.contains("f, g"), "{told}");
    world.relive(&["resume", &process.uuid]).ok();
    world.await_step(&process, 3);
    // One that has ended is told when it continues.
    world.end(&process);
    let inputs = world.records(&process.uuid, "input").len();
    world.relive(&["rewind", &process.uuid, "--to-step", "2", "-y"]).ok();
    assert_eq!(world.records(&process.uuid, "input").len(), inputs);
    assert_eq!(world.info(&process.uuid)["display"], "dead");
    world.relive(&["resume", &process.uuid]).ok();
    world.await_records(&process, "input", inputs + 1);
    assert!(world.records(&process.uuid, "input").last().unwrap()["text"].as_str().unwrap().contains("after step 2"));
    // Without a word to the model, where that is wanted.
    world.end(&process);
    world.relive(&["rewind", &process.uuid, "--to-step", "1", "-y", "--files-only"]).ok();
    world.relive(&["resume", &process.uuid]).ok();
    world.await_records(&process, "opened", 3);
    assert_eq!(world.records(&process.uuid, "input").len(), inputs + 1);
}

#[test]
fn case_72_some_files_are_restored_and_the_others_stay() {
    let world = World::new();
    let process = world.run_commands(&["mkdir d; echo 1 > d/a; echo 1 > b", "echo 2 > d/a; rm b"], &[]);
    let plan = world.relive(&["restore", &process.uuid, "--step", "1", "b", "--dry-run", "--json"]).ok().json();
    assert_eq!((&plan["written"], &plan["dry_run"]), (&json!(1), &json!(true)));
    let done = world.relive(&["restore", &process.uuid, "--step", "1", "b", "--json"]).ok().json();
    assert_eq!((&done["written"], &done["verified"], &done["conflicts"]), (&json!(1), &json!(true), &json!([])));
    let read = |path: &str| fs::read_to_string(world.work().join(path)).unwrap();
    assert_eq!((read("b"), read("d/a")), ("1\n".to_owned(), "2\n".to_owned()));
    world.relive(&["restore", &process.uuid, "--step", "1", "nothing"]).fails(2, &["nothing"]);
    world.relive(&["restore", &process.uuid, "--step", "1", "/etc/passwd"]).fails(2, &["not in the workspace"]);
    world.relive(&["restore", &process.uuid, "--step", "1", "d"]).ok();
    assert_eq!(read("d/a"), "1\n");
}

#[test]
fn case_75_changes_to_different_files_are_merged_and_to_the_same_lines_refused_and_named() {
    let world = World::new();
    for name in ["one", "two", "both"] {
        fs::write(world.work().join(name), "1\n2\n3\n4\n5\n").unwrap();
    }
    let own = ["--workspace", "own"];
    let first = world.run_commands(&["sed -i s/1/first/ one; sed -i s/1/first/ both"], &own);
    let second = world.run_commands(&["sed -i s/1/second/ two; sed -i s/5/second/ both; echo n > new"], &own);
    let third = world.run_commands(&["sed -i s/1/third/ both"], &own);
    let before = look(&world.work());
    assert_eq!(world.info(&first.uuid)["workspace"]["kind"], "own");
    let plan = world.relive(&["merge", &first.uuid, "--dry-run", "--json"]).ok().json();
    assert_eq!((&plan["written"], look(&world.work()) == before), (&json!(2), true));
    for (process, written) in [(&first, 2), (&second, 3)] {
        let merged = world.relive(&["merge", &process.uuid, "--json"]).ok().json();
        assert_eq!((&merged["written"], &merged["verified"]), (&json!(written), &json!(true)), "{merged}");
    }
    let read = |path: &str| fs::read_to_string(world.work().join(path)).unwrap();
    assert_eq!((read("one"), read("two")), ("first\n2\n3\n4\n5\n".to_owned(), "second\n2\n3\n4\n5\n".to_owned()));
    assert_eq!((read("both"), read("new")), ("first\n2\n3\n4\nsecond\n".to_owned(), "n\n".to_owned()));
    let before = look(&world.work());
    let refused = world.relive(&["merge", &third.uuid, "--json"]).exits(3).json();
    assert_eq!(refused["conflicts"], json!([{"path": "both", "kind": "lines"}]));
    world.relive(&["merge", &third.uuid]).fails(3, &["conflict: both (lines)", "nothing was written"]);
    assert_eq!(look(&world.work()), before);
    world.relive(&["merge", &third.uuid, "--force"]).ok();
    assert!(read("both").contains("<<<<<<<"), "{}", read("both"));
    let again = world.relive(&["merge", &first.uuid, "--json"]).ok().json();
    assert_eq!(again["written"], 0, "what was merged is not merged again");
    world.relive(&["merge", "1"]).ok();
}

#[test]
fn case_75_own_workspaces_are_listed_and_removed_when_they_are_merged() {
    let world = World::new();
    fs::write(world.work().join("f"), "1\n").unwrap();
    let process = world.run_commands(&["echo 2 >> f"], &["--workspace", "own"]);
    let path = world.own(&process);
    let listed = world.relive(&["workspace", "list", "--json"]).ok().json();
    let bytes = listed["workspaces"][0]["bytes"].clone();
    let expect = json!({
        "uuid": process.uuid, "path": path, "kind": "own", "bytes": bytes, "dirty": true, "known": true,
    });
    assert_eq!(listed["workspaces"], json!([expect]));
    world.relive(&["workspace", "rm", "-y", &process.uuid]).fails(3, &["not merged", "relive merge"]);
    world.relive(&["workspace", "rm", "--dry-run", &process.uuid]).fails(3, &["not merged", "relive merge"]);
    let other = world.root().join("other");
    fs::create_dir(&other).unwrap();
    fs::write(other.join("f"), "1\n").unwrap();
    world.relive(&["merge", &process.uuid, "--into", other.to_str().unwrap()]).ok();
    assert_eq!(fs::read_to_string(other.join("f")).unwrap(), "1\n2\n");
    // That brought nothing back to where it came from.
    world.relive(&["workspace", "rm", "-y", &process.uuid]).fails(3, &["not merged", "relive merge"]);
    world.relive(&["merge", &process.uuid]).ok();
    world.relive(&["workspace", "rm", &process.uuid]).fails(2, &["no terminal to ask on"]);
    world.relive(&["workspace", "rm", "-y", &process.uuid]).ok();
    assert!(!path.exists());
    world.relive(&["workspace", "rm", "-y", &process.uuid]).fails(4, &["is gone already"]);
    let here = world.run_commands(&["true"], &[]);
    let works = format!("has no workspace of its own: it works in {}", world.work().display());
    world.relive(&["workspace", "rm", "-y", &here.uuid]).fails(4, &[&works]);
    world.relive(&["merge", &here.uuid]).fails(2, &["nothing to merge"]);
}

#[test]
fn case_72_what_another_agent_did_in_the_same_directory_is_foreign_and_not_rewound() {
    let world = World::new();
    // Each waits for the other, so that they take turns.
    let until = |file: &str| format!("until [ -e ../{file} ]; do sleep 0.02; done");
    let first = ["echo a > a; touch ../first", &format!("{}; echo a2 > a", until("second")), "true"];
    let first = world.begin_commands(&first, "  - text: over\n", &[]);
    let second = world.begin_commands(&[&format!("{}; echo b > b", until("first"))], "  - text: over\n", &[]);
    world.relive(&["wait", &second.uuid]).ok();
    fs::write(world.root().join("second"), "").unwrap();
    world.relive(&["wait", &first.uuid]).ok();
    world.await_retired(&first.uuid);
    let snapshots = [&first, &second].map(|process| world.records(&process.uuid, "snapshot"));
    let is_foreign = |record: &Value| record["foreign"].to_string().contains("\"b\"");
    assert!(snapshots[0].iter().any(is_foreign), "{snapshots:#?}");
    let refused = world.relive(&["rewind", &first.uuid, "--to-step", "0", "-y"]).fails(3, &["others", "b"]);
    assert!(world.work().join("b").exists() && world.work().join("a").exists(), "{refused:?}");
    world.relive(&["rewind", &first.uuid, "--to-step", "0", "--force"]).ok();
    assert!(!world.work().join("b").exists());
}

#[test]
fn case_71_a_directory_that_is_too_large_says_so_once_and_the_agent_works_on() {
    let world = World::with_config("workspace: {max_files: 3}\n");
    for number in 0..5 {
        fs::write(world.work().join(number.to_string()), "").unwrap();
    }
    let process = world.run_commands(&["echo 1 > f", "echo 2 > f", "echo 3 > f"], &[]);
    let events = world.events(&process.uuid);
    let said: Vec<_> = events.iter().filter(|event| event["kind"] == "snapshots_off").collect();
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(said[0]["text"].as_str().unwrap().contains("more than 3 files"));
    assert_eq!(world.records(&process.uuid, "snapshot").len(), 0);
    assert_eq!(fs::read_to_string(world.work().join("f")).unwrap(), "3\n");
    world.relive(&["rewind", &process.uuid, "--to-step", "1", "-y"]).fails(3, &["not known"]);
}

#[test]
fn case_75_a_line_is_blamed_on_the_process_and_step_that_wrote_it() {
    let world = World::new();
    fs::write(world.work().join("f"), "given\n").unwrap();
    let first = world.run_commands(&["echo one >> f", "echo two >> f"], &[]);
    let second = world.run_commands(&["sed -i 's/one/ONE/' f"], &["--workspace", "own"]);
    world.relive(&["merge", &second.uuid]).ok();
    let lines = world.relive(&["blame", "f", "--json"]).ok().json()["lines"].clone();
    let who = |at: usize| (lines[at]["uuid"].clone(), lines[at]["step"].clone(), lines[at]["text"].clone());
    assert_eq!(who(0), (json!(null), json!(null), json!("given")));
    assert_eq!(who(1), (json!(second.uuid), json!(1), json!("ONE")));
    assert_eq!(who(2), (json!(first.uuid), json!(2), json!("two")));
    let one = world.relive(&["blame", "f:3", "--json"]).ok().json();
    assert_eq!((one["lines"].as_array().unwrap().len(), &one["lines"][0]["intent"]), (1, &json!("do it")));
    for line in ["f:0", "f:99"] {
        world.relive(&["blame", line]).fails(2, &["1 to 3"]);
    }
    world.relive(&["blame", "nothing"]).fails(4, &["no snapshot"]);
    world.run_commands(&["mkdir d; echo 1 > d/f; printf 'a\\0b\\n' > binary"], &[]);
    let directory = world.work().join("d").display().to_string();
    world.relive(&["blame", "d"]).fails(2, &[&format!("{directory} is a directory: name a file in it")]);
    world.relive(&["blame", "binary"]).fails(2, &["binary is not a text"]);
}

#[test]
fn case_71_snapshots_go_with_the_journals_that_name_them() {
    let world = World::with_config("gc: {retention_days: 0, max_entries: 1, interval_seconds: 3600}\n");
    let old = world.run_commands(&["head -c 300000 /dev/urandom > old"], &[]);
    let new = world.run_commands(&["rm old; echo kept > new"], &[]);
    world.await_retired(&new.uuid);
    let told = world.relive(&["gc", "--dry-run", "--json"]).ok().json();
    assert!(told["snapshots"]["bytes"].as_u64().unwrap() > 300_000, "{told}");
    // What was taken in the last minutes may not be in a journal yet: the next daemon knows that it is not needed.
    world.relive(&["daemon", "stop"]).ok();
    let told = world.relive(&["gc", "--force", "--json"]).ok().json();
    assert_eq!(told["uuids"], json!([old.uuid]));
    wait_until("the old files are gone", || {
        let store = fs::read_dir(world.data().join("snapshots/objects/pack")).unwrap();
        store.map(|entry| entry.unwrap().metadata().unwrap().len()).sum::<u64>() < 700_000
    });
    world.relive(&["rewind", &new.uuid, "--to-step", "0", "-y"]).ok();
    assert!(world.work().join("old").exists(), "the base of the newer one needs it");
}

#[test]
fn case_71_a_dry_run_announces_what_gc_then_frees() {
    let world = World::with_config("gc: {retention_days: 0, max_entries: 1, interval_seconds: 3600}\n");
    let noise = "head -c 300000 /dev/urandom > noise; seq 1000 > numbers";
    let old = world.run_commands(&[noise, "rm noise; seq 2000 > numbers", "seq 3000 > numbers"], &[]);
    let new = world.run_commands(&["seq 4000 > numbers"], &[]);
    world.await_retired(&new.uuid);
    // What was taken in the last minutes may not be in a journal yet: the next daemon knows that it is not needed.
    world.relive(&["daemon", "stop"]).ok();
    let planned = world.relive(&["gc", "--dry-run", "--json"]).ok().json();
    let freed = world.relive(&["gc", "--force", "--json"]).ok().json();
    assert_eq!(freed["uuids"], json!([old.uuid]));
    assert!(freed["snapshots"]["freed_bytes"].as_u64().unwrap() > 300_000, "{freed}");
    assert_eq!((&planned["freed_bytes"], &planned["snapshots"]), (&freed["freed_bytes"], &freed["snapshots"]));
}
