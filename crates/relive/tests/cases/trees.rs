//! Compose files and supervisors.

use std::fs;

use serde_json::{Value, json};

use super::recovery::steps_then_hang;
use super::sessions_support::is_alive;
use crate::world::{Begun, World, begun, finish, wait_for, wait_until};

impl World {
    pub(super) fn file(&self, name: &str, text: &str) {
        fs::write(self.work().join(name), text).unwrap();
    }

    #[track_caller]
    pub(super) fn up(&self, text: &str) -> Begun {
        self.file("tree.yaml", text);
        begun(&self.relive(&["compose", "up", "-d", "--json", "tree.yaml"]).ok().json())
    }

    #[track_caller]
    pub(super) fn supervise(&self, text: &str) -> Begun {
        self.file("keep.yaml", text);
        begun(&self.relive(&["supervise", "-d", "--json", "keep.yaml"]).ok().json())
    }

    #[track_caller]
    pub(super) fn status(&self, run: &Begun) -> Value {
        self.relive(&["compose", "status", "--json", &run.uuid]).ok().json()
    }

    #[track_caller]
    pub(super) fn node(&self, run: &Begun, name: &str) -> Value {
        let status = self.status(run);
        let node = status["nodes"].as_array().unwrap().iter().find(|node| node["name"] == name);
        node.unwrap_or_else(|| panic!("no {name} in {status}")).clone()
    }

    #[track_caller]
    pub(super) fn await_node(&self, run: &Begun, name: &str, state: &str) -> Value {
        wait_for(&format!("{name} is {state}"), || Some(self.node(run, name)).filter(|node| node["state"] == state))
    }

    /// The states of all nodes, in the order of the file.
    pub(super) fn states(&self, run: &Begun) -> String {
        let word = |node: &Value| format!("{}={}", node["name"].as_str().unwrap(), node["state"].as_str().unwrap());
        self.status(run)["nodes"].as_array().unwrap().iter().map(word).collect::<Vec<_>>().join(" ")
    }

    /// What the nodes wrote into a file, sorted.
    pub(super) fn ran(&self) -> Vec<String> {
        let text = fs::read_to_string(self.work().join("ran")).unwrap_or_default();
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    }

    /// How often a process began.
    pub(super) fn generations(&self, uuid: &str) -> usize {
        self.records(uuid, "opened").len()
    }
}

#[test]
fn case_52_a_node_starts_the_moment_its_last_input_is_there() {
    let world = World::new();
    // `slow` is on the same level as `left` and ends only after `join` has run: whoever waits for levels waits for ever.
    let run = world.up(
        "nodes:
  plan: {command: [sh, -c, 'echo the plan']}
  slow: {command: [sh, -c, 'while [ ! -e joined ]; do sleep 0.01; done'], depends_on: [plan]}
  left: {command: [sh, -c, 'echo \"left of $RELIVE_RESULT_plan\"'], depends_on: [plan], results: [plan]}
  right: {command: [sh, -c, 'echo \"right of $RELIVE_RESULT_plan\"'], depends_on: [plan], results: [plan]}
  join: {command: [sh, -c, 'echo \"$RELIVE_RESULT_left, $RELIVE_RESULT_right\" > joined'], depends_on: [left, right], results: [left, right]}
",
    );
    world.relive(&["wait", &run.uuid]).ok();
    let joined = fs::read_to_string(world.work().join("joined")).unwrap();
    assert_eq!(joined, "left of the plan, right of the plan\n");
    assert_eq!(world.states(&run), "plan=succeeded slow=succeeded left=succeeded right=succeeded join=succeeded");
    // The run is a process and its nodes are its children.
    let children = world.relive(&["ps", "-a", "--json"]).ok().json();
    let below = |process: &&Value| process["parent_uuid"] == run.uuid.as_str();
    assert_eq!(children["processes"].as_array().unwrap().iter().filter(below).count(), 5);
}

