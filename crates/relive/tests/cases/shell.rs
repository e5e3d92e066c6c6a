//! The agent's shell tool: frozen with the agent, joined after a crash, gone when the agent is.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::world::{Begun, World, kill, wait_for, wait_until};

/// One shell call, and then a model that never answers.
fn shell(command: &str) -> String {
    let args = json!({ "command": command });
    format!("turns: [{{calls: [{{name: shell, args: {args}}}]}}, {{text: waiting, hang: true}}]")
}

fn world() -> World {
    World::with_config("tools: {shell: allow}\n")
}

/// The directory of the only session of a process.
pub(crate) fn session(world: &World, of: &Begun) -> PathBuf {
    wait_for("the session's directory", || {
        let entries = fs::read_dir(world.directory(&of.uuid).join("sessions")).ok()?;
        let mut made = entries.flatten().filter(|entry| !entry.file_name().as_encoded_bytes().starts_with(b"."));
        made.next().map(|entry| entry.path())
    })
}

/// What the shim says of itself, as soon as the program runs.
fn state(directory: &Path) -> Value {
    wait_for("the program runs", || {
        let state: Value = serde_json::from_slice(&fs::read(directory.join("state")).ok()?).ok()?;
        Some(state).filter(|state| state["stage"] == "running")
    })
}

fn pid_of(state: &Value, field: &str) -> u32 {
    u32::try_from(state[field].as_i64().unwrap()).unwrap()
}

fn is_alive(pid: u32) -> bool {
    let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else { return false };
    !stat.rsplit(')').next().unwrap().trim_start().starts_with('Z')
}

fn result(world: &World, of: &Begun) -> Value {
    world.await_records(of, "call_ended", 1);
    world.records(&of.uuid, "call_ended")[0].clone()
}

#[test]
fn case_13_a_pause_during_a_shell_tool_freezes_it() {
    let world = world();
    let process = world.run(&shell("n=0; while :; do n=$((n+1)); echo $n > count; done"));
    let count = world.work().join("count");
    let read = || fs::read_to_string(&count).ok().and_then(|text| text.trim().parse::<u64>().ok());
    wait_until("it counts", || read().is_some());
    let program = pid_of(&state(&session(&world, &process)), "host_pid");
    world.relive(&["pause", &process.uuid]).ok();
    world.await_display(&process.uuid, "suspended");
    let ticks = || {
        let stat = fs::read_to_string(format!("/proc/{program}/stat")).unwrap();
        let fields: Vec<String> = stat.rsplit(')').next().unwrap().split_whitespace().map(str::to_owned).collect();
        (fields[11].clone(), fields[12].clone())
    };
    let before = (read(), ticks());
    for _ in 0..5 {
        world.relive(&["ps"]).ok();
    }
    assert_eq!((read(), ticks()), before, "nothing of it runs while it is paused");
    assert!(world.records(&process.uuid, "call_ended").is_empty(), "nothing is reported as a failure");
    world.kill_daemon();
    assert_eq!(world.info(&process.uuid)["display"], "suspended");
    assert_eq!(read(), before.0, "and it stays so when the daemon dies");
    world.relive(&["resume", &process.uuid]).ok();
    wait_until("it counts on", || read() > before.0);
    world.relive(&["kill", "-s", "KILL", &process.uuid]).ok();
    world.relive(&["wait", &process.uuid]).exits(1);
    assert!(!is_alive(program), "it is gone when the agent is");
}

#[test]
fn case_46_a_shell_tool_that_outlives_the_daemon_is_joined() {
    for ends_meanwhile in [true, false] {
        let world = world();
        let command = "echo begun; while [ ! -e go ]; do sleep 0.02; done; echo once >> runs; echo over; exit 3";
        let process = world.run(&shell(command));
        state(&session(&world, &process));
        world.kill_daemon();
        if ends_meanwhile {
            fs::write(world.work().join("go"), "").unwrap();
            let directory = session(&world, &process);
            wait_until("it ended without a daemon", || directory.join("exit").exists());
        }
        assert_eq!(world.info(&process.uuid)["display"], "running");
        fs::write(world.work().join("go"), "").unwrap();
        let result = result(&world, &process);
        assert_eq!((&result["ok"], &result["settled"]), (&json!(false), &json!("join")));
        assert_eq!(result["result"], "begun\nover\nexit code 3");
        assert_eq!(fs::read_to_string(world.work().join("runs")).unwrap(), "once\n", "it ran once");
        assert_eq!(world.records(&process.uuid, "call_started").len(), 1);
    }
}

