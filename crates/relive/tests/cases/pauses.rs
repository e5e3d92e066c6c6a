//! Pause and resume under one daemon.

use serde_json::{Value, json};

use super::killing::parent_of;
use crate::world::{Begun, World, wait_until};

/// A parent, a child and a grandchild, all of which run; and a sibling of the grandchild.
fn family(world: &World) -> [Begun; 4] {
    let hanging = world.hanging();
    let middle = parent_of(world, &[("grandchild", &hanging), ("sibling", &hanging)]);
    let top = world.run_model(&parent_of(world, &[("child", &middle)]), &[]);
    let [child, grandchild, sibling] = ["child", "grandchild", "sibling"].map(|name| world.named(name));
    let all = [top, child, grandchild, sibling];
    world.await_step(&all[0], 2);
    world.await_step(&all[1], 2);
    world.await_step(&all[2], 1);
    world.await_step(&all[3], 1);
    all
}

fn displays(world: &World, of: &[Begun]) -> Vec<String> {
    of.iter().map(|process| world.info(process.pid)["display"].as_str().unwrap().to_owned()).collect()
}

fn await_suspended(world: &World, of: &[Begun]) {
    for process in of {
        world.await_display(&process.uuid, "suspended");
    }
}

#[test]
fn case_12_pausing_one_pauses_that_one_and_a_subtree_all_below() {
    let world = World::new();
    let all = family(&world);
    let pause = |args: &[&str]| {
        let mut line = vec!["pause", "--now", "--json"];
        line.extend(args);
        world.relive(&line).ok().json()
    };
    assert_eq!(pause(&["sibling"]), json!({"affected": 1, "pids": [all[3].pid]}));
    await_suspended(&world, &all[3..]);
    assert_eq!(displays(&world, &all), ["running", "running", "running", "suspended"]);
    assert_eq!(world.info(all[0].pid)["suspended_below"], 1);

    assert_eq!(pause(&["--subtree", "child"]), json!({"affected": 2, "pids": [all[1].pid, all[2].pid]}));
    await_suspended(&world, &all[1..]);
    assert_eq!(world.info(all[0].pid)["display"], "running");
    assert_eq!(world.info(all[0].pid)["suspended_below"], 3);

    assert_eq!(pause(&["--subtree", &all[0].pid.to_string()])["affected"], 1);
    await_suspended(&world, &all);
    let journals: Vec<_> = all.iter().map(|process| world.journal(&process.uuid)).collect();
    let again = world.relive(&["pause", "--subtree", "1"]).ok().stderr;
    assert!(again.contains("nothing changed"), "{again}");
    assert_eq!(pause(&["1"])["affected"], 0);
    assert_eq!(all.iter().map(|process| world.journal(&process.uuid)).collect::<Vec<_>>(), journals);

    let resumed = world.relive(&["resume", "--subtree", "--json", "1"]).ok().json();
    assert_eq!((&resumed["changed"], &resumed["affected"]), (&json!(true), &json!(4)));
    wait_until("all run", || displays(&world, &all) == ["running"; 4]);
}

#[test]
fn case_13_a_pause_lets_the_model_call_finish_and_journals_it() {
    let world = World::new();
    let process =
        world.run("turns: [{text: [one, two], chunk_delay: 3s, calls: [{name: sleep, args: {duration: 1h}}]}]");
    world.await_text(&process, "one");
    world.relive(&["pause", "1"]).ok();
    let info = world.info(1);
    assert_eq!(
        (&info["display"], &info["paused"], &info["state"]),
        (&json!("pausing"), &json!(true), &json!("running"))
    );
    world.await_display("1", "suspended");
    let answers = world.records(&process.uuid, "model_ended");
    assert_eq!(answers[0]["text"], "onetwo");
    assert!(world.records(&process.uuid, "partial").is_empty());
    assert!(world.records(&process.uuid, "call_started").is_empty(), "the boundary comes before the tool");
    let before = world.journal(&process.uuid);
    assert_eq!(before.last().unwrap()["kind"], "model_ended", "it stopped right after the answer");
    assert_eq!(before[before.len() - 2]["kind"], "paused", "the pause was recorded when it was asked for");
    world.relive(&["resume", "1"]).ok();
    world.await_records(&process, "call_started", 1);
    assert_eq!(world.records(&process.uuid, "model_started").len(), 1, "the model is not asked again");
}

