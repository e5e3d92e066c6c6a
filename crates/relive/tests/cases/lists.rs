//! Lists, and commands about several processes.

use serde_json::json;

use super::world::{World, short};

const ENDS_AT_ONCE: &str = "turns: [{text: done}]";

#[test]
fn resume_all_leaves_out_what_waits_for_an_answer() {
    let world = World::new();
    let asks = world.run_with("turns: [{calls: [{name: write, args: {path: a, content: x}}]}]", &["--ask", "write"]);
    world.await_display(&asks.uuid, "approval");
    let hung = world.run_hanging(&[]);
    world.relive(&["pause", "--now", &hung.uuid]).ok();
    world.await_display(&hung.uuid, "suspended");
    world.relive(&["resume", "--all"]).ok();
    world.await_display(&hung.uuid, "running");
    assert_eq!(world.info(&asks.uuid)["display"], "approval");
    // Named, it is refused.
    world.relive(&["resume", &asks.uuid]).fails(3, &["waits for your answer"]);
}

#[test]
fn a_command_reaches_several_and_one_failure_does_not_stop_the_others() {
    let world = World::new();
    for name in ["test-1", "test-2", "other"] {
        world.run_hanging(&["--name", name]);
    }
    let paused = world.relive(&["pause", "--now", "test-*"]).ok().stderr;
    assert_eq!(paused, "PID 1 paused (undo: relive resume 1)\nPID 2 paused (undo: relive resume 2)\n");
    world.await_display("test-2", "suspended");
    let resumed = world.relive(&["resume", "--all", "--json"]).ok().json();
    let ids: Vec<&str> = resumed["results"].as_array().unwrap().iter().map(|it| it["id"].as_str().unwrap()).collect();
    assert_eq!(ids, ["1", "2"], "what runs is not resumed");
    let some = world.relive(&["kill", "nobody", "test-1", "none-*", "3"]).exits(4);
    assert!(some.stderr.contains("PID 1 got SIGTERM") && some.stderr.contains("PID 3 got SIGTERM"), "{some:?}");
    assert!(some.stderr.contains("nobody") && some.stderr.contains("no process matches `none-*`"), "{some:?}");
    world.relive(&["wait", "1", "3"]).exits(1);
    world.relive(&["kill", "-y", "--all"]).ok();
    world.relive(&["wait", "2"]).exits(1);
    world.relive(&["kill", "-y", "--all"]).ok();
    assert_eq!(world.relive(&["ps", "-q"]).ok().stdout, "");
}

#[test]
fn kill_asks_before_it_reaches_more_processes_than_were_named() {
    let world = World::new();
    for _ in 0..2 {
        world.run_hanging(&[]);
    }
    world.relive(&["kill", "--all"]).fails(2, &["SIGTERM to 2 processes", "hint: relive kill -y --all"]);
    world.relive(&["kill", "-y", "--all"]).ok();
    world.relive(&["wait", "1", "2"]).exits(1);
    world.relive(&["rm", "1"]).fails(2, &["1 process", "hint: relive rm -y 1"]);
    world.relive(&["rm", "-y", "--all"]).ok();
    assert_eq!(world.relive(&["ps", "-a", "-q"]).ok().stdout, "");
}

#[test]
fn rm_removes_ended_processes_and_hints_how_to_end_living_ones() {
    let world = World::new();
    let ended = world.run_with(ENDS_AT_ONCE, &["--name", "early"]);
    world.relive(&["wait", "early"]).ok();
    world.run_hanging(&["--name", "living"]);
    let both = world.relive(&["rm", "-y", "living", "early"]).exits(3);
    assert!(both.stderr.contains("\nremoved PID 1 "), "{both:?}");
    assert!(both.stderr.contains("has not ended") && both.stderr.contains("hint: relive kill 2;"), "{both:?}");
    world.relive(&["info", &ended.uuid]).fails(4, &["garbage collected"]);
}

