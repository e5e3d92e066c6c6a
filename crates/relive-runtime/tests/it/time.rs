//! How long a process has run, and what `--timeout` counts: the time in which its body executes and no other.

use relive_core::{Limits, SuspendReason, Uuid, Why};

use crate::world::{Daemon, PAUSE, PAUSE_NOW, World, resume};

const HOUR: u64 = 3_600_000;

fn elapsed(daemon: &Daemon, uuid: Uuid) -> u64 {
    let listed = daemon.listed(uuid).map(|process| process.elapsed_ms);
    let shown = daemon.info(uuid).elapsed_ms;
    assert_eq!(listed.unwrap_or(shown), shown, "`ps` and `info` say the same");
    shown
}

/// Lets the daemon run until its pulse says that bodies ran up to now, and kills it.
fn kill_after_pulse(world: &World, daemon: Daemon) {
    let now = world.clocks.up_ms();
    daemon.until("a pulse", || (world.pulse() == Some(now)).then_some(()));
    drop(daemon);
}

fn run_with_timeout(world: &World, daemon: &Daemon, timeout_ms: u64) -> Uuid {
    let mut request = world.hanging();
    request.limits = Limits { timeout_ms: Some(timeout_ms), ..Limits::default() };
    let uuid = daemon.run(request).uuid;
    daemon.until_records(world, uuid, "model_started", 1);
    uuid
}

#[test]
fn elapsed_time_is_the_same_before_and_after_a_pause_a_crash_and_a_jump_of_the_wall_clock() {
    let world = World::with_clocks();
    let daemon = world.start();
    let uuid = daemon.run_hanging(&world).uuid;
    world.clocks.pass(1_629);
    assert_eq!(elapsed(&daemon, uuid), 1_629);
    daemon.pause(uuid, PAUSE_NOW, None);
    daemon.until_display(uuid, "suspended");
    world.clocks.pass(5_182);
    world.clocks.jump(-7_000_000);
    assert_eq!(elapsed(&daemon, uuid), 1_629, "paused");
    drop(daemon);
    world.clocks.pass(HOUR);
    let daemon = world.start();
    assert_eq!(elapsed(&daemon, uuid), 1_629, "paused through a crash");

    daemon.resume(uuid, resume(), None);
    daemon.until_records(&world, uuid, "model_started", 2);
    world.clocks.pass(371);
    world.clocks.jump(90_000_000);
    assert_eq!(elapsed(&daemon, uuid), 2_000);
    kill_after_pulse(&world, daemon);
    world.clocks.pass(HOUR);
    let daemon = world.start();
    daemon.until_records(&world, uuid, "model_started", 3);
    assert_eq!(
        elapsed(&daemon, uuid),
        2_000,
        "the pause before is not forgotten, and an hour without a daemon not added"
    );

    world.clocks.pass(50);
    daemon.signal(uuid, "KILL", None);
    daemon.wait(uuid);
    world.clocks.pass(HOUR);
    assert_eq!(elapsed(&daemon, uuid), 2_050, "remembered");
    drop(daemon);
    assert_eq!(elapsed(&world.start(), uuid), 2_050, "on the disk");
    assert_eq!(world.info_file(uuid)["ran_ms"], 2_050);
}

#[test]
fn a_process_that_is_resumed_after_its_end_continues_its_time() {
    let world = World::with_clocks();
    let daemon = world.start();
    let uuid = daemon.run_hanging(&world).uuid;
    world.clocks.pass(400);
    daemon.signal(uuid, "KILL", None);
    daemon.wait(uuid);
    world.clocks.pass(HOUR);
    daemon.resume(uuid, resume(), None);
    daemon.until_records(&world, uuid, "model_started", 2);
    assert_eq!(elapsed(&daemon, uuid), 400);
    world.clocks.pass(30);
    assert_eq!(elapsed(&daemon, uuid), 430);
}

#[test]
fn another_boot_counts_to_the_last_record() {
    let world = World::with_clocks();
    let daemon = world.start();
    let uuid = daemon.run_hanging(&world).uuid;
    world.clocks.pass(400);
    daemon.send(uuid, crate::world::message("more", "more"));
    world.clocks.pass(9_000);
    kill_after_pulse(&world, daemon);
    world.clocks.reboot(HOUR);
    let daemon = world.start();
    daemon.until_records(&world, uuid, "model_started", 2);
    assert_eq!(elapsed(&daemon, uuid), 400);
    world.clocks.pass(3);
    assert_eq!(elapsed(&daemon, uuid), 403);
}

