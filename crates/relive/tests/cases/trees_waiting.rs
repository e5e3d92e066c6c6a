//! Trees of which something stands still: nodes that wait for a person, paused runs, and nodes that run without their run.

use std::io::{BufRead as _, BufReader};
use std::process::Child;
use std::sync::mpsc;
use std::time::Duration;

use crate::world::{World, short, wait_until};

/// What a command in the foreground says, line by line.
struct Up {
    child: Child,
    said: mpsc::Receiver<String>,
}

impl Up {
    fn new(world: &World, text: &str) -> Self {
        world.file("tree.yaml", text);
        Self::of(world.start(&["compose", "up", "tree.yaml"]))
    }

    fn of(mut child: Child) -> Self {
        let (sender, said) = mpsc::channel();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        // Nobody listens any more once the test has failed.
        std::thread::spawn(move || stderr.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
        Self { child, said }
    }

    /// Returns the lines until one that begins so.
    #[track_caller]
    fn lines_until(&self, begins: &str) -> Vec<String> {
        let mut all = Vec::new();
        loop {
            let line = self.said.recv_timeout(Duration::from_secs(30));
            let line = line.unwrap_or_else(|_| panic!("`{begins}` was not said, but {all:?}"));
            let is_it = line.starts_with(begins);
            all.push(line);
            if is_it {
                return all;
            }
        }
    }

    /// Returns the next line that begins so, and the one after it.
    #[track_caller]
    fn until(&self, begins: &str) -> (String, String) {
        let mut all = Vec::new();
        let mut next = || {
            let line = self.said.recv_timeout(Duration::from_secs(30));
            let line = line.unwrap_or_else(|_| panic!("`{begins}` was not said, but {all:?}"));
            all.push(line.clone());
            line
        };
        loop {
            let line = next();
            if line.starts_with(begins) {
                let last = begins.ends_with("succeeded") || begins.ends_with("running");
                return (line, if last { String::new() } else { next() });
            }
        }
    }
}

/// The command on a line such as `to answer: relive resolve 5`.
#[track_caller]
fn command(line: &str, what: &str) -> Vec<String> {
    let command = line.strip_prefix(what).and_then(|line| line.strip_prefix(": relive "));
    command.unwrap_or_else(|| panic!("{line}")).split(' ').map(str::to_owned).collect()
}

impl World {
    #[track_caller]
    fn type_in(&self, command: &[String], more: &[&str]) {
        self.relive(&command.iter().map(String::as_str).chain(more.iter().copied()).collect::<Vec<_>>()).ok();
    }
}

#[test]
fn every_command_says_that_a_run_is_paused_and_names_the_same_command() {
    let world = World::new();
    let up = Up::new(
        &world,
        "nodes:
  first: {command: [sh, -c, 'while [ ! -e go ]; do sleep 0.01; done']}
  second: {command: ['true'], depends_on: [first]}
",
    );
    up.until("first running");
    let logs = Up::of(world.start(&["compose", "logs", "1", "--node", "second", "-f"]));
    logs.lines_until("second has not started yet: it waits for first");
    world.relive(&["pause", "1"]).ok();
    world.await_display("1", "suspended");
    world.file("go", "");
    let next = "relive resume --subtree 1";
    assert_eq!(up.until("run 1 paused").1, format!("to continue it: {next}"));
    let (_, continues) = logs.until("second has not started yet: run 1 is suspended: paused");
    assert_eq!(continues, format!("to continue the run: {next}"));
    let status = world.relive(&["compose", "status", "1"]).ok().stderr;
    assert!(status.contains(&format!("run 1 suspended: paused\nto continue the run: {next}")), "{status}");
    let status = world.relive(&["compose", "status", "1", "--json"]).ok().json();
    assert_eq!((&status["reason"], &status["resume"]), (&"paused".into(), &next.into()));
    let wait = Up::of(world.start(&["wait", "1"]));
    let waits = wait.lines_until("PID 1 is suspended").pop().unwrap();
    assert!(waits.ends_with(&format!(": {next}")), "{waits}");
    world.relive(&["resume", "--subtree", "1"]).ok();
    for mut followed in [up, logs, wait] {
        assert!(followed.child.wait().unwrap().success());
    }
}

#[test]
fn compose_up_says_at_once_that_a_node_waits_and_how_to_answer() {
    let world = World::new();
    let asks = world.script("turns: [{calls: [{name: shell, args: {command: echo hello}}]}, {text: done}]");
    let spends = world.script("turns: [{usage: {input: 9, output: 9}, calls: [{name: list}]}, {text: done}]");
    let up = Up::new(
        &world,
        &format!(
            "nodes:
  asks: {{intent: ask, model: {asks}}}
  program: {{command: [sh, -c, 'while [ ! -e go ]; do sleep 0.01; done'], depends_on: [asks]}}
  spends: {{intent: spend, model: {spends}, max_tokens: 15, depends_on: [program]}}
  beside: {{command: [sh, -c, 'while [ ! -e end ]; do sleep 0.01; done']}}
"
        ),
    );
    let (line, next) = up.until("asks waits for your approval (PID ");
    assert!(line.ends_with("): shell: echo hello"), "{line}");
    world.type_in(&command(&next, "to answer"), &["--allow"]);
    up.until("program running");
    let run = world.relive(&["ps", "--json"]).ok().json();
    let run = run["processes"].as_array().unwrap().iter().find(|process| process["body"] == "compose").unwrap();
    let (uuid, pid) = (run["uuid"].as_str().unwrap(), run["pid"].as_u64().unwrap());
    world.relive(&["pause", &format!("program.{}", short(uuid))]).ok();
    let (_, next) = up.until("program paused (PID ");
    world.type_in(&command(&next, "to continue it"), &[]);
    world.relive(&["pause", "--subtree", uuid]).ok();
    let (_, next) = up.until(&format!("run {pid} paused"));
    world.type_in(&command(&next, "to continue it"), &[]);
    world.file("go", "");
    let (_, next) = up.until("spends failed");
    world.type_in(&command(&next, "to continue it"), &[]);
    up.until("spends succeeded");
    world.file("end", "");
    assert!(up.child.wait_with_output().unwrap().status.success());
}

#[test]
fn a_node_of_a_paused_run_is_resumed_together_with_the_run() {
    let world = World::new();
    let run = world.up("nodes:
  bad: {command: [sh, -c, 'test -e go']}
  after: {command: [sh, -c, 'echo after >> ran'], depends_on: [bad]}
  slow: {command: [sh, -c, 'while [ ! -e end ]; do sleep 0.01; done']}
");
    world.await_node(&run, "bad", "failed");
    wait_until("slow is there", || world.node(&run, "slow")["pid"].is_u64());
    world.relive(&["pause", "--subtree", &run.uuid]).ok();
    world.await_display(&run.uuid, "suspended");
    let resume = |node: &str| world.relive(&["compose", "resume", &run.uuid, "--node", node]);
    resume("slow").fails(3, &["node slow", "is suspended", "hint: relive resume "]);
    resume("badd").fails(4, &["did you mean `bad`?"]);
    world.await_display(&run.uuid, "suspended");
    world.file("go", "");
    let told = resume("bad").ok().stderr;
    assert!(told.contains("was paused and is resumed; 1 process below PID "), "{told}");
    // Acknowledged means durable.
    world.kill_daemon();
    world.await_node(&run, "after", "succeeded");
    let slow = world.node(&run, "slow");
    assert_eq!((slow["state"].as_str(), slow["reason"].as_str()), (Some("running"), Some("paused")));
    let hint: Vec<&str> = slow["hint"].as_str().unwrap().strip_prefix("relive ").unwrap().split(' ').collect();
    world.relive(&hint).ok();
    world.file("end", "");
    world.relive(&["wait", &run.uuid]).ok();
}

#[test]
fn compose_down_of_an_ended_run_ends_a_node_that_was_resumed_alone() {
    let world = World::new();
    let run = world.up("nodes: {a: {command: [sleep, '1000']}, b: {command: [sleep, '1000']}}");
    let a = world.await_node(&run, "a", "running")["uuid"].as_str().unwrap().to_owned();
    world.await_node(&run, "b", "running");
    world.relive(&["compose", "down", &run.uuid]).ok();
    world.relive(&["resume", &a]).ok();
    let down = world.relive(&["compose", "down", &run.uuid]).ok().stderr;
    assert!(down.contains("has ended already\nended a (PID "), "{down}");
    assert!(down.contains("), which was alive after the run had ended"), "{down}");
    assert_eq!(world.relive(&["ps", "-q"]).ok().stdout, "");
    world.relive(&["resume", &a]).ok();
    let down = world.relive(&["compose", "down", "--json", &run.uuid]).ok().json();
    assert_eq!(down["affected"], 1, "{down}");
    assert_eq!(world.relive(&["ps", "-q"]).ok().stdout, "");
}

#[test]
fn the_undo_of_compose_down_is_a_command_that_works() {
    let world = World::new();
    let model = world.script("turns: [{calls: [{name: list}]}, {calls: [{name: list}]}, {text: done}]");
    let run = world.up(&format!(
        "nodes:
  thinks: {{intent: think, model: {model}, max_steps: 1}}
  slow: {{command: [sleep, '1000']}}
"
    ));
    world.await_node(&run, "thinks", "failed");
    world.await_node(&run, "slow", "running");
    let down = world.relive(&["compose", "down", &run.uuid]).ok().stderr;
    let undo = down.split("(undo: relive ").nth(1).unwrap_or_else(|| panic!("{down}")).split(')').next().unwrap();
    world.relive(&undo.split(' ').collect::<Vec<_>>()).ok();
    world.relive(&["compose", "down", &run.uuid]).ok();
}

#[test]
fn a_node_that_stays_paused_when_its_run_is_resumed_is_named_by_compose_up_and_by_wait() {
    let world = World::new();
    let up = Up::new(&world, "nodes: {slow: {command: [sh, -c, 'while [ ! -e end ]; do sleep 0.01; done']}}\n");
    up.until("slow running");
    let run = world.relive(&["ps", "--json"]).ok().json();
    let run = run["processes"].as_array().unwrap().iter().find(|process| process["body"] == "compose").unwrap();
    let uuid = run["uuid"].as_str().unwrap();
    world.relive(&["pause", "--subtree", uuid]).ok();
    let before = up.lines_until(&format!("run {} paused", run["pid"]));
    world.relive(&["resume", uuid]).ok();
    let wait = Up::of(world.start(&["wait", uuid]));
    let line = wait.lines_until("PID ").remove(0);
    let (what, next) = line.rsplit_once(": ").unwrap();
    assert!(what.starts_with(&format!("PID {} waits for PID ", run["pid"])), "{line}");
    assert!(what.ends_with(&format!("(slow.{}), which is suspended (paused)", short(uuid))), "{line}");
    assert!(next.starts_with("relive resume "), "{line}");
    // Whichever of the two is paused first, it is said once.
    let next = before.iter().position(|line| line.starts_with("slow paused")).map(|at| before[at + 1].clone());
    let next = next.unwrap_or_else(|| up.until("slow paused (PID ").1);
    world.type_in(&command(&next, "to continue it"), &[]);
    world.file("end", "");
    assert!(wait.child.wait_with_output().unwrap().status.success());
    assert!(up.child.wait_with_output().unwrap().status.success());
}
