//! Sessions whose shim cannot be asked any more: each has an end of its own, and nothing is started twice.

use std::fs;
use std::path::PathBuf;

use relive_session::folder::Folder;
use rustix::fs::FlockOperation;
use rustix::process::Signal;
use serde_json::{Value, json};

use super::sessions_support::is_alive;
use super::world::{Begun, World, kill, wait_until};

/// A program that runs, and then neither a daemon nor a shim.
fn lost(world: &World) -> (Begun, PathBuf) {
    let program = world.exec(&[], &["sh", "-c", "echo once >> runs; exec sleep 1000"]);
    let session = world.await_stage(&program, "running");
    let runs = world.work().join("runs");
    wait_until("it has run", || fs::read_to_string(&runs).is_ok_and(|text| text == "once\n"));
    let folder = PathBuf::from(session["folder"].as_str().unwrap());
    let state: Value = serde_json::from_slice(&fs::read(folder.join("state")).unwrap()).unwrap();
    world.kill_daemon();
    kill(u32::try_from(state["shim_pid"].as_u64().unwrap()).unwrap(), Signal::KILL);
    let host = session["host_pid"].as_u64().unwrap();
    wait_until("the program went with its shim", || !is_alive(host));
    (program, folder)
}

#[test]
fn a_program_of_another_boot_went_down_with_its_host_and_can_be_started_again() {
    let world = World::new();
    let (program, folder) = lost(&world);
    fs::write(folder.join("lock"), "another boot").unwrap();
    let info = world.await_display(&program.uuid, "dead");
    assert_eq!((&info["state"], &info["why"]), (&json!("dead"), &json!("host_lost")));
    assert_eq!(info["session"]["stage"], "errored");
    assert_eq!(info["session"]["result"]["error"]["stage"], "boot");
    assert_eq!(fs::read_to_string(world.work().join("runs")).unwrap(), "once\n", "not started again by itself");
    world.relive(&["resume", &program.uuid]).ok();
    world.await_stage(&program, "running");
}

#[test]
fn a_program_whose_shim_is_lost_says_so_also_to_the_next_daemon() {
    let world = World::new();
    let (program, _) = lost(&world);
    let info = world.await_display(&program.uuid, "dead");
    assert_eq!((&info["state"], &info["why"]), (&json!("dead"), &json!("shim_lost")));
    assert_eq!(info["session"]["result"]["error"]["stage"], "shim");
    assert_eq!(fs::read_to_string(world.work().join("runs")).unwrap(), "once\n");
}

#[test]
fn a_shim_of_another_version_is_not_talked_to_and_has_an_end_of_its_own() {
    let world = World::new();
    let (program, path) = lost(&world);
    // Somebody is there and greets, in a language of the future.
    let lock = fs::File::open(path.join("lock")).unwrap();
    rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive).unwrap();
    let _ = fs::remove_file(path.join("ctl"));
    let listener = Folder::open(path).unwrap().ctl_bind().unwrap();
    let greets = std::thread::spawn(move || {
        rustix::io::ioctl_fionbio(&listener, false).unwrap();
        let connection = rustix::net::accept(&listener).unwrap();
        let snapshot =
            json!({"mode": "spawn", "stage": "running", "host_pid": 1, "child_pid": 1, "pty": false, "result": null});
        let hello = json!({
            "kind": "notice", "notice": "hello", "version": 99, "relive": "99.0.0", "shim_pid": 1, "snapshot": snapshot,
        });
        rustix::io::write(&connection, format!("{hello}\n").as_bytes()).unwrap();
        // Held until the other side has heard it.
        let _ = rustix::io::read(&connection, &mut [0; 1]);
    });
    let info = world.await_display(&program.uuid, "dead");
    let status = json!({"kind": "startup_failed", "stage": "hello", "errno": "EPROTONOSUPPORT", "code": 93});
    assert_eq!((&info["state"], &info["status"]), (&json!("dead"), &status));
    assert_eq!(fs::read_to_string(world.work().join("runs")).unwrap(), "once\n");
    greets.join().unwrap();
    drop(lock);
}
