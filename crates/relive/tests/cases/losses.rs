//! What would be lost is named before.

use std::fs;

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
