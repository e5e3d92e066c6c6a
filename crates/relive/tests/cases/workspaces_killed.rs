//! kill -9 in the middle of a restore or merge.

use std::fs;
use std::path::Path;
use std::process::{Child, Command};

use crate::workspaces_support::look;
use crate::world::{World, finish, kill, wait_until};

/// So many files that a change of all of them takes a while.
const MANY: &str = "for n in $(seq 1500); do echo $n > f$n; done; cp -a . ../old";
const OTHER: &str = "for n in $(seq 1500); do echo $n changed > f$n; done; rm f7; cp -a . ../new";

/// Waits until a plan is being carried out, and kills the daemon.
fn kill_in_the_middle(world: &World) {
    let states = world.data().join("snapshots/workspaces");
    let is_planned = |state: fs::DirEntry| state.path().join("plan").exists();
    wait_until("a plan", || fs::read_dir(&states).is_ok_and(|states| states.filter_map(Result::ok).any(is_planned)));
    world.kill_daemon();
}

fn kill_client(mut client: Child) {
    client.kill().unwrap();
    client.wait().unwrap();
}

/// What the next daemon says.
fn warnings(world: &World) -> String {
    world.relive(&["daemon", "status", "--json"]).ok().json()["daemon"]["warnings"].to_string()
}

fn is_whole(directory: &Path, states: &[&Path]) -> bool {
    let now = look(directory);
    states.iter().any(|state| look(state) == now)
}

#[test]
fn case_73_a_rewind_whose_daemon_is_killed_is_rolled_back_or_done_again_and_it_is_said() {
    let world = World::new();
    let process = world.run_commands(&[MANY, OTHER], &[]);
    let (old, new) = (world.root().join("old"), world.root().join("new"));
    // Nobody asks again: the next daemon rolls it back.
    let client = world.start(&["rewind", &process.uuid, "--to-step", "1", "-y", "--json"]);
    kill_in_the_middle(&world);
    kill_client(client);
    world.relive(&["daemon", "start"]);
    wait_until("it is settled", || is_whole(&world.work(), &[&old, &new]));
    assert!(is_whole(&world.work(), &[&new]), "nobody was told that it is done");
    assert!(warnings(&world).contains("rolled back"), "{}", warnings(&world));
    // The same command asks the next daemon again, and is told the truth.
    let client = world.start(&["rewind", &process.uuid, "--to-step", "1", "-y", "--json"]);
    kill_in_the_middle(&world);
    let done = finish(client).ok().json();
    assert_eq!(done["verified"], true);
    assert!(is_whole(&world.work(), &[&old]));
    world.relive(&["rewind", &process.uuid, "--to-step", "3", "-y"]).ok();
    assert!(is_whole(&world.work(), &[&new]));
}

#[test]
fn case_73_a_merge_whose_daemon_is_killed_is_rolled_back_or_done_again() {
    let world = World::new();
    world.run_commands(&[MANY], &[]);
    let process = world.run_commands(&[OTHER], &["--workspace", "own"]);
    let (old, new) = (world.root().join("old"), world.root().join("data-workspaces/new"));
    let client = world.start(&["merge", &process.uuid, "--json"]);
    kill_in_the_middle(&world);
    kill_client(client);
    world.relive(&["daemon", "start"]);
    wait_until("it is settled", || is_whole(&world.work(), &[&old, &new]));
    assert!(is_whole(&world.work(), &[&old]));
    let client = world.start(&["merge", &process.uuid, "--json"]);
    kill_in_the_middle(&world);
    assert_eq!(finish(client).ok().json()["verified"], true);
    assert!(is_whole(&world.work(), &[&new]));
}

/// What an interrupted merge saw is older than what the next one saw.
#[test]
fn case_73_a_merge_that_finds_all_files_there_after_an_interrupted_one_is_not_taken_back() {
    let world = World::new();
    world.run_commands(&[MANY], &[]);
    let process = world.run_commands(&[OTHER], &["--workspace", "own"]);
    let client = world.start(&["merge", &process.uuid, "--json"]);
    kill_in_the_middle(&world);
    kill_client(client);
    world.relive(&["daemon", "start"]).ok();
    wait_until("it is settled", || is_whole(&world.work(), &[&world.root().join("old")]));
    let own = world.own(&process);
    fs::write(own.join("by-hand"), "1\n").unwrap();
    let copied = Command::new("cp").arg("-a").arg(own.join(".")).arg(world.work()).status().unwrap();
    assert!(copied.success());
    fs::remove_file(world.work().join("f7")).unwrap();
    let both = look(&own);
    assert!(look(&world.work()) == both);
    world.relive(&["merge", &process.uuid]).ok();
    world.relive(&["workspace", "rm", "-y", &process.uuid]).ok();
    world.relive(&["merge", &process.uuid]).ok();
    assert!(world.work().join("by-hand").exists() && look(&world.work()) == both);
}

