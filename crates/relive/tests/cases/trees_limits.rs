//! Trees at their limits: budgets that are used up, places that are taken, and levels that are too deep.

use crate::world::{World, wait_for, wait_until};

/// The command of a hint, as it would be typed after `relive`.
#[track_caller]
fn hint(said: &str) -> Vec<String> {
    let hint = said.lines().find_map(|line| line.trim().strip_prefix("hint: relive "));
    hint.unwrap_or_else(|| panic!("{said}")).split(' ').map(str::to_owned).collect()
}

const SPENDS: &str =
    "turns: [{usage: {input: 5, output: 5}, calls: [{name: list, args: {path: .}}], repeat: 3}, {text: done}]";

#[test]
fn a_run_whose_budget_is_used_up_is_resumed_only_with_a_larger_one() {
    let world = World::new();
    let model = world.script(SPENDS);
    world.file(
        "tree.yaml",
        &format!(
            "nodes:
  thinks: {{intent: think, model: {model}}}
  after: {{command: [sh, -c, 'echo after >> ran'], depends_on: [thinks]}}
  beside: {{command: [sh, -c, 'echo beside >> ran; test -e go']}}
"
        ),
    );
    let up = ["compose", "up", "-d", "--json", "--max-tokens", "15", "tree.yaml"];
    let run = crate::world::begun(&world.relive(&up).ok().json());
    world.relive(&["wait", &run.uuid]).exits(1);
    assert_eq!(world.states(&run), "thinks=failed after=skipped beside=failed");
    let generations = world.generations(&run.uuid);
    for verb in [&["resume"][..], &["compose", "resume", "--node", "thinks"]] {
        let refused = world.relive(&[verb, &[&run.uuid]].concat()).exits(3);
        assert!(refused.stderr.contains("at once"), "{refused:?}");
        assert!(hint(&refused.stderr).contains(&"--max-tokens".to_owned()), "{refused:?}");
        assert_eq!(hint(&refused.stderr)[0], "resume", "{refused:?}");
    }
    assert_eq!(world.generations(&run.uuid), generations, "nothing was started");
    // A program spends nothing.
    world.file("go", "");
    world.relive(&["compose", "resume", "--node", "beside", &run.uuid]).ok();
    world.relive(&["wait", &run.uuid]).exits(1);
    assert_eq!(world.states(&run), "thinks=failed after=skipped beside=succeeded");
    let refused = world.relive(&["resume", &run.uuid]).exits(3);
    world.kill_daemon();
    let typed = hint(&refused.stderr);
    world.relive(&typed.iter().map(String::as_str).collect::<Vec<_>>()).ok();
    world.relive(&["wait", &run.uuid]).ok();
    assert_eq!(world.states(&run), "thinks=succeeded after=succeeded beside=succeeded");
    assert_eq!(world.ran(), ["after", "beside", "beside"]);
}

#[test]
fn a_node_that_reached_its_own_limit_is_resumed_only_with_a_larger_one() {
    let world = World::new();
    let model = world.script(SPENDS);
    let run = world.up(&format!(
        "nodes:
  thinks: {{intent: think, model: {model}, max_steps: 2}}
  after: {{command: [sh, -c, 'echo after >> ran'], depends_on: [thinks]}}
"
    ));
    world.relive(&["wait", &run.uuid]).exits(1);
    let refused = world.relive(&["compose", "resume", "--node", "thinks", &run.uuid]).exits(3);
    let typed = hint(&refused.stderr);
    assert_eq!(typed[..2], ["compose", "resume"], "{refused:?}");
    let (node, last) = (world.node(&run, "thinks"), typed.last().unwrap().as_str());
    assert_eq!((typed[typed.len() - 2].as_str(), last), ("--max-steps", "4"), "{refused:?}");
    assert_eq!(node["hint"], format!("relive {}", typed.join(" ")), "{node}");
    let shown = world.relive(&["compose", "status", &run.uuid]).ok().stderr;
    assert!(shown.contains(&format!("to continue thinks: relive {}", typed.join(" "))), "{shown}");
    let too_few = ["compose", "resume", "--node", "thinks", "--max-steps", "2", &run.uuid];
    world.relive(&too_few).fails(3, &["has used 2 steps, so --max-steps 2 would end it at once"]);
    world.relive(&typed.iter().map(String::as_str).collect::<Vec<_>>()).ok();
    world.kill_daemon();
    world.relive(&["wait", &run.uuid]).ok();
    assert_eq!(world.ran(), ["after"]);
    assert_eq!(world.node(&run, "thinks")["uuid"], node["uuid"]);
    assert_eq!(world.node(&run, "thinks")["starts"], 2);
}

