//! Who pays for a fork.

use std::sync::Arc;

use relive_api::{GcRequest, Process, ReleaseRequest, ResumeRequest};
use relive_core::Uuid;
use relive_runtime::{Access, Caller};

use crate::world::{Daemon, World, new_uuid, resume};

/// Runs an agent that may spend 100 tokens, and its child, which spends 40 in each of two steps and ends.
fn family(world: &World, daemon: &Daemon) -> [Uuid; 2] {
    let list = "{calls: [{name: list, args: {path: .}}], usage: {input: 40, output: 0}}";
    let child = world.script(&format!("turns: [{list}, {{text: done, usage: {{input: 30, output: 10}}}}]"));
    let spawn = format!("{{name: spawn_agent, args: {{intent: help, name: child, model: {child}}}}}");
    let first = format!("{{calls: [{spawn}], usage: {{input: 0, output: 0}}}}");
    let mut request = world.request(&world.script(&format!("turns: [{first}, {{hang: true}}]")));
    request.limits.max_tokens = Some(100);
    request.yes = true;
    let parent = daemon.run(request).uuid;
    daemon.until_records(world, parent, "model_started", 2);
    let child = daemon.info("child").uuid;
    daemon.wait(child);
    [parent, child]
}

/// Forks a process after its first step, and waits for the fork's end.
fn fork(daemon: &Daemon, source: Uuid) -> Process {
    let request = ResumeRequest { fork: Some(new_uuid()), from_step: Some(1), ..resume() };
    let fork = daemon.resume(source, request, None).uuid;
    daemon.wait(fork);
    daemon.info(fork)
}

fn tree(daemon: &Daemon, uuid: Uuid) -> (u64, u64) {
    let tree = daemon.info(uuid).tree.unwrap();
    (u64::try_from(tree.processes).unwrap(), tree.tokens_in + tree.tokens_out)
}

#[test]
fn a_fork_of_a_child_draws_from_the_budget_that_the_child_drew_from() {
    let world = World::new();
    let daemon = world.start();
    let [parent, child] = family(&world, &daemon);
    assert_eq!(tree(&daemon, parent), (2, 80));
    let first = fork(&daemon, child);
    assert_eq!((first.exit.unwrap().code, first.tokens_in + first.tokens_out, first.parent_uuid), (0, 40, None));
    assert_eq!(tree(&daemon, parent), (3, 120));
    let second = fork(&daemon, child);
    assert_eq!(second.tokens_in + second.tokens_out, 0, "nothing is left");
    assert_ne!(second.exit.unwrap().code, 0);
    let of_fork = fork(&daemon, first.uuid);
    assert_eq!(of_fork.tokens_in, 0, "a fork of a fork draws from it as well");
    assert_eq!(tree(&daemon, parent), (5, 120));
}

#[test]
fn the_next_daemon_knows_the_spending_of_forks_and_collected_children() {
    let mut world = World::new();
    let daemon = world.start();
    let [parent, child] = family(&world, &daemon);
    let first = fork(&daemon, child);
    drop(daemon);
    world.configure(|config| config.gc.max_entries = 1);
    let daemon = world.start();
    let person = Access::new(Arc::clone(&daemon.runtime), Caller::Person);
    let handle = ReleaseRequest { target: child.to_string(), of: Some(parent.to_string()) };
    // A parent keeps its children until then.
    daemon.block(person.release(handle, None)).unwrap();
    let removed = daemon.block(daemon.runtime.gc(GcRequest::default())).unwrap().removed;
    assert_eq!(removed, [child]);
    assert_eq!(tree(&daemon, parent), (3, 120), "a tombstone says what was spent");
    drop((person, daemon));
    world.let_go();
    std::fs::remove_dir_all(world.data().join("index")).unwrap();
    let daemon = world.start();
    daemon.until("the index is rebuilt", || daemon.runtime.is_index_complete().then_some(()));
    assert_eq!(tree(&daemon, parent), (3, 120));
    assert_eq!(fork(&daemon, first.uuid).tokens_in, 0, "nothing is left");
}
