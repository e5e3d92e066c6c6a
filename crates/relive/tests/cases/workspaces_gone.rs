//! Directories that were removed, or replaced by a link.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::symlink;

use crate::workspaces_support::{look, shell};
use crate::world::{World, output, wait_until};

#[test]
fn case_75_a_removed_copy_can_still_be_merged_and_forked_and_is_not_resumed() {
    let world = World::new();
    fs::write(world.work().join("f"), "1\n").unwrap();
    let turns = [shell("echo 2 >> f; echo new > g"), "  - text: one\n".to_owned(), shell("echo 3 >> f")].concat();
    let process = world.run_with(&format!("turns:\n{turns}"), &["-y", "--workspace", "own"]);
    world.relive(&["wait", &process.uuid]).ok();
    world.await_retired(&process.uuid);
    let copy = world.own(&process);
    world.relive(&["workspace", "rm", "--force", &process.uuid]).ok();
    let id = process.uuid.as_str();
    let gone = format!("the workspace of {id} is gone already: {}", copy.display());
    world.relive(&["workspace", "rm", "-y", id]).fails(4, &[&gone]);
    world.relive(&["workspace", "path", id]).fails(4, &["was removed", "relive merge"]);
    world.relive(&["resume", id]).fails(3, &["was removed", &format!("relive resume --fork {id}")]);
    assert!(!copy.exists());
    let fork = world.relive(&["resume", "--fork", "--max-steps", "2", "--json", id]).ok().json();
    let fork_path = fork["workspace"]["path"].as_str().unwrap();
    assert_eq!(fs::read_to_string(format!("{fork_path}/f")).unwrap(), "1\n2\n");
    world.relive(&["merge", id]).ok();
    let read = |name: &str| fs::read_to_string(world.work().join(name)).unwrap();
    assert_eq!((read("f"), read("g")), ("1\n2\n".to_owned(), "new\n".to_owned()));
    let again = world.relive(&["merge", id]).ok().stderr;
    assert!(again.contains(&format!("nothing to change in {}\n", world.work().display())), "{again}");
    // A fork of a copy that is gone belongs to the directory itself.
    fs::write(format!("{fork_path}/h"), "fork\n").unwrap();
    world.relive(&["wait", fork["uuid"].as_str().unwrap()]);
    world.relive(&["merge", fork["uuid"].as_str().unwrap()]).ok();
    assert_eq!(read("h"), "fork\n");
}

#[test]
fn a_copy_that_somebody_has_removed_is_forgotten_with_its_process() {
    let world = World::new();
    let states = world.data().join("snapshots/workspaces");
    let states = || fs::read_dir(&states).unwrap().count();
    let [first, second] = [(); 2].map(|()| world.run_commands(&["echo 1 > f"], &["--workspace", "own"]));
    for process in [&first, &second] {
        world.relive(&["wait", &process.uuid]).ok();
        world.await_retired(&process.uuid);
        fs::remove_dir_all(world.own(process)).unwrap();
    }
    world.kill_daemon();
    world.relive(&["daemon", "start"]).ok();
    let before = states();
    world.relive(&["rm", "-y", &first.uuid]).ok();
    assert_eq!(states(), before - 1);
    world.relive(&["gc", "--older-than", "0s", "--force"]).ok();
    assert_eq!(states(), before - 2);
}

#[test]
fn case_75_a_directory_that_somebody_made_in_place_of_a_copy_is_not_trusted() {
    let world = World::new();
    fs::write(world.work().join("keep"), "keep\n").unwrap();
    // Removed by Relive, and by somebody else.
    for is_ours in [true, false] {
        let process = world.run_commands(&["echo 1 >> n"], &["--workspace", "own"]);
        let (id, copy) = (process.uuid.as_str(), world.own(&process));
        world.relive(&["merge", id]).ok();
        let merged = look(&world.work());
        if is_ours {
            world.relive(&["workspace", "rm", "-y", id]).ok();
        } else {
            fs::rename(&copy, world.root().join("aside")).unwrap();
        }
        let fork = format!("relive resume --fork {id}");
        let put_back: [&[&str]; 2] = [&["rewind", id, "--to-step", "0", "-y"], &["restore", id, "--step", "0", "n"]];
        for args in put_back {
            let refused = world.relive(args).fails(4, &["was removed", &fork]);
            assert!(!refused.stderr.contains("mkdir"), "{refused:?}");
        }
        fs::create_dir(&copy).unwrap();
        for args in put_back.into_iter().chain([&["resume", id] as &[&str]]) {
            world.relive(args).fails(3, &["is not the directory that Relive made", &fork]);
        }
        let told = world.relive(&["merge", id]).ok();
        assert!(told.stderr.contains("is not the directory that Relive made"), "{told:?}");
        assert_eq!(look(&world.work()), merged);
        let listed = world.relive(&["workspace", "list", "--json"]).ok().json();
        assert_eq!(listed["workspaces"][0]["dirty"], serde_json::Value::Null, "{listed}");
        if !is_ours {
            fs::remove_dir(&copy).unwrap();
            fs::rename(world.root().join("aside"), &copy).unwrap();
            let told = world.relive(&["merge", id]).ok();
            assert!(!told.stderr.contains("made"), "its own directory is trusted again: {told:?}");
            continue;
        }
        fs::write(copy.join("precious"), "p\n").unwrap();
        world.relive(&["workspace", "rm", "-y", id]).fails(3, &["is not the directory that Relive made", "--force"]);
        world.relive(&["workspace", "rm", "--force", id]).ok();
    }
}

