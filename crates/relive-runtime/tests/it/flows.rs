//! Compose files: asked for twice, by clients that hang up, and nodes that are resumed.

use std::sync::Arc;
use std::time::{Duration, Instant};

use relive_api::{
    Created, FlowRequest, FlowStatus, GrantRequest, NodeRequest, NodeResumed, ResumeRequest, SignalRequest,
};
use relive_core::{ErrorCode, Limits, Pid, Rights, SuspendReason, Uuid};
use relive_runtime::{Access, Caller, Result};
use serde_json::json;

use crate::world::{Daemon, World, new_uuid, resume, signal};

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

fn supervisor(world: &World, text: &str) -> FlowRequest {
    let request = json!({"uuid": new_uuid(), "kind": "supervisor", "file": "f", "text": text, "cwd": world.work()});
    serde_json::from_value(request).unwrap()
}

/// Lets the daemon run until the status of a tree has something.
fn until_status<T>(daemon: &Daemon, tree: Uuid, look: impl Fn(&FlowStatus) -> Option<T>) -> T {
    let until = Instant::now() + Duration::from_secs(30);
    loop {
        let status = status(daemon, tree);
        if let Some(found) = look(&status) {
            return found;
        }
        assert!(Instant::now() < until, "{status:?}");
        daemon.block(async { tokio::time::sleep(Duration::from_millis(1)).await });
    }
}

/// Waits until the children of a tree are in these states.
fn until_words(daemon: &Daemon, tree: Uuid, expect: &str) {
    until_status(daemon, tree, |status| (words(status) == expect).then_some(()));
}

/// Waits until the children of a tree were started so often.
fn until_starts<const N: usize>(daemon: &Daemon, tree: Uuid, expect: [u32; N]) {
    until_status(daemon, tree, |status| status.nodes.iter().map(|node| node.starts).eq(expect).then_some(()));
}

/// Waits until a child of a tree is there.
fn child(daemon: &Daemon, tree: Uuid, name: &str) -> Uuid {
    until_status(daemon, tree, |status| {
        let node = status.nodes.iter().find(|node| node.name == name)?;
        node.uuid.filter(|_| node.pid.is_some())
    })
}

const PAUSE: relive_api::PauseRequest = relive_api::PauseRequest { subtree: true, now: true };

fn steps(max: u32) -> ResumeRequest {
    ResumeRequest { limits: Limits { max_steps: Some(max), ..Limits::default() }, ..resume() }
}

#[test]
fn a_node_that_was_resumed_by_itself_is_a_process_of_its_run_again_once_that_is_resumed() {
    let world = World::new();
    let hanging = world.script("turns: [{hang: true}]");
    let asked = request(&world, &format!("nodes: {{a: {{intent: wait, model: {hanging}}}}}"));
    let daemon = world.start();
    start(&daemon, &asked).unwrap();
    let node = child(&daemon, asked.uuid, "a");
    daemon.try_signal(asked.uuid, SignalRequest { subtree: true, ..signal("TERM") }, None).unwrap();
    daemon.wait(asked.uuid);
    daemon.resume(node, resume(), None);
    assert_eq!(daemon.listed(node).unwrap().ppid, Pid::RUNTIME, "its run is over");
    let run = daemon.resume(asked.uuid, resume(), None).pid;
    daemon.until("it is below the run", || Some(()).filter(|()| daemon.listed(node).unwrap().ppid == run));
    let paused = daemon.pause(asked.uuid, PAUSE, None);
    assert!(paused.pids.contains(&daemon.pid(node)), "{paused:?}");
    daemon.until_display(node, "suspended");
    daemon.try_signal(asked.uuid, SignalRequest { subtree: true, ..signal("KILL") }, None).unwrap();
    daemon.wait(node);
    daemon.wait(asked.uuid);
}

