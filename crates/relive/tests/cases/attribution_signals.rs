//! Signals say who sent them and what became of them: also those of the operating system, and those that a process blocks
//! or handles.

use std::fs;

use serde_json::json;

use crate::world::{Begun, World, wait_until};

const RELIVE: &str = env!("CARGO_BIN_EXE_relive");

/// A program that runs until it is ended, once it has done this; `relive` in it is this build's.
#[track_caller]
fn program(world: &World, script: &str) -> Begun {
    let script = format!("relive() {{ {RELIVE} \"$@\"; }}; {script}; touch ready; while :; do sleep 0.02; done");
    let process = world.exec(&["--name", "program"], &["sh", "-c", &script]);
    wait_until("the program is ready", || world.work().join("ready").exists());
    process
}

/// Also where the daemon is killed between the signal and the end.
#[test]
fn case_07_a_signal_of_the_operating_system_names_the_process_that_sent_it() {
    let world = World::new();
    let kid = "trap 'touch got; while [ ! -e die ]; do sleep 0.02; done; trap - HUP; kill -HUP $$' HUP; \
               touch kid; while :; do sleep 0.02; done";
    fs::write(world.work().join("kid.sh"), kid).unwrap();
    let script = "relive exec -d --name kid -- sh kid.sh; while [ ! -e kid ]; do sleep 0.02; done; \
                  relive kill -s HUP kid; relive exec -d --name plain -- sleep 600; relive kill -s HUP plain; relive wait plain";
    let parent = program(&world, script);
    let name = format!("PID {} (program)", parent.pid);
    let plain = world.info("plain");
    assert_eq!((&plain["why"], &plain["killed_by"]), (&json!("parent"), &json!(parent.pid)), "{plain}");
    assert_eq!(plain["ended_by"], name);
    wait_until("the signal has arrived", || world.work().join("got").exists());
    let uuid = world.named("kid").uuid;
    world.kill_daemon();
    fs::write(world.work().join("die"), "").unwrap();
    wait_until("it has ended", || world.info(&uuid)["state"] == "dead");
    let kid = world.info(&uuid);
    assert_eq!((&kid["status"]["signal"], &kid["ended_by"]), (&json!("SIGHUP"), &json!(name)), "{kid}");
}

/// Whoever has a handle to a process is not its parent.
#[test]
fn case_07_a_controller_that_ends_a_process_is_its_user_and_not_its_parent() {
    let world = World::new();
    for signal in ["TERM", "HUP"] {
        let victim = world.exec(&["--name", signal], &["sleep", "600"]);
        let script =
            format!("while [ ! -e {signal} ]; do sleep 0.02; done; {RELIVE} kill -s {signal} {signal}; sleep 600");
        let friend = world.exec(&[], &["sh", "-c", &script]);
        world.relive(&["handle", "grant", signal, "--to", &friend.uuid, "--as", "controller"]).ok();
        fs::write(world.work().join(signal), "").unwrap();
        world.relive(&["wait", &victim.uuid]);
        let info = world.info(&victim.uuid);
        assert_eq!((&info["why"], &info["killed_by"]), (&json!("user"), &json!(friend.pid)), "{info}");
        assert_eq!(info["ended_by"], format!("PID {}", friend.pid), "{info}");
        world.relive(&["kill", "-s", "KILL", &friend.uuid]).ok();
    }
}

#[test]
fn case_07_the_why_of_a_program_names_the_signal_that_was_sent() {
    let world = World::new();
    for (signal, said) in [("HUP", "you (SIGHUP)"), ("TERM", "you (SIGTERM)"), ("KILL", "you (SIGKILL)")] {
        let process = world.exec(&[], &["sleep", "600"]);
        world.relive(&["kill", "-s", signal, &process.uuid]).ok();
        world.relive(&["wait", &process.uuid]);
        assert_eq!(world.info(&process.uuid)["ended_by"], said);
        let told = world.relive(&["info", &process.uuid]).ok().stdout;
        assert!(told.contains(&format!("WHY        {said}\n")), "{told}");
    }
}

