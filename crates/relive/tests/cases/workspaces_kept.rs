//! Work that no verb about files may lose, and processes that a refused one leaves as they were.

use std::fs;

use serde_json::json;

use crate::world::World;

#[test]
fn case_75_rules_above_a_directory_hold_in_its_copy() {
    let world = World::new();
    let work = world.work();
    fs::create_dir_all(work.join(".git/info")).unwrap();
    fs::create_dir_all(work.join("s/excl")).unwrap();
    for (path, text) in [
        (".git/HEAD", "ref: refs/heads/main\n"),
        (".git/info/exclude", "excl/\n"),
        (".gitignore", "*.o\n"),
        ("s/a", "1\n"),
        ("s/k.o", "mine\n"),
        ("s/excl/x", "mine\n"),
    ] {
        fs::write(work.join(path), text).unwrap();
    }
    let build = "echo 2 > a; mkdir -p excl; for f in k.o n.o excl/x excl/y; do echo built > $f; done";
    let script =
        world.script(&format!("turns: [{{calls: [{{name: shell, args: {{command: '{build}'}}}}]}}, {{text: over}}]"));
    let args = ["run", "-d", "-y", "--isolation", "none", "--workspace", "own", "--json", "--model", &script, "x"];
    let run = crate::world::output(world.command(&args).current_dir(work.join("s")).output().unwrap()).ok().json();
    let process = crate::world::begun(&run);
    world.relive(&["wait", &process.uuid]).ok();
    world.await_retired(&process.uuid);
    let diff = world.relive(&["diff", "--json", &process.uuid]).ok().json();
    assert_eq!(diff["files"].as_array().unwrap().len(), 1, "{diff}");
    let merged = world.relive(&["merge", "--json", &process.uuid]).ok().json();
    assert_eq!((&merged["written"], &merged["files"][0]["path"]), (&json!(1), &json!("a")));
    assert_eq!(fs::read_to_string(work.join("s/k.o")).unwrap(), "mine\n");
    // A fork of the copy obeys them too.
    let (fork, _) = world.fork_at(&process, 1, &[]);
    fs::write(world.own(&fork).join("more.o"), "built").unwrap();
    let diff = world.relive(&["merge", "--dry-run", "--json", &fork.uuid]).ok().json();
    assert!(!diff.to_string().contains("more.o"), "{diff}");
}

#[test]
fn case_75_an_ignored_file_that_was_removed_in_a_copy_is_named_by_its_merge() {
    let world = World::new();
    for (path, text) in [(".gitignore", "*.o\n"), ("a", "1\n"), ("kept.o", "1\n"), ("gone.o", "1\n")] {
        fs::write(world.work().join(path), text).unwrap();
    }
    for args in [&["init", "-q"][..], &["add", "-f", "."]] {
        let done = std::process::Command::new("git").current_dir(world.work()).args(args).status().unwrap();
        assert!(done.success());
    }
    let process = world.run_commands(&["echo 2 > a; rm gone.o"], &["--workspace", "own"]);
    let merged = world.relive(&["merge", &process.uuid]).ok();
    let said = format!("ignored and not there in the workspace of {}, but not removed here: gone.o\n", process.uuid);
    assert!(merged.stderr.contains(&said) && world.work().join("gone.o").exists(), "{merged:?}");
    assert_eq!(fs::read_to_string(world.work().join("a")).unwrap(), "2\n");
}

#[test]
fn case_75_files_that_a_merge_cannot_bring_back_are_named_and_keep_the_copy() {
    let world = World::with_config("workspace: {max_file_mb: 1}\n");
    let commands = ["head -c 2000000 /dev/zero > big; echo new > small"];
    let process = world.run_commands(&commands, &["--workspace", "own"]);
    let own = world.own(&process);
    world.relive(&["merge", &process.uuid]).fails(3, &["partial", "--force"]);
    let merged = world.relive(&["merge", &process.uuid, "--force"]).ok();
    assert!(merged.stderr.contains("not merged") && merged.stderr.contains("big"), "{merged:?}");
    assert!(world.work().join("small").exists() && !world.work().join("big").exists());
    let again = world.relive(&["merge", &process.uuid, "--force"]).ok();
    assert!(again.stderr.contains("big"), "{again:?}");
    assert_eq!(world.relive(&["workspace", "list", "--json"]).ok().json()["workspaces"][0]["dirty"], true);
    world.relive(&["workspace", "rm", "-y", &process.uuid]).fails(3, &["big", "--force"]);
    assert!(own.join("big").exists());
    world.relive(&["workspace", "rm", "--force", &process.uuid]).ok();
    assert!(!own.exists());
}

