//! What processes and trees of them may spend, and how far they may spawn.

use serde_json::{Value, json};

use crate::world::{Begun, World, wait_until};

/// An agent that spawns one called `child` on this model, and then does this.
fn parent_of(model: &str, then: &[Value]) -> String {
    let spawn = json!({"name": "spawn_agent", "args": {"intent": "help", "name": "child", "model": model}});
    let usage = json!({"input": 1, "output": 1});
    let mut turns = vec![json!({"calls": [spawn], "usage": usage})];
    turns.extend_from_slice(then);
    json!({ "turns": turns }).to_string()
}

fn tokens(info: &Value) -> u64 {
    info["tokens_in"].as_u64().unwrap() + info["tokens_out"].as_u64().unwrap()
}

fn wait_for_child() -> Value {
    json!({"calls": [{"name": "wait_agent", "args": {"uuid": "{{child}}"}}], "usage": {"input": 1, "output": 1}})
}

#[test]
fn the_last_call_is_made_however_generous_its_reservation_and_none_when_nothing_is_left() {
    let world = World::new();
    let script = "turns: [{usage: {input: 5, output: 5}, calls: [{name: list, args: {path: .}}], repeat: 9}, \
                  {text: never, usage: {input: 1000000, output: 0}}]";
    let process = world.run_with(script, &["--max-tokens", "15"]);
    let ended = world.relive(&["wait", "--json", "1"]).exits(2).json();
    assert_eq!((&ended["exit"]["reason"], &ended["why"]), (&json!("budget_exceeded"), &json!("budget")));
    assert_eq!(world.records(&process.uuid, "model_started").len(), 2);
    assert_eq!(tokens(&world.info("1")), 20);
}

#[test]
fn an_answer_whose_calls_are_all_refused_is_counted_before_the_next_question() {
    let world = World::new();
    let script = "turns: [{usage: {input: 5, output: 5}, calls: [{name: list, args: {path: .}}], repeat: 9}]";
    let process = world.run_with(script, &["--max-tokens", "10", "--deny", "*"]);
    world.relive(&["wait", "1"]).exits(2);
    assert_eq!(world.records(&process.uuid, "model_started").len(), 1);
}

#[test]
fn case_24_steps_and_time_suspend_as_well_and_are_raised() {
    let world = World::new();
    let list = "turns: [{calls: [{name: list, args: {path: .}}], repeat: 3}, {text: done}]";
    let steps = world.run_with(list, &["--max-steps", "2", "--on-budget", "suspend"]);
    assert_eq!(world.await_display(&steps.uuid, "suspended")["suspend_reason"], "budget_exceeded");
    world.relive(&["resume", "--max-steps", "9", &steps.uuid]).ok();
    world.relive(&["wait", &steps.uuid]).ok();
    let sleep = "turns: [{calls: [{name: sleep, args: {duration: 200ms}}]}, {text: done}]";
    let time = world.run_with(sleep, &["--timeout", "50ms", "--on-budget", "suspend"]);
    assert_eq!(world.await_display(&time.uuid, "suspended")["suspend_reason"], "budget_exceeded");
    world.relive(&["resume", "--timeout", "1h", &time.uuid]).ok();
    world.relive(&["wait", &time.uuid]).ok();
    assert_eq!(world.records(&time.uuid, "limits")[0]["timeout_ms"], 3_600_000);
}

#[test]
fn case_24_cost_is_a_budget_that_can_be_raised() {
    let world = World::new();
    let call = "usage: {input: 1, output: 1, cost_usd: 0.5}, calls: [{name: list, args: {path: .}}]";
    let process =
        world.run_with(&format!("turns: [{{{call}, repeat: 3}}]"), &["--on-budget", "suspend", "--max-steps", "1"]);
    world.await_display(&process.uuid, "suspended");
    world.relive(&["resume", "--max-steps", "9", "--max-cost", "0.75", &process.uuid]).ok();
    wait_until("the money is spent", || {
        let info = world.info(&process.uuid);
        info["display"] == "suspended" && info["step"] == 2 && info["cost_usd"] == 1.0
    });
    world.relive(&["resume", "--max-cost", "5", &process.uuid]).ok();
    world.relive(&["wait", &process.uuid]).ok();
}