/// The KILL is Relive's, and the one who sent the TERM is the one who ended it.
#[test]
fn case_07_a_program_that_outlasts_its_grace_names_the_signal_that_was_sent() {
    let world = World::new();
    let process = program(&world, "trap '' TERM");
    world.relive(&["kill", &process.uuid]).ok();
    world.relive(&["wait", &process.uuid]);
    assert_eq!(world.info(&process.uuid)["ended_by"], "you (SIGTERM, then SIGKILL)");
    world.kill_daemon();
    assert_eq!(world.info(&process.uuid)["ended_by"], "you (SIGTERM, then SIGKILL)", "also after a crash");
}

#[test]
fn case_68_a_fault_has_no_other_reason() {
    let world = World::new();
    world.relive(&["self", "terminate", "--fault", "x", "--reason", "y"]).fails(2, &["cannot be used with"]);
    world.relive(&["self", "terminate"]).fails(2, &["--code <N>", "--fault <TEXT>"]);
}

/// The process ends itself because of the signal: that is not the KILL by which its session is ended.
#[test]
fn case_07_a_process_that_ends_itself_for_a_signal_names_that_signal() {
    let world = World::new();
    let process = program(&world, &format!("relive self on TERM -- {RELIVE} self terminate --code 0"));
    world.relive(&["kill", &process.uuid]).ok();
    world.relive(&["wait", &process.uuid]).ok();
    let check = || {
        let info = world.info(&process.uuid);
        assert_eq!((&info["status"]["kind"], &info["ended_by"]), (&json!("exited"), &json!("you (SIGTERM)")), "{info}");
    };
    check();
    world.await_retired(&process.uuid);
    let events = world.events(&process.uuid);
    let ended = events.iter().find(|event| event["kind"] == "ended").unwrap();
    assert_eq!(ended["by"], "you (SIGTERM)");
    world.kill_daemon();
    check();
}

#[test]
fn case_03_a_blocked_pause_or_resume_is_said_to_be_pending() {
    let world = World::new();
    let process = program(&world, "relive self mask PAUSE");
    let pending =
        format!("PID {} blocks the signal: it is pending until it is unblocked (relive signals {0})\n", process.pid);
    let paused = world.relive(&["pause", &process.uuid]).ok();
    assert_eq!(paused.stderr, pending);
    let info = world.info(&process.uuid);
    assert_eq!((&info["display"], &info["pending_signals"]), (&json!("running"), &json!(["SIGPAUSE"])));
    let again = world.relive(&["pause", "--json", &process.uuid]).ok().json();
    assert_eq!(again["affected"], 0, "{again}");
    world.relive(&["signals", &process.uuid, "--block", "RESUME"]).ok();
    world.await_display(&process.uuid, "suspended");
    let resumed = world.relive(&["resume", &process.uuid]).ok();
    assert_eq!(resumed.stderr, pending);
    assert_eq!(world.info(&process.uuid)["display"], "suspended");
}

#[test]
fn case_03_a_handled_pause_runs_its_command_and_pauses_nothing() {
    let world = World::new();
    let process = program(&world, "relive self on PAUSE -- sh -c 'echo $RELIVE_SIGNAL >> said'");
    let said = || fs::read_to_string(world.work().join("said")).unwrap_or_default();
    let paused = world.relive(&["pause", &process.uuid]).ok();
    assert_eq!(paused.stderr, format!("PID {} handles the signal itself\n", process.pid));
    wait_until("the command ran", || said() == "SIGPAUSE\n");
    assert_eq!(world.info(&process.uuid)["display"], "running");
    world.relive(&["signals", &process.uuid, "--handle", "none"]).ok();
    assert_eq!(world.relive(&["pause", "--json", &process.uuid]).ok().json()["affected"], 1);
    world.await_display(&process.uuid, "suspended");
    assert_eq!(said(), "SIGPAUSE\n");
}

/// Also in the events, and after a daemon that was killed.
#[test]
fn case_07_an_abort_names_the_one_who_aborted() {
    let world = World::new();
    let mine = world.exec(&["--gate"], &["true"]);
    world.await_stage(&mine, "ready");
    world.relive(&["abort", &mine.uuid]).ok();
    let script = "relive exec -d --gate --name kid -- true; relive abort kid; relive wait kid";
    let parent = program(&world, script);
    let theirs = world.named("kid");
    let by_parent = format!("PID {} (program)", parent.pid);
    let check = || {
        for (process, said, pid) in [(&mine, "you (abort)", 0), (&theirs, by_parent.as_str(), parent.pid)] {
            world.ends(process, 125);
            let info = world.info(&process.uuid);
            assert_eq!((&info["why"], &info["killed_by"]), (&json!("aborted"), &json!(pid)), "{info}");
            assert_eq!(info["ended_by"], said, "{info}");
            let told = world.relive(&["info", &process.uuid]).ok().stdout;
            assert!(told.contains(&format!("WHY        {said}\n")), "{told}");
        }
    };
    check();
    world.await_retired(&theirs.uuid);
    let events = world.events(&theirs.uuid);
    let ended = events.iter().find(|event| event["kind"] == "ended").unwrap();
    assert_eq!(ended["by"], by_parent);
    world.kill_daemon();
    check();
}