#[test]
fn a_run_with_a_node_at_its_own_limit_is_resumed_only_with_a_larger_one() {
    let world = World::new();
    let model = world.script(SPENDS);
    let run = world.up(&format!(
        "nodes:
  fails: {{command: [sh, -c, 'echo fails >> ran; exit 1']}}
  thinks: {{intent: think, model: {model}, max_steps: 2}}
  spends: {{intent: spend, model: {model}, max_tokens: 15}}
  waits: {{command: [sh, -c, 'test -e go || exec sleep 600'], timeout: 100ms}}
"
    ));
    world.relive(&["wait", &run.uuid]).exits(1);
    world.file("go", "");
    for (node, option) in [("thinks", "--max-steps"), ("spends", "--max-tokens"), ("waits", "--timeout")] {
        let generations = world.generations(&run.uuid);
        let refused = world.relive(&["resume", &run.uuid]);
        let refused = refused.fails(3, &[&format!("node {node} (PID "), &format!("has reached {option}, so it would")]);
        assert_eq!(world.generations(&run.uuid), generations, "nothing was started");
        let typed = hint(&refused.stderr);
        assert_eq!(typed[..2], ["compose", "resume"], "{refused:?}");
        assert_eq!(typed[3..6], ["--node", node, option], "{refused:?}");
        let mut typed: Vec<&str> = typed.iter().map(String::as_str).collect();
        if option == "--timeout" {
            // Twice the time is little on a busy machine.
            *typed.last_mut().unwrap() = "1h";
        }
        world.relive(&typed).ok();
        world.kill_daemon();
        world.relive(&["wait", &run.uuid]).exits(1);
        assert_eq!(world.node(&run, node)["state"], "succeeded", "{typed:?}");
    }
    assert_eq!(world.ran(), ["fails"]);
    // Nothing is at its limit any more, so the rest is tried again.
    let told = world.relive(&["resume", &run.uuid]).ok().stderr;
    assert!(told.contains(" from its journal: 1 node starts again\nPID "), "{told}");
    assert!(!told.contains("step") && !told.contains("model"), "{told}");
    world.relive(&["wait", &run.uuid]).exits(1);
    assert_eq!(world.ran(), ["fails", "fails"]);
}

#[test]
fn a_fork_of_a_node_at_its_last_step_needs_more_steps() {
    let world = World::new();
    let model = world.script(SPENDS);
    let run = world.up(&format!("nodes: {{thinks: {{intent: think, model: {model}, max_steps: 2}}}}"));
    world.relive(&["wait", &run.uuid]).exits(1);
    let fork = ["compose", "resume", &run.uuid, "--node", "thinks", "--fork"];
    let refused = world.relive(&[&fork[..], &["--max-tokens", "900", "--input", "say less"]].concat()).exits(3);
    let hint = refused.stderr.lines().find_map(|line| line.trim().strip_prefix("hint: relive ")).unwrap();
    assert!(hint.ends_with("--node thinks --fork --max-steps 4 --max-tokens 900 --input 'say less'"), "{refused:?}");
    // An earlier step leaves room.
    world.relive(&[&fork[..], &["--from-step", "1", "--max-steps", "9"]].concat()).ok();
    world.relive(&["wait", &run.uuid]).ok();
}

