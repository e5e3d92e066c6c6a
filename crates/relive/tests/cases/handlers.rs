//! Commands that a program runs for signals (`relive self on`).

use std::fs;

use serde_json::json;

use crate::world::{Begun, World, wait_for, wait_until};

const RELIVE: &str = env!("CARGO_BIN_EXE_relive");

/// A program that runs until it is ended, once it has done this; `relive` in it is this build's.
#[track_caller]
fn program(world: &World, script: &str) -> Begun {
    let script = format!("relive() {{ {RELIVE} \"$@\"; }}; {script}; touch ready; while :; do sleep 0.02; done");
    let process = world.exec(&[], &["sh", "-c", &script]);
    wait_until("the program is ready", || world.work().join("ready").exists());
    process
}

fn read(world: &World, name: &str) -> String {
    fs::read_to_string(world.work().join(name)).unwrap_or_default()
}

/// Registers a command that says which signal it got, and ends the process with 7.
fn says_and_ends() -> String {
    format!("relive self on SIGTERM -- sh -c 'echo bye $RELIVE_SIGNAL >> said; {RELIVE} self terminate --code 7'")
}

#[test]
fn case_69_a_command_for_term_runs_once_and_may_end_the_process() {
    for ladder in ["", "pid-namespace", "process-group"] {
        let world = World::new();
        let world = if ladder.is_empty() { world } else { world.with_env("RELIVE_LADDER", ladder) };
        let process = program(&world, &format!("{}; relive self > self", says_and_ends()));
        let shown = read(&world, "self");
        assert!(shown.lines().any(|line| line.split_whitespace().eq(["HANDLED", "SIGTERM"])), "{shown}");
        let info = world.info(&process.uuid);
        assert_eq!(info["handled_signals"], json!(["SIGTERM"]), "{info}");
        world.relive(&["kill", &process.uuid]).ok();
        let answer = world.ends(&process, 7);
        assert_eq!(answer["status"], json!({"kind": "exited", "code": 7}), "{ladder}");
        assert_eq!(read(&world, "said"), "bye SIGTERM\n", "{ladder}");
        assert_eq!(world.records(&process.uuid, "ended").len(), 1);
    }
}

#[test]
fn case_69_a_command_that_hangs_is_killed_with_the_process_when_the_grace_is_over() {
    let world = World::new();
    let process = program(&world, "relive self on TERM -- sh -c 'echo $$ > hangs; exec sleep 600'");
    world.relive(&["kill", &process.uuid]).ok();
    let pid = wait_for("the command runs", || read(&world, "hangs").trim().parse().ok());
    assert_eq!(world.info(&process.uuid)["display"], "running", "it has its grace");
    let answer = world.ends(&process, 137);
    assert_eq!((&answer["status"]["signal"], &answer["why"]), (&json!("SIGKILL"), &json!("user")));
    assert!(!crate::sessions_support::is_alive(pid), "the command outlived its process");
}

/// Also a signal that the daemon was killed right after.
#[test]
fn case_69_a_command_runs_once_although_the_daemon_is_killed_before_and_after_the_signal() {
    let world = World::new();
    let process = program(&world, "relive self on INT -- sh -c 'echo $RELIVE_SIGNAL >> said'");
    world.kill_daemon();
    world.relive(&["kill", "-s", "INT", &process.uuid]).ok();
    world.kill_daemon();
    world.relive(&["ps"]).ok();
    wait_until("the command ran", || read(&world, "said") == "SIGINT\n");
    world.kill_daemon();
    world.relive(&["kill", "-s", "INT", &process.uuid]).ok();
    wait_until("the command ran again", || read(&world, "said").lines().count() >= 2);
    assert_eq!(world.info(&process.uuid)["display"], "running");
    world.relive(&["kill", &process.uuid]).ok();
    world.ends(&process, 143);
    assert_eq!(read(&world, "said"), "SIGINT\nSIGINT\n", "once for each signal");
}

#[test]
fn case_69_a_blocked_signal_waits_and_is_handled_once_when_it_is_unblocked() {
    let world = World::new();
    let later = "{ while [ ! -e go ]; do sleep 0.02; done; relive self unmask TERM; } & true";
    let process = program(&world, &format!("relive self mask TERM; {}; {later}", says_and_ends()));
    for _ in 0..3 {
        world.relive(&["kill", &process.uuid]).ok();
    }
    let info = world.info(&process.uuid);
    assert_eq!((&info["pending_signals"], &info["blocked_signals"]), (&json!(["SIGTERM"]), &json!(["SIGTERM"])));
    world.kill_daemon();
    assert_eq!(read(&world, "said"), "");
    fs::write(world.work().join("go"), "").unwrap();
    world.ends(&process, 7);
    assert_eq!(read(&world, "said"), "bye SIGTERM\n");
}

#[test]
fn case_69_the_last_command_counts_and_off_lets_the_signal_act_again() {
    let world = World::new();
    let script = "relive self on INT -- sh -c 'echo first >> said'; relive self on INT -- sh -c 'echo second >> said'; \
                  relive self on TERM -- sh -c 'echo term >> said'; relive self off TERM > off";
    let process = program(&world, script);
    assert!(read(&world, "off").contains("HANDLED  SIGINT\n"), "{}", read(&world, "off"));
    world.relive(&["kill", "-s", "INT", &process.uuid]).ok();
    wait_until("the second command ran", || !read(&world, "said").is_empty());
    world.relive(&["kill", &process.uuid]).ok();
    world.ends(&process, 143);
    assert_eq!(read(&world, "said"), "second\n");
}

