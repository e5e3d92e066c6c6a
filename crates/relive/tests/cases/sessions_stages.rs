//! The stages of a program: what it reaches, what stops it on the way, what is known of it afterwards.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::freezer::is_frozen;

use super::world::{Begun, World, begun, kill, wait_until};

#[test]
fn case_30_a_program_reaches_its_end_and_gets_its_arguments_and_directory() {
    for world in World::of_each_kind() {
        let gated = world.exec(&["--gate"], &["true"]);
        assert_eq!(world.await_stage(&gated, "ready")["result"], json!(null));
        world.relive(&["proceed", &gated.uuid]).ok();
        let answer = world.ends(&gated, 0);
        assert_eq!(answer["status"], json!({"kind": "exited", "code": 0}));
        let session = &world.info(&gated.uuid)["session"];
        assert_eq!((&session["stage"], &session["result"]), (&json!("exited"), &json!({"exited": 0})));
        let compact = format!("<spawn exited(0) host={}>", session["host_pid"]);
        assert_eq!(session["compact"], json!(compact));
        assert!(world.relive(&["info", &gated.uuid]).ok().stdout.contains("\nSESSION    exited\n"));

        let failing = world.exec(&[], &["false"]);
        world.ends(&failing, 1);
        assert_eq!(world.info(&failing.uuid)["session"]["result"], json!({"exited": 1}));

        let missing = begun(&world.relive(&["exec", "-d", "--json", "--", "no-such-program"]).exits(127).json());
        let answer = world.ends(&missing, 127);
        let status = json!({"kind": "startup_failed", "stage": "execve", "errno": "ENOENT", "code": 2});
        assert_eq!(answer["status"], status);
        let session = &world.info(&missing.uuid)["session"];
        assert_eq!(session["stage"], "errored");
        assert_eq!(session["result"], json!({"error": {"stage": "execve", "errno": "ENOENT", "code": 2}}));
        world.relive(&["exec", "--", "no-such-program"]).fails(127, &["command not found"]);
        world.relive(&["exec", "--", "/etc/passwd"]).fails(126, &["permission denied"]);

        fs::create_dir_all(world.work().join("below")).unwrap();
        let typed = ["exec", "--cwd", "below", "--", "sh", "-c", "pwd; printf '<%s>' \"$@\"", "sh", "a b", "", "-t"];
        let shown = world.relive(&typed).ok();
        let below = fs::canonicalize(world.work().join("below")).unwrap();
        assert_eq!(shown.stdout, format!("{}\n<a b><><-t>", below.display()));
    }
}

#[test]
fn case_31_a_signal_ends_it_or_waits_for_it_at_the_gate() {
    for world in World::of_each_kind() {
        let sleeper = world.exec(&[], &["sleep", "1000"]);
        world.await_stage(&sleeper, "running");
        world.relive(&["kill", &sleeper.uuid]).ok();
        let answer = world.ends(&sleeper, 143);
        assert_eq!(answer["why"], "user");
        assert_eq!(world.info(&sleeper.uuid)["session"]["result"], json!({"signaled": 15}));
        let told = world.relive(&["kill", &sleeper.uuid]).ok();
        assert!(told.stderr.contains("ended"), "{told:?}");

        let gated = world.exec(&["--gate"], &["sleep", "1000"]);
        world.await_stage(&gated, "ready");
        world.relive(&["kill", "-s", "INT", &gated.uuid]).ok();
        assert_eq!(world.info(&gated.uuid)["session"]["stage"], "ready", "it is kept");
        world.relive(&["proceed", &gated.uuid]).ok();
        world.ends(&gated, 130);
        assert_eq!(world.info(&gated.uuid)["session"]["result"], json!({"signaled": 2}));

        let gated = world.exec(&["--gate"], &["touch", "it-ran"]);
        world.await_stage(&gated, "ready");
        world.relive(&["kill", "-s", "KILL", &gated.uuid]).ok();
        world.ends(&gated, 137);
        assert!(!world.work().join("it-ran").exists(), "SIGKILL does not wait for the gate");
    }
}

#[test]
fn case_32_what_is_aborted_at_the_gate_never_runs() {
    for world in World::of_each_kind() {
        let gated = world.exec(&["--gate"], &["touch", "it-ran"]);
        world.await_stage(&gated, "ready");
        world.relive(&["abort", &gated.uuid]).ok();
        let answer = world.ends(&gated, 125);
        assert_eq!((&answer["why"], &answer["exit"]["reason"]), (&json!("aborted"), &json!("aborted")));
        assert_eq!(world.info(&gated.uuid)["session"]["result"], "aborted");
        assert!(!world.work().join("it-ran").exists());
        world.relive(&["proceed", &gated.uuid]).fails(3, &["has ended"]);
        world.relive(&["abort", &gated.uuid]).fails(3, &["has ended"]);

        let sleeper = world.exec(&[], &["sleep", "1000"]);
        world.await_stage(&sleeper, "running");
        world.relive(&["abort", &sleeper.uuid]).fails(3, &["running"]);
        assert_eq!(world.info(&sleeper.uuid)["display"], "running");
        world.relive(&["kill", "-s", "KILL", &sleeper.uuid]).ok();
        world.ends(&sleeper, 137);
    }
}