#[test]
fn case_53_a_daemon_killed_at_any_point_of_a_run_of_20_nodes_runs_every_node_once() {
    let world = World::new();
    let mut text = "nodes:\n".to_owned();
    for node in 0..20 {
        let on = match node {
            0..=3 => String::new(),
            node => format!(", depends_on: [n{}, n{}]", node - 4, (node * 7) % (node - 3)),
        };
        let on = on.replace(&format!("[n{0}, n{0}]", node.max(4) - 4), &format!("[n{}]", node.max(4) - 4));
        text.push_str(&format!("  n{node}: {{command: [sh, -c, 'echo n{node} >> ran; sleep 0.05']{on}}}\n"));
    }
    text.push_str("  bad: {command: [sh, -c, 'echo bad >> ran; exit 7'], depends_on: [n8]}\n");
    text.push_str("  never: {command: [sh, -c, 'echo never >> ran'], depends_on: [bad]}\n");
    text.push_str("  after: {command: [sh, -c, 'echo after >> ran'], depends_on: {bad: completed}}\n");
    let run = world.up(&text);
    // Killed after each further node has begun, and at whatever moment of its recovery that is.
    for begun in 1..20 {
        wait_until("one more has begun", || world.ran().len() >= begun);
        if world.daemon_pid().is_some() {
            world.kill_daemon();
        }
        world.relive(&["ps", "-q"]).ok();
    }
    world.relive(&["wait", &run.uuid]).exits(1);
    let mut expect: Vec<String> = (0..20).map(|node| format!("n{node}")).collect();
    expect.extend(["bad", "after"].map(str::to_owned));
    expect.sort();
    assert_eq!(world.ran(), expect);
    let states = world.states(&run);
    assert!(states.ends_with("n19=succeeded bad=failed never=skipped after=succeeded"), "{states}");
    assert_eq!(world.node(&run, "bad")["exit"]["code"], 7);
}

#[test]
fn case_53_a_run_that_only_waits_is_never_taken_for_a_crash_loop() {
    let world = World::new();
    let run =
        world.up("nodes: {wait: {command: [sh, -c, 'while [ ! -e go ]; do sleep 0.01; done; echo wait >> ran']}}");
    world.await_node(&run, "wait", "running");
    for _ in 0..5 {
        world.kill_daemon();
        world.await_display(&run.uuid, "running");
    }
    world.file("go", "");
    world.relive(&["wait", &run.uuid]).ok();
    assert_eq!(world.ran(), ["wait"]);
}

#[test]
fn case_54_a_failed_node_continues_from_its_journal_and_then_its_dependents_run_and_nothing_else() {
    let world = World::new();
    let model = world.script(&steps_then_hang(3));
    let run = world.up(&format!(
        "nodes:
  before: {{command: [sh, -c, 'echo before >> ran']}}
  work: {{intent: do it, model: {model}, depends_on: [before]}}
  after: {{command: [sh, -c, 'echo after >> ran; echo $RELIVE_RESULT_work'], depends_on: [work], results: [work]}}
  beside: {{command: [sh, -c, 'echo beside >> ran'], depends_on: [before]}}
"
    ));
    let work = wait_for("the agent runs", || world.node(&run, "work")["uuid"].as_str().map(str::to_owned));
    let agent = Begun { pid: 0, uuid: work.clone() };
    world.await_step(&agent, 4);
    world.relive(&["kill", &work]).ok();
    world.relive(&["wait", &run.uuid]).exits(1);
    assert_eq!(world.states(&run), "before=succeeded work=stopped after=skipped beside=succeeded");
    // What made it fail is put right.
    let script = model.strip_prefix("script/").unwrap();
    let answers = steps_then_hang(3).replace("{text: waiting, hang: true}", "{text: the work is done}");
    assert_ne!(answers, steps_then_hang(3));
    fs::write(script, answers).unwrap();
    let before = world.node(&run, "before")["uuid"].clone();
    let told = world.relive(&["compose", "resume", &run.uuid, "--node", "work", "--json"]).ok().json();
    assert_eq!((&told["uuid"], &told["node"]), (&json!(run.uuid), &json!("work")));
    world.relive(&["wait", &run.uuid]).ok();
    assert_eq!(world.states(&run), "before=succeeded work=succeeded after=succeeded beside=succeeded");
    assert_eq!(world.ran(), ["after", "before", "beside"]);
    assert_eq!(world.node(&run, "before")["uuid"], before);
    assert_eq!(world.node(&run, "work")["uuid"], work.as_str());
    assert_eq!(world.generations(&work), 2);
    let asked: Vec<u64> =
        world.records(&work, "model_started").iter().map(|record| record["step"].as_u64().unwrap()).collect();
    assert_eq!(asked, [1, 2, 3, 4, 4], "it continued at its step, and asked for none again");
    let after = world.node(&run, "after")["uuid"].as_str().unwrap().to_owned();
    assert_eq!(world.relive(&["logs", &after]).ok().stdout, "the work is done\n");
}