#[test]
fn case_72_an_agent_whose_directory_was_removed_is_not_resumed() {
    let world = World::new();
    let process = world.run_commands(&["echo 1 > f"], &[]);
    let aside = world.root().join("aside");
    fs::rename(world.work(), &aside).unwrap();
    let typed = |args: &[&str]| output(world.command(args).current_dir(world.root()).output().unwrap());
    let hint = format!("mkdir -p {}", world.work().display());
    typed(&["resume", &process.uuid]).fails(3, &["was removed", &hint]);
    typed(&["resume", "--fork", "--workspace", "here", &process.uuid]).fails(3, &["no longer exists", &hint]);
    fs::rename(&aside, world.work()).unwrap();
    world.relive(&["resume", &process.uuid]).ok();
}

#[test]
fn case_74_a_link_in_place_of_a_directory_is_not_followed() {
    let world = World::new();
    let victim = world.root().join("victim");
    fs::create_dir(&victim).unwrap();
    fs::write(victim.join("f"), "1\n").unwrap();
    fs::write(victim.join("precious"), "p\n").unwrap();
    fs::write(world.work().join("f"), "1\n").unwrap();
    let before = look(&victim);
    let own = world.run_commands(&["echo 2 >> f"], &["--workspace", "own"]);
    let copy = world.own(&own);
    fs::rename(&copy, world.root().join("copy")).unwrap();
    symlink(&victim, &copy).unwrap();
    for args in [
        &["merge", own.uuid.as_str()] as &[&str],
        &["merge", "--force", &own.uuid],
        &["rewind", &own.uuid, "--to-step", "0", "--force"],
        &["resume", &own.uuid],
        &["workspace", "rm", "--force", &own.uuid],
    ] {
        world.relive(args).fails(5, &["is a link", "not followed"]);
    }
    assert_eq!(world.relive(&["workspace", "list", "--json"]).ok().json()["workspaces"], serde_json::json!([]));
    assert_eq!(fs::read_to_string(world.work().join("f")).unwrap(), "1\n");
    let here = world.run_commands(&["echo 2 >> f"], &[]);
    fs::rename(world.work(), world.root().join("moved")).unwrap();
    symlink(&victim, world.work()).unwrap();
    world.relive(&["rewind", &here.uuid, "--to-step", "0", "--force"]).fails(5, &["is a link", "not followed"]);
    assert_eq!(look(&victim), before);
}