#[test]
fn case_46_a_graceful_stop_leaves_the_shell_tool_running() {
    let world = world();
    let process = world.run(&shell("while [ ! -e go ]; do sleep 0.02; done; echo over"));
    let program = pid_of(&state(&session(&world, &process)), "host_pid");
    world.relive(&["daemon", "stop"]).ok();
    assert!(is_alive(program));
    fs::write(world.work().join("go"), "").unwrap();
    let directory = session(&world, &process);
    wait_until("it goes on all the while", || directory.join("exit").exists());
    world.relive(&["ps"]).ok();
    assert_eq!(result(&world, &process)["result"], "over\n");
}

#[test]
fn case_47_shim_and_daemon_both_killed_is_a_call_in_doubt() {
    for park in [false, true] {
        let world = World::with_config(if park {
            "tools: {shell: allow}\non_in_doubt: park\n"
        } else {
            "tools: {shell: allow}\n"
        });
        let process = world.run(&shell("echo once >> runs; sleep 1000 & sleep 1000"));
        let state = state(&session(&world, &process));
        let runs = world.work().join("runs");
        wait_until("it has written", || fs::read_to_string(&runs).is_ok_and(|text| !text.is_empty()));
        world.kill_daemon();
        kill(pid_of(&state, "shim_pid"), rustix::process::Signal::KILL);
        world.relive(&["ps"]).ok();
        if park {
            let info = world.await_display(&process.uuid, "in_doubt");
            assert_eq!(info["suspend_reason"], "in_doubt");
            world.relive(&["resolve", "--not-done", &process.uuid]).ok();
            world.await_records(&process, "resolved", 1);
        } else {
            world.await_records(&process, "doubt", 1);
        }
        world.await_step(&process, 2);
        assert!(!is_alive(pid_of(&state, "host_pid")), "it does not outlive its shim unnoticed");
        assert_eq!(fs::read_to_string(world.work().join("runs")).unwrap(), "once\n", "it is never repeated by itself");
    }
}

#[test]
fn case_47_a_shim_killed_under_a_living_daemon_is_a_call_in_doubt_too() {
    let world = world();
    let process = world.run(&shell("echo once >> runs; sleep 1000"));
    let state = state(&session(&world, &process));
    let runs = world.work().join("runs");
    wait_until("it has written", || fs::read_to_string(&runs).is_ok_and(|text| !text.is_empty()));
    kill(pid_of(&state, "shim_pid"), rustix::process::Signal::KILL);
    world.await_records(&process, "doubt", 1);
    assert!(world.records(&process.uuid, "call_ended").is_empty(), "it is not said to have failed");
    assert!(!is_alive(pid_of(&state, "host_pid")), "nothing of it is left");
}

#[test]
fn a_signal_reaches_the_shell_tool_and_a_kill_ends_its_whole_tree() {
    // The pids that the commands tell are those of the machine only without a PID namespace.
    let world = World::with_config("tools: {shell: allow}\nisolation: {agents: none}\n");
    let process = world.run(&shell("trap 'echo told > told; exit 7' TERM; touch up; while :; do sleep 0.02; done"));
    wait_until("it is up", || world.work().join("up").exists());
    world.relive(&["kill", &process.uuid]).ok();
    world.relive(&["wait", &process.uuid]).exits(1);
    assert_eq!(fs::read_to_string(world.work().join("told")).unwrap(), "told\n");

    let stubborn = "trap '' TERM INT HUP; (setsid sleep 1000 & echo $! > away); echo $$ > self; sleep 1000";
    let process = world.run(&shell(stubborn));
    let pid = |name: &str| {
        let path = world.work().join(name);
        wait_for("a pid", || fs::read_to_string(&path).ok()?.trim().parse::<u32>().ok())
    };
    let (away, itself) = (pid("away"), pid("self"));
    world.relive(&["kill", "-s", "KILL", &process.uuid]).ok();
    world.relive(&["wait", &process.uuid]).exits(1);
    assert!(!is_alive(itself) && !is_alive(away), "nothing is left when the end is known");
}

