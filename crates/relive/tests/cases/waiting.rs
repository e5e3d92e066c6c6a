//! `wait`, and what a killed agent leaves.

use std::process::Child;

use serde_json::{Value, json};

use crate::world::{World, finish, wait_until};

#[test]
fn case_03_wait_gives_the_processes_own_code_again_and_again() {
    let world = World::new();
    let check = |yaml: &str, flags: &[&str], code: i32, status: Value| {
        let pid = world.run_with(yaml, flags).pid.to_string();
        let first = world.relive(&["wait", "--json", &pid]).exits(code).json();
        assert_eq!(first["status"], status);
        assert_eq!(first["timed_out"], false);
        assert_eq!(world.relive(&["wait", "--json", &pid]).exits(code).json(), first);
        (pid, first)
    };
    let answers = [
        check("turns: [{text: done}]", &[], 0, json!({"kind": "exited", "code": 0})),
        check("turns: [{fail: overloaded}]", &[], 1, json!({"kind": "faulted", "fault": "overloaded"})),
        check(
            "turns: [{calls: [{name: list, args: {path: .}}], repeat: 9}]",
            &["--max-steps", "2"],
            1,
            json!({"kind": "faulted", "fault": "max steps exceeded"}),
        ),
    ];
    world.kill_daemon();
    for (pid, answer) in &answers {
        assert_eq!(world.relive(&["wait", "--json", pid]).json(), *answer, "after a restart too");
    }
}

#[test]
fn case_03_a_kill_wakes_four_waiters_and_all_get_the_same() {
    let world = World::new();
    let process = world.run_hanging(&[]);
    let waiters: Vec<Child> = (0..4).map(|_| world.start(&["wait", "--json", "1"])).collect();
    // Each is seen to wait: a connection of its own.
    let daemon = world.daemon_pid().unwrap();
    let connections = || {
        let descriptors = std::fs::read_dir(format!("/proc/{daemon}/fd")).unwrap().flatten();
        let names = descriptors.filter_map(|entry| std::fs::read_link(entry.path()).ok());
        names.filter(|name| name.to_string_lossy().starts_with("socket:")).count()
    };
    wait_until("four wait", || connections() >= 5);
    world.relive(&["kill", "1"]).ok();
    for waiter in waiters {
        let answer = finish(waiter).exits(1).json();
        assert_eq!(answer["status"], json!({"kind": "killed", "signal": "SIGTERM"}));
        assert_eq!(answer["why"], "user");
        assert_eq!(answer["uuid"], process.uuid.as_str());
    }
}

#[test]
fn case_03_a_wait_continues_across_daemons() {
    let world = World::new();
    let process = world.run_hanging(&[]);
    let mut waiter = world.start(&["wait", "--json", "1"]);
    let foreground = world.start(&["wait", &process.uuid]);
    world.kill_daemon();
    // The waiters themselves bring it back.
    world.await_records(&process, "opened", 2);
    assert!(waiter.try_wait().unwrap().is_none());
    world.relive(&["kill", &process.uuid]).ok();
    assert_eq!(finish(waiter).exits(1).json()["why"], "user");
    finish(foreground).exits(1);
}

#[test]
fn case_03_a_pid_that_two_crashes_interrupted_answers_for_what_became_of_it() {
    let world = World::new();
    let process = world.run_hanging(&[]);
    for opened in [2, 3] {
        world.kill_daemon();
        world.relive(&["ps"]).ok();
        world.await_records(&process, "opened", opened);
    }
    let pids: Vec<Value> = world.records(&process.uuid, "opened").iter().map(|record| record["pid"].clone()).collect();
    for pid in &pids[..2] {
        assert_eq!(world.info(pid)["pid"], pids[2], "PID {pid} continues");
    }
    assert_eq!(world.info(&process.uuid)["pid"], pids[2]);
    world.relive(&["wait", "1", "--timeout", "100ms"]).exits(124);
    world.relive(&["kill", &process.uuid]).ok();
    assert_eq!(world.relive(&["wait", "--json", "1"]).exits(1).json()["why"], "user");
}

#[test]
fn case_04_a_wait_that_times_out_leaves_the_process_alone() {
    let world = World::new();
    let process = world.run_hanging(&[]);
    let before = world.journal(&process.uuid);
    for _ in 0..2 {
        world.relive(&["wait", "--timeout", "150ms", "1"]).fails(124, &["not ended", "hint: "]);
        let answer = world.relive(&["wait", "--timeout", "150ms", "--json", "1"]).exits(124).json();
        assert_eq!((&answer["timed_out"], &answer["status"]), (&json!(true), &Value::Null));
    }
    assert_eq!(world.info(1)["display"], "running");
    assert_eq!(world.journal(&process.uuid), before);
}

#[test]
fn case_04_pausing_does_not_end_a_wait() {
    let world = World::new();
    world.run_hanging(&[]);
    let mut waiter = world.start(&["wait", "1"]);
    world.relive(&["pause", "--now", "1"]).ok();
    world.await_display("1", "suspended");
    world.relive(&["wait", "--timeout", "150ms", "1"]).exits(124);
    assert!(waiter.try_wait().unwrap().is_none());
    world.relive(&["resume", "1"]).ok();
    world.await_display("1", "running");
    assert!(waiter.try_wait().unwrap().is_none());
    world.relive(&["kill", "1"]).ok();
    finish(waiter).exits(1);
}

