//! Programs outlive daemons: nothing they print is lost, and every end is told as it was.

use std::fs;

use serde_json::json;

use super::world::{Begun, World, finish, wait_until};

const SESSIONS: usize = 50;
const LINES: usize = 100;

#[test]
fn case_39_sessions_keep_running_without_their_daemon_and_the_next_one_adopts_them() {
    let world = World::new();
    // Each prints the first half, waits for a file, prints the rest, and ends with a code of its own.
    let print = "i=0; while [ $i -lt $1 ]; do echo line $i; i=$((i+1)); done; while [ ! -e go$2 ]; do sleep 0.1; done; \
                 while [ $i -lt $(($1*2)) ]; do echo line $i; i=$((i+1)); done; exit $3";
    let half = (LINES / 2).to_string();
    let begun: Vec<Begun> = (0..SESSIONS)
        .map(|number| {
            let (group, code) = (if number % 2 == 0 { "-even" } else { "-odd" }, (number % 7).to_string());
            world.exec(&[], &["sh", "-c", print, "sh", &half, group, &code])
        })
        .collect();
    let pids: Vec<u64> =
        begun.iter().map(|begun| world.await_stage(begun, "running")["host_pid"].as_u64().unwrap()).collect();
    world.kill_daemon();
    assert!(pids.iter().all(|pid| super::sessions_support::is_alive(*pid)), "they go on");
    // The even ones end while nobody looks.
    fs::write(world.work().join("go-even"), "").unwrap();
    wait_until("the even ones have ended", || {
        pids.iter().step_by(2).all(|pid| !super::sessions_support::is_alive(*pid))
    });
    for (begun, pid) in begun.iter().zip(&pids).skip(1).step_by(2) {
        let info = world.await_display(&begun.uuid, "running");
        assert_eq!(info["session"]["host_pid"], json!(pid), "the same one");
    }
    fs::write(world.work().join("go-odd"), "").unwrap();
    let whole: String = (0..LINES).map(|line| format!("line {line}\n")).collect();
    for (number, begun) in begun.iter().enumerate() {
        let code = i32::try_from(number % 7).unwrap();
        let answer = world.ends(begun, code);
        assert_eq!(answer["status"], json!({"kind": "exited", "code": code}));
        assert_eq!(world.relive(&["logs", &begun.uuid]).ok().stdout, whole);
    }
}

#[test]
fn exec_in_the_foreground_continues_when_the_daemon_dies() {
    let world = World::new();
    let watched = "echo before; while [ ! -e go ]; do sleep 0.01; done; echo after; exit 9";
    let child = world.start(&["exec", "--name", "watched", "--", "sh", "-c", watched]);
    let watched = world.named("watched");
    world.await_output(&watched, "before");
    world.kill_daemon();
    fs::write(world.work().join("go"), "").unwrap();
    let shown = finish(child).exits(9);
    assert_eq!((shown.stdout.as_str(), shown.stderr.as_str()), ("before\nafter\n", ""));
    assert_eq!(world.ends(&watched, 9)["status"], json!({"kind": "exited", "code": 9}));
}

#[test]
fn a_daemon_that_a_program_needs_does_not_end_with_the_program() {
    for world in World::of_each_kind() {
        let relive = env!("CARGO_BIN_EXE_relive");
        for (name, asks) in [("plain", format!("{relive} ps")), ("bare", format!("env -u RELIVE_SESSION {relive} ps"))]
        {
            let script = format!("while [ ! -e go-{name} ]; do sleep 0.01; done; {asks} > seen-{name}");
            let asking = world.exec(&[], &["sh", "-c", &script]);
            world.await_stage(&asking, "running");
            world.kill_daemon();
            fs::write(world.work().join(format!("go-{name}")), "").unwrap();
            let seen = world.work().join(format!("seen-{name}"));
            wait_until("it has asked", || fs::read_to_string(&seen).is_ok_and(|text| text.contains("running")));
            let daemon = world.daemon_pid();
            world.ends(&asking, 0);
            let other = world.exec(&[], &["sleep", "1000"]);
            world.await_stage(&other, "running");
            assert_eq!(
                (world.daemon_pid(), daemon.is_some()),
                (daemon, true),
                "{name}: the same one, outside the session"
            );
            world.relive(&["kill", "-s", "KILL", &other.uuid]).ok();
            world.ends(&other, 137);
        }
    }
}