#[test]
fn case_33_the_pid_on_the_host_is_known_also_in_a_namespace_and_after_the_end() {
    for world in World::of_each_kind() {
        for (flags, own) in [(&["--ns", "pid"][..], Some(2)), (&["--ns", "pid", "--init=false"], Some(1)), (&[], None)]
        {
            let sleeper = world.exec(flags, &["sleep", "1000"]);
            if let Some(failed) = world.info(&sleeper.uuid)["status"].as_object() {
                eprintln!("skipped: no PID namespace can be made here: {failed:?}");
                continue;
            }
            let session = world.await_stage(&sleeper, "running");
            let host = session["host_pid"].as_u64().unwrap();
            let status = fs::read_to_string(format!("/proc/{host}/status")).unwrap();
            let inner = status.lines().find_map(|line| line.strip_prefix("NSpid:")).unwrap();
            let inner: u64 = inner.split_whitespace().last().unwrap().parse().unwrap();
            assert_eq!(session["child_pid"], inner);
            if let Some(own) = own {
                assert_eq!(inner, own);
                assert_eq!(session["init_pid"].is_u64(), own == 2);
            }
            assert_eq!(
                fs::read_to_string(format!("/proc/{host}/comm")).unwrap(),
                "sleep\n",
                "the program, not its init"
            );
            world.relive(&["kill", "-s", "KILL", &sleeper.uuid]).ok();
            world.ends(&sleeper, 137);
            let after = &world.info(&sleeper.uuid)["session"];
            assert_eq!((&after["host_pid"], &after["child_pid"]), (&session["host_pid"], &session["child_pid"]));
            wait_until("it is gone", || !super::sessions_support::is_alive(host));
        }
    }
}

/// Posts to a gate; the status and the answer.
fn at_gate(world: &World, program: &Begun, verb: &str, body: &str) -> (u16, Value) {
    let (status, answer) = world.http("POST", &format!("/v1/processes/{}/{verb}", program.uuid), "", body);
    (status, serde_json::from_str(&answer).unwrap())
}

