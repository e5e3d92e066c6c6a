//! Requests that are sent again, and daemons that die at the wrong moment.

use std::collections::HashSet;
use std::fs;
use std::io::Write as _;
use std::os::unix::net::UnixStream;

use serde_json::{Value, json};

use crate::world::{World, finish, http, wait_until};

const UUID: &str = "01900000-0000-7000-8000-00000000000a";

fn processes(world: &World) -> usize {
    world.histories()
}

#[test]
fn case_50_a_run_that_is_sent_twice_starts_one_process() {
    let world = World::new();
    world.relive(&["daemon", "start"]).ok();
    let body = world.run_request(UUID, &world.hanging(), "x");
    let post = |headers: &str, body: &str| {
        let (status, answer) = world.http("POST", "/v1/processes", headers, body);
        assert_eq!(status, 200, "{answer}");
        serde_json::from_str::<Value>(&answer).unwrap()
    };
    let first = post("", &body);
    assert_eq!(first, json!({"pid": 1, "uuid": UUID}));
    assert_eq!(post("", &body), first, "by its UUID");
    let other = world.run_request("01900000-0000-7000-8000-00000000000b", &world.hanging(), "x");
    let id = "relive-request-id: the-same\r\n";
    let second = post(id, &other);
    assert_eq!(post(id, &other), second, "by its request id");
    let (status, answer) = world.http("POST", "/v1/processes", id, &body.replace("\"x\"", "\"y\""));
    assert_eq!(status, 409, "a different request with the same UUID: {answer}");
    assert_eq!(processes(&world), 2);
    world.kill_daemon();
    world.relive(&["ps"]).ok();
    let again = post("", &body);
    assert_eq!(again["uuid"], UUID);
    assert_eq!(world.info(UUID)["pid"], again["pid"], "also across daemons, by its PID of now");
    assert_eq!(processes(&world), 2);
}

#[test]
fn case_50_the_same_request_at_the_same_moment_starts_one_process() {
    let world = World::new();
    world.relive(&["daemon", "start"]).ok();
    let (socket, body) = (world.socket(), world.run_request(UUID, &world.hanging(), "x"));
    for headers in ["", "relive-request-id: one\r\n"] {
        let answers: HashSet<String> = std::thread::scope(|scope| {
            let ask = || http(&socket, "POST", "/v1/processes", headers, &body);
            let asked: Vec<_> = (0..8).map(|_| scope.spawn(ask)).collect();
            asked.into_iter().map(|ask| ask.join().unwrap().1).collect()
        });
        assert_eq!(answers.len(), 1, "{answers:?}");
    }
    assert_eq!(processes(&world), 1);
}

#[test]
fn case_50_clients_that_hang_up_do_not_use_the_daemon_up() {
    let world = World::new();
    let process = world.run_hanging(&[]);
    let (socket, daemon) = (world.socket(), world.daemon_pid().unwrap());
    let is_socket = |path: &std::path::Path| path.to_string_lossy().starts_with("socket:");
    let sockets = || {
        let all = fs::read_dir(format!("/proc/{daemon}/fd")).unwrap();
        all.filter(|entry| fs::read_link(entry.as_ref().unwrap().path()).is_ok_and(|path| is_socket(&path))).count()
    };
    let before = sockets();
    let wait =
        format!("POST /v1/processes/{}/wait HTTP/1.1\r\nhost: relive\r\ncontent-length: 2\r\n\r\n{{}}", process.pid);
    // More, in all, than are served at once.
    for _ in 0..6 {
        let waiting: Vec<UnixStream> = (0..200)
            .map(|_| {
                let mut stream = UnixStream::connect(&socket).unwrap();
                stream.write_all(wait.as_bytes()).unwrap();
                stream
            })
            .collect();
        wait_until("all are connected", || sockets() >= waiting.len());
        drop(waiting);
        wait_until("all have gone", || sockets() < before + 10);
    }
    let (status, answer) = world.http("GET", "/v1/daemon", "", "");
    assert_eq!(status, 200, "{answer}");
}

