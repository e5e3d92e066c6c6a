//! The stall monitor: what it does to a process whose model is silent, and to no other.

use relive_config::StallPolicy;
use relive_core::{ProcessStatus, Signal, SuspendReason, Why};
use serde_json::json;

use crate::world::{Daemon, World, resume};

/// The shortest time there is: a second.
fn world(policy: StallPolicy) -> World {
    World::with(|config| {
        config.heartbeat.stalled_after_seconds = 1;
        config.heartbeat.policy = policy;
    })
}

fn start(world: &World) -> Daemon {
    let daemon = world.start();
    daemon.block(async { daemon.runtime.run_housekeeping() });
    daemon
}

#[test]
fn a_stalled_process_is_paused_for_a_reason_of_its_own_and_its_hint_works() {
    let world = world(StallPolicy::Pause);
    let daemon = start(&world);
    let uuid = daemon.run_hanging(&world).uuid;
    daemon.until_display(uuid, "suspended");
    let process = daemon.listed(uuid).unwrap();
    assert_eq!(process.suspend_reason, Some(SuspendReason::Stalled));
    assert_eq!(process.hint, Some(format!("relive resume {}", process.pid)));
    assert!(!process.stalled, "it stands still, and owes nothing any more");
    assert_eq!(world.of_kind(uuid, "paused")[0]["reason"], "stalled");
    daemon.until("events", || world.events(uuid, "paused").pop());
    assert_eq!(world.events(uuid, "stalled").len(), 1);
    assert_eq!(world.events(uuid, "paused")[0]["hint"], json!(process.hint));
    drop(daemon);

    let daemon = start(&world);
    let process = daemon.listed(uuid).unwrap();
    assert_eq!((process.display.as_str(), process.suspend_reason), ("suspended", Some(SuspendReason::Stalled)));
    let typed = process.hint.unwrap().strip_prefix("relive resume ").unwrap().to_owned();
    assert!(daemon.resume(typed, resume(), None).changed);
    daemon.until_records(&world, uuid, "model_started", 2);
    daemon.until_records(&world, uuid, "paused", 2);
}

#[test]
fn a_stalled_process_is_found_after_the_time_that_is_configured_and_not_after_twice_that() {
    let world = World::with(|config| {
        config.heartbeat.stalled_after_seconds = 4;
        config.heartbeat.policy = StallPolicy::Warn;
    });
    let daemon = start(&world);
    let uuid = daemon.run_hanging(&world).uuid;
    let begun = std::time::Instant::now();
    daemon.until("it has stalled", || daemon.listed(uuid).filter(|process| process.stalled));
    let took = begun.elapsed().as_millis();
    assert!((3_500..6_500).contains(&took), "{took} ms");
}

#[test]
fn a_stalled_process_is_killed_for_a_reason_of_its_own() {
    let world = world(StallPolicy::Kill);
    let daemon = start(&world);
    let uuid = daemon.run_hanging(&world).uuid;
    let ended = daemon.wait(uuid);
    assert_eq!(
        (ended.why, ended.status),
        (Some(Why::Stalled), Some(ProcessStatus::Killed { signal: Signal::Term.into() }))
    );
    assert_eq!(ended.exit.map(|exit| (exit.code, exit.reason)), Some((1, "stalled".to_owned())));
    let recorded = &world.of_kind(uuid, "ended")[0];
    assert_eq!(recorded["cause"], json!({"why": "stalled", "by": 0}));
    drop(daemon);
    assert_eq!(world.start().info(uuid).why, Some(Why::Stalled));
}

#[test]
fn a_process_that_shows_a_sign_of_life_is_never_stalled() {
    let world = world(StallPolicy::Kill);
    let daemon = start(&world);
    let streams = world.script("turns: [{text: [a, b, c, d, e, f, g], chunk_delay: 400ms}]");
    let sleeps = world.script("turns: [{calls: [{name: sleep, args: {duration: 2500ms}}]}, {text: awake}]");
    let child = json!({"name": "spawn_agent", "args": {"intent": "help", "name": "child", "model": sleeps}});
    let wait = json!({"name": "wait_agent", "args": {"uuid": "{{child}}"}});
    let waits = world.script(&json!({"turns": [{"calls": [child]}, {"calls": [wait]}, {"text": "done"}]}).to_string());
    let processes = [streams, sleeps, waits].map(|model| daemon.run(world.request(&model)).uuid);
    for uuid in processes {
        let ended = daemon.wait(uuid);
        assert_eq!((ended.why, ended.status), (None, Some(ProcessStatus::Exited { code: 0 })));
        assert_eq!(world.events(uuid, "stalled").len(), 0);
    }
}

#[test]
fn a_process_that_waits_for_an_approval_is_not_stalled() {
    let world = world(StallPolicy::Kill);
    let daemon = start(&world);
    let asks = daemon.run_asking(&world, "file").uuid;
    // By the time the monitor has ended this one, it has looked at the other as often.
    let silent = daemon.run_hanging(&world).uuid;
    daemon.wait(silent);
    assert_eq!(daemon.display(asks), "approval");
}
