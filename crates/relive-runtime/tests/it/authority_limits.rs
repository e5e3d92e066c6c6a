//! The limits of a process's authority, one by one: what it cannot reach by a detour, and what it keeps.

use std::fs;
use std::sync::Arc;

use relive_api::{FlowRequest, FlowStatus, GrantRequest, ListQuery, ReleaseRequest, ResumeRequest, RunRequest};
use relive_core::{ErrorCode, Pid, Rights, Uuid};
use relive_runtime::{Access, Caller, Result};
use serde_json::json;

use crate::world::{Daemon, PAUSE_NOW, World, mask, new_uuid, resume, signal};

const HOUR_MS: u64 = 3_600_000;

/// The verbs of a process, as the server begins each request.
fn process(daemon: &Daemon, uuid: Uuid) -> Access {
    let access = Access::new(Arc::clone(&daemon.runtime), Caller::Process(uuid));
    daemon.block(access.ready());
    access
}

fn person(daemon: &Daemon) -> Access {
    Access::new(Arc::clone(&daemon.runtime), Caller::Person)
}

/// Runs an agent below another one until its model was asked, which never answers.
fn run_below(world: &World, daemon: &Daemon, parent: Uuid) -> Uuid {
    let created = daemon.block(process(daemon, parent).run(world.hanging())).unwrap();
    daemon.until_records(world, created.uuid, "model_started", 1);
    created.uuid
}

fn grant(daemon: &Daemon, target: Uuid, to: Uuid, rights: Rights) {
    let request = GrantRequest { target: target.to_string(), to: to.to_string(), rights };
    daemon.block(person(daemon).grant(request, None)).unwrap();
}

/// Starts a compose file with one agent that waits for its model.
fn start_flow(world: &World, daemon: &Daemon, access: &Access) -> Uuid {
    let text = format!("nodes: {{a: {{intent: wait, model: {}}}}}", world.script("turns: [{hang: true}]"));
    let request = json!({"uuid": new_uuid(), "kind": "compose", "file": "f", "text": text, "cwd": world.work()});
    let request: FlowRequest = serde_json::from_value(request).unwrap();
    let uuid = daemon.block(access.start_flow(request)).unwrap().uuid;
    daemon.until_records(world, uuid, "flow", 2);
    uuid
}

#[test]
fn a_process_that_resumes_its_child_does_not_undo_the_pause_of_an_ancestor() {
    let world = World::new();
    let daemon = world.start();
    let above = daemon.run_hanging(&world).uuid;
    let caller = run_below(&world, &daemon, above);
    let child = run_below(&world, &daemon, caller);
    daemon.pause(above, PAUSE_NOW, None);
    daemon.until_display(above, "suspended");
    let (access, id) = (process(&daemon, caller), child.to_string());
    let pause = || {
        daemon.block(access.pause(&id, PAUSE_NOW, None)).unwrap();
        daemon.until_display(child, "suspended");
    };
    let check = |resumed: Vec<Pid>| {
        assert_eq!(resumed, [daemon.pid(child)]);
        assert_eq!([above, child].map(|uuid| daemon.display(uuid)), ["suspended", "running"]);
    };
    for subtree in [false, true] {
        pause();
        let request = ResumeRequest { subtree, ..resume() };
        check(daemon.block(access.resume(&id, request, None)).unwrap().pids);
        pause();
        let request = relive_api::SignalRequest { subtree, ..signal("RESUME") };
        check(daemon.block(access.signal(&id, request, None)).unwrap().pids);
    }
    // One that was blocked is delivered when it is unblocked.
    pause();
    daemon.block(access.set_signal_mask(&id, mask(&["RESUME"], &[]), None)).unwrap();
    daemon.block(access.resume(&id, resume(), None)).unwrap();
    assert_eq!(daemon.display(child), "suspended");
    daemon.block(access.set_signal_mask(&id, mask(&[], &[]), None)).unwrap();
    check(vec![daemon.pid(child)]);
    // Neither does one that only has a handle.
    let stranger = daemon.run_hanging(&world).uuid;
    grant(&daemon, child, stranger, Rights::Controller);
    pause();
    check(daemon.block(process(&daemon, stranger).resume(&id, resume(), None)).unwrap().pids);
    // The person resumes what they paused.
    pause();
    let resumed = daemon.resume(child, resume(), None).pids;
    assert_eq!(resumed, [daemon.pid(child), daemon.pid(above)]);
}

#[test]
fn an_observer_of_a_run_is_told_nothing_of_nodes_that_it_may_not_see() {
    let world = World::new();
    let daemon = world.start();
    let flow = start_flow(&world, &daemon, &person(&daemon));
    let observer = daemon.run_hanging(&world).uuid;
    grant(&daemon, flow, observer, Rights::Observer);
    let status = |access: &Access| -> FlowStatus { daemon.block(access.flow_status(&flow.to_string())).unwrap() };
    let whole = status(&person(&daemon));
    let node = whole.nodes[0].uuid.unwrap();
    let seen = status(&process(&daemon, observer)).nodes.remove(0);
    assert_eq!((seen.name.as_str(), seen.state.as_str()), ("a", "running"));
    assert_eq!((seen.uuid, seen.pid, seen.exit, seen.reason), (None, None, None, None));
    grant(&daemon, node, observer, Rights::Observer);
    assert_eq!(status(&process(&daemon, observer)), whole);
}