#[test]
fn retry_forks_a_failed_process() {
    let world = World::new();
    let step = "{calls: [{name: list, args: {}}]}";
    let model = world.script(&format!("turns: [{step}, {{fail: out of order}}]"));
    let failed = world.run_model(&model, &[]);
    world.relive(&["wait", &failed.uuid]).exits(1);
    std::fs::write(model.strip_prefix("script/").unwrap(), format!("turns: [{step}, {{text: repaired}}]")).unwrap();
    let retried = world.relive(&["retry", "1", "--json"]).ok().json();
    assert_eq!((&retried["origin_uuid"], &retried["resumed_from_step"]), (&json!(failed.uuid), &json!(1)));
    world.relive(&["wait", &retried["pid"].to_string()]).ok();
    world.relive(&["retry", &retried["pid"].to_string()]).fails(3, &["did not fail", "hint: relive resume --fork"]);
    let living = world.run_hanging(&[]);
    world.relive(&["retry", &living.pid.to_string()]).fails(3, &["has not ended"]);
}

/// A hint is a command that works when it is typed.
#[test]
fn a_process_that_a_limit_has_ended_is_offered_a_resume_that_does_not_end_at_once() {
    let world = World::new();
    let step = "{calls: [{name: list, args: {}}], usage: {input: 60, output: 50}}";
    let three = format!("turns: [{step}, {step}, {step}, {{text: done}}]");
    for flags in [["--max-steps", "2"], ["--max-tokens", "150"]] {
        let process = world.run_with(&three, &flags);
        let pid = process.pid.to_string();
        let code = world.relive(&["wait", &pid]).code;
        assert!(code == 1 || code == 2, "{flags:?}: {code}");
        let refused = world.relive(&["resume", &pid]).fails(3, &[flags[0], "would end at once", "hint: relive resume"]);
        let hint = refused.stderr.lines().find_map(|line| line.strip_prefix("hint: relive ")).unwrap().to_owned();
        let typed: Vec<&str> = hint.split(' ').collect();
        let told = world.relive(&typed).ok().stderr;
        let resumed = told.split("PID ").nth(1).unwrap().split(' ').next().unwrap().to_owned();
        world.await_records(&process, "model_started", 3);
        assert_eq!(world.info(&process.uuid)["pid"].to_string(), resumed);
    }
}

#[test]
fn a_program_that_is_killed_is_offered_no_undo_and_an_agent_is() {
    let world = World::new();
    let program = world.exec(&[], &["sleep", "1000"]);
    let told = world.relive(&["kill", "-9", &program.pid.to_string()]).ok().stderr;
    assert_eq!(told, format!("PID {} got SIGKILL\n", program.pid));
    let agent = world.run_hanging(&[]);
    let told = world.relive(&["kill", &agent.pid.to_string()]).ok().stderr;
    assert!(told.contains(&format!("(undo: relive wait {0}; relive resume {0})", agent.pid)), "{told}");
}

#[test]
fn an_agent_that_is_done_is_told_to_continue_and_that_is_said() {
    let world = World::new();
    let process = world.run(ENDS_AT_ONCE);
    world.relive(&["wait", "1"]).ok();
    let resumed = world.relive(&["resume", "1"]).ok();
    assert!(resumed.stderr.contains("sent it \"Continue.\""), "{resumed:?}");
    world.relive(&["wait", &process.uuid]).ok();
    let inputs = world.records(&process.uuid, "input");
    assert_eq!(inputs.last().unwrap()["text"], "Continue.");
}

#[test]
fn ps_says_what_is_done_why_it_waits_and_how_it_ended() {
    let world = World::new();
    world.run_hanging(&["--name", "asks"]);
    let gated = world.exec(&["--gate", "--name", "gated"], &["true"]);
    world.await_display("gated", "ready");
    world.run_with("turns: [{fail: out of order}]", &["--name", "broken"]);
    world.relive(&["wait", "broken"]).exits(1);
    let table = world.relive(&["ps", "-a", "--columns", "name,state,detail,id"]).ok().stdout;
    let line = |name: &str| table.lines().find(|line| line.starts_with(name)).unwrap().to_owned();
    assert!(line("asks").contains("running  asking the model "), "{table}");
    assert!(line("gated").contains("ready    held at its gate"), "{table}");
    assert!(line("gated").ends_with(&short(&gated.uuid)), "{table}");
    assert!(line("broken").contains("dead     exit 1, out of order"), "{table}");
    let ready = world.relive(&["ps", "--state", "ready", "--json"]).ok().json();
    assert_eq!(ready["processes"][0]["name"], "gated");
    let failed = world.relive(&["ps", "--failed", "-q"]).ok().stdout;
    assert_eq!(failed, "3\n");
    let terminal = world.on_terminal("ps -a").ok().stdout;
    assert!(terminal.lines().all(|line| line.trim_end().chars().count() <= 80), "{terminal}");
    world.relive(&["ps", "--watch"]).fails(2, &["needs a terminal"]);
    world.relive(&["proceed", "gated"]).ok();
}