#[test]
fn case_72_names_that_are_not_utf_8_are_restored_as_typed_and_as_shown() {
    let world = World::new();
    let name = b"odd \xff\"\n_";
    let process = world.run_commands(&[r#"printf '1\n' > "$(printf 'odd \377"\n_')""#], &[]);
    let path = world.work().join(OsStr::from_bytes(name));
    assert_eq!(fs::read_to_string(&path).unwrap(), "1\n");
    fs::write(&path, "2\n").unwrap();
    let mut command = world.command(&["restore", &process.uuid, "--step", "1", "--force"]);
    output(command.arg(OsStr::from_bytes(name)).output().unwrap()).ok();
    assert_eq!(fs::read_to_string(&path).unwrap(), "1\n");
    let mut blame = world.command(&["blame", "--json"]);
    let blame = output(blame.arg(OsStr::from_bytes(name)).output().unwrap()).ok().json();
    assert_eq!(blame["lines"][0]["uuid"], process.uuid.as_str());
    let diff = world.relive(&["diff", &process.uuid, "--json"]).ok().json();
    let shown = diff["files"][0]["path"].as_str().unwrap();
    assert_eq!(shown, r#""odd \377\"\n_""#);
    fs::remove_file(&path).unwrap();
    world.relive(&["restore", &process.uuid, "--step", "1", "--force", shown]).ok();
    assert_eq!(fs::read_to_string(&path).unwrap(), "1\n");
}

#[test]
fn case_75_the_size_of_a_copy_counts_files_that_no_snapshot_has() {
    let world = World::new();
    fs::write(world.work().join(".gitignore"), "ignored\n").unwrap();
    fs::create_dir(world.work().join(".git")).unwrap();
    let process = world.run_commands(&["head -c 3000000 /dev/urandom > ignored"], &["--workspace", "own"]);
    let listed = world.relive(&["workspace", "list", "--json"]).ok().json();
    let bytes = listed["workspaces"][0]["bytes"].as_u64().unwrap();
    assert!((3_000_000..4_000_000).contains(&bytes), "{listed}");
    let removed = world.relive(&["workspace", "rm", "--force", "--json", &process.uuid]).ok().json();
    assert_eq!(removed["bytes"], bytes);
}

/// A directory that somebody made in the place of a copy is not worked in, whatever is in it.
#[test]
fn case_75_a_fork_does_not_work_in_what_took_the_place_of_a_copy() {
    let world = World::new();
    let process = world.run_commands(&["echo 1 > f", "echo 2 > g"], &["--workspace", "own"]);
    let own = world.own(&process);
    fs::remove_dir_all(&own).unwrap();
    let fork = ["resume", "--fork", "--from-step", "1", "--workspace", "here", &process.uuid];
    let hint = format!("relive resume --fork --from-step 1 {}", process.uuid);
    world.relive(&fork).fails(4, &["was removed", &hint]);
    fs::create_dir(&own).unwrap();
    fs::write(own.join("precious"), "").unwrap();
    world.relive(&fork).fails(3, &["is not the directory that Relive made"]);
    assert_eq!(fs::read_dir(&own).unwrap().count(), 1, "nothing was done there");
}

/// A program takes no snapshot at its end, so what it did is only in its copy.
#[test]
fn case_75_the_changes_of_a_program_whose_copy_is_gone_are_not_taken_for_none() {
    for remade in [false, true] {
        let world = World::new();
        world.file("hold.sh", "while [ ! -e ../go ]; do sleep 0.01; done\n");
        let file = "nodes:
  p: {command: [sh, -c, 'echo good > good'], workspace: own}
  hold: {command: [sh, hold.sh]}
  x: {command: ['true'], depends_on: [p, hold]}
";
        world.file("c.yaml", file);
        let run = world.relive(&["compose", "up", "-d", "--json", "c.yaml"]).ok().json();
        let run = run["uuid"].as_str().unwrap().to_owned();
        let node = |name: &str| {
            let status = world.relive(&["compose", "status", "--json", &run]).ok().json();
            status["nodes"].as_array().unwrap().iter().find(|node| node["name"] == name).unwrap().clone()
        };
        wait_until("p has succeeded", || node("p")["state"] == "succeeded");
        let p = node("p")["uuid"].as_str().unwrap().to_owned();
        let own = world.relive(&["workspace", "path", &p]).ok().stdout.trim().to_owned();
        let shown = world.relive(&["diff", &p]).ok();
        let hint = format!("relive merge {p} --dry-run");
        assert!(!shown.stdout.contains("no file") && shown.stderr.contains(&hint), "{shown:?}");
        fs::remove_dir_all(&own).unwrap();
        if remade {
            fs::create_dir(&own).unwrap();
        }
        fs::write(world.root().join("go"), "").unwrap();
        world.relive(&["wait", &run]).exits(1);
        assert_ne!(node("x")["state"], "succeeded");
        // The next daemon knows it too.
        world.kill_daemon();
        let fork = "--node p --fork";
        world.relive(&["merge", &p]).fails(3, &["is not known", "hint: relive compose resume ", fork]);
        let shown = world.relive(&["diff", &p]).ok();
        assert!(!shown.stdout.contains("no file") && shown.stderr.contains("is gone, so its changes are unknown"));
        // It cannot continue, and its reason names the command with which it begins again.
        world.relive(&["compose", "resume", &run, "--node", "p"]).ok();
        world.relive(&["wait", &run]).exits(1);
        let reason = node("p")["reason"].as_str().unwrap().to_owned();
        let hint = reason.split("(hint: relive ").nth(1).and_then(|hint| hint.strip_suffix(')')).unwrap().to_owned();
        assert!(hint.starts_with("compose resume ") && hint.ends_with(fork), "{reason}");
        world.relive(&hint.split(' ').collect::<Vec<_>>()).ok();
        world.relive(&["wait", &run]).ok();
        assert_eq!(fs::read_to_string(world.work().join("good")).unwrap(), "good\n");
    }
}

/// The last snapshot of a program is its first, and that of an agent does not have what was changed in its copy by hand.
#[test]
fn case_75_what_was_merged_from_a_copy_that_was_removed_since_is_not_taken_back() {
    let world = World::new();
    let agent = world.run_commands(&["echo 1 > f"], &["--workspace", "own"]);
    fs::write(world.own(&agent).join("by-hand"), "1\n").unwrap();
    world.file(
        "c.yaml",
        "nodes:
  p: {command: [sh, -c, 'echo good > good'], workspace: own}
  x: {command: ['true'], depends_on: [p]}
",
    );
    let run = world.relive(&["compose", "up", "-d", "--json", "c.yaml"]).ok().json();
    let run = run["uuid"].as_str().unwrap();
    world.relive(&["wait", run]).ok();
    let status = world.relive(&["compose", "status", "--json", run]).ok().json();
    let program = status["nodes"][0]["uuid"].as_str().unwrap();
    world.relive(&["merge", &agent.uuid]).ok();
    let merged = look(&world.work());
    assert!(["f", "by-hand", "good"].iter().all(|name| merged.contains_key(std::path::Path::new(name))), "{merged:?}");
    for id in [agent.uuid.as_str(), program] {
        world.relive(&["workspace", "rm", "-y", id]).ok();
        world.relive(&["merge", id]).ok();
        assert_eq!(look(&world.work()), merged);
    }
    // The run merges its nodes again before what depends on them.
    world.relive(&["compose", "resume", run, "--node", "x"]).ok();
    world.relive(&["wait", run]).ok();
    assert_eq!(look(&world.work()), merged);
}

#[test]
fn case_75_a_merge_without_the_copy_says_which_steps_no_snapshot_has() {
    let world = World::new();
    let hang = "  - {text: waiting, hang: true}\n";
    let process = world.begin_commands(&["echo 1 > f", "echo 2 > f"], hang, &["--workspace", "own"]);
    world.await_step(&process, 3);
    world.kill_daemon();
    world.relive(&["kill", &process.uuid]).ok();
    world.relive(&["wait", &process.uuid]);
    world.await_retired(&process.uuid);
    fs::remove_dir_all(world.own(&process)).unwrap();
    let why = "no snapshot was taken after step 2, so what it and later steps changed was not merged";
    let merged = world.relive(&["merge", "--json", &process.uuid]).ok().json();
    assert_eq!(merged["note"], why);
    assert_eq!(fs::read_to_string(world.work().join("f")).unwrap(), "1\n");
}

/// Such a fork has nothing to merge, and no snapshot has what it did.
#[test]
fn case_75_what_a_forked_node_did_again_is_not_taken_back_when_its_copy_is_gone() {
    let world = World::new();
    world.file(
        "c.yaml",
        "nodes:
  p: {command: [sh, -c, 'echo good > good'], workspace: own}
  x: {command: ['true'], depends_on: [p]}
",
    );
    let run = world.relive(&["compose", "up", "-d", "--json", "c.yaml"]).ok().json();
    let run = run["uuid"].as_str().unwrap();
    world.relive(&["wait", run]).ok();
    world.relive(&["compose", "resume", run, "--node", "p", "--fork"]).ok();
    world.relive(&["wait", run]).ok();
    let status = world.relive(&["compose", "status", "--json", run]).ok().json();
    let fork = status["nodes"][0]["uuid"].as_str().unwrap();
    world.relive(&["workspace", "rm", "-y", fork]).ok();
    world.relive(&["compose", "resume", run, "--node", "x"]).ok();
    world.relive(&["wait", run]).ok();
    assert_eq!(fs::read_to_string(world.work().join("good")).unwrap(), "good\n");
}

/// Such a fork has the changes of both: they are those since the copy was made.
#[test]
fn case_75_a_fork_that_works_in_the_copy_of_its_original_merges_the_changes_of_both() {
    let world = World::new();
    fs::write(world.work().join("f"), "a\n").unwrap();
    let process = world.run_commands(&["echo 1 >> f", "echo 2 >> f"], &["--workspace", "own"]);
    let (fork, _) = world.fork_at(&process, 1, &["--workspace", "here"]);
    world.relive(&["merge", &fork.uuid]).ok();
    assert_eq!(fs::read_to_string(world.work().join("f")).unwrap(), "a\n1\n2\n");
}
