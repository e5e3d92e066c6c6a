//! Calls that are put to a human, and what the human says.

use std::io::{BufRead as _, BufReader};

use serde_json::{Value, json};

use crate::world::{Begun, World, finish, wait_for};

/// Writes file-1, file-2 and so on, one a step, and ends.
fn writes(steps: u32) -> String {
    let call = "calls: [{name: write, args: {path: 'file-{{turn}}', content: x}}]";
    format!("turns: [{{{call}, repeat: {steps}}}, {{text: '{{{{result}}}}'}}]")
}

fn files(world: &World) -> Vec<String> {
    let names = std::fs::read_dir(world.work()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut files: Vec<String> = names.filter(|name| name.starts_with("file-")).collect();
    files.sort();
    files
}

/// What was asked and answered, in order.
fn decisions(world: &World, process: &Begun) -> Vec<Value> {
    world.records(&process.uuid, "approval").iter().map(|record| record["decision"].clone()).collect()
}

/// Waits until it asks about this file.
#[track_caller]
fn await_question(world: &World, process: &Begun, path: &str) -> Value {
    wait_for(&format!("it asks about {path}"), || {
        let info = world.info(&process.uuid);
        (info["display"] == "approval" && info["approval"]["args"]["path"] == path).then_some(info)
    })
}

#[test]
fn a_call_that_is_asked_about_is_not_made_before_the_answer() {
    let world = World::new();
    let process = world.run_with(&writes(2), &["--ask", "write"]);
    let info = await_question(&world, &process, "file-1");
    assert_eq!((&info["suspend_reason"], &info["state"]), (&json!("approval"), &json!("running")));
    assert_eq!((&info["approval"]["call"], &info["approval"]["tool"]), (&json!(0), &json!("write")));
    assert_eq!(info["approval"]["args"], json!({"path": "file-1", "content": "x"}));
    let listed = world.relive(&["ps", "--json"]).ok().json();
    assert_eq!(listed["processes"][0]["display"], "approval");
    let shown = world.relive(&["info", "1"]).ok().stdout;
    assert!(shown.contains(r#"write {"path":"file-1","content":"x"} (answer: relive resolve 1)"#), "{shown}");
    assert!(world.records(&process.uuid, "call_started").is_empty(), "not even its intent is recorded");
    assert_eq!(files(&world), Vec::<String>::new());
    let refused = world.relive(&["resume", "1"]).fails(3, &["waits for your answer", "hint: relive resolve 1\n"]);
    assert!(!refused.stderr.contains("--allow"), "a hint that is typed gives no answer: {refused:?}");
    world.relive(&["resolve", "1", "--done"]).fails(3, &["hint: relive resolve 1\n"]);
    let known = world.relive(&["resolve", "1"]).ok().stdout;
    assert!(known.contains("asks to write file-1:") && known.contains("relive resolve 1 --deny"), "{known}");
    let known = world.relive(&["resolve", "1", "--json"]).ok().json();
    assert_eq!((&known["suspend_reason"], &known["approval"]["tool"]), (&json!("approval"), &json!("write")));
    assert_eq!(decisions(&world, &process), ["asked"], "looking decides nothing");

    assert_eq!(world.relive(&["resolve", "1", "--allow", "--json"]).ok().json()["affected"], 1);
    await_question(&world, &process, "file-2");
    assert_eq!(files(&world), ["file-1"]);
    world.relive(&["resolve", "1", "--deny", "--reason", "one is enough"]).ok();
    world.relive(&["wait", "1"]).ok();
    assert_eq!(files(&world), ["file-1"]);
    assert_eq!(decisions(&world, &process), ["asked", "allowed", "asked", "denied"]);
    let told = world.records(&process.uuid, "call_ended").pop().unwrap();
    let text = told["result"].as_str().unwrap();
    assert!(told["ok"] == false && text.contains("refused") && text.contains("one is enough"), "{told}");
    assert_eq!(world.records(&process.uuid, "call_started").len(), 1);
    world
        .relive(&["resolve", "1", "--allow"])
        .fails(3, &["has its answer already: the call of write was denied (at 20"]);
    world.relive(&["resolve", "1"]).fails(3, &["does not wait for an answer"]);
}

#[test]
fn an_answer_for_always_holds_after_a_kill_and_in_a_fork_and_for_its_tool_alone() {
    let world = World::new();
    let read = "{calls: [{name: list, args: {path: .}}]}";
    let write = "{calls: [{name: write, args: {path: 'file-{{turn}}', content: x}}]}";
    let script = format!("turns: [{write}, {write}, {read}, {write}, {{text: done}}]");
    let process = world.run_with(&script, &["--ask", "write", "--ask", "list"]);
    await_question(&world, &process, "file-1");
    world.relive(&["resolve", "1", "--allow", "--always"]).ok();
    wait_for("the other tool is asked about", || {
        Some(world.info(&process.uuid)).filter(|info| info["approval"]["tool"] == "list")
    });
    assert_eq!(files(&world), ["file-1", "file-2"]);
    world.kill_daemon();
    let fork = world.relive(&["resume", "--fork", "--json", &process.uuid]).ok().json();
    for uuid in [process.uuid.as_str(), fork["uuid"].as_str().unwrap()] {
        world.await_display(uuid, "approval");
        world.relive(&["resolve", uuid, "--deny", "--always"]).ok();
        world.relive(&["wait", uuid]).ok();
        assert_eq!(world.records(uuid, "approval").iter().filter(|it| it["name"] == "write").count(), 2);
    }
    assert_eq!(files(&world), ["file-1", "file-2", "file-4"]);
}

#[test]
fn an_approval_survives_kill_9_before_the_answer() {
    let world = World::new();
    let process = world.run_with(&writes(1), &["--ask", "write"]);
    await_question(&world, &process, "file-1");
    let before = std::fs::read(world.steps_file(&process.uuid)).unwrap();
    for _ in 0..2 {
        world.kill_daemon();
        await_question(&world, &process, "file-1");
        assert_eq!(std::fs::read(world.steps_file(&process.uuid)).unwrap(), before);
        assert_eq!(files(&world), Vec::<String>::new());
    }
    world.relive(&["resolve", &process.uuid, "--allow"]).ok();
    world.relive(&["wait", &process.uuid]).ok();
    assert_eq!(
        (files(&world), decisions(&world, &process)),
        (vec!["file-1".into()], vec!["asked".into(), "allowed".into()])
    );
}

#[test]
fn an_answer_holds_after_kill_9() {
    let world = World::new();
    for (answer, made) in [("--allow", true), ("--deny", false)] {
        let process = world.run_with(&writes(1), &["--ask", "write"]);
        await_question(&world, &process, "file-1");
        world.relive(&["resolve", &process.uuid, answer]).ok();
        world.kill_daemon();
        world.relive(&["wait", &process.uuid]).ok();
        assert_eq!(files(&world).len(), usize::from(made), "{answer}");
        assert_eq!(decisions(&world, &process).len(), 2, "it is not asked again");
        assert_eq!(world.records(&process.uuid, "call_ended").len(), 1);
        let _ = std::fs::remove_file(world.work().join("file-1"));
    }
}

#[test]
fn an_allowed_call_that_a_kill_interrupts_is_taken_up_without_asking() {
    let world = World::new();
    let script = "turns: [{calls: [{name: sleep, args: {duration: 1h}}]}, {text: done}]";
    let process = world.run_with(script, &["--ask", "sleep"]);
    world.await_display(&process.uuid, "approval");
    world.relive(&["resolve", "1", "--allow"]).ok();
    world.await_records(&process, "call_started", 1);
    world.kill_daemon();
    world.await_display(&process.uuid, "running");
    world.await_records(&process, "opened", 2);
    assert_eq!(decisions(&world, &process), ["asked", "allowed"]);
}

#[test]
fn a_dead_process_that_is_resumed_asks_again() {
    let world = World::new();
    let process = world.run_with(&writes(1), &["--ask", "write"]);
    await_question(&world, &process, "file-1");
    world.relive(&["kill", "1"]).ok();
    world.relive(&["wait", "1"]).exits(1);
    world.await_retired(&process.uuid);
    world.relive(&["resume", &process.uuid]).ok();
    await_question(&world, &process, "file-1");
    world.relive(&["resolve", &process.uuid, "--allow"]).ok();
    world.relive(&["wait", &process.uuid]).ok();
    assert_eq!(files(&world), ["file-1"]);
}

#[test]
fn calls_of_one_step_are_asked_about_one_after_the_other() {
    let world = World::new();
    let call = |path: &str| format!("{{name: write, args: {{path: {path}, content: x}}}}");
    let calls = ["file-a", "file-b", "file-c"].map(call).join(", ");
    let process = world.run_with(&format!("turns: [{{calls: [{calls}]}}, {{text: done}}]"), &["--ask", "write"]);
    for (path, answer) in [("file-a", "--allow"), ("file-b", "--deny"), ("file-c", "--allow")] {
        await_question(&world, &process, path);
        world.relive(&["resolve", "1", answer]).ok();
    }
    world.relive(&["wait", "1"]).ok();
    assert_eq!(files(&world), ["file-a", "file-c"]);
    let oks: Vec<_> = world.records(&process.uuid, "call_ended").iter().map(|it| it["ok"].clone()).collect();
    assert_eq!(oks, [true, false, true]);
}

#[test]
fn a_denied_tool_is_an_ordinary_error_for_the_model() {
    let world = World::new();
    let process = world.run_with(&writes(1), &["--deny", "write"]);
    world.relive(&["wait", "1"]).ok();
    let told = world.records(&process.uuid, "call_ended").pop().unwrap();
    assert!(told["ok"] == false && told["result"].as_str().unwrap().contains("denied by policy"), "{told}");
    assert!(files(&world).is_empty() && decisions(&world, &process).is_empty());
    // It did not fail: it was never made.
    assert_eq!(told["denied"], true);
    let logs = world.relive(&["logs", "1"]).ok().stdout;
    let denied = logs.lines().find(|line| line.ends_with(": denied")).unwrap_or_else(|| panic!("{logs}"));
    assert!(denied.starts_with("  write {") && denied.contains("file-1") && !logs.contains("failed"), "{logs}");
    let result = world.events(&process.uuid).into_iter().find(|event| event["kind"] == "call_result").unwrap();
    assert_eq!(result["denied"], true, "{result}");
    // No other event has the arguments, because the call was never made.
    assert!(result["args"].as_str().unwrap().contains("file-1"), "{result}");
    assert!(world.relive(&["strace", "1"]).ok().stdout.contains("file-1"));
    let steps = world.relive(&["steps", "1"]).ok().stdout;
    assert!(steps.contains("write (denied: ") && steps.contains("file-1"), "{steps}");
    let steps = world.relive(&["steps", "1", "--json"]).ok().json();
    assert_eq!(steps["steps"][0]["denied"][0]["args"]["path"], "file-1", "{steps}");
}

#[test]
fn the_policy_is_that_of_the_start_and_flags_come_before_the_configuration() {
    let world = World::with_config("tools: {write: ask}");
    let asked = world.run(&writes(2));
    await_question(&world, &asked, "file-1");
    assert_eq!(world.records(&asked.uuid, "spawned")[0]["policy"]["write"], "ask");
    for flags in [["--yes"].as_slice(), &["--allow", "write"], &["--allow", "*"]] {
        let process = world.run_with("turns: [{calls: [{name: write, args: {path: other, content: x}}]}]", flags);
        world.relive(&["wait", &process.uuid]).ok();
        assert_eq!(decisions(&world, &process), Vec::<Value>::new(), "{flags:?}");
        assert!(world.work().join("other").exists());
    }
    world.kill_daemon();
    world.configure("tools: {write: deny}");
    await_question(&world, &asked, "file-1");
    world.relive(&["resolve", &asked.uuid, "--allow"]).ok();
    await_question(&world, &asked, "file-2");
    assert_eq!(files(&world), ["file-1"]);
    world
        .relive(&["run", "-d", "--model", "script/demo", "--ask", "wriet", "x"])
        .fails(2, &["there is no tool `wriet`", "hint: did you mean `write`?"]);
    world.configure("tools: {wriet: deny}");
    world.relive(&["config", "show"]).fails(2, &["no such key under `tools`: `wriet` (did you mean `write`?)"]);
}

#[test]
fn children_ask_as_their_parent_does() {
    let world = World::new();
    let child = world.script(&writes(1));
    let spawn = json!({"name": "spawn_agent", "args": {"intent": "help", "name": "child", "model": child}});
    let wait = json!({"name": "wait_agent", "args": {"uuid": "{{child}}"}});
    let script = json!({"turns": [{"calls": [spawn]}, {"calls": [wait]}, {"text": "done"}]}).to_string();
    let parent = world.run_with(&script, &["--ask", "write"]);
    let child = world.named("child");
    await_question(&world, &child, "file-1");
    world.await_field(&parent.uuid, "suspended_below", 1);
    world.relive(&["resolve", "child", "--allow"]).ok();
    world.relive(&["wait", &parent.uuid]).ok();
    assert_eq!(files(&world), ["file-1"]);
}

#[test]
fn without_a_terminal_run_fails_at_a_question_and_the_process_keeps_waiting() {
    let world = World::new();
    let model = world.script(&writes(1));
    let run = ["run", "--ask", "write", "--model", &model, "do it"];
    world.relive(&run).fails(
        2,
        &[
            "PID 1 asks to write file-1:\n  | +x (no newline)\n",
            "error: PID 1 waits for your approval, and there is no terminal to ask on; it keeps waiting",
            "hint: relive resolve 1\n",
        ],
    );
    let said = world.relive(&[&run[..], &["--json"]].concat()).exits(2);
    assert_eq!(said.json_lines().pop().unwrap()["error"]["code"], "INVALID");
    for id in ["1", "2"] {
        world.relive(&["resolve", id, "--allow"]).ok();
        world.relive(&["wait", id]).ok();
    }
    assert_eq!(files(&world), ["file-1"]);
}

#[test]
fn without_a_terminal_run_can_wait_for_an_answer_from_elsewhere() {
    let world = World::new();
    let model = world.script(&writes(1));
    let mut watching = world.start(&["run", "--wait-approval", "--ask", "write", "--model", &model, "do it"]);
    let mut lines = BufReader::new(watching.stderr.take().unwrap()).lines().map(Result::unwrap);
    let asked: Vec<String> = lines.by_ref().take_while(|line| !line.starts_with("it waits for an answer")).collect();
    let (first, asked) = asked.split_first().unwrap();
    assert!(first.starts_with("PID 1 ") && first.contains("; its commands "), "what they may reach is said: {first}");
    assert_eq!(asked, ["PID 1 asks to write file-1:", "  | +x (no newline)"]);
    world.relive(&["resolve", "1", "--allow"]).ok();
    let later: Vec<String> = lines.collect();
    finish(watching).ok();
    assert!(!later.iter().any(|line| line.contains("asks to write")), "{later:?}");
    assert_eq!(files(&world), ["file-1"]);
}