#[test]
fn a_fork_of_a_node_takes_its_place_and_its_dependents_run_again() {
    let world = World::new();
    let model =
        world.script("turns: [{text: one, calls: [{name: list}]}, {text: two, calls: [{name: list}]}, {text: three}]");
    let run = world.up(&format!(
        "nodes:
  work: {{intent: do it, model: {model}}}
  after: {{command: [sh, -c, 'echo after >> ran'], depends_on: [work]}}
"
    ));
    world.relive(&["wait", &run.uuid]).ok();
    let first = world.node(&run, "work")["uuid"].as_str().unwrap().to_owned();
    let refused = world.relive(&["compose", "resume", &run.uuid, "--node", "work", "--from-step", "1"]);
    refused.fails(
        2,
        &["--from-step 1 needs --fork: otherwise work continues after its last step", "--fork --from-step 1"],
    );
    world.relive(&["compose", "resume", &run.uuid, "--node", "work", "--fork", "--from-step", "1"]).ok();
    world.relive(&["wait", &run.uuid]).ok();
    let fork = world.node(&run, "work")["uuid"].as_str().unwrap().to_owned();
    assert_ne!(fork, first);
    let info = world.info(&fork);
    assert_eq!((&info["origin_uuid"], &info["origin_step"]), (&json!(first), &json!(1)));
    assert_eq!(info["parent_uuid"], run.uuid.as_str());
    assert_eq!(world.ran(), ["after", "after"]);
}

#[test]
fn case_55_two_runs_of_one_file_never_mix() {
    let world = World::new();
    world.file(
        "tree.yaml",
        "nodes:
  who: {command: [sh, -c, 'while [ ! -e go ]; do sleep 0.01; done; echo $WHO']}
  say: {command: [sh, -c, 'echo \"I am $RELIVE_RESULT_who\"'], depends_on: [who], results: [who]}
",
    );
    let up = |who: &str| {
        let who = format!("WHO={who}");
        begun(&world.relive(&["compose", "up", "-d", "--json", "--env", &who, "tree.yaml"]).ok().json())
    };
    let (left, right) = (up("left"), up("right"));
    world.await_node(&left, "who", "running");
    world.await_node(&right, "who", "running");
    world.file("go", "");
    for (run, who) in [(&left, "left"), (&right, "right")] {
        world.relive(&["wait", &run.uuid]).ok();
        let logs = world.relive(&["compose", "logs", &run.uuid, "--node", "say"]).ok().stdout;
        assert_eq!(logs, format!("I am {who}\n"));
    }
    let uuids = |run: &Begun| -> Vec<String> {
        let status = world.status(run);
        status["nodes"].as_array().unwrap().iter().map(|node| node["uuid"].as_str().unwrap().to_owned()).collect()
    };
    assert!(uuids(&left).iter().all(|uuid| !uuids(&right).contains(uuid)));
}

