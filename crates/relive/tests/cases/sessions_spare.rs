//! The shim that waits for a session, and a daemon that dies while it hands one over.

use std::fs;
use std::time::Instant;

use rustix::process::Signal;

use super::sessions_support::is_alive;
use super::world::{World, finish, kill, wait_for, wait_until};

/// Sends a signal to a shim.
fn signal(pid: u64, signal: Signal) {
    kill(u32::try_from(pid).unwrap(), signal);
}

/// Kills the daemon at a point of the handover of a session to the shim that waits, which got this signal before. Afterwards
/// the program has run once, and that shim is gone.
fn dies_at(point: &str, before: Option<Signal>) {
    let world = World::new();
    world.relive_with(&[("RELIVE_FAULTS", point)], &["exec", "--", "true"]).ok();
    let (daemon, spare) = (world.daemon_pid().unwrap(), world.spare_shim());
    if let Some(before) = before {
        signal(spare, before);
    }
    let mut command = world.start(&["exec", "-d", "--", "sh", "-c", "echo once >> runs"]);
    wait_until("the daemon dies", || !is_alive(u64::from(daemon)));
    // It may have started another daemon, or may have lost the connection.
    command.wait().unwrap();
    world.relive(&["ps"]).ok();
    let runs = || fs::read_to_string(world.work().join("runs")).unwrap_or_default();
    wait_until("the program has run", || !runs().is_empty());
    wait_until("it has ended", || world.relive(&["ps", "-q"]).ok().stdout.is_empty());
    wait_until("the shim of the dead daemon has gone", || !is_alive(spare));
    assert_eq!(runs(), "once\n", "{point}");
}

#[test]
fn a_daemon_that_dies_when_the_waiting_shim_has_its_spec_launches_once() {
    dies_at("spare-told", None);
}

#[test]
fn a_daemon_that_dies_when_the_waiting_shim_is_ready_launches_once() {
    dies_at("spare-ready", None);
}

#[test]
fn a_daemon_that_dies_when_the_waiting_shim_has_the_lock_launches_once() {
    dies_at("spare-launched", None);
}

#[test]
fn a_stopped_shim_that_was_told_of_a_session_by_a_daemon_that_died_launches_nothing_and_ends() {
    dies_at("spare-told", Some(Signal::STOP));
}

/// Lets a daemon stop the shim that waits when it hands it a session, and returns that shim.
fn stopped_at_handover(world: &World) -> u64 {
    world.relive_with(&[("RELIVE_FAULTS", "spare-stopped")], &["exec", "--", "true"]).ok();
    world.spare_shim()
}

#[test]
fn a_program_whose_shim_is_stopped_when_it_gets_its_session_runs_once_and_ends_as_itself() {
    let world = World::new();
    let spare = stopped_at_handover(&world);
    let script = "echo once >> runs; while [ ! -e go ]; do sleep 0.05; done; echo ran; exit 7";
    let command = world.start(&["exec", "--name", "late", "--", "sh", "-c", script]);
    wait_until("it runs", || world.work().join("runs").exists());
    world.await_display("late", "running");
    fs::write(world.work().join("go"), "").unwrap();
    let ended = finish(command);
    assert_eq!((ended.code, ended.stdout.as_str()), (7, "ran\n"), "{ended:?}");
    wait_until("the shim has gone", || !is_alive(spare));
    assert_eq!(fs::read_to_string(world.work().join("runs")).unwrap(), "once\n");
}

#[test]
fn a_program_that_is_killed_before_its_stopped_shim_has_run_it_never_runs() {
    let world = World::new();
    let spare = stopped_at_handover(&world);
    let command = world.start(&["exec", "--name", "victim", "--", "sh", "-c", "echo ran >> runs"]);
    let is_stopped = || fs::read_to_string(format!("/proc/{spare}/stat")).is_ok_and(|stat| stat.contains(") T "));
    wait_until("the shim is stopped", is_stopped);
    world.relive(&["kill", "-s", "KILL", "victim"]).ok();
    assert_ne!(finish(command).code, 0);
    wait_until("the shim has gone", || !is_alive(spare));
    assert!(!world.work().join("runs").exists());
}

#[test]
fn a_program_that_stops_its_shim_keeps_nobody_waiting() {
    let world = World::new();
    let script = "kill -STOP $PPID; echo ran; exit 7";
    let ended = world.relive(&["exec", "--", "sh", "-c", script]).exits(7);
    assert_eq!(ended.stdout, "ran\n");
    let background = world.exec(&[], &["sh", "-c", script]);
    world.ends(&background, 7);
}

