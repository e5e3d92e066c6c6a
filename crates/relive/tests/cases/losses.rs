//! What would be lost is named before: files of others by a rewind, and changes in a copy by `rm` and `gc`.

use std::fs;

use serde_json::json;

use crate::world::World;

#[test]
fn a_refused_rewind_names_every_file_of_others_that_force_would_change() {
    let world = World::new();
    let process = world.run_commands(&["echo 1 > a", "echo 2 > a"], &[]);
    let (mine, theirs) = (world.work().join("mine"), world.work().join("a"));
    fs::write(&mine, "mine\n").unwrap();
    // Its snapshot from before has the file, so it is known to the journal, and not changed since.
    world.relive(&["restore", &process.uuid, "--step", "1", "a"]).ok();
    fs::write(&theirs, "more\n").unwrap();
    let rewind = ["rewind", &process.uuid, "--to-step", "2"];
    let says = ["changed since, and not by this process: a", "--force would delete mine, and overwrite a"];
    world.relive(&rewind).fails(3, &says);
    world.relive(&[&rewind[..], &["-y"]].concat()).fails(3, &says);
    assert_eq!(fs::read_to_string(&mine).unwrap(), "mine\n");
    // On a terminal somebody can be asked.
    let told = world.on_terminal(&format!("rewind {} --to-step 2 --force", process.uuid)).ok();
    assert!(told.stdout.contains("mine") && told.stdout.contains("[y/N]"), "{told:?}");
    assert!(told.stdout.contains("nothing was changed") && mine.exists(), "{told:?}");
    world.relive(&[&rewind[..], &["--force"]].concat()).ok();
    assert!(!mine.exists());
    world.relive(&["rewind", &process.uuid, "--undo", "-y"]).ok();
    assert_eq!(fs::read_to_string(&mine).unwrap(), "mine\n");
}

#[test]
fn rm_keeps_a_process_whose_copy_has_changes_that_were_not_merged() {
    let world = World::new();
    let process = world.run_commands(&["echo 1 > f"], &["--workspace", "own"]);
    let copy = world.own(&process);
    let says = ["has changes that were not merged", "hint: relive merge ", "relive workspace rm --force "];
    world.relive(&["rm", "-y", &process.uuid]).fails(3, &says);
    assert!(copy.join("f").exists() && world.histories() == 1);
    world.relive(&["merge", &process.uuid]).ok();
    world.relive(&["rm", "-y", &process.uuid]).ok();
    assert!(!copy.exists(), "what was merged goes with its process");
    assert_eq!(fs::read_to_string(world.work().join("f")).unwrap(), "1\n");
}

#[test]
fn gc_keeps_a_process_whose_copy_has_changes_that_were_not_merged_and_says_so() {
    let world = World::new();
    let merged = world.run_commands(&["echo 1 > f"], &["--workspace", "own"]);
    world.relive(&["merge", &merged.uuid]).ok();
    let unmerged = world.run_commands(&["echo 2 > g"], &["--workspace", "own"]);
    let (gone, stays) = (world.own(&merged), world.own(&unmerged));
    let gc = ["gc", "--older-than", "0s", "--json"];
    let kept = "1 process is kept, because its workspace has changes that were not merged: relive workspace list";
    let told = world.relive(&[&gc[..], &["--dry-run"]].concat()).ok();
    assert!(told.stderr.contains(kept), "{told:?}");
    let told = world.relive(&[&gc[..], &["--force"]].concat()).ok();
    assert!(told.stderr.contains(kept), "{told:?}");
    assert_eq!(told.json()["uuids"], json!([merged.uuid]), "{told:?}");
    assert!(!gone.exists() && stays.join("g").exists());
    world.relive(&["merge", &unmerged.uuid]).ok();
    assert_eq!(fs::read_to_string(world.work().join("g")).unwrap(), "2\n");
}

#[test]
fn a_copy_without_a_journal_is_not_said_to_have_changes() {
    let world = World::new();
    // Where there is no process at all, nobody is asked.
    world.run_commands(&["true"], &[]);
    let process = world.run_commands(&["echo 1 > f"], &["--workspace", "own"]);
    let copy = world.own(&process);
    world.relive(&["daemon", "stop"]).ok();
    // An earlier version left the copy when it removed the process.
    fs::remove_dir_all(world.directory(&process.uuid)).unwrap();
    let says = ["is gone, so nobody knows whether its workspace was merged", &copy.display().to_string()];
    world.relive(&["workspace", "rm", "-y", &process.uuid]).fails(3, &says);
    world.relive(&["workspace", "rm", "--force", &process.uuid]).ok();
    assert!(!copy.exists());
}