/// A request to run an agent that asks nobody.
fn unasked(world: &World) -> RunRequest {
    RunRequest { yes: true, ..world.hanging() }
}

#[test]
fn nobody_is_asked_less_because_the_journal_of_the_agent_above_cannot_be_read() {
    let world = World::new();
    let daemon = world.start();
    let agent = daemon.run_hanging(&world).uuid;
    let flow = start_flow(&world, &daemon, &process(&daemon, agent));
    let access = process(&daemon, flow);
    let refused = daemon.block(access.run(unasked(&world))).unwrap_err();
    assert!(refused.to_string().contains("only a person allows that"), "{refused}");
    let directory = world.data().join("steps").join(agent.to_string());
    fs::rename(directory.join("steps.jsonl"), directory.join("aside")).unwrap();
    fs::create_dir(directory.join("steps.jsonl")).unwrap();
    let refused = daemon.block(access.run(unasked(&world))).unwrap_err();
    assert_eq!(refused.code(), ErrorCode::Internal, "{refused}");
    fs::remove_dir(directory.join("steps.jsonl")).unwrap();
    fs::rename(directory.join("aside"), directory.join("steps.jsonl")).unwrap();
}

#[test]
fn nobody_is_asked_less_because_a_process_below_the_agent_was_removed() {
    let world = World::new();
    let daemon = world.start();
    let agent = daemon.run_hanging(&world).uuid;
    let between = run_below(&world, &daemon, agent);
    let last = start_flow(&world, &daemon, &process(&daemon, between));
    daemon.signal(between, "KILL", None);
    daemon.wait(between);
    daemon.until_at_rest(between);
    daemon.block(daemon.runtime.remove(&between.to_string())).unwrap();
    let refused = daemon.block(process(&daemon, last).run(unasked(&world))).unwrap_err();
    assert!(refused.to_string().contains("only a person allows that"), "{refused}");
}

#[test]
fn a_client_that_hangs_up_while_handles_are_recalled_takes_none_away() {
    let world = World::with_clocks();
    let daemon = world.start();
    let [holder, target] = [(), ()].map(|()| daemon.run_hanging(&world).uuid);
    grant(&daemon, target, holder, Rights::Observer);
    daemon.signal(target, "KILL", None);
    daemon.wait(target);
    daemon.until_at_rest(target);
    world.clocks.pass(2 * HOUR_MS);
    drop(daemon);
    let daemon = world.start();
    let access = Access::new(Arc::clone(&daemon.runtime), Caller::Process(holder));
    let held = daemon.hold_disk();
    daemon.hang_up(access.ready());
    drop(held);
    assert_eq!(daemon.block(process(&daemon, holder).info(&target.to_string())).unwrap().uuid, target);
}

#[test]
fn a_list_hides_strangers_also_from_a_process_that_ends_before_it_is_answered() {
    let world = World::new();
    let daemon = world.start();
    let parent = daemon.run_hanging(&world).uuid;
    // What it does is read for the list.
    let sleeps = world.request(&world.script("turns: [{calls: [{name: sleep, args: {duration: 1h}}]}]"));
    let child = daemon.block(process(&daemon, parent).run(sleeps)).unwrap().uuid;
    daemon.until_records(&world, child, "call_started", 1);
    let caller = daemon.run_hanging(&world).uuid;
    grant(&daemon, child, caller, Rights::Observer);
    let access = process(&daemon, caller);
    let held = Daemon::hold(&[&daemon.runtime.pools().reads]);
    let mut page = Box::pin(access.page(ListQuery { all: true, ..ListQuery::default() }));
    let is_over = daemon.block(std::future::poll_fn(|cx| std::task::Poll::Ready(page.as_mut().poll(cx).is_ready())));
    assert!(!is_over, "it is over before the process could end");
    daemon.signal(caller, "KILL", None);
    daemon.until("it has ended", || daemon.listed(caller).is_none().then_some(()));
    drop(held);
    let page = daemon.block(page).unwrap();
    let shown = page.processes.iter().find(|process| process.uuid == child).unwrap();
    assert_eq!((shown.ppid, shown.parent_uuid), (Pid::RUNTIME, None));
}

#[test]
fn a_release_that_is_repeated_after_a_restart_is_answered_and_leaves_a_newer_grant() {
    let world = World::new();
    let daemon = world.start();
    let [holder, target] = [(), ()].map(|()| daemon.run_hanging(&world).uuid);
    let release = |daemon: &Daemon, access: &Access, of: Option<Uuid>| -> Result<usize> {
        let request = ReleaseRequest { target: target.to_string(), of: of.map(|of| of.to_string()) };
        daemon.block(access.release(request, Some("once".to_owned()))).map(|released| released.handles.len())
    };
    grant(&daemon, target, holder, Rights::Observer);
    assert_eq!(release(&daemon, &process(&daemon, holder), None).unwrap(), 1);
    drop(daemon);
    let daemon = world.start();
    assert_eq!(release(&daemon, &process(&daemon, holder), None).unwrap(), 1, "it is the answer of the first");
    grant(&daemon, target, holder, Rights::Controller);
    assert_eq!(release(&daemon, &person(&daemon), Some(holder)).unwrap(), 1);
    assert_eq!(daemon.block(person(&daemon).handles()).unwrap().handles.len(), 1, "the newer one stays");
    assert_eq!(world.of_kind(holder, "released").len(), 1);
}