/// Whether it exited because of the signal is its own secret: it is told that it exited after it.
#[test]
fn case_07_a_program_that_exits_after_a_signal_names_the_one_who_sent_it() {
    let world = World::new();
    let kid = "trap 'exit 3' HUP; touch $1; while :; do sleep 0.02; done";
    fs::write(world.work().join("kid.sh"), kid).unwrap();
    let script = "relive exec -d --name kid -- sh kid.sh theirs; while [ ! -e theirs ]; do sleep 0.02; done; \
                  relive kill -s HUP kid; relive wait kid";
    let parent = program(&world, script);
    let theirs = world.named("kid");
    let mine = world.exec(&[], &["sh", "kid.sh", "mine"]);
    wait_until("it handles the signal", || world.work().join("mine").exists());
    world.relive(&["kill", "-s", "HUP", &mine.uuid]).ok();
    let by_parent = format!("PID {} (program)", parent.pid);
    let check = || {
        for (process, from, pid) in [(&mine, "you", 0), (&theirs, by_parent.as_str(), parent.pid)] {
            world.ends(process, 3);
            let info = world.info(&process.uuid);
            let sent = &info["session"]["last_signal"];
            assert_eq!((&sent["signal"], &sent["by"], &sent["from"]), (&json!("SIGHUP"), &json!(pid), &json!(from)));
            let by = info["ended_by"].as_str().unwrap_or_default();
            assert!(by.starts_with("itself, ") && by.ends_with(&format!(" after SIGHUP from {from}")), "{info}");
            assert!(info["why"].is_null(), "it ended itself: {info}");
            let told = world.relive(&["info", &process.uuid]).ok().stdout;
            let why = told.lines().find(|line| line.starts_with("WHY")).unwrap_or_default();
            assert!(why.contains("itself, ") && why.ends_with(&format!(" after SIGHUP from {from}")), "{told}");
        }
    };
    check();
    for (process, from) in [(&mine, "you"), (&theirs, by_parent.as_str())] {
        world.await_retired(&process.uuid);
        let events = world.events(&process.uuid);
        let sent = events.iter().find(|event| event["kind"] == "signal").unwrap();
        assert_eq!((&sent["signal"], &sent["by"]), (&json!("SIGHUP"), &json!(from)), "{sent}");
    }
    world.kill_daemon();
    check();
}

#[test]
fn case_03_a_resume_that_only_cancels_a_pause_says_so() {
    let world = World::new();
    let blocks = program(&world, "relive self mask PAUSE");
    world.relive(&["pause", &blocks.uuid]).ok();
    let cancelled = |pid| format!("PID {pid} had not paused yet: its pause is cancelled\n");
    assert_eq!(world.relive(&["resume", &blocks.uuid]).ok().stderr, cancelled(blocks.pid));
    assert_eq!(world.info(&blocks.uuid)["pending_signals"], serde_json::Value::Null);
    let again = world.relive(&["resume", &blocks.uuid]).ok().stderr;
    assert_eq!(again, format!("PID {} is already running: nothing changed\n", blocks.pid));

    // An agent pauses after the model call that is under way, which never ends here.
    let agent = world.run_hanging(&[]);
    world.await_records(&agent, "model_started", 1);
    world.relive(&["pause", &agent.uuid]).ok();
    assert_eq!(world.info(&agent.uuid)["display"], "pausing");
    let answer = world.relive(&["resume", "--json", &agent.uuid]).ok().json();
    assert_eq!(answer["cancelled"], json!([agent.pid]), "{answer}");
    world.relive(&["pause", &agent.uuid]).ok();
    assert_eq!(world.relive(&["resume", &agent.uuid]).ok().stderr, cancelled(agent.pid));
}
