//! Compose files: asked for twice, by clients that hang up, and nodes that are resumed.

use std::sync::Arc;

use relive_api::{Created, FlowRequest, FlowStatus, GrantRequest, NodeRequest, NodeResumed};
use relive_core::{ErrorCode, Limits, Rights, Uuid};
use relive_runtime::{Access, Caller, Result};
use serde_json::json;

use crate::world::{Daemon, World, new_uuid};

fn person(daemon: &Daemon) -> Access {
    Access::new(Arc::clone(&daemon.runtime), Caller::Person)
}

fn request(world: &World, text: &str) -> FlowRequest {
    let request = json!({"uuid": new_uuid(), "kind": "compose", "file": "f", "text": text, "cwd": world.work()});
    serde_json::from_value(request).unwrap()
}

fn start(daemon: &Daemon, request: &FlowRequest) -> Result<Created> {
    daemon.block(person(daemon).start_flow(request.clone()))
}

fn status(daemon: &Daemon, uuid: Uuid) -> FlowStatus {
    daemon.block(person(daemon).flow_status(&uuid.to_string())).unwrap()
}

fn resume_node(daemon: &Daemon, uuid: Uuid, node: &str, request: &str) -> Result<NodeResumed> {
    let node = NodeRequest { node: node.to_owned(), ..NodeRequest::default() };
    daemon.block(person(daemon).resume_node(&uuid.to_string(), node, Some(request.to_owned())))
}

fn words(status: &FlowStatus) -> String {
    let word = |node: &relive_api::NodeStatus| format!("{}={}", node.name, node.state);
    status.nodes.iter().map(word).collect::<Vec<_>>().join(" ")
}

/// The events of a run of one kind.
fn events(world: &World, uuid: Uuid, event: &str) -> usize {
    world.of_kind(uuid, "flow").iter().filter(|record| record["event"]["event"] == event).count()
}

/// Two agents, of which the second needs the result of the first.
fn chain(world: &World) -> String {
    let (first, second) = (world.script("turns: [{text: one}]"), world.script("turns: [{text: two}]"));
    format!(
        "nodes:
  first: {{intent: begin, model: {first}}}
  second: {{intent: 'continue {{{{ nodes.first.result }}}}', model: {second}, depends_on: [first]}}
"
    )
}

#[test]
fn a_run_that_is_asked_for_again_is_started_once_by_this_daemon_and_the_next() {
    let world = World::new();
    let hanging = world.script("turns: [{hang: true}]");
    let asked = request(&world, &format!("nodes: {{a: {{intent: wait, model: {hanging}}}}}"));
    let daemon = world.start();
    assert_eq!(start(&daemon, &asked).unwrap(), start(&daemon, &asked).unwrap());
    daemon.until("the node is started", || Some(()).filter(|()| events(&world, asked.uuid, "starting") == 1));
    let node = status(&daemon, asked.uuid).nodes[0].uuid;
    drop(daemon);
    let daemon = world.start();
    assert_eq!(start(&daemon, &asked).unwrap().uuid, asked.uuid);
    let other = FlowRequest { text: chain(&world), ..asked.clone() };
    assert_eq!(start(&daemon, &other).unwrap_err().code(), ErrorCode::Conflict);
    assert_eq!(status(&daemon, asked.uuid).nodes[0].uuid, node);
    assert_eq!((world.of_kind(asked.uuid, "spawned").len(), events(&world, asked.uuid, "starting")), (1, 1));
}

#[test]
fn a_run_whose_client_hangs_up_runs_to_its_end() {
    let world = World::new();
    let asked = request(&world, &chain(&world));
    let daemon = world.start();
    daemon.hang_up(person(&daemon).start_flow(asked.clone()));
    daemon.until("the run is there", || daemon.listed(asked.uuid));
    daemon.wait(asked.uuid);
    let ended = status(&daemon, asked.uuid);
    assert_eq!((ended.state.as_str(), words(&ended).as_str()), ("succeeded", "first=succeeded second=succeeded"));
    let second = daemon.info(ended.nodes[1].uuid.unwrap());
    assert_eq!((&*second.intent, second.parent_uuid), ("continue one", Some(asked.uuid)));
}

#[test]
fn a_node_that_is_asked_to_continue_again_continues_once() {
    let world = World::new();
    let asked = request(&world, &chain(&world));
    let daemon = world.start();
    start(&daemon, &asked).unwrap();
    daemon.wait(asked.uuid);
    assert_eq!(resume_node(&daemon, asked.uuid, "third", "1").unwrap_err().code(), ErrorCode::NotFound);
    let resumed = resume_node(&daemon, asked.uuid, "second", "2").unwrap();
    daemon.wait(asked.uuid);
    assert_eq!((resumed.uuid, resumed.node.as_str()), (asked.uuid, "second"));
    resume_node(&daemon, asked.uuid, "second", "2").unwrap();
    drop(daemon);
    let daemon = world.start();
    resume_node(&daemon, asked.uuid, "second", "2").unwrap();
    assert_eq!(words(&status(&daemon, asked.uuid)), "first=succeeded second=succeeded");
    assert_eq!((events(&world, asked.uuid, "redo"), events(&world, asked.uuid, "starting")), (1, 3));
}

#[test]
fn a_controller_of_a_run_resumes_a_node_but_sets_no_limits_of_it() {
    let world = World::new();
    let (done, hanging) = (world.script("turns: [{text: one}]"), world.script("turns: [{hang: true}]"));
    let text = format!("nodes: {{a: {{intent: do, model: {done}}}, b: {{intent: wait, model: {hanging}}}}}");
    let asked = request(&world, &text);
    let daemon = world.start();
    start(&daemon, &asked).unwrap();
    daemon.until("a is done", || Some(()).filter(|()| events(&world, asked.uuid, "ended") == 1));
    let controller = daemon.run_hanging(&world).uuid;
    let grant = GrantRequest { target: asked.uuid.to_string(), to: controller.to_string(), rights: Rights::Controller };
    daemon.block(person(&daemon).grant(grant, None)).unwrap();
    let access = Access::new(Arc::clone(&daemon.runtime), Caller::Process(controller));
    daemon.block(access.ready());
    let node = NodeRequest { node: "a".to_owned(), ..NodeRequest::default() };
    let more = NodeRequest { limits: Limits { max_tokens: Some(9), ..Limits::default() }, ..node.clone() };
    let refused = daemon.block(access.resume_node(&asked.uuid.to_string(), more, None)).unwrap_err();
    assert_eq!(refused.code(), ErrorCode::Permission, "{refused}");
    daemon.block(access.resume_node(&asked.uuid.to_string(), node, None)).unwrap();
}
