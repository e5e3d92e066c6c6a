//! Files with set-user-id and set-group-id bits, which Relive never sets.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use crate::workspaces_support::look;
use crate::world::World;

fn chmod(path: &std::path::Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn case_72_a_set_id_file_does_not_prevent_a_rewind_of_other_files() {
    let world = World::new();
    let file = world.work().join("f");
    fs::write(&file, "x\n").unwrap();
    chmod(&file, 0o4755);
    let process = world.run_commands(&["echo 1 > a", "echo 2 > a"], &[]);
    assert_eq!(world.info(&process.uuid)["workspace"]["grade"], "exact");
    let told = world.relive(&["rewind", &process.uuid, "--to-step", "1", "-y"]).ok();
    assert!(told.stderr.contains("verified") && !told.stderr.contains("set-user-id"), "{told:?}");
    let files = look(&world.work());
    assert_eq!(files[std::path::Path::new("f")].0, 0o4755);
    assert_eq!(files[std::path::Path::new("a")].1, b"1\n");
}

#[test]
fn case_72_a_rewind_that_writes_a_set_id_file_says_that_the_bit_is_lost() {
    let world = World::new();
    let file = world.work().join("f");
    fs::write(&file, "x\n").unwrap();
    chmod(&file, 0o4755);
    let process = world.run_commands(&["echo 1 > a", "rm f"], &[]);
    for flag in ["--dry-run", "-y"] {
        let told = world.relive(&["rewind", &process.uuid, "--to-step", "1", flag]).ok();
        assert!(told.stderr.contains("without the set-user-id or set-group-id bit: f"), "{told:?}");
    }
    assert_eq!(look(&world.work())[std::path::Path::new("f")].0, 0o755);
}

#[test]
fn case_75_a_set_id_bit_of_the_target_is_no_conflict() {
    let world = World::new();
    for name in ["f", "g", "h"] {
        fs::write(world.work().join(name), "x\n").unwrap();
        chmod(&world.work().join(name), 0o4755);
    }
    let process = world.run_commands(&["rm f; chmod 700 g; echo y > a"], &["--workspace", "own"]);
    let told = world.relive(&["merge", &process.uuid]).ok();
    assert!(!told.stderr.contains("conflict"), "{told:?}");
    let files = look(&world.work());
    assert!(!files.contains_key(std::path::Path::new("f")));
    assert_eq!((files[std::path::Path::new("g")].0, files[std::path::Path::new("h")].0), (0o700, 0o4755));
}