#[test]
fn case_75_a_repository_that_was_made_in_a_copy_is_named_and_keeps_the_copy() {
    let world = World::new();
    let commit = "git init -q empty; git init -q made; cd made; echo 1 > f; git add f; \
                  git -c user.name=t -c user.email=t@t commit -qm one; git rm -q f; echo 2 > g";
    let process = world.run_commands(&[commit], &["--workspace", "own"]);
    let own = world.own(&process);
    let merged = world.relive(&["merge", &process.uuid]).ok();
    assert!(merged.stderr.contains("not merged") && merged.stderr.contains("made/.git"), "{merged:?}");
    assert!(!merged.stderr.contains("empty/.git") && world.work().join("made/g").exists(), "{merged:?}");
    let refused = world.relive(&["workspace", "rm", "-y", &process.uuid]).fails(3, &["made/.git", "--force"]);
    assert!(!refused.stderr.contains("empty/.git") && own.join("made/.git").exists(), "{refused:?}");
    world.relive(&["workspace", "rm", "--force", &process.uuid]).ok();
    assert!(!own.exists());
}

#[test]
fn case_72_what_an_agent_does_after_a_merge_into_its_directory_is_its_own() {
    let world = World::new();
    let other = world.run_commands(&["echo merged > merged"], &["--workspace", "own"]);
    let commands = ["echo 1 > first", "touch ../waits; until [ -e ../go ]; do sleep 0.02; done; echo 2 > mine"];
    let process = world.begin_commands(&commands, "  - text: over\n", &[]);
    crate::world::wait_until("the command waits", || world.root().join("waits").exists());
    world.relive(&["merge", &other.uuid]).ok();
    fs::write(world.root().join("go"), "").unwrap();
    world.relive(&["wait", &process.uuid]).ok();
    world.await_retired(&process.uuid);
    let snapshots = world.records(&process.uuid, "snapshot");
    let last = snapshots.last().unwrap();
    assert_eq!((&last["after"], &last["foreign"]), (&json!(2), &json!(["merged"])), "{snapshots:?}");
    let diff = world.relive(&["diff", &process.uuid, "--json"]).ok().json();
    let marks: Vec<_> =
        diff["files"].as_array().unwrap().iter().map(|file| (&file["path"], &file["foreign"])).collect();
    let own = &json!(null);
    assert_eq!(marks, [(&json!("first"), own), (&json!("merged"), &json!(true)), (&json!("mine"), own)]);
    let shown = world.relive(&["diff", &process.uuid, "--stat"]).ok().stdout;
    assert!(shown.contains("added (by others)"), "{shown}");
    let steps = world.relive(&["steps", &process.uuid]).ok().stdout;
    assert!(steps.contains("in 2 files (1 by others)"), "{steps}");
}

#[test]
fn case_72_a_refused_rewind_leaves_a_running_process_running() {
    let world = World::new();
    let process = world.begin_commands(&["echo 1 > f", "echo 2 > f"], "  - hang: true\n", &[]);
    world.await_step(&process, 3);
    world.relive(&["rewind", &process.uuid, "--to-step", "9", "-y"]).fails(3, &["has no step 9: its last one is"]);
    world.relive(&["restore", &process.uuid, "--step", "1", "/etc/passwd"]).fails(2, &["not in the workspace"]);
    assert_eq!(world.records(&process.uuid, "paused").len(), 0, "nothing had to be paused for that");
    // What can be told only while it stands still.
    fs::write(world.work().join("theirs"), "of somebody else").unwrap();
    world.relive(&["rewind", &process.uuid, "--to-step", "1", "-y"]).fails(3, &["theirs", "--force"]);
    assert_ne!(world.info(&process.uuid)["display"], "suspended");
    world.await_step(&process, 3);
    // One that its user paused stays paused.
    world.relive(&["pause", "--now", &process.uuid]).ok();
    world.relive(&["rewind", &process.uuid, "--to-step", "1", "-y"]).fails(3, &["theirs", "--force"]);
    assert_eq!(world.info(&process.uuid)["display"], "suspended");
    world.end(&process);
}