#[test]
fn children_draw_from_what_their_parent_may_spend() {
    let world = World::new();
    let call = "usage: {input: 40, output: 20}, calls: [{name: list, args: {path: .}}]";
    let child = world.script(&format!("turns: [{{{call}, repeat: 9}}]"));
    let parent = world.run_with(&parent_of(&child, &[wait_for_child()]), &["--max-tokens", "100"]);
    world.relive(&["wait", &parent.uuid]).exits(2);
    let child = world.named("child");
    world.relive(&["wait", &child.uuid]).exits(2);
    let (of_child, of_parent) = (world.info(&child.uuid), world.info(&parent.uuid));
    assert_eq!((tokens(&of_child), tokens(&of_parent)), (120, 4));
    assert_eq!((of_child["max_tokens"].as_u64(), of_parent["max_tokens"].as_u64()), (None, Some(100)));
    assert_eq!((&of_parent["tree"]["processes"], tokens(&of_parent["tree"])), (&json!(2), 124));
    assert_eq!(of_child.get("tree"), None, "nothing is below it");
    let shown = world.relive(&["info", &parent.uuid]).ok().stdout;
    assert!(shown.contains("2 processes, 124 tokens"), "{shown}");
}

#[test]
fn the_spending_of_a_dead_child_survives_kill_9() {
    let world = World::new();
    let list = "usage: {input: 0, output: 0}, calls: [{name: list, args: {path: .}}]";
    let child = world.script(&format!("turns: [{{{list}}}, {{text: done, usage: {{input: 60, output: 0}}}}]"));
    let script = parent_of(&child, &[json!({"hang": true}), json!({"text": "done"})]);
    let flags = ["--max-tokens", "62", "--on-budget", "suspend", "--ask", "list"];
    let parent = world.run_with(&script, &flags);
    // The child spends all that is left only when its parent is asking already.
    world.await_step(&parent, 2);
    let child = world.named("child");
    world.await_display(&child.uuid, "approval");
    world.relive(&["resolve", "child", "--allow"]).ok();
    world.relive(&["wait", &child.uuid]).ok();
    world.relive(&["pause", "--now", &parent.uuid]).ok();
    world.await_display(&parent.uuid, "suspended");
    world.kill_daemon();
    world.relive(&["resume", &parent.uuid]).ok();
    world.await_field(&parent.uuid, "suspend_reason", "budget_exceeded");
    world.await_display(&parent.uuid, "suspended");
    assert_eq!(tokens(&world.info(&parent.uuid)), 2);
    world.relive(&["resume", "--max-tokens", "1000", &parent.uuid]).ok();
    world.await_records(&parent, "model_started", 3);
}

#[test]
fn a_suspended_tree_continues_when_its_budget_is_raised() {
    let world = World::new();
    let call = "usage: {input: 40, output: 20}, calls: [{name: list, args: {path: .}}]";
    let child =
        world.script(&format!("turns: [{{{call}, repeat: 3}}, {{text: done, usage: {{input: 0, output: 0}}}}]"));
    let script = parent_of(&child, &[wait_for_child(), json!({"text": "done"})]);
    let parent = world.run_with(&script, &["--max-tokens", "100", "--on-budget", "suspend"]);
    let child = world.named("child");
    assert_eq!(world.await_display(&child.uuid, "suspended")["suspend_reason"], "budget_exceeded");
    world.relive(&["pause", "--now", &parent.uuid]).ok();
    world.await_display(&parent.uuid, "suspended");
    world.kill_daemon();
    world.relive(&["resume", "--subtree", "--max-tokens", "1000", &parent.uuid]).ok();
    world.relive(&["wait", &parent.uuid]).ok();
    assert_eq!(tokens(&world.info(&child.uuid)), 180);
}

