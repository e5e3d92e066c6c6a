//! Programs take every signal of the operating system; agents take Relive's.

use serde_json::json;

use super::sessions_support::is_alive;
use super::world::World;

const COUNTS: &str = "trap 'echo usr1' USR1; trap 'echo usr2' USR2; trap 'echo winch' WINCH; echo up; \
                      while :; do sleep 0.01; done";

#[test]
fn a_program_takes_any_signal_by_name_or_number() {
    for world in World::of_each_kind() {
        for flags in [&[][..], &["--ns", "pid"]] {
            let program = world.exec(flags, &["sh", "-c", COUNTS]);
            if world.info(&program.uuid)["status"]["kind"] == "startup_failed" {
                eprintln!("skipped: {flags:?} cannot be had here");
                continue;
            }
            world.await_output(&program, "up");
            world.relive(&["kill", "-SIGUSR1", &program.uuid]).ok();
            world.await_output(&program, "usr1");
            let answer = world.relive(&["kill", "-s", "USR2", "--json", &program.uuid]).ok().json();
            assert_eq!(answer["affected"], 1);
            world.await_output(&program, "usr2");
            world.relive(&["kill", "-28", &program.uuid]).ok();
            world.await_output(&program, "winch");
            let sent = world.relive(&["kill", "-s", "QUIT", &program.uuid]).ok();
            assert!(sent.stderr.starts_with(&format!("PID {} got SIGQUIT", program.pid)), "{sent:?}");
            let answer = world.ends(&program, 131);
            assert_eq!(answer["status"], json!({"kind": "killed", "signal": "SIGQUIT", "os_signal": 3}));
            assert_eq!(answer["why"], "user");
            let late = world.relive(&["kill", "-HUP", &program.uuid]).ok();
            assert!(late.stderr.contains("has ended already"), "{late:?}");
        }
        let killed = world.exec(&[], &["sleep", "1000"]);
        world.relive(&["kill", "-9", &killed.uuid]).ok();
        assert_eq!(world.ends(&killed, 137)["why"], "user");
    }
}

#[test]
fn a_signal_at_the_gate_is_kept() {
    let world = World::new();
    let gated = world.exec(&["--gate"], &["sleep", "1000"]);
    world.await_stage(&gated, "ready");
    let kept = world.relive(&["kill", "-USR1", &gated.uuid]).ok();
    assert!(kept.stderr.contains("SIGUSR1 waits until it does"), "{kept:?}");
    world.relive(&["proceed", &gated.uuid]).ok();
    world.ends(&gated, 138);
}

#[test]
fn a_signal_that_is_asked_for_again_after_a_crash_is_sent_once() {
    let world = World::new();
    let program = world.exec(&[], &["sh", "-c", COUNTS]);
    world.await_output(&program, "up");
    let ask = |id: &str| {
        let path = format!("/v1/processes/{}/signal", program.uuid);
        let headers = format!("relive-request-id: {id}\r\ncontent-type: application/json\r\n");
        let (status, answer) = world.http("POST", &path, &headers, r#"{"signal":"USR1"}"#);
        assert_eq!(status, 200, "{answer}");
    };
    ask("one");
    world.await_output(&program, "usr1\n");
    world.kill_daemon();
    world.await_display(&program.uuid, "running");
    ask("one");
    ask("two");
    world.await_output(&program, "usr1\nusr1\n");
    world.relive(&["kill", "-USR2", &program.uuid]).ok();
    world.await_output(&program, "usr2");
    assert_eq!(world.relive(&["logs", &program.uuid]).ok().stdout, "up\nusr1\nusr1\nusr2\n");
    world.relive(&["kill", "-9", &program.uuid]).ok();
}

#[test]
fn a_program_whose_session_directory_was_replaced_is_ended() {
    let world = World::new();
    let program = world.exec(&[], &["sh", "-c", COUNTS]);
    let session = world.await_stage(&program, "running");
    let host = session["host_pid"].as_u64().unwrap();
    let session = std::path::Path::new(session["folder"].as_str().unwrap());
    let hidden = session.with_extension("hidden");
    world.kill_daemon();
    assert!(is_alive(host));
    std::fs::rename(session, &hidden).unwrap();
    std::os::unix::fs::symlink(&hidden, session).unwrap();
    world.await_display(&program.uuid, "dead");
    assert!(!is_alive(host), "its program runs");
}

#[test]
fn an_agent_refuses_signals_of_the_operating_system_and_names_its_own() {
    let world = World::new();
    let agent = world.run_hanging(&[]);
    let refused = &["does not accept SIGHUP", "SIGTERM, SIGKILL, SIGINT, SIGPAUSE, SIGRESUME"];
    world.relive(&["kill", "-HUP", &agent.uuid]).fails(2, refused);
    world.relive(&["kill", "-HUP", "--subtree", "-y", &agent.uuid]).fails(2, &["not to a subtree"]);
    assert_eq!(world.info(&agent.uuid)["state"], "running");
    world.relive(&["kill", "-9", &agent.uuid]).ok();
}

#[test]
fn a_suspended_program_that_got_int_at_its_gate_passes_it_and_ends() {
    let world = World::new();
    let program = world.exec(&["--gate"], &["sleep", "1000"]);
    world.await_stage(&program, "ready");
    world.relive(&["pause", &program.uuid]).ok();
    world.relive(&["kill", "-INT", &program.uuid]).ok();
    world.relive(&["resume", &program.uuid]).fails(3, &["is being ended by SIGINT"]);
    world.relive(&["proceed", &program.uuid]).ok();
    world.ends(&program, 130);
}

#[test]
fn a_program_that_ends_while_it_is_paused_is_not_said_to_be_paused() {
    let world = World::new();
    for number in 1..=40 {
        let name = format!("short{number}");
        let program = world.exec(&["--name", &name], &["sh", "-c", "echo ran >> \"$0\"", &name]);
        let paused = world.relive(&["pause", &name]);
        if paused.code == 0 {
            world.relive(&["resume", &name]).ok();
        }
        world.relive(&["wait", &program.uuid]).ok();
        let ran = std::fs::read_to_string(world.work().join(&name)).unwrap();
        assert_eq!(ran, "ran\n", "{number}: {paused:?}");
    }
}