#[test]
fn case_56_a_mistake_in_the_file_has_its_line_and_a_caret_and_nothing_is_started() {
    let world = World::new();
    for (text, said) in [
        (
            "nodes:\n  a: {command: [touch, ran], depends_on: [b]}\n  b: {command: [touch, ran], depends_on: [a]}\n",
            &["tree.yaml:2:43: the nodes depend on each other in a cycle: a -> b -> a", "depends_on: [b]}\n", "^"][..],
        ),
        (
            "nodes:\n  first: {command: [touch, ran]}\n  b: {command: [touch, ran], depends_on: [frist]}\n",
            &["tree.yaml:3:43: there is no node `frist` (did you mean `first`?)", "^"],
        ),
        (
            "nodes:\n  a: {command: touch ran}\n  b: {command: [touch, ran], retries: often}\n",
            &[
                "tree.yaml:2:16: `command` must be a list",
                "tree.yaml:3:39: `retries` must be a whole number, not a text",
                "^",
            ],
        ),
        ("nodes:\n  a: {comand: [touch, ran]}\n", &["did you mean `command`?", "^"]),
    ] {
        world.file("tree.yaml", text);
        for flags in [&["compose", "up", "tree.yaml"][..], &["compose", "up", "--dry-run", "tree.yaml"]] {
            world.relive(flags).fails(2, said);
        }
    }
    assert_eq!(world.relive(&["ps", "-a", "-q"]).ok().stdout, "");
    assert!(!world.work().join("ran").exists());
    let uuid = "01890000-0000-7000-8000-00000000abcd";
    let body = json!({"uuid": uuid, "kind": "compose", "file": "f", "text": "nodes: {a: {}}", "cwd": "/"}).to_string();
    world.run_hanging(&[]);
    let (status, answer) = world.http("POST", "/v1/flows", "", &body);
    assert_eq!(status, 400, "{answer}");
    assert!(answer.contains("f:1:9: `a` needs an `intent`"), "{answer}");
    world.relive(&["info", uuid]).exits(4);
}

#[test]
fn case_57_compose_down_leaves_no_process_running() {
    let world = World::new();
    let hanging = world.hanging();
    let text = format!(
        "nodes:
  agent: {{intent: wait, model: {hanging}}}
  program: {{command: [sh, -c, 'sleep 1000 & sleep 1000 & wait']}}
  deaf: {{command: [sh, -c, 'trap : TERM; while :; do sleep 0.1; done']}}
  later: {{command: [sh, -c, 'echo later >> ran'], depends_on: [agent, program]}}
"
    );
    for crash in [false, true] {
        let run = world.up(&text);
        let node = |name: &str| world.await_node(&run, name, "running")["uuid"].as_str().unwrap().to_owned();
        let (agent, program, deaf) = (node("agent"), node("program"), node("deaf"));
        world.await_step(&Begun { pid: 0, uuid: agent }, 1);
        let host = |uuid: String| world.await_stage(&Begun { pid: 0, uuid }, "running")["host_pid"].as_u64().unwrap();
        let pids = [host(program), host(deaf)];
        if crash {
            world.kill_daemon();
        }
        world.relive(&["compose", "down", &run.uuid]).ok();
        assert_eq!(world.relive(&["ps", "-q"]).ok().stdout, "");
        assert!(pids.iter().all(|pid| !is_alive(*pid)));
        world.relive(&["wait", &run.uuid]).exits(1);
        assert!(world.relive(&["compose", "down", &run.uuid]).ok().stderr.contains("has ended already"));
        assert_eq!(world.states(&run), "agent=halted program=halted deaf=halted later=halted");
    }
    assert!(world.ran().is_empty());
}

