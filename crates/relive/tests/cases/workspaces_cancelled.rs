//! Starts that are interrupted while the files are copied: the daemon holds each copy until the test lets it go.

use std::fs;
use std::path::PathBuf;
use std::process::Child;

use rustix::process::Signal;

use crate::world::{World, finish, kill, wait_for, wait_until};

impl World {
    /// A user whose daemon holds each copy.
    fn that_holds_copies() -> Self {
        let world = Self::new().with_env("RELIVE_FAULTS", "held-copy");
        fs::write(world.work().join("a"), "1").unwrap();
        world
    }

    /// Where copies are.
    fn copies(&self) -> PathBuf {
        self.root().join("data-workspaces")
    }

    fn copies_there(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.copies()).into_iter().flatten();
        let mut found: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
        found.sort();
        found
    }

    fn let_copies_go(&self) {
        fs::write(self.copies().join("go"), "").unwrap();
    }

    /// Waits until a copy is being made for a command.
    fn await_copy(&self, before: &[PathBuf]) -> PathBuf {
        wait_for("a copy is begun", || self.copies_there().into_iter().find(|path| !before.contains(path)))
    }
}

fn interrupt(command: Child) -> crate::world::Output {
    kill(command.id(), Signal::INT);
    finish(command)
}

#[test]
fn case_61_ctrl_c_while_the_files_are_copied_starts_nothing() {
    let world = World::that_holds_copies();
    let model = world.script("turns: [{calls: [{name: shell, args: {command: 'touch ../ran'}}]}, {text: done}]");
    for flags in [&["--workspace", "own"][..], &["--workspace", "own", "-d"]] {
        let args = ["run", "-n", "-y", "--isolation", "none", "--model", &model, "x"];
        let run = world.start(&[&args[..], flags].concat());
        world.await_copy(&[]);
        interrupt(run).fails(130, &["interrupted: nothing was started"]);
        assert_eq!(world.relive(&["ps", "-aq"]).ok().stdout, "");
        assert_eq!(world.copies_there(), Vec::<PathBuf>::new(), "no half copy is left");
    }
    world.let_copies_go();
    // The daemon has forgotten it too: its next start finds nothing to complete.
    world.kill_daemon();
    assert_eq!(world.relive(&["ps", "-aq"]).ok().stdout, "");
    assert!(!world.root().join("ran").exists());
}

#[test]
fn case_61_ctrl_c_while_the_files_of_a_fork_are_copied_starts_nothing() {
    let world = World::that_holds_copies();
    let process = world.run_commands(&["echo 2 > a"], &[]);
    let fork = world.start(&["resume", "--fork", "--workspace", "own", "--input", "go on", &process.uuid]);
    world.await_copy(&[]);
    interrupt(fork).fails(130, &["interrupted: nothing was started"]);
    assert_eq!(world.relive(&["ps", "-aq"]).ok().stdout.lines().count(), 1, "only the original is there");
    assert_eq!(world.copies_there(), Vec::<PathBuf>::new(), "no half copy is left");
}

#[test]
fn the_logs_of_a_node_whose_process_is_just_being_created_say_so() {
    let world = World::that_holds_copies();
    let run = world.up("nodes: {p: {command: [echo, said], workspace: own}}");
    world.await_copy(&[]);
    let logs = ["compose", "logs", &run.uuid, "--node", "p"];
    for args in [&logs[..], &logs[..3]] {
        let said = world.relive(args).ok().stderr;
        assert!(said.contains("p has not started yet: its process is being created\n"), "{said}");
        assert!(!said.contains("never existed"), "{said}");
    }
    world.let_copies_go();
    world.relive(&["wait", &run.uuid]).ok();
    assert_eq!(world.relive(&logs).ok().stdout, "said\n");
}

#[test]
fn a_daemon_that_stops_does_not_wait_for_copies() {
    let world = World::that_holds_copies();
    let process = world.run_commands(&["echo 2 > a"], &[]);
    // As many as there are threads for them.
    let fork = || world.start(&["resume", "--fork", "--workspace", "own", "--input", "go on", &process.uuid]);
    let forks = [fork(), fork()];
    wait_until("both copies are begun", || world.copies_there().len() == forks.len());
    for fork in forks {
        kill(fork.id(), Signal::KILL);
        finish(fork);
    }
    world.relive(&["daemon", "stop"]).ok();
    wait_until("the daemon is gone", || world.daemon_pid().is_none());
    world.let_copies_go();
    let listed = world.relive(&["ps", "-aq"]).ok().stdout;
    assert_eq!(listed.lines().count(), 1, "no fork was made: {listed}");
}

#[test]
fn case_61_a_start_whose_command_is_killed_while_the_files_are_copied_is_completed() {
    let world = World::that_holds_copies();
    let model = world.script("turns: [{text: done}]");
    let run = world.start(&["run", "-n", "--workspace", "own", "--model", &model, "x"]);
    world.await_copy(&[]);
    kill(run.id(), Signal::KILL);
    finish(run);
    world.let_copies_go();
    wait_until("it was started", || world.relive(&["ps", "-aq"]).ok().stdout == "1\n");
    world.relive(&["wait", "1"]).ok();
}
