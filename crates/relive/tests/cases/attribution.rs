//! Every end that somebody else brings about says who did it, and why.

use rustix::process::Signal;
use serde_json::{Value, json};

use super::hang_ups::Crowd;
use super::killing::parent_of;
use crate::hasty::HangUp;
use crate::world::{World, finish, kill, wait_for};

#[test]
fn case_07_every_kill_is_attributed() {
    let world = World::new();
    let alone = world.run_hanging(&[]);
    world.relive(&["kill", "1"]).ok();
    world.relive(&["wait", "1"]).exits(1);
    let ended = |id: u64| {
        let info = world.info(id);
        [&info["why"], &info["killed_by"], &info["killed_from"], &info["exit"]["reason"]].map(Value::clone)
    };
    let by_user = [json!("user"), json!(0), Value::Null, json!("interrupted")];
    assert_eq!(ended(alone.pid), by_user);

    let parent = world.run_model(&parent_of(&world, &[("child", &world.hanging())]), &[]);
    let child = world.named("child");
    world.relive(&["kill", "--subtree", &parent.pid.to_string()]).fails(2, &["2 processes", "hint: ", "-y"]);
    let affected = world.relive(&["kill", "--subtree", "-y", "--json", &parent.pid.to_string()]).ok().json();
    assert_eq!(affected, json!({"affected": 2, "pids": [parent.pid, child.pid]}));
    for process in [&parent, &child] {
        world.relive(&["wait", &process.pid.to_string()]).exits(1);
        assert_eq!(ended(process.pid), [json!("user"), json!(0), json!(parent.pid), json!("interrupted")]);
    }

    let late = world.run_model(&world.hanging(), &["--timeout", "100ms"]);
    world.relive(&["wait", &late.pid.to_string()]).exits(1);
    assert_eq!(ended(late.pid)[0], "timeout");
    assert_eq!(ended(late.pid)[3], "timed out");

    let spending = "turns: [{usage: {input: 60, output: 40}, calls: [{name: list, args: {path: .}}]}, {hang: true}]";
    let poor = world.run_with(spending, &["--max-tokens", "100"]);
    world.relive(&["wait", &poor.pid.to_string()]).exits(2);
    assert_eq!(ended(poor.pid)[0], "budget");
    assert_eq!(ended(poor.pid)[3], "budget_exceeded");

    world.kill_daemon();
    assert_eq!(ended(alone.pid), by_user, "the journal remembers it");
    assert_eq!(ended(child.pid)[2], json!(parent.pid));
}

#[test]
fn case_07_each_signal_of_a_user_is_named() {
    let world = World::new();
    for (signal, code) in [("TERM", 143), ("INT", 130), ("KILL", 137)] {
        let (agent, program) = (world.run_hanging(&[]), world.exec(&[], &["sleep", "1000"]));
        world.await_stage(&program, "running");
        for (process, code) in [(&agent, 1), (&program, code)] {
            world.relive(&["kill", "-s", signal, &process.uuid]).ok();
            let end = world.ends(process, code);
            assert_eq!(end["status"]["kind"], "killed");
            assert_eq!(end["status"]["signal"], format!("SIG{signal}"));
            let info = world.info(&process.uuid);
            assert_eq!((&info["why"], &info["killed_by"]), (&json!("user"), &json!(0)), "{signal}");
        }
    }
}

#[test]
fn case_07_ctrl_c_is_the_user_s() {
    let world = World::new();
    let model = world.hanging();
    let run = world.start(&["run", "--name", "watched", "--model", &model, "x"]);
    let watched = world.named("watched");
    world.await_records(&watched, "model_started", 1);
    kill(run.id(), Signal::INT);
    assert_eq!(finish(run).code, 130);
    let info = world.info(&watched.uuid);
    assert_eq!(info["status"], json!({"kind": "killed", "signal": "SIGINT"}));
    assert_eq!((&info["why"], &info["killed_by"]), (&json!("user"), &json!(0)));
}

#[test]
fn case_07_programs_are_ended_by_their_time_their_memory_and_their_gate() {
    let world = World::new();
    let late = world.exec(&["--timeout", "100ms"], &["sleep", "1000"]);
    let info = wait_for("its time is over", || Some(world.info(&late.uuid)).filter(|info| info["state"] == "dead"));
    assert_eq!((&info["why"], &info["exit"]["reason"]), (&json!("timeout"), &json!("timed out")));
    let gated = world.exec(&["--gate"], &["true"]);
    world.await_stage(&gated, "ready");
    world.relive(&["abort", &gated.uuid]).ok();
    assert_eq!(world.ends(&gated, 125)["why"], "aborted");
    let hungry = world.relive(&["exec", "-d", "--json", "--memory", "32M", "--", "tail", "/dev/zero"]);
    let hungry = super::world::begun(&hungry.json());
    let answer = world.relive(&["wait", "--json", &hungry.uuid]).json();
    if answer["status"]["kind"] == "startup_failed" {
        eprintln!("skipped: memory cannot be bounded here: {}", answer["status"]);
    } else {
        assert_eq!(answer["why"], "oom");
    }
}

#[test]
fn case_07_with_manual_recovery_the_host_was_lost() {
    let world = World::with_config("recovery: manual");
    let process = world.run_hanging(&[]);
    world.kill_daemon();
    let info = world.info(&process.uuid);
    assert_eq!((&info["state"], &info["why"]), (&json!("dead"), &json!("host_lost")));
    assert_eq!(world.records(&process.uuid, "ended").len(), 1);
}

#[test]
fn case_07_a_kill_that_the_next_daemon_completes_is_still_the_user_s() {
    let mut crowd = Crowd::new();
    let uuids = crowd.run(20, "turns: [{hang: true}]", &json!({}));
    let kills = crowd.verbs_to(&uuids, "signal", |_| json!({"signal": "KILL"}));
    std::thread::scope(|scope| {
        for kill in &kills {
            let (client, request) = (crowd.client.clone(), kill.request.clone());
            scope.spawn(move || client.attempt(&request, HangUp::Never));
        }
    });
    crowd.world.kill_daemon();
    crowd.world.relive(&["ps"]).ok();
    let at_rest = |uuid: &String| {
        wait_for("it is at rest", || {
            Some(crowd.info(uuid)).filter(|info| info["ending"].is_null() && info["state"] != "zombie")
        })
    };
    let is_lost =
        |info: &Value| info["state"] != "dead" || info["why"] != "user" || info["status"]["signal"] != "SIGKILL";
    let lost: Vec<Value> = uuids.iter().map(at_rest).filter(is_lost).collect();
    assert_eq!(lost.len(), 0, "{} of {} acknowledged KILLs were lost: {}", lost.len(), uuids.len(), lost[0]);
}
