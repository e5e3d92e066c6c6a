//! What the command makes of a daemon's answers.

use std::os::unix::net::UnixListener;
use std::process::Stdio;

use serde_json::{Value, json};

use crate::fake::{Fake, Reply, Request};
use crate::support::{Place, UUID, ended, process};

/// A place whose daemon gives one answer.
fn answering(body: Value) -> (Place, Fake) {
    let place = Place::new();
    let daemon = place.daemon(move |_, reply| reply.json(&body));
    (place, daemon)
}

#[test]
fn case_01_pids_are_listed_ascending_and_nothing_is_cut_in_a_pipe() {
    let (place, daemon) = answering(json!({ "processes": [process(12, 0), process(2, 0)] }));
    assert_eq!(place.relive(&["ps", "-q"]).exits(0).stdout, "2\n12\n");
    let table = place.relive(&["ps", "-a"]).exits(0).stdout;
    assert!(table.contains("\n  2  running  fixer2   fix it  agent  3/20      12  unknown     4.0s  "), "{table}");
    assert_eq!(daemon.asked("GET /v1/processes?all=true").len(), 1);
    let json = place.relive(&["ps", "--json"]).exits(0).json();
    assert_eq!(json["processes"][0]["name"], "fixer2");
    assert_eq!(json["processes"][0].as_object().unwrap().len(), process(1, 0).as_object().unwrap().len());
}

#[test]
fn a_long_list_is_read_page_by_page_and_printed_as_one() {
    let place = Place::new();
    let daemon = place.daemon(|request, reply| match request.path.split("cursor=").nth(1) {
        None => reply.json(&json!({ "processes": [process(1, 0), process(2, 0)], "next": "2.x" })),
        Some("2.x") => reply.json(&json!({ "processes": [], "next": "3.x" })),
        Some(_) => reply.json(&json!({ "processes": [process(30, 0)] })),
    });
    assert_eq!(place.relive(&["ps", "-a", "-q"]).exits(0).stdout, "1\n2\n30\n");
    let json = place.relive(&["ps", "-a", "--json"]).exits(0).json();
    assert_eq!((json["processes"].as_array().unwrap().len(), json.as_object().unwrap().len()), (3, 1));
    let table = place.relive(&["ps", "-a"]).exits(0).stdout;
    assert_eq!(table.lines().filter(|line| line.contains("PID")).count(), 1, "{table}");
    assert_eq!(table.lines().count(), 4, "{table}");
    assert_eq!(daemon.asked("cursor=3.x").len(), 3);
}

#[test]
fn filters_are_the_daemons_to_apply() {
    let (place, daemon) = answering(json!({ "processes": [process(12, 0), process(2, 0)], "next": "2.x" }));
    let args = ["ps", "--name", "a*", "--state", "dead", "--here", "-q", "-n", "2"];
    assert_eq!(place.relive(&args).exits(0).stdout, "2\n12\n", "the last two, in their order");
    let asked = daemon.asked("GET /v1/processes?");
    assert_eq!(asked.len(), 1, "no more is asked for than was wanted: {asked:?}");
    for part in ["all=true", "name=a%2A", "state=dead", "cwd=%2F", "limit=2", "newest=true"] {
        assert!(asked[0].path.contains(part), "{part}: {}", asked[0].path);
    }
    place.relive(&["ps", "--failed", "--since", "2h", "-n", "1"]).exits(0);
    let asked = daemon.asked("failed=true");
    assert!(asked[0].path.contains("since=20") && asked[0].path.contains("all=true"), "{asked:?}");
    place.relive(&["ps", "--state", "sleeping"]).exits(2).says("running");
    place.relive(&["ps", "-n", "0"]).exits(2);
}

#[test]
fn case_02_a_name_that_is_almost_right_is_suggested() {
    let place = Place::new();
    let daemon = place.daemon(|request, reply| {
        if request.names("GET /v1/processes?all") {
            reply.json(&json!({ "processes": [process(1, 0), process(2, 0)] }));
        } else {
            reply.error(404, "NOT_FOUND", "no process `fixxer2`");
        }
    });
    place.relive(&["kill", "fixxer2"]).exits(4).says("hint: did you mean `fixer2`?");
    place.relive(&["kill", "999"]).exits(4).says("hint: relive ps -a");
    assert_eq!(daemon.asked("/v1/processes/999/signal").len(), 1);
}

#[test]
fn errors_of_the_daemon_pick_the_exit_code() {
    for (status, code, exit) in [
        (429, "EXHAUSTED", 1),
        (400, "INVALID", 2),
        (409, "CONFLICT", 3),
        (404, "NOT_FOUND", 4),
        (403, "PERMISSION", 5),
        (500, "INTERNAL", 125),
    ] {
        let place = Place::new();
        let _daemon = place.daemon(move |_, reply| reply.error(status, code, "no"));
        let error = place.relive(&["pause", "5", "--json"]).exits(exit).json();
        assert_eq!((&error["error"]["code"], &error["error"]["message"]), (&json!(code), &json!("no")));
    }
}