#[test]
fn case_13_now_cancels_the_model_call() {
    let world = World::new();
    let process = world.run("turns: [{text: [one], hang: true}]");
    world.await_text(&process, "one");
    world.relive(&["pause", "1"]).ok();
    assert_eq!(world.info(1)["display"], "pausing");
    world.relive(&["pause", "--now", "1"]).ok();
    world.await_display("1", "suspended");
    assert_eq!(world.records(&process.uuid, "partial")[0]["text"], "one");
    assert_eq!(world.info(1)["exit"], Value::Null, "nothing is reported as a failure");
    let again = world.relive(&["resume", "--json", "1"]).ok().json();
    assert_eq!(again["pid"], 1);
    world.await_records(&process, "model_started", 2);
    world.await_display("1", "running");
}

#[test]
fn case_13_a_waiting_tool_stops_at_once_and_continues_where_it_was() {
    let world = World::new();
    let process = world.run("turns: [{calls: [{name: sleep, args: {duration: 1s}}]}, {text: awake}]");
    world.await_records(&process, "call_started", 1);
    world.relive(&["pause", "1"]).ok();
    world.await_display("1", "suspended");
    world.relive(&["resume", "1"]).ok();
    world.relive(&["wait", "1"]).ok();
    let results = world.records(&process.uuid, "call_ended");
    assert_eq!(results.len(), 1);
    assert_eq!(results[0]["ok"], true);
    assert_eq!(world.records(&process.uuid, "call_started").len(), 1);
}

#[test]
fn case_13_a_kill_while_paused_says_so() {
    let world = World::new();
    world.run_hanging(&[]);
    world.relive(&["pause", "--now", "1"]).ok();
    world.await_display("1", "suspended");
    world.relive(&["kill", "1"]).ok();
    let answer = world.relive(&["wait", "--json", "1"]).exits(1).json();
    assert_eq!(answer["exit"]["reason"], "context cancelled while paused");
    assert_eq!(answer["why"], "user");
}

#[test]
fn case_14_elapsed_time_stands_still_while_paused() {
    let world = World::new();
    let process = world.run_hanging(&[]);
    world.relive(&["pause", "--now", "1"]).ok();
    world.await_display("1", "suspended");
    let elapsed = |world: &World| world.info(&process.uuid)["elapsed_ms"].as_u64().unwrap();
    let stood = elapsed(&world);
    world.relive(&["wait", "--timeout", "700ms", "1"]).exits(124);
    assert_eq!(elapsed(&world), stood);
    world.kill_daemon();
    assert_eq!(elapsed(&world), stood, "also across daemons");
    world.relive(&["wait", "--timeout", "300ms", &process.uuid]).exits(124);
    assert_eq!(elapsed(&world), stood);
    let resumed = std::time::Instant::now();
    world.relive(&["resume", &process.uuid]).ok();
    let goes_on = elapsed(&world);
    wait_until("it moves", || elapsed(&world) > goes_on);
    let moved = elapsed(&world);
    let most = stood + 1 + u64::try_from(resumed.elapsed().as_millis()).unwrap();
    assert!(goes_on >= stood && moved <= most, "{stood} {goes_on} {moved} {most}");
    world.relive(&["kill", &process.uuid]).ok();
    world.relive(&["wait", &process.uuid]).exits(1);
    let whole = elapsed(&world);
    let ended = world.info(&process.uuid);
    let at = |field: &str| ended[field].as_str().unwrap().parse::<jiff::Timestamp>().unwrap();
    let alive = u64::try_from(at("dead_at").duration_since(at("created_at")).as_millis()).unwrap();
    assert!(whole + 1000 <= alive, "the second it was paused does not count: {whole} {alive}");
}