#[test]
fn case_75_a_merge_elsewhere_does_not_count_for_the_origin() {
    let world = World::new();
    let process = world.run_commands(&["echo new > new"], &["--workspace", "own"]);
    let trial = world.root().join("trial");
    fs::create_dir(&trial).unwrap();
    let into = world.work().join("../trial");
    world.relive(&["merge", &process.uuid, "--into", into.to_str().unwrap()]).ok();
    assert!(trial.join("new").exists());
    assert_eq!(world.relive(&["workspace", "list", "--json"]).ok().json()["workspaces"][0]["dirty"], true);
    world.relive(&["workspace", "rm", "-y", &process.uuid]).fails(3, &["not merged", "--force"]);
    let merged = world.relive(&["merge", &process.uuid, "--json"]).ok().json();
    assert_eq!((&merged["written"], world.work().join("new").exists()), (&json!(1), true), "{merged}");
    for arguments in [&["merge", &*process.uuid][..], &["merge", &process.uuid, "--into", trial.to_str().unwrap()]] {
        assert_eq!(world.relive(&[arguments, &["--json"]].concat()).ok().json()["written"], 0, "{arguments:?}");
    }
    world.relive(&["workspace", "rm", "-y", &process.uuid]).ok();
}

#[test]
fn case_75_nothing_is_merged_into_a_repository_itself_or_into_relives_own_directories() {
    let world = World::new();
    let process = world.run_commands(&["echo new > new"], &["--workspace", "own"]);
    world
        .relive(&["exec", "--", "sh", "-c", "mkdir -p .git/hooks bare/objects bare/refs bare/hooks; echo > bare/HEAD"])
        .ok();
    let work = world.work();
    let own = world.own(&process);
    let refused = [
        (work.join(".git"), "a Git repository's own directory"),
        (work.join(".git/hooks"), "a Git repository's own directory"),
        (work.join("bare/hooks"), "a Git repository's own directory"),
        (world.data(), "belongs to Relive itself"),
        (world.data().join("snapshots"), "belongs to Relive itself"),
        (own.parent().unwrap().to_owned(), "belongs to Relive itself"),
    ];
    for (into, words) in &refused {
        for option in ["--force", "--dry-run"] {
            world.relive(&["merge", &process.uuid, "--into", into.to_str().unwrap(), option]).fails(2, &[words]);
        }
        assert!(!into.join("new").exists());
    }
    let into = |name: &str| world.relive(&["merge", &process.uuid, "--into", work.join(name).to_str().unwrap()]);
    into("bare/HEAD").fails(2, &["it is not a directory"]);
    into("nowhere").fails(4, &["it does not exist", "hint: relive merge"]);
    world.relive(&["merge", &process.uuid]).ok();
    assert!(work.join("new").exists());
}

#[test]
fn case_75_nothing_is_merged_through_a_directory_that_contains_relives_own() {
    let world = World::new();
    // No home directory, nor one above it, is merged into at all.
    let started = world.command(&["daemon", "start"]).env("HOME", "/nonexistent").output().unwrap();
    assert!(started.status.success(), "{started:?}");
    let commands = ["mkdir data data-workspaces; echo new > data/planted; echo new > data-workspaces/planted"];
    let process = world.run_commands(&commands, &["--workspace", "own"]);
    for option in ["--force", "--dry-run"] {
        let told = world.relive(&["merge", &process.uuid, "--into", world.root().to_str().unwrap(), option]);
        told.fails(2, &["cannot merge /", "/data", ": it belongs to Relive itself"]);
    }
    assert!(!world.data().join("planted").exists());
    world.relive(&["merge", &process.uuid]).ok();
    assert!(world.work().join("data/planted").exists(), "elsewhere it is a path like others");
}

#[test]
fn case_75_no_snapshot_is_collected_while_a_journal_cannot_be_read() {
    let world = World::new();
    let process = world.run_commands(&["echo 1 > f", "echo 2 > f"], &[]);
    let path = world.steps_file(&process.uuid);
    world.relive(&["daemon", "stop"]).ok();
    let bytes = fs::read(&path).unwrap();
    let mut damaged = bytes.clone();
    let record = b"\"kind\":\"snapshot\"";
    let at = damaged.windows(record.len()).position(|found| found == record).unwrap();
    damaged[at + record.len() + 1] ^= 1;
    fs::write(&path, &damaged).unwrap();
    let packs = || fs::read_dir(world.data().join("snapshots/objects/pack")).unwrap().count();
    let before = packs();
    let told = world.relive(&["gc", "--force"]).ok();
    assert!(told.stderr.contains("snapshots were not collected") && told.stderr.contains(&process.uuid), "{told:?}");
    let told = world.relive(&["gc", "--dry-run"]).ok();
    assert!(told.stderr.contains("would not be collected"), "{told:?}");
    assert_eq!(packs(), before);
    world.relive(&["daemon", "stop"]).ok();
    fs::write(&path, &bytes).unwrap();
    world.relive(&["gc", "--force"]).ok();
    world.relive(&["rewind", &process.uuid, "--to-step", "1", "-y"]).ok();
    assert_eq!(fs::read_to_string(world.work().join("f")).unwrap(), "1\n");
}