#[test]
fn case_50_many_that_run_at_the_same_moment_without_a_daemon_get_one_daemon_and_a_pid_each() {
    let world = World::new();
    let model = world.hanging();
    let started: Vec<_> = (0..12).map(|_| world.start(&["run", "-d", "--json", "--model", &model, "x"])).collect();
    let pids: HashSet<u64> = started.into_iter().map(|run| finish(run).ok().json()["pid"].as_u64().unwrap()).collect();
    assert_eq!(pids.len(), 12, "{pids:?}");
    let listed = world.relive(&["ps", "--json"]).ok().json();
    let listed = listed["processes"].as_array().unwrap();
    assert_eq!(listed.len(), 12);
    assert!(listed.iter().all(|process| process["display"] == "running"));
    let daemon = world.daemon_pid().unwrap();
    assert_eq!(world.relive(&["daemon", "status", "--json"]).ok().json()["daemon"]["os_pid"], daemon);
    let log = fs::read_to_string(world.data().join("daemon.log")).unwrap();
    assert_eq!(log.lines().filter(|line| line.contains(" serving ")).count(), 1, "{log}");
}

#[test]
fn case_50_a_finished_agent_stays_finished_whatever_its_snapshot_says() {
    let world = World::new();
    let process = world.run("turns: [{text: first, hang: true}]");
    world.await_text(&process, "first");
    world.relive(&["pause", "--now", "1"]).ok();
    world.await_display("1", "suspended");
    let info = world.directory(&process.uuid).join("proc-info.json");
    let stale = crate::world::wait_for("its snapshot is written", || fs::read(&info).ok());
    world.relive(&["kill", "1"]).ok();
    let ended = world.relive(&["wait", "--json", "1"]).exits(1).json();
    let journal = fs::read(world.steps_file(&process.uuid)).unwrap();
    world.kill_daemon();
    // As if the daemon had died after the end was recorded and before anything else was written.
    fs::write(&info, stale).unwrap();
    fs::write(world.data().join("live").join(&process.uuid), "").unwrap();
    assert_eq!(world.info(1)["display"], "dead");
    assert_eq!(world.relive(&["wait", "--json", "1"]).exits(1).json(), ended);
    assert_eq!(world.relive(&["ps", "-q"]).ok().stdout, "");
    assert_eq!(fs::read(world.steps_file(&process.uuid)).unwrap(), journal, "not a byte was added");
    assert!(!world.data().join("live").join(&process.uuid).exists());
}

#[test]
fn case_50_everything_that_can_be_derived_may_be_deleted() {
    let world = World::new();
    let dead = world.run_with("turns: [{text: done}]", &["--name", "early"]);
    world.relive(&["wait", "1"]).ok();
    let paused = world.run_hanging(&[]);
    world.relive(&["pause", "--now", "2"]).ok();
    world.await_display("2", "suspended");
    world.kill_daemon();
    let ask = || {
        let [mut dead, mut paused] = [&dead, &paused].map(|process| world.info(&process.uuid));
        for info in [&mut dead, &mut paused] {
            let info = info.as_object_mut().unwrap();
            // Those of this daemon.
            info.retain(|name, _| !["pid", "started_at"].contains(&name.as_str()));
        }
        (dead, paused, world.relive(&["wait", "--json", "1"]).ok().json())
    };
    let before = ask();
    world.kill_daemon();
    for process in [&dead, &paused] {
        for entry in fs::read_dir(world.directory(&process.uuid)).unwrap() {
            let path = entry.unwrap().path();
            if !["steps.jsonl", "process-meta.json", "blobs"].contains(&path.file_name().unwrap().to_str().unwrap()) {
                fs::remove_file(path).unwrap();
            }
        }
    }
    for derived in ["pids", "pids.log", "reserve", "clock"] {
        let _ = fs::remove_file(world.data().join(derived));
    }
    fs::remove_dir_all(world.data().join("live")).unwrap();
    assert_eq!(ask(), before);
    assert!(world.run("turns: [{text: done}]").pid > 2);
}