#[test]
fn a_node_that_waits_for_an_answer_is_taken_back_as_it_is() {
    let world = World::new();
    let asking = world.script("turns: [{calls: [{name: shell, args: {command: id}}]}, {text: done}]");
    let asked = request(&world, &format!("nodes: {{a: {{intent: wait, model: {asking}}}}}"));
    let daemon = world.start();
    start(&daemon, &asked).unwrap();
    let node = child(&daemon, asked.uuid, "a");
    daemon.until_display(node, "approval");
    daemon.try_signal(asked.uuid, SignalRequest { subtree: true, ..signal("TERM") }, None).unwrap();
    daemon.wait(asked.uuid);
    daemon.resume(node, resume(), None);
    daemon.until_display(node, "approval");
    let run = daemon.resume(asked.uuid, resume(), None).pid;
    daemon.until("it is below the run", || Some(()).filter(|()| daemon.listed(node).unwrap().ppid == run));
    assert_eq!(
        (words(&status(&daemon, asked.uuid)).as_str(), daemon.display(node).as_str()),
        ("a=running", "approval")
    );
    daemon.answer(node, relive_api::Resolution::Deny, None);
    assert_eq!(daemon.wait(asked.uuid).exit_code, 0, "it was not taken for one that cannot be started");
}

/// A supervisor with an agent that has one step, and another one that never ends.
fn limited(world: &World) -> FlowRequest {
    let turn = "{calls: [{name: read, args: {path: file}}]}";
    let (worker, other) =
        (world.script(&format!("turns: [{turn}, {{hang: true}}]")), world.script("turns: [{hang: true}]"));
    let text = format!(
        "backoff: 1ms
children:
  worker: {{intent: work, model: {worker}, max_steps: 1}}
  other: {{intent: wait, model: {other}}}
"
    );
    supervisor(world, &text)
}

#[test]
fn a_child_at_its_limit_is_not_restarted_and_continues_with_the_hint() {
    let world = World::new();
    let asked = limited(&world);
    let daemon = world.start();
    start(&daemon, &asked).unwrap();
    until_words(&daemon, asked.uuid, "worker=failed other=running");
    let found = status(&daemon, asked.uuid);
    let worker = &found.nodes[0];
    assert_eq!(worker.starts, 1);
    let reason = worker.reason.clone().unwrap();
    assert!(reason.starts_with("max steps exceeded; it is not restarted"), "{reason}");
    let pid = found.pid;
    assert_eq!(worker.hint.clone().unwrap(), format!("relive compose resume {pid} --node worker --max-steps 2"));
    let limits = Limits { max_steps: Some(2), ..Limits::default() };
    let more = NodeRequest { node: "worker".to_owned(), limits, ..NodeRequest::default() };
    daemon.block(person(&daemon).resume_node(&asked.uuid.to_string(), more, None)).unwrap();
    until_words(&daemon, asked.uuid, "worker=running other=running");
    assert_eq!(status(&daemon, asked.uuid).nodes[0].uuid, worker.uuid, "from its journal");
}

#[test]
fn a_child_that_a_person_resumes_with_more_is_supervised_again() {
    let world = World::new();
    let asked = limited(&world);
    let daemon = world.start();
    let run = start(&daemon, &asked).unwrap().pid;
    until_words(&daemon, asked.uuid, "worker=failed other=running");
    let worker = status(&daemon, asked.uuid).nodes[0].uuid.unwrap();
    daemon.resume(worker, steps(2), None);
    until_words(&daemon, asked.uuid, "worker=running other=running");
    assert_eq!(daemon.listed(worker).unwrap().ppid, run);
    assert_eq!(world.of_kind(worker, "opened").len(), 2, "it was resumed once");
}

#[test]
fn a_child_that_a_person_resumed_is_supervised_again_also_if_its_supervisor_was_not_told() {
    let world = World::new();
    let asked = limited(&world);
    let daemon = world.start();
    start(&daemon, &asked).unwrap();
    until_words(&daemon, asked.uuid, "worker=failed other=running");
    let worker = status(&daemon, asked.uuid).nodes[0].uuid.unwrap();
    daemon.until("its end is in the file", || (events(&world, asked.uuid, "ended") == 1).then_some(()));
    let (runtime, id) = (Arc::clone(&daemon.runtime), worker.to_string());
    daemon.block(async { drop(tokio::spawn(async move { runtime.resume(&id, steps(2), None).await })) });
    daemon.catch("it is resumed", || (world.of_kind(worker, "opened").len() == 2).then_some(()));
    assert_eq!(events(&world, asked.uuid, "redo"), 0, "its supervisor does not know yet");
    drop(daemon);
    let daemon = world.start();
    until_words(&daemon, asked.uuid, "worker=running other=running");
    assert_eq!(events(&world, asked.uuid, "redo"), 1);
    assert_eq!(world.of_kind(worker, "ended").len(), 1, "it was not resumed once more");
}

