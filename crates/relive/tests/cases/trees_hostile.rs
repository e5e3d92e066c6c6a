//! Trees whose processes are removed, and requests that cannot be carried out.

use std::fs;

use crate::world::{Begun, World};

impl World {
    #[track_caller]
    fn process_of(&self, run: &Begun, node: &str) -> String {
        self.node(run, node)["uuid"].as_str().unwrap().to_owned()
    }
}

#[test]
fn a_node_that_cannot_be_resumed_as_asked_is_refused_before_anything_changes() {
    let world = World::new();
    let model = world.script("turns: [{text: one, calls: [{name: list}]}, {text: two}]");
    let run = world.up(&format!(
        "nodes:
  gone: {{command: [echo, gone]}}
  program: {{command: [echo, program]}}
  agent: {{intent: do it, model: {model}}}
  after: {{command: [sh, -c, 'echo after >> ran'], depends_on: [gone, program, agent]}}
"
    ));
    world.relive(&["wait", &run.uuid]).ok();
    world.relive(&["rm", "-y", &world.process_of(&run, "gone")]).ok();
    let resume = |flags: &[&str]| world.relive(&[&["compose", "resume", &run.uuid, "--node"], flags].concat());
    resume(&["gone"]).fails(3, &["cannot resume gone: its process", "was removed"]);
    resume(&["program", "--input", "hello"]).fails(2, &["program"]);
    resume(&["agent", "--fork", "--from-step", "9"])
        .fails(2, &["agent has no step 9: its last one is 2", "relive steps"]);
    resume(&["agnt"]).fails(4, &["there is no node `agnt`"]);
    assert_eq!(world.states(&run), "gone=succeeded program=succeeded agent=succeeded after=succeeded");
    assert_eq!(world.ran(), ["after"]);
    // The output of the others is there.
    let logs = world.relive(&["compose", "logs", &run.uuid]).ok();
    assert!(logs.stdout.contains("==> program <==\nprogram\n"), "{logs:?}");
    assert!(logs.stderr.contains("gone: process"), "{logs:?}");
}

#[test]
fn a_node_whose_process_was_removed_begins_anew_when_its_run_is_resumed() {
    let world = World::new();
    let run = world.up("nodes:
  bad: {command: [sh, -c, 'echo bad >> ran; test -e go']}
  after: {command: [sh, -c, 'echo after >> ran'], depends_on: [bad]}
");
    world.relive(&["wait", &run.uuid]).exits(1);
    let first = world.process_of(&run, "bad");
    world.relive(&["rm", "-y", &first]).ok();
    fs::write(world.work().join("go"), "").unwrap();
    world.relive(&["resume", &run.uuid]).ok();
    world.relive(&["wait", &run.uuid]).ok();
    assert_eq!(world.ran(), ["after", "bad", "bad"]);
    assert_ne!(world.process_of(&run, "bad"), first);
}

#[test]
fn a_node_of_a_run_whose_time_is_up_is_not_resumed() {
    let world = World::new();
    world.file("nap.yaml", "nodes: {nap: {command: [sleep, '1000']}}\n");
    let up = world.relive(&["compose", "up", "-d", "--json", "--timeout", "1s", "nap.yaml"]).ok().json();
    let run = up["uuid"].as_str().unwrap();
    world.relive(&["wait", run]).exits(1);
    world.relive(&["compose", "resume", run, "--node", "nap"]).fails(3, &["--timeout"]);
}