#[test]
fn pause_resume_and_kill_say_what_they_did() {
    let (place, daemon) = answering(json!({ "affected": 2, "pids": [5, 6] }));
    let paused = place.relive(&["pause", "5", "--subtree", "--now"]).exits(0);
    assert_eq!(paused.stderr, "2 processes (PIDs 5, 6) paused (undo: relive resume 5 --subtree)\n");
    assert_eq!(daemon.asked("POST /v1/processes/5/pause")[0].body, json!({ "subtree": true, "now": true }));
    assert!(daemon.asked("pause")[0].request_id.is_some());
    let killed = place.relive(&["kill", "-s", "int", "5", "--json"]).exits(0);
    assert_eq!(killed.json(), json!({ "affected": 2, "pids": [5, 6] }));
    assert_eq!(daemon.asked("/signal")[0].body, json!({ "signal": "SIGINT", "subtree": false }));

    let (place, _daemon) = answering(json!({ "affected": 0, "pids": [], "note": "PID 5 has ended already" }));
    assert_eq!(place.relive(&["kill", "5"]).exits(0).stderr, "PID 5 has ended already\n");
}

#[test]
fn resume_passes_on_what_was_asked_and_a_fork_has_a_uuid_of_our_choice() {
    let (place, daemon) = answering(json!({
        "pid": 6, "uuid": "0199a2b4-0000-7000-8000-00005f6a7b8c", "origin_uuid": UUID, "resumed_from_step": 5,
        "max_steps": 30, "model": "script/x", "changed": true, "affected": 1, "pids": [6],
    }));
    let args = ["resume", "--fork", "--from-step", "5", "fixer", "--input", "go", "--max-steps", "30", "--name", "n"];
    let told = place.relive(&args).exits(0).stderr;
    let origin = relive_types::short_id::short(UUID.parse().unwrap());
    assert_eq!(
        told,
        format!("forking {origin} at step 5 -> 5f6a7b8c\nPID 6 running (script/x) | forked from {origin}\n")
    );
    let mut body = daemon.asked("POST /v1/processes/fixer/resume")[0].body.clone();
    assert!(body["fork"].take().as_str().unwrap().len() == 36);
    // The environment of this shell, without the variables by which our own parts find each other.
    let env = body.as_object_mut().unwrap().remove("env").unwrap();
    let names: Vec<&String> = env.as_object().unwrap().keys().collect();
    assert_eq!(names, ["HOME", "LANG", "RELIVE_DATA_DIR", "XDG_CONFIG_HOME"]);
    let limits = json!({ "max_steps": 30 });
    let expected =
        json!({ "fork": null, "from_step": 5, "subtree": false, "input": "go", "name": "n", "limits": limits });
    assert_eq!(body, expected);
    let json = place.relive(&["resume", "fixer", "--json"]).exits(0).json();
    for field in ["pid", "uuid", "origin_uuid", "resumed_from_step", "changed", "affected", "pids"] {
        assert!(json.get(field).is_some(), "{field}");
    }
}

#[test]
fn case_04_a_wait_that_times_out_is_124_and_changes_nothing() {
    let place = Place::new();
    let daemon = place.daemon(|request, reply| {
        if request.names("/wait") {
            let mut answer = ended(124);
            (answer["status"], answer["exit"], answer["timed_out"]) = (Value::Null, Value::Null, json!(true));
            reply.json(&answer);
        } else {
            reply.json(&process(5, 0));
        }
    });
    place.relive(&["wait", "5", "--timeout", "150ms"]).exits(124).says("not ended after").says("hint: relive wait 5");
    let answer = place.relive(&["wait", "5", "--timeout", "150ms", "--json"]).exits(124).json();
    assert_eq!((&answer["timed_out"], &answer["status"]), (&json!(true), &Value::Null));
    let asked = daemon.asked("/wait");
    assert!(asked[0].body["timeout_ms"].as_u64().unwrap() <= 150, "{asked:?}");
    assert!(daemon.asked("POST").iter().all(|request| request.names("/wait")));
}

#[test]
fn a_wait_whose_connection_breaks_continues_by_uuid() {
    let place = Place::new();
    let daemon = place.daemon(|request, reply| {
        if request.names("/5/wait") {
            drop(reply);
        } else if request.names(&format!("/{UUID}/wait")) {
            reply.json(&ended(7));
        } else {
            reply.json(&process(5, 0));
        }
    });
    place.relive(&["wait", "5"]).exits(7);
    assert_eq!((daemon.asked("/5/wait").len(), daemon.asked(&format!("/{UUID}/wait")).len()), (1, 1));
}

#[test]
fn a_request_that_breaks_off_is_the_same_request_when_it_is_sent_again() {
    let place = Place::new();
    let lost_once = std::sync::atomic::AtomicBool::new(false);
    let daemon = place.daemon(move |_, reply| {
        if lost_once.swap(true, std::sync::atomic::Ordering::SeqCst) {
            reply.json(&json!({ "pid": 5, "uuid": UUID }));
        }
    });
    let ran = place.relive(&["run", "-d", "fix it", "--model", "script/x", "--timeout", "10m", "--json"]).exits(0);
    assert_eq!(ran.json(), json!({ "pid": 5, "uuid": UUID }));
    let asked = daemon.asked("POST /v1/processes");
    assert_eq!(asked.len(), 2);
    assert_eq!((&asked[0].body, &asked[0].request_id), (&asked[1].body, &asked[1].request_id));
    let body = &asked[0].body;
    assert_eq!(body["cwd"], place.dir.path().canonicalize().unwrap().to_str().unwrap());
    assert_eq!((&body["intent"], &body["limits"]), (&json!("fix it"), &json!({ "timeout_ms": 600_000 })));
    assert_eq!(body["uuid"].as_str().unwrap().as_bytes()[14], b'7');
}