#[test]
fn case_14_the_heartbeat_monitor_never_flags_a_paused_process() {
    let world = World::with_config("heartbeat: {stalled_after_seconds: 1}");
    let (paused, running) = (world.run_hanging(&[]), world.run_hanging(&[]));
    world.relive(&["pause", "--now", &paused.uuid]).ok();
    let info = world.await_display(&running.uuid, "stalled");
    assert_eq!(info["stalled"], true);
    let info = world.info(&paused.uuid);
    assert_eq!((&info["display"], &info["stalled"]), (&json!("suspended"), &json!(false)));
    world.relive(&["resume", &paused.uuid]).ok();
    assert_eq!(world.info(&paused.uuid)["stalled"], false, "its time begins anew");
    world.await_display(&paused.uuid, "stalled");
}

#[test]
fn case_15_resuming_a_descendant_resumes_its_ancestors_and_no_sibling() {
    let world = World::new();
    let all = family(&world);
    world.relive(&["pause", "--subtree", "--now", "1"]).ok();
    await_suspended(&world, &all);
    let resumed = world.relive(&["resume", "--json", "grandchild"]).ok().json();
    assert_eq!(resumed["affected"], 3);
    wait_until("three run", || displays(&world, &all) == ["running", "running", "running", "suspended"]);
    let again = world.relive(&["resume", "--json", "grandchild"]).ok().json();
    assert_eq!((&again["changed"], &again["affected"]), (&json!(false), &json!(0)));
    let said = world.relive(&["resume", "grandchild"]).ok().stderr;
    assert!(said.contains("nothing changed"), "{said}");
}

#[test]
fn case_15_resuming_a_descendant_does_not_resume_an_ancestor_stopped_by_its_budget() {
    let world = World::new();
    // The child draws from its parent's budget, so it is in a tool, which needs none.
    let sleeps = world.script("turns: [{usage: {input: 1, output: 1}, calls: [{name: sleep, args: {duration: 1h}}]}]");
    let child = json!({"name": "spawn_agent", "args": {"intent": "x", "name": "child", "model": sleeps}});
    let waits = json!({"name": "sleep", "args": {"duration": "2s"}});
    let usage = |input: u32| json!({"input": input, "output": 0});
    let script = json!({"turns": [
        {"usage": usage(1), "calls": [child, waits]}, {"usage": usage(60), "calls": [{"name": "list"}]}, {"hang": true},
    ]});
    let parent = world.run_with(&script.to_string(), &["--max-tokens", "50", "--on-budget", "suspend"]);
    let child = world.named("child");
    world.await_records(&child, "call_started", 1);
    world.await_field(&parent.uuid, "suspend_reason", "budget_exceeded");
    world.relive(&["pause", "--now", "child"]).ok();
    world.await_display("child", "suspended");
    assert_eq!(world.relive(&["resume", "--json", "child"]).ok().json()["affected"], 1);
    world.await_display("child", "running");
    let info = world.info(&parent.uuid);
    assert_eq!((&info["display"], &info["suspend_reason"]), (&json!("suspended"), &json!("budget_exceeded")));
}

#[test]
fn case_12_a_pause_that_is_taken_back_before_its_boundary_stops_nothing() {
    let world = World::new();
    let process = world.run_hanging(&[]);
    world.relive(&["pause", "1"]).ok();
    assert_eq!(world.info(1)["display"], "pausing");
    world.relive(&["resume", "1"]).ok();
    assert_eq!(world.info(1)["display"], "running");
    assert_eq!(world.records(&process.uuid, "model_started").len(), 1, "the model is not asked again");
    world.relive(&["kill", "1"]).ok();
    world.relive(&["wait", "1"]).exits(1);
}
