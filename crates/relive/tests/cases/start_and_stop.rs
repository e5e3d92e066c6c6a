//! `daemon start`, `stop` and `restart` at the same moment, also while a daemon takes its time to stop.

use std::fs;
use std::time::{Duration, Instant};

use crate::world::{World, finish, wait_until};

/// A model call that a stop waits for, longer than a daemon waits for the lock of another.
const SLOW: &str = "turns: [{text: slow, delay: 2500ms}, {hang: true}]";
/// So long only a command takes that waits for something that never comes.
const WITHIN: Duration = Duration::from_secs(25);

/// The daemons of this world, also those that only wait to be one.
pub(crate) fn daemons(world: &World) -> Vec<u32> {
    let ours = format!("RELIVE_DATA_DIR={}", world.data().display());
    let has = |pid: &u32, file: &str, text: &str| {
        let bytes = fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
        bytes.split(|byte| *byte == 0).any(|part| part == text.as_bytes())
    };
    let pids = fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|pid| has(pid, "environ", &ours) && has(pid, "cmdline", "serve")).collect()
}

/// Begins a model call that a stop has to wait for.
fn run_slow(world: &World) {
    let process = world.run(SLOW);
    world.await_records(&process, "model_started", 1);
}

#[test]
fn eleven_concurrent_starts_stops_and_restarts_all_report_the_truth() {
    let world = World::new();
    let verbs =
        ["start", "stop", "restart", "start", "restart", "stop", "restart", "start", "stop", "restart", "start"];
    // With a daemon that stops slowly, with one that stops at once, and without one.
    for round in 0..3 {
        if round == 0 {
            run_slow(&world);
        }
        let begun = Instant::now();
        let all: Vec<_> = verbs.iter().map(|verb| (verb, world.start(&["daemon", verb]))).collect();
        for (verb, command) in all {
            let told = finish(command);
            assert_eq!(told.code, 0, "{verb}: {told:?}");
            assert!(begun.elapsed() < WITHIN, "{verb} took {:?}: {told:?}", begun.elapsed());
        }
        // One that is stopped stays stopped: no start that was answered leaves a daemon behind that only waits.
        world.relive(&["daemon", "stop"]).ok();
        assert_eq!(daemons(&world), Vec::<u32>::new(), "round {round}");
        world.relive(&["daemon", "status"]).exits(3);
        if round == 0 {
            world.relive(&["kill", "1"]).ok();
        }
    }
}

#[test]
fn a_stop_returns_when_the_daemon_is_gone_also_if_somebody_else_stops_it() {
    let world = World::new();
    run_slow(&world);
    let pid = world.daemon_pid().unwrap();
    let first = world.start(&["daemon", "stop"]);
    let socket = world.socket();
    wait_until("the daemon is stopping", || std::os::unix::net::UnixStream::connect(&socket).is_err());
    assert_eq!(world.daemon_pid(), Some(pid), "it has not stopped yet");
    let told = world.relive(&["daemon", "stop"]).ok();
    assert_eq!(world.daemon_pid(), None, "{told:?}");
    let gone = format!("the daemon has stopped (OS pid {pid})\n");
    assert_eq!((told.stderr, finish(first).ok().stderr), (gone.clone(), gone));
    assert_eq!(world.relive(&["daemon", "stop"]).ok().stderr, "the daemon is not running\n");
}

#[test]
fn a_command_that_meets_a_daemon_that_stops_is_answered_by_the_next() {
    let world = World::new();
    run_slow(&world);
    let stop = world.start(&["daemon", "stop"]);
    let socket = world.socket();
    wait_until("the daemon is stopping", || std::os::unix::net::UnixStream::connect(&socket).is_err());
    assert_eq!(world.relive(&["ps", "-q"]).ok().stdout.lines().count(), 1);
    finish(stop).ok();
    assert_eq!(daemons(&world).len(), 1);
}

/// A shell passes all of its descriptors on. Whoever keeps the end of a pipe keeps its reader waiting.
#[test]
fn a_daemon_and_its_keeper_keep_no_descriptor_of_the_shell_that_started_them() {
    let world = World::new();
    let mut shell = std::process::Command::new("sh");
    let relive = env!("CARGO_BIN_EXE_relive");
    shell.arg("-c").arg(format!("exec 9> held 8< held; {relive} exec -d -- sleep 600")).current_dir(world.work());
    for (name, value) in world.command(&[]).get_envs() {
        shell.env(name, value.unwrap());
    }
    assert!(shell.status().unwrap().success());
    let held = world.work().join("held");
    let data = world.data().display().to_string();
    let is_keeper = |pid: &u32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let parts: Vec<_> = line.split(|byte| *byte == 0).map(String::from_utf8_lossy).collect();
        parts.first().is_some_and(|name| name == "relive-keeper") && parts.iter().any(|part| *part == data)
    };
    let pids = fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let keepers: Vec<u32> = pids.filter(is_keeper).collect();
    assert_eq!(keepers.len(), 1, "the environment of the program is kept");
    for pid in keepers.into_iter().chain(world.daemon_pid()) {
        let open = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten();
        let links: Vec<_> = open.filter_map(|entry| fs::read_link(entry.path()).ok()).collect();
        assert!(!links.contains(&held), "{links:?}");
    }
}

/// Runs a command whose runtime directory is another one, as after `su` or in a cron job.
fn elsewhere(world: &World, args: &[&str]) -> crate::world::Output {
    let socket = world.root().join("elsewhere").display().to_string();
    crate::world::output(world.command(args).env("RELIVE_SOCKET", socket).output().unwrap())
}

#[test]
fn a_daemon_that_listens_elsewhere_is_not_said_to_be_stopped() {
    let world = World::new();
    world.run_hanging(&[]);
    let socket = world.socket().display().to_string();
    let says =
        [format!("is running, but its socket {socket} is not "), format!("hint: export RELIVE_SOCKET={socket}\n")];
    for verb in ["status", "stop", "restart"] {
        let told = elsewhere(&world, &["daemon", verb]).fails(6, &[&says[0], &says[1]]);
        assert!(!told.stdout.contains("not running"), "{told:?}");
    }
    let told = elsewhere(&world, &["daemon", "status", "--json"]).exits(6).json();
    assert_eq!(told["error"]["code"], "UNAVAILABLE", "{told}");
    let rows = elsewhere(&world, &["doctor", "--json"]).json();
    let row = rows["rows"].as_array().unwrap().iter().find(|row| row["name"] == "daemon").unwrap().clone();
    assert_eq!((&row["state"], &row["value"]), (&"failed".into(), &"not reachable".into()), "{row}");
    assert_eq!(world.info(1)["display"], "running");
    world.relive(&["daemon", "stop"]).ok();
    elsewhere(&world, &["daemon", "status"]).exits(3);
    elsewhere(&world, &["daemon", "stop"]).ok();
}

#[test]
fn a_refused_command_leaves_no_daemon_behind_that_waits_for_the_stop_of_the_other() {
    let world = World::new();
    world.run_hanging(&[]);
    for _ in 0..2 {
        world.relive(&["daemon", "start"]).ok();
        elsewhere(&world, &["ps"]).fails(6, &["is running, but its socket "]);
        let daemon = world.daemon_pid().into_iter().collect::<Vec<u32>>();
        assert_eq!(daemons(&world), daemon, "only the daemon that was there");
        world.relive(&["daemon", "stop"]).ok();
        elsewhere(&world, &["daemon", "status"]).exits(3);
        assert_eq!(daemons(&world), Vec::<u32>::new());
    }
}