#[test]
fn a_call_waits_while_a_relative_may_use_all_that_is_left() {
    let world = World::new();
    let greedy = world.script("turns: [{hang: true}, {text: never, usage: {input: 1000000, output: 0}}]");
    let modest = world.script("turns: [{text: done, usage: {input: 1, output: 1}}]");
    let spawn =
        |name: &str, model: &str| json!({"name": "spawn_agent", "args": {"intent": "x", "name": name, "model": model}});
    // In one step, so that no call of the parent's own comes between them.
    let both =
        json!({"calls": [spawn("greedy", &greedy), spawn("modest", &modest)], "usage": {"input": 1, "output": 1}});
    let script = json!({"turns": [both, wait_for_child()]});
    let parent = world.run_with(&script.to_string(), &["--max-tokens", "100", "--ask", "spawn_agent"]);
    for name in ["greedy", "modest"] {
        wait_until(&format!("it asks for {name}"), || world.info(&parent.uuid)["approval"]["args"]["name"] == name);
        if name == "modest" {
            // By now a call that never ends holds all that is left.
            world.await_step(&world.named("greedy"), 1);
        }
        world.relive(&["resolve", &parent.uuid, "--allow"]).ok();
    }
    let (greedy, modest) = (world.named("greedy"), world.named("modest"));
    assert_eq!(world.info(&modest.uuid)["display"], "running");
    world.relive(&["kill", &greedy.uuid]).ok();
    world.relive(&["wait", &parent.uuid]).ok();
    let at = |process: &Begun, kind: &str| -> jiff::Timestamp {
        world.records(&process.uuid, kind)[0]["at"].as_str().unwrap().parse().unwrap()
    };
    let freed = at(&greedy, "partial");
    assert!(at(&modest, "model_started") >= freed, "{freed}");
}

#[test]
fn an_agent_that_spawns_itself_stops_at_the_depth() {
    let world = World::with_config("limits: {max_depth: 2}");
    let script = "turns: [{calls: [{name: spawn_agent, args: {intent: again}}]}, \
                  {calls: [{name: wait_agent, args: {uuid: '{{child}}'}}]}, {text: '{{result}}'}]";
    let root = world.run(script);
    world.relive(&["wait", &root.uuid]).ok();
    let all = world.relive(&["ps", "-a", "--json"]).ok().json();
    let all: Vec<&str> = all["processes"].as_array().unwrap().iter().map(|it| it["uuid"].as_str().unwrap()).collect();
    assert_eq!(all.len(), 3, "the root and two below it");
    let refused: Vec<String> = all
        .iter()
        .flat_map(|uuid| world.records(uuid, "call_ended"))
        .filter(|record| record["ok"] == false)
        .map(|record| record["result"].to_string())
        .filter(|result| result.contains("spawn_agent: refused"))
        .collect();
    assert_eq!(refused.len(), 1);
    assert!(refused[0].contains("limits.max_depth is 2"), "{refused:?}");
}

#[test]
fn a_tree_that_grows_in_breadth_stops_at_its_limit_and_a_kill_gives_it_no_more() {
    let world = World::with_config("limits: {max_tree: 5}");
    let spawn = "{name: spawn_agent, args: {intent: again}}";
    let script = format!(
        "turns: [{{calls: [{spawn}, {spawn}]}}, {{calls: [{{name: list, args: {{path: .}}}}]}}, \
         {{calls: [{spawn}]}}, {{text: '{{{{result}}}}'}}]"
    );
    let root = world.run_with(&script, &["--ask", "list"]);
    wait_until("all have spawned what they may, and ask", || {
        let list = world.relive(&["ps", "--json"]).ok().json();
        let living = list["processes"].as_array().unwrap();
        living.len() == 6 && living.iter().all(|process| process["display"] == "approval")
    });
    world.kill_daemon();
    world.relive(&["resolve", &root.uuid, "--allow"]).ok();
    world.relive(&["wait", &root.uuid]).ok();
    let refused = world.records(&root.uuid, "call_ended").pop().unwrap();
    assert!(refused["result"].as_str().unwrap().contains("limits.max_tree is 5"), "{refused}");
}

#[test]
fn children_at_once_are_limited_and_an_end_makes_room() {
    let world = World::with_config("limits: {max_children: 1}");
    let child = world.script("turns: [{text: done}]");
    let spawn = json!({"name": "spawn_agent", "args": {"intent": "x", "model": child}});
    let hanging = json!({"name": "spawn_agent", "args": {"intent": "x", "model": world.hanging()}});
    let wait = json!({"name": "wait_agent", "args": {"uuid": "{{child}}"}});
    let script = json!({"turns": [
        {"calls": [spawn]}, {"calls": [wait]}, {"calls": [hanging]}, {"calls": [spawn]}, {"text": "done"}
    ]});
    let root = world.run(&script.to_string());
    world.relive(&["wait", &root.uuid]).ok();
    let results: Vec<_> = world.records(&root.uuid, "call_ended").iter().map(|it| it["ok"].clone()).collect();
    assert_eq!(results, [true, true, true, false]);
}