#[test]
fn no_model_says_what_to_set_and_offers_the_demo() {
    let place = Place::new();
    let _daemon = place.daemon(|_, reply| reply.error(400, "INVALID", "no model is configured"));
    let told = place.relive(&["run", "x"]).exits(2).says("error: no model is configured");
    told.says("hint: relive run --model anthropic/claude-sonnet-4-5 x\n").says("relive run --model script/demo x");
    place.relive(&["run", "x"]).exits(2).says("default_model: anthropic/claude-sonnet-4-5").says("relive demo");
}

#[test]
fn answers_of_other_servers_are_not_taken_for_the_daemons() {
    let strangers: [fn(&Request, Reply); 3] = [
        |_, reply| reply.raw("SSH-2.0-OpenSSH_9.9\r\n"),
        |_, reply| reply.raw("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"),
        |_, reply| reply.json(&json!({ "something": "else" })),
    ];
    for stranger in strangers {
        let place = Place::new();
        let _daemon = place.daemon(stranger);
        place.relive(&["ps"]).exits(6).says("is not a Relive daemon");
    }
}

/// A command that carries an environment, and so may carry keys.
const RUN: [&str; 5] = ["run", "-d", "--model", "script/demo", "x"];

#[test]
fn a_listener_of_another_user_is_refused_before_anything_is_sent() {
    let place = Place::new();
    let socket = place.socket();
    let permissions = |mode| std::os::unix::fs::PermissionsExt::from_mode(mode);
    std::fs::set_permissions(place.dir.path(), permissions(0o1777)).unwrap();
    let listener = std::thread::scope(|scope| {
        let listen = || {
            let nobody = rustix::process::Uid::from_raw(65534);
            rustix::thread::set_thread_res_uid(nobody, nobody, nobody).ok()?;
            Some(UnixListener::bind(&socket).unwrap())
        };
        scope.spawn(listen).join().unwrap()
    });
    let Some(listener) = listener else {
        eprintln!("skipped: only root can listen as another user");
        return;
    };
    let told = place.relive(&RUN).exits(5).says("socket: the daemon's socket belongs to uid 65534, not to you");
    told.says("hint: unset RELIVE_SOCKET\n");
    listener.set_nonblocking(true).unwrap();
    assert_eq!(listener.accept().unwrap_err().kind(), std::io::ErrorKind::WouldBlock, "nobody connected");
}

#[test]
fn a_directory_that_others_can_write_to_is_named_with_the_remedy() {
    let place = Place::new();
    let directory = place.dir.path();
    std::fs::set_permissions(directory, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    let told = place.relive(&RUN).exits(5).says("others can write to the directory of the daemon's socket (mode 0777)");
    told.says(&format!("hint: chmod go-w {}", directory.display()));
    assert!(!place.data().exists(), "no daemon was started");
}

#[test]
fn a_daemon_of_another_version_is_talked_to_if_the_wire_is_the_same() {
    let daemon = |api: u32| {
        move |request: &Request, reply: Reply| {
            let reply = reply.version("9.9.9", api);
            if request.names("GET /v1/daemon") {
                reply.json(&json!({ "api": api, "version": "9.9.9", "os_pid": 1, "data_dir": "/d", "socket": "/s",
                    "started_at": "2026-11-15T12:00:00Z", "running": 1, "suspended": 2, "free_bytes": 5_000_000,
                    "warnings": ["damaged"] }));
            } else {
                reply.json(&json!({ "processes": [] }));
            }
        }
    };
    let place = Place::new();
    let _daemon = place.daemon(daemon(1));
    place.relive(&["ps"]).exits(0);
    let status = place.relive(&["daemon", "status"]).exits(0).stdout;
    assert!(status.contains("1 running, 2 suspended") && status.ends_with("warning: damaged\n"), "{status}");

    let place = Place::new();
    let _daemon = place.daemon(daemon(2));
    place.relive(&["ps"]).exits(6).says("the daemon is version 9.9.9 (protocol 2)").says("hint: relive daemon restart");
    assert_eq!(place.relive(&["daemon", "status", "--json"]).exits(0).json()["daemon"]["api"], 2);
}

#[test]
fn a_closed_pipe_ends_quietly() {
    let place = Place::new();
    let listener = UnixListener::bind(place.socket()).unwrap();
    let mut child = place.command(&["ps", "--json"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    // Only now is it answered.
    let _daemon = Fake::on(listener, |_, reply| reply.json(&json!({ "processes": [process(1, 0)] })));
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(0), &b""[..]));
}
