//! Copies whose removal fails, or is interrupted, in the middle.

use std::fs;
use std::path::PathBuf;

use serde_json::json;

use crate::workspaces_support::look;
use crate::world::{Begun, World, wait_until};

impl World {
    /// A user whose daemon fails in the middle of each removal, with a process whose copy was merged.
    fn that_fails_to_remove() -> (Self, Begun, PathBuf) {
        let world = Self::new().with_env("RELIVE_FAULTS", "failing-removal");
        for name in 0..20 {
            fs::write(world.work().join(format!("f{name}")), "1\n").unwrap();
        }
        let process = world.run_commands(&["echo 2 > f1"], &["--workspace", "own"]);
        world.relive(&["merge", &process.uuid]).ok();
        let rest = world.root().join(format!("data-workspaces/.{}.relive-removed", process.uuid));
        (world, process, rest)
    }
}

#[test]
fn case_75_half_a_removed_copy_is_never_merged() {
    let (world, process, rest) = World::that_fails_to_remove();
    let (id, copy, before) = (process.uuid.as_str(), world.own(&process), look(&world.work()));
    let left = format!("files of it are left in {}", rest.display());
    world.relive(&["workspace", "rm", "-y", id]).fails(125, &[&left, &format!("hint: relive workspace rm {id}")]);
    let files = look(&rest).len();
    assert!(!copy.exists() && files > 0 && files < 20, "{files}");
    let merged = world.relive(&["merge", "--json", id]).ok().json();
    assert_eq!(merged["written"], json!(0), "{merged}");
    assert_eq!(look(&world.work()), before);
    world.relive(&["resume", id]).fails(3, &["was removed"]);
    assert_eq!(world.relive(&["workspace", "list", "--json"]).ok().json()["workspaces"], json!([]));
    // Another try goes on where that one stopped.
    world.relive(&["workspace", "rm", "-y", id]).fails(125, &[&left]);
    assert!(look(&rest).len() < files);
    world.kill_daemon();
    world.relive(&["daemon", "start"]).ok();
    wait_until("the next start has removed the rest", || !rest.exists());
    world.relive(&["workspace", "rm", "-y", id]).fails(4, &["is gone already"]);
    world.relive(&["merge", id]).ok();
    assert_eq!(look(&world.work()), before);
}

#[test]
fn case_75_a_process_whose_copy_cannot_be_removed_leaves_nothing_that_counts_as_a_copy() {
    let (world, process, rest) = World::that_fails_to_remove();
    let said = format!("was removed, but files of it are left in {}", rest.display());
    world.relive(&["rm", "-y", &process.uuid]).fails(125, &[&format!("{} was removed; ", process.uuid), &said]);
    assert!(rest.exists() && !world.directory(&process.uuid).exists());
    assert_eq!(world.relive(&["workspace", "list", "--json"]).ok().json()["workspaces"], json!([]));
    world.relive(&["gc", "-y"]).ok();
    assert!(!rest.exists(), "the collector removes the rest");
    let left = fs::read_dir(world.root().join("data-workspaces")).unwrap();
    assert_eq!(left.map(|entry| entry.unwrap().file_name()).collect::<Vec<_>>(), Vec::<std::ffi::OsString>::new());
}
