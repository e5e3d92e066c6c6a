//! What a process costs, and how many requests wait for one.

use futures_util::future::join_all;
use relive_core::ErrorCode;

use crate::world::{Daemon, PAUSE_NOW, World, is_of, mask, message, resume, signal};

#[test]
fn a_suspended_process_has_no_owner_no_body_and_no_descriptor() {
    let world = World::new();
    let daemon = world.start();
    let process = daemon.run_hanging(&world);
    assert!(daemon.runtime.has_owner(process.uuid));
    assert!(!world.open_files(process.uuid).is_empty());
    daemon.pause(process.uuid, PAUSE_NOW, None);
    daemon.until_display(process.uuid, "suspended");
    daemon.until_at_rest(process.uuid);
    daemon.until_closed(&world, process.uuid);
    assert_eq!(daemon.block(async { daemon.runtime.begin_stop() }).pausing, 0, "there is no body to stop");
}

#[test]
fn a_process_that_waits_for_a_person_has_no_owner_and_no_descriptor() {
    let world = World::new();
    let daemon = world.start();
    let process = daemon.run_asking(&world, "file");
    daemon.until_at_rest(process.uuid);
    daemon.until_closed(&world, process.uuid);
}

#[test]
fn a_verb_on_a_suspended_process_leaves_no_owner_and_no_descriptor() {
    let world = World::new();
    let process = world.start().run_suspended(&world);
    let daemon = world.start();
    assert!(!daemon.runtime.has_owner(process.uuid));
    assert!(daemon.send(process.uuid, message("m", "hello")));
    assert_eq!(daemon.signal(process.uuid, "PAUSE", None).affected, 0);
    daemon.info(process.uuid);
    daemon.until_at_rest(process.uuid);
    daemon.until_closed(&world, process.uuid);
}

#[test]
fn a_dead_process_has_no_owner_and_no_descriptor() {
    let world = World::new();
    let daemon = world.start();
    let process = daemon.run_hanging(&world);
    daemon.signal(process.uuid, "KILL", None);
    daemon.wait(process.uuid);
    daemon.until_at_rest(process.uuid);
    daemon.until_closed(&world, process.uuid);
}

#[test]
fn a_request_beyond_those_that_may_wait_is_refused_at_once_and_the_others_are_carried_out() {
    let world = World::new();
    let daemon = world.start();
    let process = daemon.run_suspended(&world);
    daemon.until_at_rest(process.uuid);
    let id = process.uuid.to_string();
    let held = daemon.hold_disk();
    // One has its turn, 64 wait.
    for number in 0..65 {
        daemon.hang_up(daemon.runtime.send(&id, message(&number.to_string(), "hello")));
    }
    let refused = daemon.block(daemon.runtime.send(&id, message("one more", "hello"))).unwrap_err();
    assert_eq!(refused.code(), ErrorCode::Exhausted);
    let refused = daemon.block(daemon.runtime.set_signal_mask(&id, mask(&["INT"], &[]), None)).unwrap_err();
    assert_eq!(refused.code(), ErrorCode::Exhausted);
    // There are 8 places more for those that stop or end it.
    for name in ["PAUSE", "PAUSE", "PAUSE", "PAUSE", "PAUSE", "TERM", "KILL", "KILL"] {
        daemon.hang_up(daemon.runtime.signal(&id, signal(name), None));
    }
    let refused = daemon.try_signal(process.uuid, signal("KILL"), None).unwrap_err();
    assert_eq!(refused.code(), ErrorCode::Exhausted);
    assert_eq!(daemon.display(process.uuid), "suspended", "nothing is published before it is on the disk");
    drop(held);
    daemon.wait(process.uuid);
    assert_eq!(world.of_kind(process.uuid, "input").len(), 1 + 65);
    assert!(!world.of_kind(process.uuid, "input").iter().any(|input| input["id"] == "one more"));
}

#[test]
fn other_processes_do_not_wait_for_one_that_is_busy() {
    let world = World::new();
    let daemon = world.start();
    let (busy, other) = (daemon.run_hanging(&world), daemon.run_hanging(&world));
    let (busy_id, other_id) = (busy.uuid.to_string(), other.uuid.to_string());
    let held = daemon.hold_disk();
    for number in 0..50 {
        daemon.hang_up(daemon.runtime.send(&busy_id, message(&number.to_string(), "hello")));
    }
    daemon.hang_up(daemon.runtime.send(&other_id, message("m", "hello")));
    drop(held);
    daemon.until_records(&world, other.uuid, "input", 2);
    daemon.until_records(&world, busy.uuid, "input", 51);
}

#[test]
fn verbs_that_conflict_are_decided_one_after_the_other_and_all_say_the_same_as_the_journal() {
    let world = World::new();
    let daemon = world.start();
    let processes: Vec<_> = (0..12).map(|_| daemon.run_suspended(&world)).collect();
    let answers = daemon.block(join_all(processes.iter().map(|process| {
        let (runtime, id) = (daemon.runtime.clone(), process.uuid.to_string());
        async move {
            let kill = tokio::spawn({
                let (runtime, id) = (runtime.clone(), id.clone());
                async move { runtime.signal(&id, signal("KILL"), Some("kill".to_owned())).await.unwrap() }
            });
            let resumed = runtime.resume(&id, resume(), Some("resume".to_owned())).await.unwrap();
            (resumed, kill.await.unwrap())
        }
    })));
    drop(daemon);
    let daemon = world.start();
    for (process, (resumed, killed)) in processes.iter().zip(answers) {
        assert_eq!(killed.affected, 1);
        let known = |request: &str| world.records(process.uuid).iter().any(|record| is_of(record, request));
        assert!(known("kill"), "an acknowledged KILL is recorded");
        assert_eq!(known("resume"), resumed.changed);
        // Resumed after its end it is another incarnation, which runs.
        let opened = world.of_kind(process.uuid, "opened").iter().any(|record| is_of(record, "resume"));
        let expected = if opened { "running" } else { "dead" };
        daemon.until_display(process.uuid, expected);
    }
}

#[test]
fn verbs_are_answered_while_every_other_class_of_work_is_stuck() {
    let world = World::new();
    let daemon = world.start();
    let (paused, killed) = (daemon.run_hanging(&world), daemon.run_hanging(&world));
    let pools = daemon.runtime.pools().clone();
    let held = Daemon::hold(&[&pools.tools, &pools.files, &pools.reads, &pools.bulk]);
    daemon.pause(paused.uuid, PAUSE_NOW, None);
    daemon.until_display(paused.uuid, "suspended");
    assert_eq!(daemon.signal(killed.uuid, "KILL", None).affected, 1);
    drop(held);
    assert_eq!(world.of_kind(paused.uuid, "paused").len(), 1);
    daemon.until_display(killed.uuid, "dead");
}