#[test]
fn case_05_a_kill_while_the_model_streams_keeps_what_it_said() {
    let world = World::new();
    let process = world.run("turns: [{thinking: hm, text: ['one ', two], hang: true}]");
    world.await_text(&process, "two");
    world.relive(&["kill", "1"]).ok();
    let answer = world.relive(&["wait", "--json", "1"]).exits(1).json();
    assert_eq!(answer["exit"], json!({"code": 1, "reason": "interrupted", "err": null}));
    let partial = world.records(&process.uuid, "partial");
    assert_eq!(partial.len(), 1);
    assert_eq!((&partial[0]["text"], &partial[0]["thinking"]), (&json!("one two"), &json!("hm")));
    assert!(world.records(&process.uuid, "model_ended").is_empty());
    let log = world.relive(&["logs", "1"]).ok().stdout;
    assert!(log.contains("one two") && log.contains("the model call did not finish"), "{log}");
    assert!(!log.contains("completed"), "{log}");
    let steps = world.relive(&["steps", "--json", "1"]).ok().json();
    assert_eq!(steps["steps"][0]["partial"], true);
    assert_eq!(world.info(1)["step"], 0, "a step that was cut off is not done");
}

#[test]
fn case_05_a_foreground_run_that_is_killed_says_so() {
    let world = World::new();
    let model = world.script("turns: [{text: hello, hang: true}]");
    let run = world.start(&["run", "--model", &model, "greet"]);
    wait_until("it runs", || world.relive(&["ps", "-q"]).stdout == "1\n");
    let uuid = world.info(1)["uuid"].as_str().unwrap().to_owned();
    wait_until("it speaks", || world.events(&uuid).iter().any(|event| event["kind"] == "text"));
    world.relive(&["kill", "-s", "KILL", "1"]).ok();
    let told = finish(run).exits(1);
    assert_eq!(told.stdout, "hello\n");
    assert!(told.stderr.contains("PID 1 ended by SIGKILL ("), "{told:?}");
}

#[test]
fn case_11_a_process_that_ends_at_once_is_not_missed() {
    let world = World::new();
    let model = world.script("turns: [{text: done}]");
    for _ in 0..10 {
        let pid = world.run_model(&model, &[]).pid.to_string();
        world.relive(&["wait", &pid]).ok();
        assert_eq!(world.relive(&["wait", "--json", &pid]).ok().json()["exit"]["reason"], "completed");
    }
}

#[test]
fn a_wait_that_gives_up_says_what_the_process_waits_for() {
    let world = World::new();
    let wait = |id: &str, said: &[&str]| world.relive(&["wait", "--timeout", "100ms", id]).fails(124, said);
    let gated = world.exec(&["--gate", "--name", "gated"], &["true"]);
    world.await_stage(&gated, "ready");
    wait("gated", &["PID 1 has not ended after 0.1s: it waits at its gate", "hint: relive proceed gated"]);
    let left = world.relive(&["attach", "gated"]).ok();
    assert!(left.stderr.contains("PID 1 waits at its gate: relive proceed 1"), "{left:?}");
    world.run_hanging(&["--name", "paused"]);
    wait("paused", &["PID 2 has not ended after 0.1s, and keeps running", "hint: relive wait paused"]);
    world.relive(&["pause", "--now", "paused"]).ok();
    world.await_display("paused", "suspended");
    wait("paused", &["it is suspended (paused)", "hint: relive resume paused"]);
    world.run_with("turns: [{calls: [{name: shell, args: {command: ls}}]}]", &["--name", "asks"]);
    world.await_display("asks", "approval");
    wait("asks", &["it waits for your approval", "hint: relive resolve asks"]);
}

#[test]
fn a_mistyped_name_is_refused_before_the_first_wait() {
    let world = World::new();
    world.run_hanging(&["--name", "alive"]);
    // It would never end.
    world.relive(&["wait", "alive", "nosuch"]).fails(4, &["no process `nosuch`"]);
    let both = ["no process matches `test-*`", "no process `nosuch`"];
    world.relive(&["wait", "alive", "test-*", "nosuch"]).fails(4, &both);
    let long = "x".repeat(4_000);
    let pattern = format!("{}*", "y".repeat(200));
    let told = world.relive(&["wait", &long, &pattern, "alive"]).fails(4, &["xxx...`", "yyy...`"]);
    assert!(told.stderr.len() < 400, "{told:?}");
}

#[test]
fn a_pattern_means_for_each_name_the_process_that_the_name_means() {
    let world = World::new();
    let exec = |name: &str, program: &str| {
        world.relive(&["exec", "-d", "--name", name, "--", program]).ok();
        world.relive(&["wait", name])
    };
    exec("q-1", "true").ok();
    exec("q-1", "false").exits(1);
    exec("q-2", "true").ok();
    world.relive(&["wait", "q-1", "q-2"]).exits(1);
    let told = world.relive(&["wait", "--json", "q-*"]).exits(1).json();
    let codes: Vec<_> = told["results"].as_array().unwrap().iter().map(|result| result["exit_code"].clone()).collect();
    assert_eq!(codes.len(), 2, "each name once: {told}");
    assert!(codes.contains(&json!(0)) && codes.contains(&json!(1)), "{told}");
    world.relive(&["wait", "q-2*"]).ok();
    world.relive(&["wait", "--all"]).ok();
    world.relive(&["wait", "z-*"]).fails(4, &["no process matches `z-*`"]);
}