#[test]
fn output_for_the_model_is_capped_and_whole_on_the_disk() {
    let world = world();
    let process = world.run(&shell("head -c 200000 /dev/zero | tr '\\0' x; echo end"));
    let result = result(&world, &process);
    let text = result["result"].as_str().unwrap();
    assert!(text.len() < 40_000 && text.contains("bytes left out") && text.ends_with("end\n"), "{}", text.len());
    let log = fs::metadata(session(&world, &process).join("log")).unwrap().len();
    assert!(log >= 200_004, "{log}");
}

#[test]
fn a_command_that_takes_too_long_is_ended_and_said() {
    let world = world();
    let process = world.run(
        "turns: [{calls: [{name: shell, args: {command: 'echo a; sleep 1000', timeout: 300ms}}]}, {text: w, hang: true}]",
    );
    let result = result(&world, &process);
    assert_eq!(result["ok"], false);
    assert_eq!(result["result"], "a\nkilled: it ran longer than 300ms");
}

#[test]
fn the_environment_of_the_shell_tool_has_no_keys() {
    let world = World::with_config("tools: {shell: allow}\ntool_env: [MINE]\n");
    let model = world.script(&shell("env | cut -d= -f1 | sort | tr '\\n' ' '"));
    let mut command = world.command(&["run", "-d", "--json", "--model", &model, "do it"]);
    command.env("ANTHROPIC_API_KEY", "sesame").env("MINE", "1").env("OTHER", "1").env("LC_ALL", "C");
    let process = crate::world::begun(&crate::world::output(command.output().unwrap()).ok().json());
    let text = result(&world, &process)["result"].as_str().unwrap().to_owned();
    let names: Vec<&str> =
        text.split_whitespace().filter(|name| !["PWD", "_", "SHLVL", "OLDPWD"].contains(name)).collect();
    let ours = ["RELIVE_DATA_DIR", "RELIVE_SELF", "RELIVE_SESSION", "RELIVE_SOCKET"];
    let (of_relive, others): (Vec<&str>, Vec<&str>) = names.iter().partition(|name| name.starts_with("RELIVE_"));
    assert_eq!(of_relive, ours);
    assert_eq!(others, ["HOME", "LC_ALL", "MINE", "PATH", "TERM", "XDG_RUNTIME_DIR"]);
}

/// A signal that meets a command while its session is being launched ends it all the same.
#[test]
fn a_signal_in_the_middle_of_a_launch_is_not_lost() {
    let world = World::new();
    let script = world.script("turns: [{calls: [{name: shell, args: {command: sleep 600}}]}, {hang: true}]");
    for delay_ms in 0..24 {
        let process = world.run_model(&script, &["--yes"]);
        let signal = ["KILL", "TERM", "INT", "PAUSE"][delay_ms % 4];
        // Not a wait for a condition: the moment is what is tried.
        std::thread::sleep(std::time::Duration::from_millis(delay_ms as u64));
        world.relive(&["kill", "-s", signal, &process.uuid]).ok();
        if signal == "PAUSE" {
            world.await_display(&process.uuid, "suspended");
            world.relive(&["kill", "-s", "KILL", &process.uuid]).ok();
        }
        let waited = world.relive(&["wait", "--timeout", "30s", &process.uuid]);
        let kinds = || world.journal(&process.uuid).iter().map(|record| record["kind"].clone()).collect::<Vec<_>>();
        assert_eq!(waited.code, 1, "{signal} after {delay_ms} ms: {:?} {}", kinds(), world.info(&process.uuid));
    }
}

#[test]
fn the_model_is_shown_both_outputs_in_the_order_in_which_they_were_written() {
    let world = world();
    let process = world.run(&shell("echo 1; echo 2 >&2; echo 3; echo 4 >&2"));
    let ended = result(&world, &process);
    assert!(ended.to_string().contains(r"1\n2\n3\n4\n"), "{ended}");
}