#[test]
fn a_supervisor_that_ended_with_a_child_at_its_limit_says_what_it_needs() {
    let world = World::new();
    let asked = limited(&world);
    let daemon = world.start();
    start(&daemon, &asked).unwrap();
    until_words(&daemon, asked.uuid, "worker=failed other=running");
    let other = child(&daemon, asked.uuid, "other");
    daemon.signal(other, "TERM", None);
    let ended = daemon.wait(asked.uuid);
    let exit = ended.exit.unwrap();
    assert_eq!((exit.code, exit.reason.as_str()), (1, "failed: worker"));
    let refused = daemon.block(daemon.runtime.resume(&asked.uuid.to_string(), resume(), None)).unwrap_err();
    let pid = status(&daemon, asked.uuid).pid;
    let hint = format!("relive compose resume {pid} --node worker --max-steps 2");
    assert_eq!((refused.code(), refused.hint()), (ErrorCode::Conflict, Some(hint)), "{refused}");
    let limits = Limits { max_steps: Some(2), ..Limits::default() };
    let more = NodeRequest { node: "worker".to_owned(), limits, ..NodeRequest::default() };
    daemon.block(person(&daemon).resume_node(&asked.uuid.to_string(), more, None)).unwrap();
    until_words(&daemon, asked.uuid, "worker=running other=stopped");
}

/// Replaces a script: whatever is started from now on follows the new one.
fn rewrite(model: &str, yaml: &str) {
    std::fs::write(model.strip_prefix("script/").unwrap(), yaml).unwrap();
}

#[test]
fn a_child_that_a_person_paused_comes_back_paused_with_the_others() {
    for fresh in [false, true] {
        let world = World::new();
        let hanging = world.script("turns: [{hang: true}]");
        let call = "{calls: [{name: shell, args: {command: id}}]}";
        let failing = world.script(&format!("turns: [{call}, {{fail: broken}}]"));
        let text = format!(
            "strategy: one_for_all
backoff: 2s
children:
  a: {{intent: fail, model: {failing}}}
  b: {{intent: wait, model: {hanging}, fresh: {fresh}}}
"
        );
        let asked = supervisor(&world, &text);
        let daemon = world.start();
        start(&daemon, &asked).unwrap();
        let (a, before) = (child(&daemon, asked.uuid, "a"), child(&daemon, asked.uuid, "b"));
        daemon.until_display(a, "approval");
        daemon.until_records(&world, before, "model_started", 1);
        daemon.pause(before, crate::world::PAUSE_NOW, None);
        daemon.until_display(before, "suspended");
        daemon.answer(a, relive_api::Resolution::Deny, None);
        until_words(&daemon, asked.uuid, "a=due b=due");
        // It fails once only.
        rewrite(&failing, &format!("turns: [{call}, {{hang: true}}]"));
        until_starts(&daemon, asked.uuid, [2, 2]);
        let after = child(&daemon, asked.uuid, "b");
        assert_eq!(before == after, !fresh);
        daemon.until_display(after, "suspended");
        assert_eq!(daemon.listed(after).unwrap().suspend_reason, Some(SuspendReason::User));
        let questions = world.of_kind(after, "model_started").len();
        assert_eq!(questions, usize::from(!fresh), "it has not run since");
        daemon.resume(after, resume(), None);
        daemon.until_records(&world, after, "model_started", questions + 1);
    }
}