#[test]
fn a_node_that_would_be_too_deep_has_failed() {
    let world = World::with_config("limits: {max_depth: 1}");
    let run = world.up("nodes:
  first: {command: [sh, -c, 'while [ ! -e go ]; do sleep 0.01; done']}
  second: {command: [sh, -c, 'echo second >> ran'], depends_on: [first]}
");
    wait_until("the first one is there", || world.node(&run, "first")["pid"].is_u64());
    world.configure("limits: {max_depth: 0}");
    world.file("go", "");
    world.relive(&["wait", &run.uuid]).exits(1);
    let second = world.node(&run, "second");
    assert_eq!((&second["state"], &second["exit"]["code"]), (&"failed".into(), &126.into()), "{second}");
    let reason = second["reason"].as_str().unwrap();
    assert!(reason.contains("it would be 1 levels deep, and limits.max_depth is 0"), "{reason}");
}

#[test]
fn a_node_without_a_place_says_why_it_waits_and_starts_when_the_limit_is_raised() {
    let world = World::new();
    let run = world.up("nodes:
  db: {command: [sh, -c, 'while [ ! -e never ]; do sleep 0.01; done'], restart: permanent}
  first: {command: [sh, -c, 'while [ ! -e go ]; do sleep 0.01; done']}
  second: {command: [sh, -c, 'echo second >> ran'], depends_on: [first]}
");
    wait_until("both are there", || ["db", "first"].iter().all(|node| world.node(&run, node)["pid"].is_u64()));
    world.configure("limits: {max_children: 1}");
    world.relive(&["compose", "status", &run.uuid]).ok();
    world.file("go", "");
    let why = "1 node runs, and limits.max_children is 1; services keep their places, so raise it in config.yaml";
    wait_until("it says why it waits", || world.node(&run, "second")["reason"] == why);
    assert_eq!(world.node(&run, "second")["state"], "waiting");
    world.configure("limits: {max_children: 2}");
    // Whoever looks at the run has the file read again.
    wait_until("it has run", || world.states(&run).contains("second=succeeded"));
    world.relive(&["wait", &run.uuid]).ok();
}

#[test]
fn a_retry_of_a_run_names_the_resume() {
    let world = World::new();
    let run = world.up("nodes: {a: {command: [sh, -c, 'test -e go']}}\n");
    world.relive(&["wait", &run.uuid]).exits(1);
    let refused = world.relive(&["retry", &run.uuid]).exits(3);
    assert_eq!(hint(&refused.stderr), ["resume", &run.uuid], "{refused:?}");
    world.file("go", "");
    world.relive(&["resume", &run.uuid]).ok();
    world.relive(&["wait", &run.uuid]).ok();
    let refused = world.relive(&["retry", &run.uuid]).exits(3);
    assert_eq!(hint(&refused.stderr), ["compose", "status", &run.uuid], "{refused:?}");
}

/// Two children that are restarted together, of which the second waits for room.
fn crowded(world: &World) -> crate::world::Begun {
    let keep = world.supervise(
        "strategy: one_for_all
backoff: 1ms
max_restarts: 100
children:
  a: {command: [sh, -c, 'while [ ! -e end-a ]; do sleep 0.01; done; rm end-a; exit 1']}
  b: {command: [sh, -c, 'while [ ! -e end-b ]; do sleep 0.01; done; rm end-b; exit 1'], restart: permanent}
",
    );
    wait_until("both are there", || ["a", "b"].iter().all(|node| world.node(&keep, node)["pid"].is_u64()));
    keep
}

#[test]
fn a_child_that_waits_for_room_is_stopped_with_the_others() {
    let world = World::new();
    let keep = crowded(&world);
    world.configure("limits: {max_processes: 1}");
    // Whichever runs ends, and cannot start again once the daemon has seen the new limit. That may be between two starts.
    wait_until("both wait for room", || {
        let states = world.states(&keep);
        for child in ["a", "b"].into_iter().filter(|child| states.contains(&format!("{child}=running"))) {
            world.file(&format!("end-{child}"), "");
        }
        states == "a=waiting b=waiting"
    });
    // It is tried again all the time, and between two tries it says why it waits.
    let node = wait_for("it says why it waits", || {
        Some(world.node(&keep, "b")).filter(|node| node["reason"] == "the limit of 1 processes is reached")
    });
    world.kill_daemon();
    wait_until("both wait for room", || world.states(&keep) == "a=waiting b=waiting");
    let killed = world.relive(&["kill", "--json", node["uuid"].as_str().unwrap()]).ok().json();
    assert_eq!(killed["affected"], 1, "{killed}");
    // Acknowledged means durable.
    world.kill_daemon();
    wait_until("one of them waits for room", || world.states(&keep) == "a=waiting b=stopped");
    assert_eq!(world.node(&keep, "b")["reason"], "ended by you (SIGTERM)");
    world.configure("limits: {max_processes: 9}");
    wait_until("the other one runs again", || world.node(&keep, "a")["pid"].is_u64());
    assert_eq!(world.node(&keep, "b")["state"], "stopped");
    world.relive(&["compose", "down", &keep.uuid]).ok();
}

#[test]
fn a_child_that_waits_for_room_does_not_keep_the_others_from_their_restart() {
    let world = World::new();
    let keep = world.supervise(
        "strategy: rest_for_one
backoff: 1ms
max_restarts: 100
children:
  a: {command: [sh, -c, 'while [ ! -e end-a ]; do sleep 0.01; done; rm end-a; exit 1']}
  b: {command: [sh, -c, 'while [ ! -e end-b ]; do sleep 0.01; done; rm end-b; exit 1']}
",
    );
    wait_until("both are there", || ["a", "b"].iter().all(|node| world.node(&keep, node)["pid"].is_u64()));
    world.configure("limits: {max_processes: 1}");
    world.file("end-b", "");
    world.await_node(&keep, "b", "waiting");
    world.file("end-a", "");
    wait_until("both wait for room", || world.states(&keep) == "a=waiting b=waiting");
    world.configure("limits: {max_processes: 9}");
    wait_until("both run again", || world.states(&keep) == "a=running b=running");
    world.relive(&["compose", "down", &keep.uuid]).ok();
}

#[test]
fn the_nodes_of_a_paused_run_are_shown_as_they_are() {
    let world = World::new();
    let run = world.up("nodes:
  first: {command: [sh, -c, 'echo said; while [ ! -e go ]; do sleep 0.01; done']}
  second: {command: [sh, -c, 'echo second >> ran; test -e fixed'], depends_on: [first]}
");
    let first = world.await_node(&run, "first", "running")["uuid"].as_str().unwrap().to_owned();
    world.relive(&["pause", &run.uuid]).ok();
    world.await_display(&run.uuid, "suspended");
    world.file("go", "");
    world.relive(&["wait", &first]).ok();
    assert_eq!(world.states(&run), "first=succeeded second=waiting");
    world.relive(&["resume", &run.uuid]).ok();
    world.relive(&["wait", &run.uuid]).exits(1);
    world.file("fixed", "");
    world.relive(&["resume", &run.uuid]).ok();
    world.relive(&["wait", &run.uuid]).ok();
    let starts = |node: &str| world.node(&run, node)["starts"].as_u64();
    assert_eq!((starts("first"), starts("second")), (Some(1), Some(2)));
    let logs = world.relive(&["compose", "logs", "--json", &run.uuid]).ok().json_lines();
    let said = logs.iter().find(|line| line["text"] == "said\n").unwrap();
    assert_eq!(said["node"], "first", "{logs:?}");
}

#[test]
fn a_cli_agent_that_the_budget_of_its_run_cannot_limit_is_not_started() {
    let world = World::new();
    world.file("tree.yaml", "nodes: {a: {cli: claude, intent: x}}");
    for limit in [["--max-tokens", "5"], ["--max-cost", "1"]] {
        let up = [&["compose", "up", "-d", "--json"][..], &limit, &["tree.yaml"]].concat();
        let run = crate::world::begun(&world.relive(&up).ok().json());
        world.relive(&["wait", &run.uuid]).exits(1);
        let node = world.node(&run, "a");
        assert_eq!(node["exit"]["code"], 126, "{node}");
        assert!(node["reason"].as_str().unwrap().contains("can only be limited in time"), "{node}");
    }
}

#[test]
fn a_model_that_cannot_exist_is_refused_before_anything_runs() {
    let world = World::new();
    world.file(
        "tree.yaml",
        "nodes:
  first: {command: [touch, ran]}
  thinks: {intent: think, model: opnai/gpt-5, depends_on: [first]}
",
    );
    let why = "tree.yaml:3:34: there is no model `opnai/gpt-5`: did you mean openai/gpt-5?";
    for flags in [&["compose", "up", "tree.yaml"][..], &["compose", "up", "--dry-run", "tree.yaml"]] {
        world.relive(flags).fails(2, &[why, "^"]);
    }
    let child = "{intent: think, model: nomodel}";
    world.file("kept.yaml", &format!("children: {{below: {{supervisor: {{children: {{thinks: {child}}}}}}}}}\n"));
    for flags in [&["supervise", "kept.yaml"][..], &["supervise", "--dry-run", "kept.yaml"]] {
        world.relive(flags).fails(2, &["kept.yaml:1:75: there is no model `nomodel`", "^"]);
    }
    assert!(!world.work().join("ran").exists());
    assert_eq!(world.relive(&["ps", "-a", "--json"]).ok().json()["processes"], serde_json::json!([]));
}

/// Three steps, of which a limit allows one.
const STEPS: &str = "turns: [{calls: [{name: list}]}, {calls: [{name: list}]}, {text: waiting, hang: true}]";

#[test]
fn the_hint_of_a_child_at_its_limit_is_a_command_that_has_it_continue() {
    let world = World::new();
    let model = world.script(STEPS);
    let keep = world.supervise(&format!(
        "children:
  below: {{supervisor: {{children: {{x: {{intent: x, model: {model}, max_steps: 1}}}}}}}}
  w: {{intent: w, model: {model}, max_steps: 1}}
"
    ));
    // Neither is restarted, so that is all.
    world.relive(&["wait", &keep.uuid]).exits(1);
    let hint = |node: &str| world.node(&keep, node)["hint"].as_str().map(str::to_owned);
    let (below, w) = (hint("below").unwrap(), hint("w").unwrap());
    assert!(below.starts_with("relive compose resume ") && below.ends_with(" --node x --max-steps 2"), "{below}");
    assert_eq!(w, format!("relive compose resume {} --node w --max-steps 2", keep.pid));
    let typed = |hint: &str| world.relive(&hint.split(' ').skip(1).collect::<Vec<_>>()).ok();
    typed(&below.replace("--max-steps 2", "--max-steps 9"));
    wait_until("x continues", || world.node(&keep, "below")["pid"].is_u64());
    assert_eq!(hint("below"), None);
    // One that continues by itself is not at its limit any more.
    let uuid = world.node(&keep, "w")["uuid"].as_str().unwrap().to_owned();
    world.relive(&["resume", &uuid, "--max-steps", "9"]).ok();
    wait_until("w continues", || world.node(&keep, "w")["pid"].is_u64());
    assert_eq!(hint("w"), None);
}

#[test]
fn a_run_without_budget_and_a_node_at_its_own_limit_continue_one_after_the_other() {
    let world = World::new();
    let turn = "{text: x, usage: {input: 900, output: 100}, calls: [{name: list}]}";
    let model = world.script(&format!("turns: [{turn}, {turn}, {turn}, {turn}, {{text: done}}]"));
    world.file(
        "tree.yaml",
        &format!(
            "nodes:
  m: {{intent: one, model: {model}, max_tokens: 1500}}
  o: {{intent: two, model: {model}}}
"
        ),
    );
    let run = world.relive(&["compose", "up", "-d", "--json", "--max-tokens", "4000", "tree.yaml"]).ok().json();
    let run = crate::world::begun(&run);
    world.relive(&["wait", &run.uuid]).exits(1);
    assert_eq!(world.states(&run), "m=failed o=failed");
    let refused = world.relive(&["resume", &run.uuid]).exits(3);
    assert_eq!(hint(&refused.stderr)[..2], ["resume", &run.uuid], "{refused:?}");
    // The node at its own limit stays as it is, and continues by itself after that.
    world.relive(&["resume", &run.uuid, "--max-tokens", "40000"]).ok();
    world.relive(&["wait", &run.uuid]).exits(1);
    assert_eq!(world.states(&run), "m=failed o=succeeded");
    let next = hint(&world.relive(&["resume", &run.uuid]).exits(3).stderr);
    assert_eq!(next[..2], ["compose", "resume"]);
    let mut next: Vec<&str> = next.iter().map(String::as_str).collect();
    *next.last_mut().unwrap() = "30000";
    world.relive(&next).ok();
    world.relive(&["wait", &run.uuid]).ok();
    assert_eq!(world.states(&run), "m=succeeded o=succeeded");
}
