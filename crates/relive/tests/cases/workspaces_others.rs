//! The work of others in a directory is never undone unasked.

use std::fs;

use crate::world::World;

#[test]
fn case_72_a_restore_does_not_make_the_changes_of_others_its_own() {
    let world = World::new();
    fs::write(world.work().join("notes"), "1\n").unwrap();
    let process = world.run_commands(&["echo g > g; echo f > f"], &[]);
    fs::write(world.work().join("notes"), "mine\n").unwrap();
    fs::write(world.work().join("new"), "mine\n").unwrap();
    let rewind = ["rewind", &process.uuid, "--to-step", "0", "-y"];
    world.relive(&rewind).fails(3, &["notes"]);
    world.relive(&["restore", &process.uuid, "--step", "0", "g"]).ok();
    assert!(!world.work().join("g").exists());
    world.relive(&rewind).fails(3, &["new", "notes", "--force"]);
    assert_eq!(fs::read_to_string(world.work().join("notes")).unwrap(), "mine\n");
    assert_eq!(fs::read_to_string(world.work().join("new")).unwrap(), "mine\n");
    // What was forced over is not there any more, and its own work is never refused.
    world.relive(&["rewind", &process.uuid, "--to-step", "0", "--force"]).ok();
    assert_eq!(fs::read_to_string(world.work().join("notes")).unwrap(), "1\n");
    world.relive(&["rewind", &process.uuid, "--to-step", "1", "-y"]).ok();
    world.relive(&rewind).ok();
}
