//! `run`, `logs`, `strace` and `steps`: streams, across breaks.

use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::fake::Fake;
use crate::support::{Place, Ran, UUID, ended, process};

fn spawn(place: &Place, args: &[&str]) -> Child {
    place.command(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

fn finish(child: Child) -> Ran {
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.signal(), None);
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Ran { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
}

fn press_ctrl_c(child: &Child) {
    kill_process(Pid::from_child(child), Signal::INT).unwrap();
}

/// Says three things over two streams that break off, and ends when they were read.
fn talkative(place: &Place, exit: u8) -> Fake {
    let streams = std::sync::Arc::new(AtomicUsize::new(0));
    let (read, all_read) = std::sync::mpsc::channel();
    let (read, all_read) = (std::sync::Mutex::new(read), std::sync::Mutex::new(all_read));
    place.daemon(move |request, reply| {
        let text = |text: &str| json!({ "text": text });
        if request.names("/wait") {
            all_read.lock().unwrap().recv().unwrap();
            reply.json(&ended(exit));
        } else if request.names("events?follow=true") {
            match streams.fetch_add(1, Ordering::SeqCst) {
                0 => drop(reply.events().send("1.1", "text", &text("Hel")).send("1.2", "text", &text("lo"))),
                _ => {
                    assert!(request.names("after=1.2"), "{request:?}");
                    let events = reply.events().send("2.1", "call", &json!({ "name": "shell", "args": "ls" }));
                    read.lock().unwrap().send(()).unwrap();
                    events.stay();
                }
            }
        } else if request.names("events?follow=false") {
            assert!(request.names("after=2.1") || request.names("after=1.2"), "{request:?}");
            let events = reply.events();
            let events = if request.names("after=1.2") {
                events.send("2.1", "call", &json!({ "name": "shell", "args": "ls" }))
            } else {
                events
            };
            events.send("2.2", "text", &text(" world")).end();
        } else if request.names("journal") {
            let opened = json!({ "pid": 9, "by": "recovery", "boot_id": "b", "relive": "0" });
            reply.events().send("2.1", "opened", &opened).end();
        } else {
            reply.json(&json!({ "pid": 5, "uuid": UUID }));
        }
    })
}

#[test]
fn run_prints_every_word_once_across_a_break_and_exits_as_the_process_did() {
    let place = Place::new();
    let _daemon = talkative(&place, 7);
    let ran = finish(spawn(&place, &["run", "x"])).exits(7);
    // A call ends what was said before it.
    assert_eq!(ran.stdout, "Hello\n world\n");
    ran.says("-> shell ls\n").says("PID 5 ended: exited\n");
}

#[test]
fn run_shows_the_result_of_a_call_that_was_refused_before_it_started() {
    let place = Place::new();
    let _daemon = place.daemon(|request, reply| {
        let refused = json!({ "call": 0, "name": "edit", "ok": false, "text": "`a` does not exist" });
        let made = json!({ "call": 1, "name": "read", "args": "{}" });
        let read = json!({ "call": 1, "name": "read", "ok": true, "text": "x" });
        if request.names("/wait") {
            reply.json(&ended(0));
        } else if request.names("events?") {
            let events = reply.events().send("1.1", "call_result", &refused);
            events.send("1.2", "call", &made).send("1.3", "call_result", &read).end();
        } else {
            reply.json(&json!({ "pid": 5, "uuid": UUID }));
        }
    });
    let ran = finish(spawn(&place, &["run", "x"])).exits(0);
    // The stream may have been followed again, from its beginning.
    let shown: Vec<&str> = ran.stderr.lines().collect();
    for pair in [["-> edit", "<- edit failed: `a` does not exist"], ["-> read {}", "<- read ok: x"]] {
        assert!(shown.windows(2).any(|lines| lines == pair), "{ran:?}");
    }
}

#[test]
fn run_with_json_is_one_event_a_line_and_the_end() {
    let place = Place::new();
    let _daemon = talkative(&place, 0);
    let ran = finish(spawn(&place, &["run", "x", "--json"])).exits(0);
    let lines: Vec<Value> = ran.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let of = |field: &str| lines.iter().map(|line| line[field].clone()).collect::<Vec<_>>();
    assert_eq!(json!(of("kind")), json!(["text", "text", "call", "text", "exit"]));
    assert_eq!(json!(of("id")), json!(["1.1", "1.2", "2.1", "2.2", null]));
    assert_eq!(json!(of("pid")), json!([5, 5, 9, 9, 5]), "a new daemon gave it a new PID");
    assert_eq!(lines[0]["at"], "2026-11-15T12:00:00Z");
    assert_eq!(lines[4]["status"], json!({ "kind": "exited", "code": 0 }));
}

#[test]
fn the_first_ctrl_c_asks_and_the_second_kills() {
    let place = Place::new();
    let (killed, kill) = std::sync::mpsc::channel();
    let (killed, kill) = (std::sync::Mutex::new(killed), std::sync::Mutex::new(kill));
    let daemon = place.daemon(move |request, reply| {
        if request.names("/wait") {
            kill.lock().unwrap().recv().unwrap();
            let mut answer = ended(1);
            answer["exit"]["reason"] = json!("interrupted");
            answer["status"] = json!({ "kind": "killed", "signal": "SIGKILL" });
            reply.json(&answer);
        } else if request.names("/signal") {
            reply.json(&json!({ "affected": 1, "pids": [5] }));
            if request.body["signal"] == "SIGKILL" {
                killed.lock().unwrap().send(()).unwrap();
            }
        } else if request.names("follow=true") {
            reply.events().stay();
        } else if request.names("follow=false") {
            reply.events().end();
        } else {
            reply.json(&json!({ "pid": 5, "uuid": UUID }));
        }
    });
    let child = spawn(&place, &["run", "x"]);
    daemon.wait_for("follow=true", 1);
    press_ctrl_c(&child);
    daemon.wait_for("/signal", 1);
    press_ctrl_c(&child);
    let ran = finish(child).exits(130).says("asking PID 5 to stop (SIGINT); press Ctrl-C again to kill it");
    ran.says("killing PID 5 (SIGKILL)").says("PID 5 ended");
    let signals: Vec<Value> = daemon.asked("/signal").iter().map(|request| request.body["signal"].clone()).collect();
    assert_eq!(signals, ["SIGINT", "SIGKILL"]);
}

#[test]
fn a_third_ctrl_c_leaves_with_130() {
    let place = Place::new();
    let daemon = place.daemon(|request, reply| {
        if request.names("/wait") || request.names("/signal") {
            reply.never();
        } else if request.names("follow=true") {
            reply.events().stay();
        } else {
            reply.json(&json!({ "pid": 5, "uuid": UUID }));
        }
    });
    let child = spawn(&place, &["run", "x"]);
    daemon.wait_for("follow=true", 1);
    for pressed in 1..=2 {
        press_ctrl_c(&child);
        daemon.wait_for("/signal", pressed);
    }
    press_ctrl_c(&child);
    finish(child).exits(130).says("stopped watching PID 5 before its end: relive wait");
}

/// A process with two steps, whose journal comes in one piece.
fn with_journal(place: &Place) -> Fake {
    place.daemon(|request, reply| {
        if request.names("journal?follow=") {
            let call = json!({ "id": "c", "name": "shell", "args": { "command": "ls" } });
            let usage = json!({ "tokens_in": 3, "tokens_out": 4 });
            reply
                .events()
                .send("1.1", "opened", &json!({ "pid": 5, "by": "spawn", "boot_id": "b", "relive": "0" }))
                .send("1.2", "input", &json!({ "id": "i", "text": "fix it" }))
                .send("1.3", "model_ended", &json!({ "text": "I look.", "calls": [call], "usage": usage }))
                .send("1.4", "call_ended", &json!({ "call": 0, "ok": true, "result": "a.rs" }))
                .send("1.5", "ended", &json!({ "status": { "kind": "exited", "code": 0 } }))
                .end();
        } else if request.names("events?follow=") {
            reply.events().send("1.1", "call", &json!({ "name": "shell" })).end();
        } else if request.names("/wait") {
            reply.json(&ended(0));
        } else {
            reply.json(&process(5, 0));
        }
    })
}

#[test]
fn logs_and_strace_and_steps_read_the_streams() {
    let place = Place::new();
    let _daemon = with_journal(&place);
    let logs = place.relive(&["logs", "5"]).exits(0).stdout;
    let whole = "> fix it\nI look.\n  shell {\"command\":\"ls\"}\n  shell: ok\n    a.rs\n-- ended: completed (0)\n";
    assert_eq!(logs, whole);
    assert_eq!(place.relive(&["logs", "-n", "1", "5"]).exits(0).stdout, "-- ended: completed (0)\n");
    let timed = place.relive(&["logs", "-t", "--utc", "-n", "1", "5"]).exits(0).stdout;
    assert_eq!(timed, "2026-11-15T12:00:00.000Z -- ended: completed (0)\n");
    let since = place.relive(&["logs", "--since", "2026-11-15T12:00:00.001Z", "5"]).exits(0).stdout;
    assert_eq!(since, "");
    let json = place.relive(&["logs", "-n", "1", "5", "--json"]).exits(0).json();
    assert_eq!((&json["id"], &json["pid"], &json["kind"]), (&json!("1.5"), &json!(5), &json!("ended")));
    let strace = place.relive(&["strace", "--utc", "5"]).exits(0).stdout;
    assert_eq!(strace, "12:00:00.000Z 1.1       call         name=shell\n");
    let steps = place.relive(&["steps", "5", "--json"]).exits(0).json();
    assert_eq!(steps["steps"][0]["calls"], json!(["shell"]));
    assert_eq!(steps["steps"][0]["tokens_out"], 4);
}

#[test]
fn a_stop_on_purpose_is_waited_out_and_no_daemon_is_started() {
    let place = Place::new();
    let daemon = place.daemon(|request, reply| {
        if request.names("follow=true") {
            reply.events().send("1.1", "paused", &json!({ "reason": "daemon_stop" })).end();
        } else if request.names("/wait") {
            reply.error(503, "UNAVAILABLE", "the daemon is stopping");
        } else {
            reply.json(&json!({ "pid": 5, "uuid": UUID }));
        }
    });
    let child = spawn(&place, &["run", "x"]);
    daemon.wait_for("after=1.1", 1);
    // The old one is gone, and then there is a new one.
    drop(daemon);
    let _daemon = place.daemon(|request, reply| {
        if request.names("follow=false") {
            reply.events().send("2.1", "resumed", &json!({})).send("2.2", "text", &json!({ "text": "Done.\n" })).end();
        } else if request.names("follow=true") {
            reply.events().stay();
        } else {
            reply.json(&ended(0));
        }
    });
    let ran = finish(child).exits(0);
    assert_eq!(ran.stdout, "Done.\n");
    ran.says("paused: the daemon is stopping; the next daemon resumes it").says("resumed");
    assert!(!place.data().exists(), "no daemon was started");
}