#[test]
fn a_stopped_shim_keeps_no_program_from_running() {
    let world = World::new();
    world.relive(&["exec", "--", "true"]).ok();
    let spare = world.spare_shim();
    signal(spare, Signal::STOP);
    assert_eq!(world.relive(&["exec", "--", "echo", "there"]).ok().stdout, "there\n");
    wait_until("the stopped shim has gone", || !is_alive(spare));
}

#[test]
fn no_shim_waits_when_its_daemon_was_stopped_or_killed() {
    let world = World::new();
    for stop in [true, false] {
        world.relive(&["exec", "--", "true"]).ok();
        let spare = world.spare_shim();
        if stop {
            world.relive(&["daemon", "stop"]).ok();
        } else {
            world.kill_daemon();
        }
        wait_until("the shim has gone", || !is_alive(spare));
    }
    // Nor if it was stopped itself: the next daemon lets it go.
    world.relive(&["exec", "--", "true"]).ok();
    let spare = world.spare_shim();
    signal(spare, Signal::STOP);
    world.kill_daemon();
    world.relive(&["exec", "--", "true"]).ok();
    wait_until("the stopped shim has gone", || !is_alive(spare));
}

/// A shim that is killed is replaced if its program has not run, and whoever started the program sees the output of the one
/// that did.
#[test]
fn a_program_whose_shim_is_killed_when_it_starts_never_succeeds_without_its_output() {
    let world = World::new();
    let launch = ["exec", "-n", "--", "seq", "20000"];
    let whole = world.relive(&launch).ok().stdout;
    let begun = Instant::now();
    world.relive(&launch).ok();
    let takes = begun.elapsed();
    let mut succeeded = 0;
    for number in 0..40_u32 {
        // After several that were of no use no other one would wait.
        world.spare_shim();
        world.relive(&["exec", "--", "true"]).ok();
        let spare = world.spare_shim();
        let command = world.start(&launch);
        let told = format!("/proc/{spare}/cmdline");
        wait_until("the shim is told of the session", || {
            !fs::read_to_string(&told).is_ok_and(|told| told.contains("waits-for-a-session"))
        });
        // Each time at another moment of the launch; nothing is waited for.
        std::thread::sleep(takes * (number % 20) / 20);
        signal(spare, Signal::KILL);
        let ended = finish(command);
        assert!(ended.code != 0 || ended.stdout == whole, "{number}: {} bytes, {}", ended.stdout.len(), ended.stderr);
        succeeded += u32::from(ended.code == 0);
    }
    assert!(succeeded > 0, "no program ran although its shim was killed before it, or after its end");
}

/// The cgroup that counts the processes of a process, if that is of the first version.
fn counted_in(pid: u64) -> Option<String> {
    let cgroups = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
    cgroups.lines().find_map(|line| line.split_once(":pids:").map(|(_, path)| path.to_owned()))
}

/// The shim that has waited is in the cgroup that limits the processes of its session.
#[test]
fn a_daemon_that_a_session_starts_is_not_limited_like_its_program() {
    let world = World::new();
    let first = world.exec(&[], &["sleep", "1000"]);
    let first = world.await_stage(&first, "running")["host_pid"].as_u64().unwrap();
    let outside = counted_in(u64::from(world.daemon_pid().unwrap()));
    let Some(outside) = outside.filter(|outside| counted_in(first).as_ref() != Some(outside)) else {
        return eprintln!("skipped: no cgroup of the first version counts the processes of a program");
    };
    let spare = world.spare_shim();
    let joined = format!("/spare-{spare}");
    wait_until("the shim joins its cgroup", || counted_in(spare).is_some_and(|leaf| leaf.ends_with(&joined)));
    let relive = world.command(&[]).get_program().to_str().unwrap().to_owned();
    let script = "while [ ! -e go ]; do sleep 0.05; done; \"$0\" ps && echo listed; exec sleep 1000";
    let program = world.exec(&[], &["sh", "-c", script, &relive]);
    let session = world.await_stage(&program, "running");
    let counted = |pid: u64| counted_in(pid).unwrap();
    assert_eq!(counted(session["host_pid"].as_u64().unwrap()), counted(spare), "it was born there");
    assert_ne!(counted(spare), outside);
    world.kill_daemon();
    fs::write(world.work().join("go"), "").unwrap();
    let started = wait_for("the session has started a daemon", || world.daemon_pid());
    assert_eq!(counted(u64::from(started)), outside);
    world.await_output(&program, "listed");
    assert_eq!(counted(spare), outside, "nor is the shim, from then on");
    world.relive(&["kill", "-9", &program.uuid]).ok();
    world.ends(&program, 137);
}