#[test]
fn children_that_were_being_ended_for_a_restart_are_restarted_by_the_next_daemon() {
    for strategy in ["one_for_all", "rest_for_one"] {
        let world = World::new();
        let hanging = world.script("turns: [{hang: true}]");
        let call = "{calls: [{name: shell, args: {command: id}}]}";
        let failing = world.script(&format!("turns: [{call}, {{fail: broken}}]"));
        let text = format!(
            "strategy: {strategy}
backoff: 2s
children:
  a: {{intent: fail, model: {failing}}}
  b: {{intent: wait, model: {hanging}}}
  c: {{intent: wait, model: {hanging}}}
"
        );
        let asked = supervisor(&world, &text);
        let daemon = world.start();
        start(&daemon, &asked).unwrap();
        let [a, b, c] = ["a", "b", "c"].map(|name| child(&daemon, asked.uuid, name));
        daemon.until_display(a, "approval");
        for uuid in [b, c] {
            daemon.until_records(&world, uuid, "model_started", 1);
        }
        daemon.answer(a, relive_api::Resolution::Deny, None);
        let has_ended = |uuid: &Uuid| !world.of_kind(*uuid, "ended").is_empty();
        daemon.catch("a sibling has ended", || [b, c].iter().any(has_ended).then_some(()));
        drop(daemon);
        // It fails once only.
        rewrite(&failing, &format!("turns: [{call}, {{hang: true}}]"));
        let daemon = world.start();
        until_starts(&daemon, asked.uuid, [2, 2, 2]);
        until_words(&daemon, asked.uuid, "a=running b=running c=running");
    }
}

#[test]
fn a_node_is_not_resumed_with_limits_below_what_it_has_used() {
    let world = World::new();
    let turn = "{calls: [{name: read, args: {path: file}}]}";
    let model = world.script(&format!("turns: [{turn}, {{text: done}}]"));
    let asked = request(&world, &format!("nodes: {{a: {{intent: do, model: {model}}}}}"));
    let daemon = world.start();
    start(&daemon, &asked).unwrap();
    daemon.wait(asked.uuid);
    let before = status(&daemon, asked.uuid);
    assert_eq!(words(&before), "a=succeeded");
    let limits = Limits { max_steps: Some(1), ..Limits::default() };
    let few = NodeRequest { node: "a".to_owned(), limits, ..NodeRequest::default() };
    let refused = daemon.block(person(&daemon).resume_node(&asked.uuid.to_string(), few, None)).unwrap_err();
    assert_eq!(refused.code(), ErrorCode::Conflict, "{refused}");
    assert!(refused.to_string().ends_with("so --max-steps 1 would end it at once"), "{refused}");
    let hint = refused.hint().unwrap();
    assert!(hint.starts_with(&format!("relive compose resume {} --node a --max-steps ", before.pid)), "{hint}");
    assert_eq!((events(&world, asked.uuid, "redo"), words(&status(&daemon, asked.uuid))), (0, words(&before)));
}

#[test]
fn a_supervisor_lets_go_of_the_processes_that_it_replaced() {
    let world = World::new();
    let model = world.script("turns: [{fail: broken}]");
    let text =
        format!("backoff: 20ms\nmax_restarts: 1000\nchildren: {{a: {{intent: fail, model: {model}, fresh: true}}}}");
    let asked = supervisor(&world, &text);
    let daemon = world.start();
    let run = start(&daemon, &asked).unwrap().pid;
    until_status(&daemon, asked.uuid, |status| (status.nodes[0].starts > 2).then_some(()));
    rewrite(&model, "turns: [{hang: true}]");
    let hangs =
        |uuid: Uuid| !world.of_kind(uuid, "model_started").is_empty() && world.of_kind(uuid, "ended").is_empty();
    let last = until_status(&daemon, asked.uuid, |status| status.nodes[0].uuid.filter(|uuid| hangs(*uuid)));
    daemon.until_display(last, "running");
    let handles = daemon.block(person(&daemon).handles()).unwrap().handles;
    let held: Vec<Uuid> = handles.into_iter().filter(|it| it.holder == run).map(|it| it.target_uuid).collect();
    assert_eq!(held, [last]);
    let starts = status(&daemon, asked.uuid).nodes[0].starts as usize;
    assert_eq!(world.of_kind(asked.uuid, "released").len(), starts - 1);
}
