//! No finished effect stays unrecorded while its agent waits.

use std::fs;
use std::sync::Arc;

use relive_api::Resolution;
use relive_journal::Disk;
use relive_journal::faults::Injection;

use crate::world::World;

/// A parent that writes `file` once its child has reserved all that is left, and then waits for it.
fn waits_for_budget(world: &World) -> relive_api::RunRequest {
    let greedy = world.script("turns: [{hang: true}, {text: never, usage: {input: 1000000, output: 0}}]");
    let spawn = format!("{{name: spawn_agent, args: {{intent: help, name: greedy, model: {greedy}}}}}");
    let write = "{name: write, args: {path: file, content: written}}";
    let turn = format!("{{calls: [{spawn}, {write}], usage: {{input: 1, output: 1}}}}");
    let mut request = world.request(&world.script(&format!("turns: [{turn}, {{text: done}}]")));
    request.limits.max_tokens = Some(100);
    request.policy = [("spawn_agent", "allow"), ("write", "ask")].map(|(a, b)| (a.to_owned(), b.to_owned())).into();
    request
}

#[test]
fn the_result_of_a_call_is_on_the_disk_before_its_agent_waits_for_budget() {
    let world = World::new();
    let faults = world.faults(Injection::None);
    let daemon = world.start_on(Disk::with_faults(Arc::clone(&faults))).unwrap();
    let process = daemon.run(waits_for_budget(&world));
    daemon.until_display(process.uuid, "approval");
    let child = daemon.block(daemon.runtime.process("greedy")).unwrap().uuid;
    daemon.until_records(&world, child, "model_started", 1);
    daemon.answer(process.uuid, Resolution::Allow, None);
    daemon.until_records(&world, process.uuid, "call_ended", 2);
    let on_disk = || world.after_power_cut(&faults, process.uuid).matches("\"kind\":\"call_ended\"").count();
    daemon.until("the result is on the disk", || (on_disk() == 2).then_some(()));
    assert_eq!(daemon.display(process.uuid), "running");
    assert_eq!(world.of_kind(process.uuid, "model_started").len(), 1, "it waits for its budget");
}

#[test]
fn a_finished_write_is_not_repeated_when_the_daemon_dies_while_its_agent_waits() {
    let world = World::new();
    let daemon = world.start();
    let process = daemon.run(waits_for_budget(&world));
    daemon.until_display(process.uuid, "approval");
    let child = daemon.block(daemon.runtime.process("greedy")).unwrap().uuid;
    daemon.until_records(&world, child, "model_started", 1);
    daemon.answer(process.uuid, Resolution::Allow, None);
    daemon.until_records(&world, process.uuid, "call_ended", 2);
    drop(daemon);
    let file = world.work().join("file");
    assert_eq!(fs::read_to_string(&file).unwrap(), "written");
    fs::write(&file, "recovered by the user").unwrap();
    let daemon = world.start();
    // Whichever of the two gets the budget first now.
    daemon.until_records(&world, process.uuid, "opened", 2);
    daemon.until_records(&world, child, "model_started", 2);
    assert_eq!(fs::read_to_string(&file).unwrap(), "recovered by the user");
    assert_eq!(world.of_kind(process.uuid, "call_started").len(), 2);
}

#[test]
fn acknowledged_records_survive_a_power_cut() {
    let world = World::new();
    let faults = world.faults(Injection::None);
    let daemon = world.start_on(Disk::with_faults(Arc::clone(&faults))).unwrap();
    let left = |uuid| world.after_power_cut(&faults, uuid);
    let process = daemon.run(world.hanging());
    assert!(left(process.uuid).contains("\"kind\":\"spawned\""));
    daemon.until_records(&world, process.uuid, "model_started", 1);
    daemon.send(process.uuid, crate::world::message("message-1", "hello"));
    assert!(left(process.uuid).contains("message-1"));
    daemon.set_mask(process.uuid, crate::world::mask(&["INT"], &[]), Some("mask-1"));
    assert!(left(process.uuid).contains("mask-1"));
    daemon.pause(process.uuid, crate::world::PAUSE, Some("pause-1"));
    assert!(left(process.uuid).contains("pause-1"));
    daemon.resume(process.uuid, crate::world::resume(), Some("resume-1"));
    assert!(left(process.uuid).contains("resume-1"));
    let mut fork = crate::world::resume();
    fork.fork = Some(crate::world::new_uuid());
    let forked = daemon.resume(process.uuid, fork, None);
    assert!(left(forked.uuid).contains("\"kind\":\"spawned\""));
    daemon.signal(process.uuid, "KILL", Some("kill-1"));
    assert!(left(process.uuid).contains("kill-1"));
    let asking = daemon.run_asking(&world, "file");
    daemon.answer(asking.uuid, Resolution::Deny, Some("answer-1"));
    assert!(left(asking.uuid).contains("answer-1"));
}
