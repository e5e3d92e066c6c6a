//! Ctrl-C while a process is being started.

use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use crate::fake::Fake;
use crate::support::{Place, Ran, UUID, process};

/// Shorter than the time for which a command waits for a program to start.
const AT_ONCE: Duration = Duration::from_secs(8);

/// Starts a command, presses Ctrl-C once its daemon was asked for something, and returns how it ended.
fn interrupted(place: &Place, daemon: &Fake, args: &[&str], asked: &str) -> Ran {
    let child = place.command(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    daemon.wait_for(asked, 1);
    let pressed = Instant::now();
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let ran = ended_within(child, pressed + AT_ONCE);
    assert!(pressed.elapsed() < AT_ONCE, "Ctrl-C was ignored: {ran:#?}");
    ran
}

/// Waits for a command, and kills one that does not end in time.
fn ended_within(mut child: Child, deadline: Instant) -> Ran {
    while child.try_wait().unwrap().is_none() && Instant::now() < deadline {
        std::thread::yield_now();
    }
    let _ = child.kill();
    let output = child.wait_with_output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Ran { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
}

#[test]
fn ctrl_c_cancels_the_start_of_an_agent_in_its_own_terminal() {
    let place = Place::new();
    let daemon = place.daemon(|request, reply| {
        if request.names("/cancel") {
            reply.json(&json!({ "pid": null }));
        } else if request.names("POST /v1/processes") {
            reply.never();
        } else {
            reply.error(404, "NOT_FOUND", "no process");
        }
    });
    let args = ["run", "-d", "-t", "--agent", "claude", "--workspace", "own"];
    let ran = interrupted(&place, &daemon, &args, "POST /v1/processes");
    ran.exits(130).says("interrupted: nothing was started");
    assert_eq!(daemon.asked("/cancel").len(), 1);
}

#[test]
fn ctrl_c_ends_the_wait_for_the_program_of_a_fork() {
    let place = Place::new();
    let daemon = place.daemon(|request, reply| {
        if request.names("/resume") {
            reply.json(&json!({
                "pid": 6, "uuid": "0199a2b4-0000-7000-8000-00005f6a7b8c", "origin_uuid": UUID, "resumed_from_step": 0,
                "max_steps": null, "model": null, "changed": true, "affected": 1, "pids": [6],
            }));
        } else if request.names("GET /v1/processes/6") {
            reply.never();
        } else {
            let mut program = process(5, 0);
            program["body"] = json!("exec");
            reply.json(&program);
        }
    });
    let ran = interrupted(&place, &daemon, &["resume", "--fork", "5"], "GET /v1/processes/6");
    // The fork was made.
    assert_eq!(ran.exits(0).says("PID 6 started").stdout, "6\n");
}