#[test]
fn a_repeated_request_to_a_gate_succeeds_if_the_first_was_carried_out() {
    let world = World::new();
    let (again, first) = (r#"{"repeated":true}"#, "{}");
    let runs = world.exec(&["--gate"], &["cat", "go"]);
    fifo(&world.work().join("go"));
    world.await_stage(&runs, "ready");
    assert_eq!(at_gate(&world, &runs, "proceed", first).0, 200);
    world.await_stage(&runs, "running");
    assert_eq!(at_gate(&world, &runs, "proceed", first).0, 409);
    assert_eq!(at_gate(&world, &runs, "abort", again).0, 409, "it was not aborted");
    assert_eq!(at_gate(&world, &runs, "proceed", again).1["affected"], 1);
    drop(fs::File::options().write(true).open(world.work().join("go")).unwrap());
    world.ends(&runs, 0);
    assert_eq!(at_gate(&world, &runs, "proceed", first).0, 409);
    assert_eq!(at_gate(&world, &runs, "proceed", again).1["affected"], 1);

    let aborted = world.exec(&["--gate"], &["true"]);
    world.await_stage(&aborted, "ready");
    assert_eq!(at_gate(&world, &aborted, "abort", again).0, 200);
    world.ends(&aborted, 125);
    assert_eq!(at_gate(&world, &aborted, "abort", first).0, 409);
    assert_eq!(at_gate(&world, &aborted, "abort", again).1["affected"], 1);
    assert_eq!(at_gate(&world, &aborted, "proceed", again).0, 409, "it never ran");
}

fn fifo(path: &Path) {
    rustix::fs::mknodat(rustix::fs::CWD, path, rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0).unwrap();
}

#[test]
fn a_pause_says_paused_when_the_program_is_frozen_and_not_before() {
    let world = World::new();
    let program = world.exec(&[], &["sleep", "1000"]);
    let session = world.await_stage(&program, "running");
    let said = world.relive(&["pause", &program.uuid]).ok().stderr;
    let display = world.info(&program.uuid)["display"].clone();
    assert!(said.contains("is pausing") || (said.contains("paused") && display == "suspended"), "{said} {display}");
    world.await_display(&program.uuid, "suspended");
    world.relive(&["resume", &program.uuid]).ok();
    let folder = session["folder"].as_str().unwrap();
    let state: Value = serde_json::from_slice(&fs::read(Path::new(folder).join("state")).unwrap()).unwrap();
    let shim = u32::try_from(state["shim_pid"].as_u64().unwrap()).unwrap();
    // A shim that does not answer is continued after a while, and then freezes the program.
    kill(shim, rustix::process::Signal::STOP);
    let answer = world.relive(&["pause", "--json", &program.uuid]).ok().json();
    assert_eq!(answer["pausing"], answer["pids"]);
    world.await_display(&program.uuid, "suspended");
}

#[test]
fn a_program_is_shown_as_frozen_if_its_freezer_says_so() {
    let world = World::new();
    let program = world.exec(&[], &["sleep", "1000"]);
    let host = world.await_stage(&program, "running")["host_pid"].as_u64().unwrap();
    world.relive(&["pause", &program.uuid]).ok();
    world.await_display(&program.uuid, "suspended");
    assert_eq!(world.info(&program.uuid)["session"]["frozen"], true);
    thaw(host);
    wait_until("it runs", || !is_frozen(host));
    assert_eq!(world.info(&program.uuid)["session"]["frozen"], false);
    // The next daemon makes it true again.
    world.kill_daemon();
    wait_until("it is frozen again", || world.info(&program.uuid)["session"]["frozen"] == true && is_frozen(host));
}

#[test]
fn the_output_of_a_program_in_the_background_is_in_the_order_of_a_terminal() {
    let world = World::new();
    let script = "i=0; while [ $i -lt 2000 ]; do echo $i; i=$((i+1)); echo $i >&2; i=$((i+1)); done";
    let terminal = fs::File::create(world.work().join("terminal")).unwrap();
    let mut command = world.command(&["exec", "-d", "--json", "--", "sh", "-c", script]);
    let begun_at = command.stdout(terminal.try_clone().unwrap()).stderr(terminal).status().unwrap();
    assert!(begun_at.success());
    let said = fs::read_to_string(world.work().join("terminal")).unwrap();
    let program = begun(&serde_json::from_str(said.lines().last().unwrap()).unwrap());
    world.ends(&program, 0);
    let expect: String = (0..2000).map(|number| format!("{number}\n")).collect();
    assert!(world.relive(&["logs", &program.uuid]).ok().stdout == expect, "in another order");
}

/// Thaws the tree of an OS process behind its shim's back.
fn thaw(pid: u64) {
    for line in std::fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap().lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { continue };
        // Those that are not this tree's freezer do not exist, or refuse.
        if controllers == "freezer" {
            let _ = std::fs::write(format!("/sys/fs/cgroup/freezer{path}/freezer.state"), "THAWED");
        }
        for at in ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"].iter().filter(|_| controllers.is_empty()) {
            let _ = std::fs::write(format!("{at}{path}/cgroup.freeze"), "0");
        }
    }
    // SAFETY: plain numbers; a program of this test.
    unsafe { libc::kill(i32::try_from(pid).unwrap(), libc::SIGCONT) };
}

#[test]
fn a_new_run_of_a_program_with_a_gate_says_that_it_waits_there() {
    let world = World::new();
    let gated = world.exec(&["--gate", "--name", "gated"], &["false"]);
    world.await_stage(&gated, "ready");
    world.relive(&["proceed", "gated"]).ok();
    world.ends(&gated, 1);
    for (pid, args) in [(2, &["retry", "gated"][..]), (3, &["resume", "--fork", "1"]), (4, &["resume", "1"])] {
        let told = world.relive(args).ok();
        let said = format!("PID {pid} started; it waits at its gate; to let it run: relive proceed {pid}");
        assert!(told.stderr.contains(&said), "{args:?}: {told:?}");
    }
}

#[test]
fn an_abort_is_over_and_a_program_runs_when_the_answer_says_so() {
    let world = World::new();
    for _ in 0..10 {
        let aborted = world.exec(&["--gate"], &["true"]);
        world.await_stage(&aborted, "ready");
        world.relive(&["abort", &aborted.uuid]).ok();
        world.relive(&["rm", "-y", &aborted.uuid]).ok();
        let proceeds = world.exec(&["--gate"], &["sleep", "1000"]);
        world.await_stage(&proceeds, "ready");
        world.relive(&["proceed", &proceeds.uuid]).ok();
        assert_eq!(world.info(&proceeds.uuid)["display"], "running");
        world.relive(&["kill", "-9", &proceeds.uuid]).ok();
    }
}