#[test]
fn case_75_a_link_in_place_of_the_directory_is_followed_by_no_merge_and_no_fork() {
    let world = World::new();
    let copy = world.run_commands(&["echo new > new"], &["--workspace", "own"]);
    let here = world.run_commands(&["echo here > here"], &[]);
    let elsewhere = world.root().join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    fs::rename(world.work(), world.root().join("moved")).unwrap();
    std::os::unix::fs::symlink(&elsewhere, world.work()).unwrap();
    world.relive(&["merge", &copy.uuid]).fails(5, &["is a link now"]);
    world.relive(&["resume", &here.uuid, "--fork", "--workspace", "here"]).fails(5, &["is a link now"]);
    assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 0);
}

#[test]
fn case_75_a_file_that_an_agent_only_ignores_is_not_removed_by_its_merge() {
    let world = World::new();
    fs::write(world.work().join("a.log"), "precious").unwrap();
    let process = world.run_commands(&["echo '*.log' > .gitignore"], &["--workspace", "own"]);
    for arguments in [&["diff", &*process.uuid, "--json"][..], &["merge", &process.uuid, "--json"]] {
        let answer = world.relive(arguments).ok().json();
        let paths: Vec<_> = answer["files"].as_array().unwrap().iter().map(|file| file["path"].clone()).collect();
        assert_eq!(paths, [json!(".gitignore")], "{arguments:?}");
    }
    assert_eq!(fs::read_to_string(world.work().join("a.log")).unwrap(), "precious");
    assert!(world.own(&process).join("a.log").exists());
}

#[test]
fn case_72_files_of_the_user_that_were_committed_since_are_not_removed() {
    let world = World::new();
    for (name, text) in [("a", "1\n"), (".env", "T\n"), ("server.key", "K\n")] {
        fs::write(world.work().join(name), text).unwrap();
    }
    let commit =
        "git init -q; git add -f .; git -c user.name=t -c user.email=t@t commit -qm x; echo 2 > a; echo n > made";
    let process = world.run_commands(&[commit, "echo 3 > a"], &[]);
    // The second finds nothing left to put back, and names them as well.
    for _ in 0..2 {
        let told = world.relive(&["rewind", &process.uuid, "--to-step", "0", "-y", "--json"]).ok().json();
        assert!(told.to_string().contains("left alone: .env, server.key"), "{told}");
        let read = |name: &str| fs::read_to_string(world.work().join(name)).unwrap();
        assert_eq!([read("a"), read(".env"), read("server.key")], ["1\n", "T\n", "K\n"]);
        assert!(!world.work().join("made").exists());
    }
}

#[test]
fn case_72_a_file_that_was_renamed_from_an_ignored_name_is_kept_and_named_by_a_rewind() {
    let world = World::new();
    fs::write(world.work().join(".env"), "KEY=1").unwrap();
    let process = world.run_commands(&["echo 1 > a", "mv .env env.txt; echo 2 > a", "echo 3 > a"], &[]);
    let rewind = |more: &[&str]| world.relive(&[&["rewind", &process.uuid, "--to-step", "1"], more].concat()).ok();
    let read = |name: &str| fs::read_to_string(world.work().join(name)).ok();
    let force = format!("relive rewind {} --to-step 1 --force", process.uuid);
    for told in [rewind(&["--dry-run"]), rewind(&["-y"])] {
        assert!(told.stderr.contains("kept: env.txt") && told.stderr.contains(&force), "{told:?}");
    }
    assert_eq!((read("a").as_deref(), read("env.txt").as_deref()), (Some("1\n"), Some("KEY=1")));
    let again = rewind(&["-y"]);
    assert!(again.stderr.contains("nothing was changed") && again.stderr.contains("kept: env.txt"), "{again:?}");
    let forced = rewind(&["--force"]);
    assert!(forced.stderr.contains("only an undo brings them back: env.txt"), "{forced:?}");
    assert_eq!(read("env.txt"), None);
    world.relive(&["rewind", &process.uuid, "--undo", "-y"]).ok();
    assert_eq!(read("env.txt").as_deref(), Some("KEY=1"));
}