#[test]
fn case_73_a_rewind_that_a_start_could_not_roll_back_is_rolled_back_by_the_next_command() {
    let world = World::new();
    let process = world.run_commands(&[MANY, OTHER], &[]);
    let (old, new, aside) = (world.root().join("old"), world.root().join("new"), world.root().join("aside"));
    let client = world.start(&["rewind", &process.uuid, "--to-step", "1", "-y", "--json"]);
    kill_in_the_middle(&world);
    kill_client(client);
    // Another directory is in its place.
    fs::rename(world.work(), &aside).unwrap();
    fs::create_dir(world.work()).unwrap();
    world.relive(&["daemon", "start"]).ok();
    assert!(warnings(&world).contains("cannot be rolled back"), "{}", warnings(&world));
    let refused = world
        .relive(&["rewind", &process.uuid, "--to-step", "1", "-y"])
        .fails(3, &["belongs to a directory that is no longer at", "hint: rm "]);
    assert!(!refused.stderr.contains("--force"), "{refused:?}");
    fs::remove_dir(world.work()).unwrap();
    fs::rename(&aside, world.work()).unwrap();
    // A plan changes nothing, and names the command that does.
    let plan = world.relive(&["rewind", &process.uuid, "--to-step", "2", "--dry-run"]);
    let command = format!("relive rewind {} --to-step 2 -y", process.uuid);
    plan.fails(3, &["has to be finished or rolled back first", &command]);
    let typed: Vec<_> = command.split(' ').skip(1).collect();
    let done = world.relive(&typed).ok();
    assert!(done.stderr.contains("rolled back, and verified"), "{done:?}");
    assert!(is_whole(&world.work(), &[&new]));
    world.relive(&["rewind", &process.uuid, "--to-step", "1", "-y"]).ok();
    assert!(is_whole(&world.work(), &[&old]));
}

#[test]
fn case_73_a_rewind_of_a_copy_that_was_interrupted_is_rolled_back_by_a_merge() {
    let world = World::new();
    world.run_commands(&[MANY], &[]);
    let process = world.run_commands(&[OTHER], &["--workspace", "own"]);
    let (own, aside) = (world.own(&process), world.root().join("aside"));
    let new = own.with_file_name("new");
    let client = world.start(&["rewind", &process.uuid, "--to-step", "0", "-y", "--json"]);
    kill_in_the_middle(&world);
    kill_client(client);
    // The next daemon cannot roll it back: another directory is in its place.
    fs::rename(&own, &aside).unwrap();
    fs::create_dir(&own).unwrap();
    world.relive(&["daemon", "start"]).ok();
    fs::remove_dir(&own).unwrap();
    fs::rename(&aside, &own).unwrap();
    // A plan changes nothing, and names the command that does.
    let command = format!("relive merge {}", process.uuid);
    let plan = world.relive(&["merge", &process.uuid, "--dry-run"]);
    plan.fails(3, &["has to be finished or rolled back first", &command]);
    let merged = world.relive(&["merge", &process.uuid]).ok();
    assert!(merged.stderr.contains("rolled back, and verified"), "{merged:?}");
    assert!(is_whole(&own, &[&new]) && is_whole(&world.work(), &[&new]));
}

/// A daemon that is killed between the last file and the record of it.
#[test]
fn case_73_a_rewind_whose_daemon_is_killed_before_it_could_answer_can_be_asked_for_again() {
    let world = World::new();
    let process = world.run_commands(&["echo 1 > f", "echo 2 > f"], &[]);
    for round in 0..6 {
        let (step, text) = if round % 2 == 0 { ("1", "1\n") } else { ("2", "2\n") };
        let client = world.start(&["rewind", &process.uuid, "--to-step", step, "-y", "--json"]);
        wait_until("the file is written", || fs::read_to_string(world.work().join("f")).unwrap() == text);
        if let Some(daemon) = world.daemon_pid() {
            kill(daemon, rustix::process::Signal::KILL);
        }
        let done = finish(client).ok().json();
        assert_eq!(
            (done["verified"].as_bool(), fs::read_to_string(world.work().join("f")).unwrap()),
            (Some(true), text.into())
        );
    }
}