#[test]
fn a_limit_of_dollars_that_cannot_be_held_is_refused() {
    let world = World::new();
    let refused = world.relive(&["run", "-d", "--model", "ollama/llama", "--max-cost", "1", "do it"]);
    refused.fails(2, &["the price of ollama/llama is not known", "hint: ", "--max-tokens"]);
    world.configure("prices: {ollama/llama: {input: 1, output: 2}}\n");
    world.relive(&["daemon", "restart"]).ok();
    world.relive(&["run", "-d", "--model", "ollama/llama", "--max-cost", "1", "do it"]).ok();
}

/// Types the hint of a process that has spent what it may, as it stands there.
#[track_caller]
fn type_hint(world: &World, id: &str) -> String {
    let info = world.await_field(id, "suspend_reason", "budget_exceeded");
    let hint = world.await_display(id, "suspended")["hint"].clone();
    let hint = hint.as_str().unwrap_or_else(|| panic!("no hint: {info}")).to_owned();
    for command in hint.split(" && ") {
        let words: Vec<&str> = command.split(' ').collect();
        assert_eq!(words[0], "relive", "{hint}");
        world.relive(&words[1..]).ok();
    }
    hint
}

#[test]
fn case_24_the_hint_of_a_spent_budget_works_when_it_is_typed() {
    let world = World::new();
    let calls = "turns: [{usage: {input: 30, output: 30, cost_usd: 0.25}, calls: [{name: list}]}, \
                 {usage: {input: 1, output: 1, cost_usd: 0.01}, calls: [{name: list}]}, {text: done}]";
    let sleep = "turns: [{calls: [{name: sleep, args: {duration: 200ms}}]}, {text: done}]";
    for (script, limit, expected) in [
        (calls, ["--max-steps", "1"], "--max-steps 2"),
        (calls, ["--max-tokens", "50"], "--max-tokens 120"),
        (calls, ["--max-cost", "0.2"], "--max-cost 0.5"),
        (sleep, ["--timeout", "50ms"], "--timeout "),
    ] {
        let process = world.run_with(script, &[limit[0], limit[1], "--on-budget", "suspend"]);
        world.await_field(&process.uuid, "suspend_reason", "budget_exceeded");
        let hint = type_hint(&world, &process.uuid);
        assert!(hint.contains(&format!("relive resume {} {expected}", process.pid)), "{hint}");
        // Twice as much may not be enough; then twice that.
        wait_until("it has ended", || {
            let info = world.info(&process.uuid);
            if info["display"] == "suspended" {
                type_hint(&world, &process.uuid);
            }
            info["display"] == "dead"
        });
        world.relive(&["wait", &process.uuid]).ok();
    }
}

#[test]
fn case_24_the_hint_of_a_child_names_the_ancestor_whose_budget_is_spent() {
    let world = World::new();
    let call = "usage: {input: 40, output: 20}, calls: [{name: list}]";
    let child = world.script(&format!("turns: [{{{call}, repeat: 2}}, {{text: done}}]"));
    let script = parent_of(&child, &[json!({"hang": true})]);
    let parent = world.run_with(&script, &["--max-tokens", "50", "--on-budget", "suspend"]);
    let child = world.named("child");
    let expected = |world: &World| {
        let pid = |uuid: &str| world.info(uuid)["pid"].clone();
        format!("relive resume {} --max-tokens 130 && relive resume {}", pid(&parent.uuid), pid(&child.uuid))
    };
    world.await_field(&child.uuid, "suspend_reason", "budget_exceeded");
    let listed = |world: &World| {
        let list = world.relive(&["ps", "--json"]).ok().json();
        let found = list["processes"].as_array().unwrap().iter().find(|process| process["name"] == "child").cloned();
        found.unwrap()["hint"].clone()
    };
    assert_eq!(
        (listed(&world), world.info(&child.uuid)["hint"].clone()),
        (expected(&world).into(), expected(&world).into())
    );
    world.kill_daemon();
    assert_eq!(world.info(&child.uuid)["hint"], expected(&world), "from the journals");
    assert_eq!(type_hint(&world, &child.uuid), expected(&world));
    world.await_step(&child, 2);
}