/// They are delivered in the order TERM, INT, whatever the order in which they were sent, and no command begins before the
/// one before it has ended.
#[test]
fn case_69_the_commands_of_different_signals_run_one_after_the_other_in_their_order() {
    let world = World::new();
    let script = "relive self on INT -- sh -c 'echo INT >> said'; \
                  relive self on TERM -- sh -c 'echo TERM >> said; while [ ! -e go ]; do sleep 0.02; done; echo done >> said'; \
                  relive self mask INT TERM";
    let process = program(&world, script);
    world.relive(&["kill", "-s", "INT", &process.uuid]).ok();
    world.relive(&["kill", &process.uuid]).ok();
    world.relive(&["signals", &process.uuid, "--block", "none"]).ok();
    wait_until("the first command runs", || !read(&world, "said").is_empty());
    let delivered =
        || world.records(&process.uuid, "signal_mask").iter().filter(|it| it.get("delivered").is_some()).count();
    wait_until("both were delivered", || delivered() == 2);
    world.file("go", "");
    wait_until("both have run", || read(&world, "said").lines().count() == 3);
    assert_eq!(read(&world, "said"), "TERM\ndone\nINT\n");
}

/// What follows a process that is not its own would stay when the process has ended.
#[test]
fn case_69_a_copied_socket_sets_no_command_for_a_signal_outside_of_the_session() {
    let world = World::new();
    let process = program(&world, "echo $RELIVE_SELF > socket");
    let socket = read(&world, "socket").trim().to_owned();
    let outside = world.relive_with(&[("RELIVE_SELF", &socket)], &["self", "on", "TERM", "--", "touch", "outside"]);
    outside.fails(5, &["runs outside of the process that RELIVE_SELF names"]);
    // It still acts as the process in everything else.
    let me = world.relive_with(&[("RELIVE_SELF", &socket)], &["self", "--json"]).ok().json();
    assert_eq!(me["uuid"], process.uuid.as_str());
    assert_eq!(watchers_of(&process.uuid), 0, "the watcher has gone with the refusal");
    world.relive(&["kill", &process.uuid]).ok();
    world.ends(&process, 143);
    assert!(!world.work().join("outside").exists());
}

/// Whoever acts as a process from outside does not end with it, and so is answered.
#[test]
fn case_69_a_copied_socket_ends_the_process_and_the_command_returns() {
    let world = World::new();
    let process = program(&world, "echo $RELIVE_SELF > socket");
    let socket = read(&world, "socket").trim().to_owned();
    let ended = world.relive_with(&[("RELIVE_SELF", &socket)], &["self", "terminate", "--code", "3"]).ok();
    assert_eq!(ended.stdout, format!("ended process {}\n", process.pid));
    world.ends(&process, 3);
}

/// Counts the watchers of a process, wherever they run.
fn watchers_of(uuid: &str) -> usize {
    let lines =
        fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
    lines
        .filter(|line| String::from_utf8_lossy(line).contains(&format!("self\0watch\0SIGTERM\0--uuid\0{uuid}")))
        .count()
}

/// A watcher keeps no process alive whose program is done.
#[test]
fn case_69_a_program_with_a_command_for_a_signal_ends_by_itself() {
    let world = World::new();
    let script = format!("{RELIVE} self on TERM -- true; exit 3");
    world.relive(&["exec", "--", "sh", "-c", &script]).exits(3);
}

#[test]
fn case_69_kill_cannot_be_handled_and_nobody_handles_for_another() {
    let world = World::new();
    let script = "relive self on KILL -- true 2> kill; relive self on HUP -- true 2> hup";
    let process = program(&world, script);
    assert!(read(&world, "kill").contains("SIGKILL can be neither blocked nor handled"), "{}", read(&world, "kill"));
    assert!(read(&world, "hup").contains("is not a signal"), "{}", read(&world, "hup"));
    world.relive(&["self", "on", "TERM", "--", "true"]).fails(2, &["does not run inside a process"]);
    let path = format!("/v1/processes/{}/signals", process.uuid);
    let on = json!({"on": {"signal": "TERM", "id": process.uuid}}).to_string();
    let (status, said) = world.http("POST", &path, "content-type: application/json\r\n", &on);
    assert_eq!(status, 400, "{said}");
    assert!(world.info(&process.uuid)["handled_signals"].is_null());
}

#[test]
fn case_69_an_agents_shell_refuses_it_and_says_what_works() {
    let world = World::with_config("tools: {shell: allow}\n");
    let args = json!({ "command": format!("{RELIVE} self on TERM -- true") });
    let agent = world.run(&format!("turns: [{{calls: [{{name: shell, args: {args}}}]}}, {{hang: true}}]"));
    world.await_records(&agent, "call_ended", 1);
    let said = world.records(&agent.uuid, "call_ended")[0]["result"].to_string();
    assert!(said.contains("hears of SIGTERM as a message") && said.contains("--handle SIGTERM"), "{said}");
}