#[test]
fn usage_counts_tokens_by_model_and_in_total() {
    let world = World::new();
    let model = world.script("turns: [{text: one, usage: {input: 10, output: 2}}]");
    for _ in 0..2 {
        let process = world.run_model(&model, &[]);
        world.relive(&["wait", &process.uuid]).ok();
    }
    let rows = world.relive(&["usage", "--json", "--by", "model"]).ok().json();
    let row = &rows["rows"][0];
    assert_eq!((&row["model"], &row["tokens_in"], &row["processes"]), (&json!(model), &json!(20), &json!(2)));
    let table = world.relive(&["usage", "--by", "process"]).ok().stdout;
    assert!(table.lines().last().unwrap().starts_with("total") && table.contains(" 20  "), "{table}");
    world.relive(&["usage", "--by", "modle"]).fails(2, &["did you mean `model`?"]);
}

#[test]
fn the_steps_that_a_fork_begins_with_are_paid_by_its_original() {
    let world = World::new();
    let list = "calls: [{name: list, args: {path: .}}]";
    let turns = format!("turns: [{{usage: {{input: 100}}, {list}}}, {{text: two, usage: {{input: 7}}}}]");
    let original = world.run(&turns);
    world.relive(&["wait", &original.uuid]).ok();
    let fork = world.relive(&["resume", "--fork", "--from-step", "1", "--json", "1"]).ok().json();
    world.relive(&["wait", fork["uuid"].as_str().unwrap()]).ok();
    let rows = world.relive(&["usage", "--json", "--by", "process"]).ok().json();
    let spent = |uuid: &str| {
        let row = rows["rows"].as_array().unwrap().iter().find(|row| row["uuid"] == uuid);
        row.map(|row| row["tokens_in"].clone())
    };
    assert_eq!((spent(&original.uuid), spent(fork["uuid"].as_str().unwrap())), (Some(json!(107)), Some(json!(7))));
}

#[test]
fn an_empty_message_is_refused() {
    let world = World::new();
    world.run_hanging(&[]);
    world.relive(&["send", "1", ""]).fails(2, &["is empty"]);
    assert_eq!(world.records(world.info(1)["uuid"].as_str().unwrap(), "input").len(), 1);
}

#[test]
fn a_name_that_is_nearly_right_is_answered_with_the_right_one() {
    let world = World::new();
    world.run_hanging(&["--name", "reviewer"]);
    world.relive(&["kill", "reviwer"]).fails(4, &["did you mean `reviewer`?"]);
    world
        .relive(&["run", "-d", "--name", "reviewer", "--model", &world.hanging(), "x"])
        .fails(3, &["is taken by another process", "hint: relive info reviewer"]);
    assert_eq!(world.relive(&["rename", "reviewer", "critic"]).ok().stderr, "PID 1 renamed to critic\n");
    world.relive(&["info", "critic"]).ok();
}

#[test]
fn the_program_alone_its_help_and_its_version_are_asked_for_in_the_usual_ways() {
    let world = World::new();
    let bare = world.relive(&[]).ok().stdout;
    assert!(bare.contains("Usage: relive") && bare.contains("usage"), "{bare}");
    assert!(world.relive(&["help"]).ok().stdout.contains("Usage: relive"));
    assert!(world.relive(&["help", "kill"]).ok().stdout.contains("relive kill -9 5"));
    let version = world.relive(&["version"]).ok().stdout;
    assert_eq!(version, world.relive(&["--version"]).ok().stdout);
}