#[test]
fn a_run_that_is_killed_alone_ends_its_nodes_and_continues_where_it_was() {
    let world = World::new();
    let run = world.up("nodes:
  done: {command: [sh, -c, 'echo done >> ran']}
  work: {command: [sh, -c, 'echo work >> ran; while [ ! -e go ]; do sleep 0.01; done'], depends_on: [done]}
  after: {command: [sh, -c, 'echo after >> ran'], depends_on: [work]}
");
    world.await_node(&run, "work", "running");
    wait_until("it has begun", || world.ran().len() == 2);
    world.relive(&["kill", &run.uuid]).ok();
    world.relive(&["wait", &run.uuid]).exits(1);
    assert_eq!(world.relive(&["ps", "-q"]).ok().stdout, "");
    world.file("go", "");
    world.relive(&["resume", &run.uuid]).ok();
    world.relive(&["wait", &run.uuid]).ok();
    assert_eq!(world.ran(), ["after", "done", "work", "work"]);
}

#[test]
fn a_run_that_is_paused_with_its_subtree_starts_nothing_until_it_is_resumed() {
    let world = World::new();
    let run = world.up("nodes:
  first: {command: [sh, -c, 'while [ ! -e go ]; do sleep 0.01; done']}
  second: {command: [sh, -c, 'echo second >> ran'], depends_on: [first]}
");
    world.await_node(&run, "first", "running");
    world.relive(&["pause", "--subtree", &run.uuid]).ok();
    world.await_display(&run.uuid, "suspended");
    assert_eq!(world.node(&run, "first")["reason"], "paused");
    world.file("go", "");
    world.kill_daemon();
    world.await_display(&run.uuid, "suspended");
    assert!(world.ran().is_empty());
    world.relive(&["resume", "--subtree", &run.uuid]).ok();
    world.relive(&["wait", &run.uuid]).ok();
    assert_eq!(world.ran(), ["second"]);
}

#[test]
fn case_58_a_child_that_ends_too_often_escalates_and_what_finished_or_was_stopped_is_not_started_again() {
    let world = World::new();
    // The inner supervisor gives up after one restart, and the outer one after one restart of the inner one.
    let outer = world.supervise(
        "backoff: 1ms
max_restarts: 1
children:
  finished: {command: [sh, -c, 'echo finished >> ran'], restart: transient}
  stopped: {command: [sh, -c, 'echo stopped >> ran; exec sleep 1000']}
  inner:
    supervisor:
      backoff: 1ms
      max_restarts: 1
      children:
        bad: {command: [sh, -c, 'while [ ! -e go ]; do sleep 0.01; done; echo bad >> ran; exit 3']}
        good: {command: [sh, -c, 'exec sleep 1000']}
",
    );
    world.await_node(&outer, "finished", "succeeded");
    let stopped = world.await_node(&outer, "stopped", "running")["uuid"].as_str().unwrap().to_owned();
    wait_until("it has begun", || world.ran().iter().any(|line| line == "stopped"));
    world.relive(&["kill", &stopped]).ok();
    world.await_node(&outer, "stopped", "stopped");
    let inner = world.await_node(&outer, "inner", "running")["uuid"].as_str().unwrap().to_owned();
    world.file("go", "");
    let answer = world.relive(&["wait", "--json", &outer.uuid]).exits(1).json();
    assert_eq!(answer["exit"]["reason"], "inner was restarted too often");
    // Each run of the inner one: the child, and its one restart.
    assert_eq!(world.ran(), ["bad", "bad", "bad", "bad", "finished", "stopped"]);
    assert_eq!(world.generations(&inner), 2);
    assert_eq!(world.info(&inner)["exit"]["reason"], "bad was restarted too often");
    assert_eq!(world.states(&outer), "finished=succeeded stopped=stopped inner=failed");
    assert_eq!(world.relive(&["ps", "-q"]).ok().stdout, "", "nothing is left of either");
}

#[test]
fn the_verbs_of_trees_refuse_other_processes_and_print_json_if_asked() {
    let world = World::new();
    let agent = world.run_hanging(&[]);
    let refusal = format!("PID {} is neither a run of a compose file nor a supervisor", agent.pid);
    for verb in [&["status"][..], &["down"], &["logs"], &["resume", "--node", "a"]] {
        world.relive(&[&["compose"], verb, &[&agent.uuid]].concat()).fails(2, &[&refusal, "relive info"]);
    }
    world.file("keep.yaml", "children:\n  a: {command: [x]}\n  b: {command: [y]}\n");
    let plan = world.relive(&["supervise", "--dry-run", "--json", "keep.yaml"]).ok().json();
    assert_eq!(plan, json!({"children": [{"name": "a"}, {"name": "b"}]}));
    let schema = world.relive(&["compose", "schema", "--supervisor"]).ok().json();
    assert!(schema["$defs"]["supervisor"].is_object(), "{schema}");
}

#[test]
fn case_59_rest_for_one_resumes_exactly_the_later_children_each_from_its_journal() {
    let world = World::new();
    let (first, last) = (world.script(&steps_then_hang(2)), world.script(&steps_then_hang(2)));
    let tree = world.supervise(&format!(
        "strategy: rest_for_one
backoff: 1ms
children:
  first: {{intent: do it, model: {first}}}
  middle: {{command: [sh, -c, 'echo middle >> ran; while [ ! -e go ]; do sleep 0.01; done; rm go; exit 1']}}
  last: {{intent: do it, model: {last}}}
"
    ));
    let uuid = |name: &str| world.await_node(&tree, name, "running")["uuid"].as_str().unwrap().to_owned();
    let (first, middle, last) = (uuid("first"), uuid("middle"), uuid("last"));
    for agent in [&first, &last] {
        world.await_step(&Begun { pid: 0, uuid: agent.clone() }, 3);
    }
    // Also after the daemon was killed.
    for round in 2..4 {
        wait_until("it has begun", || world.ran().len() == round - 1);
        let asked = || -> Vec<u64> {
            world.records(&last, "model_started").iter().map(|record| record["step"].as_u64().unwrap()).collect()
        };
        let asked_before = asked().len();
        world.file("go", "");
        wait_until("it was restarted", || world.ran().len() == round);
        let ended = |uuid: &str| world.records(uuid, "ended").len();
        wait_until("the last one was resumed", || {
            ended(&last) == round - 1 && world.info(&last)["display"] == "running"
        });
        assert_eq!((uuid("first"), uuid("middle"), uuid("last")), (first.clone(), middle.clone(), last.clone()));
        assert_eq!((ended(&first), ended(&middle)), (0, round - 1), "it was not touched");
        wait_until("it asks again", || asked().len() > asked_before);
        assert!(asked().iter().skip(2).all(|step| *step == 3), "it continued at its step: {:?}", asked());
        if round == 2 {
            world.kill_daemon();
            world.relive(&["ps", "-q"]).ok();
        }
    }
    world.relive(&["kill", "--subtree", "-y", &tree.uuid]).ok();
    world.relive(&["wait", &tree.uuid]).exits(1);
    assert_eq!(world.relive(&["ps", "-q"]).ok().stdout, "");
}

#[test]
fn compose_up_says_what_happens_to_each_node_also_after_the_daemon_was_killed() {
    let world = World::new();
    world.file(
        "tree.yaml",
        "nodes:
  first: {command: [sh, -c, 'echo first >> ran; while [ ! -e go ]; do sleep 0.01; done']}
  bad: {command: [sh, -c, 'exit 3'], depends_on: [first], retries: {max: 1, backoff: 1ms}}
  never: {command: [x], depends_on: [bad]}
",
    );
    let up = world.start(&["compose", "up", "tree.yaml"]);
    wait_until("the first one runs", || world.ran().len() == 1);
    world.kill_daemon();
    world.file("go", "");
    let up = finish(up);
    let said = up.exits(1).stderr.clone();
    let said: Vec<&str> = said.lines().map(|line| line.split(" (PID").next().unwrap()).collect();
    let expect =
        ["bad running", "bad is tried again: exited", "bad running", "bad failed: exit 3", "never skipped: bad failed"];
    let about: Vec<&str> = said.iter().copied().filter(|line| !line.starts_with("first ")).collect();
    assert_eq!(about[..5], expect, "{said:?}");
    assert!(said.contains(&"first succeeded"), "{said:?}");
    let events = world.relive(&["compose", "status", "--json", "1"]).ok().json();
    assert_eq!(events["nodes"][1]["starts"], 2);
}