#[test]
fn recovery_does_not_kill_what_has_time_left_and_does_end_what_has_not() {
    let world = World::with_clocks();
    let daemon = world.start();
    let uuid = run_with_timeout(&world, &daemon, HOUR);
    world.clocks.pass(HOUR - 60_000);
    kill_after_pulse(&world, daemon);
    world.clocks.pass(10 * HOUR);
    world.clocks.jump(1_000_000_000);
    let daemon = world.start();
    daemon.until_records(&world, uuid, "model_started", 2);
    let process = daemon.listed(uuid).unwrap();
    assert_eq!((process.display.as_str(), process.elapsed_ms), ("running", HOUR - 60_000), "a minute is left");

    world.clocks.pass(60_000);
    kill_after_pulse(&world, daemon);
    let daemon = world.start();
    assert_eq!(daemon.wait(uuid).why, Some(Why::Timeout));
}

#[test]
fn a_pause_does_not_use_up_the_timeout() {
    let world = World::with_clocks();
    let daemon = world.start();
    let uuid = run_with_timeout(&world, &daemon, HOUR);
    daemon.pause(uuid, PAUSE_NOW, None);
    daemon.until_display(uuid, "suspended");
    world.clocks.pass(2 * HOUR);
    daemon.resume(uuid, resume(), None);
    daemon.until_records(&world, uuid, "model_started", 2);
    assert_eq!(daemon.display(uuid), "running");
    // Now with all but nothing left.
    world.clocks.pass(HOUR - 10);
    daemon.pause(uuid, PAUSE_NOW, None);
    daemon.until_display(uuid, "suspended");
    daemon.resume(uuid, resume(), None);
    assert_eq!(daemon.wait(uuid).why, Some(Why::Timeout));
}

/// A pause at the boundary may take long, and the process does not run while it is asked for.
#[test]
fn a_process_that_is_about_to_pause_does_not_time_out() {
    let world = World::new();
    let daemon = world.start();
    let uuid = run_with_timeout(&world, &daemon, 1_000);
    daemon.pause(uuid, PAUSE, None);
    let paused = elapsed(&daemon, uuid);
    assert!(paused < 1_000, "this machine is too slow: {paused}");
    let begun = std::time::Instant::now();
    daemon.until("the timeout would be over", || (begun.elapsed().as_millis() > 1_500).then_some(()));
    assert_eq!((daemon.display(uuid).as_str(), elapsed(&daemon, uuid)), ("pausing", paused));
    daemon.resume(uuid, resume(), None);
    assert_eq!(daemon.wait(uuid).why, Some(Why::Timeout), "its time continues");
    assert!(elapsed(&daemon, uuid) >= 1_000);
}

#[test]
fn a_daemon_that_runs_no_body_has_no_heartbeat() {
    let world = World::with_clocks();
    let daemon = world.start();
    assert!(!daemon.runtime.has_heartbeat());
    let uuid = daemon.run_hanging(&world).uuid;
    assert!(daemon.runtime.has_heartbeat());
    daemon.until("a pulse", || world.pulse());
    daemon.pause(uuid, PAUSE_NOW, None);
    daemon.until_display(uuid, "suspended");
    daemon.until("no heartbeat", || (!daemon.runtime.has_heartbeat()).then_some(()));
    let last = world.pulse();
    world.clocks.pass(1);
    daemon.resume(uuid, resume(), None);
    daemon.until("the next pulse", || (world.pulse() > last).then_some(()));
}

#[test]
fn a_process_of_a_daemon_that_stopped_does_not_run_until_the_next_start() {
    let world = World::with_clocks();
    let daemon = world.start();
    let uuid = daemon.run_hanging(&world).uuid;
    world.clocks.pass(250);
    daemon.block(async { daemon.runtime.begin_stop() });
    daemon.until_display(uuid, "pausing");
    drop(daemon);
    world.clocks.pass(HOUR);
    let daemon = world.start();
    daemon.until_records(&world, uuid, "model_started", 2);
    assert_eq!(elapsed(&daemon, uuid), 250);
    assert_eq!(world.of_kind(uuid, "paused")[0]["reason"], serde_json::json!(SuspendReason::DaemonStop));
}
