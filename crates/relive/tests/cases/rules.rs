//! Rules that allow single commands: from flags, the configuration, an agent's file and answers for always.

use std::fs;

use serde_json::{Value, json};

use crate::world::{Begun, World, wait_for};

/// A script that runs these commands, one a step.
fn runs(commands: &[&str]) -> String {
    let turn = |command: &&str| json!({"calls": [{"name": "shell", "args": {"command": command}}]});
    let mut turns: Vec<Value> = commands.iter().map(turn).collect();
    turns.push(json!({"text": "done"}));
    json!({ "turns": turns }).to_string()
}

#[track_caller]
fn await_question(world: &World, process: &Begun, command: &str) {
    wait_for(&format!("it asks about {command:?}"), || {
        let info = world.info(&process.uuid);
        (info["display"] == "approval" && info["approval"]["args"]["command"] == command).then_some(())
    });
}

/// The rule by which each command was run.
fn rules(world: &World, process: &Begun) -> Vec<Value> {
    world.records(&process.uuid, "call_started").iter().map(|record| record["rule"].clone()).collect()
}

#[test]
fn a_rule_allows_its_command_and_nothing_that_is_hung_on_to_it() {
    let world = World::new();
    let hostile = "echo a; touch stolen";
    let script = runs(&["echo a", "echo 'b c'", hostile, "echo $(touch stolen)"]);
    let process = world.run_with(&script, &["--allow", "shell:echo *"]);
    await_question(&world, &process, hostile);
    assert_eq!(rules(&world, &process), ["shell:echo *", "shell:echo *"]);
    let events = world.relive(&["strace", "--json", &process.uuid]).ok().json_lines();
    let calls: Vec<&Value> = events.iter().filter(|event| event["kind"] == "call").collect();
    assert!(calls.len() == 2 && calls.iter().all(|call| call["rule"] == "shell:echo *"), "{calls:?}");
    let told = world.relive(&["logs", &process.uuid]).ok().stdout;
    assert!(told.contains("allowed by the rule shell:echo *"), "{told}");
    world.relive(&["resolve", &process.uuid, "--deny"]).ok();
    await_question(&world, &process, "echo $(touch stolen)");
    world.relive(&["resolve", &process.uuid, "--deny"]).ok();
    world.relive(&["wait", &process.uuid]).ok();
    assert!(!world.work().join("stolen").exists());
}

#[test]
fn always_stores_the_command_and_no_more_and_a_kill_does_not_lose_it() {
    let world = World::new();
    let (first, other) = ("echo *; pwd", "echo a; pwd");
    let process = world.run_with(&runs(&[first, first, other, first]), &[]);
    await_question(&world, &process, first);
    let told = world.relive(&["resolve", "1"]).ok().stdout;
    assert!(told.contains("with --always you are not asked again about exactly this command"), "{told}");
    let told = world.relive(&["resolve", "1", "--allow", "--always"]).ok().stderr;
    assert!(told.contains(r"stored the rule shell:echo \*; pwd"), "{told}");
    await_question(&world, &process, other);
    world.kill_daemon();
    await_question(&world, &process, other);
    let stored = world.records(&process.uuid, "approval");
    let allowed = stored.iter().find(|record| record["decision"] == "allowed").unwrap();
    assert_eq!((&allowed["rule"], &allowed["always"]), (&json!(r"shell:echo \*; pwd"), &Value::Null));
    world.relive(&["resolve", &process.uuid, "--allow"]).ok();
    world.relive(&["wait", &process.uuid]).ok();
    let by = json!(r"shell:echo \*; pwd");
    assert_eq!(rules(&world, &process), [Value::Null, by.clone(), Value::Null, by]);
}

#[test]
fn an_answer_can_allow_more_commands_than_the_one_that_was_asked_about() {
    let world = World::new();
    let process = world.run_with(&runs(&["echo a", "echo b", "pwd", "true; true"]), &[]);
    await_question(&world, &process, "echo a");
    world
        .relive(&["resolve", "1", "--allow", "--always", "--rule", "shell:ls*"])
        .fails(2, &["`shell:ls*` does not match the call that is asked about"]);
    world.relive(&["resolve", "1", "--allow", "--rule", "shell:echo *"]).exits(2);
    world.relive(&["resolve", "1", "--allow", "--always", "--rule", "shell:echo *"]).ok();
    await_question(&world, &process, "pwd");
    world.relive(&["resolve", "1", "--allow", "--always", "--rule", "shell"]).ok();
    world.relive(&["wait", "1"]).ok();
    assert_eq!(world.records(&process.uuid, "call_started").len(), 4, "the whole tool is allowed");
}

#[test]
fn rules_of_the_configuration_and_of_an_agent_hold_until_a_flag_names_the_tool() {
    let world = World::with_config("tools: {'shell:echo *': allow}");
    let agents = world.root().join("config/relive/agents");
    fs::create_dir_all(&agents).unwrap();
    fs::write(agents.join("lister.yaml"), "allow: ['shell:pwd']\n").unwrap();
    let script = runs(&["echo a", "pwd"]);
    let process = world.run_with(&script, &["--agent", "lister"]);
    world.relive(&["wait", &process.uuid]).ok();
    assert_eq!(rules(&world, &process), ["shell:echo *", "shell:pwd"]);
    let process = world.run_with(&script, &["--agent", "lister", "--ask", "shell"]);
    await_question(&world, &process, "echo a");
    let shown = world.relive(&["config", "show"]).ok().stdout;
    assert!(shown.contains("shell:echo *"), "{shown}");
}

#[test]
fn a_file_of_the_working_directory_allows_nothing() {
    let world = World::new();
    let agents = world.work().join(".relive/agents");
    fs::create_dir_all(&agents).unwrap();
    fs::write(agents.join("helper.yaml"), "allow: ['shell:*']\n").unwrap();
    world
        .relive(&["run", "-d", "--model", "script/demo", "--agent", "helper", "x"])
        .fails(2, &["helper.yaml: `allow` is not accepted from a file of the working directory", "hint: move it to"]);
}

#[test]
fn invalid_rules_are_refused() {
    let world = World::new();
    let check = |flags: [&str; 2], said: &[&str]| {
        let args = ["run", "-d", "--model", "script/demo", flags[0], flags[1], "x"];
        world.relive(&args).fails(2, said);
    };
    check(["--deny", "shell:rm *"], &["a rule for commands can only allow", "hint: relive run --deny shell"]);
    check(["--allow", "shell:a * | b"], &["would never match: a command with `|`"]);
    check(["--allow", "write:src/*"], &["`write` has no commands"]);
    world.configure("tools: {'shell:rm *': deny, 'shell:a*|b': allow}");
    world.relive(&["config", "show"]).fails(2, &["`shell:rm *` must be allow, not `deny`", "would never match"]);
}
