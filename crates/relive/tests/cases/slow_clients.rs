//! Clients that are slow, silent or many: the daemon answers everybody else, and stops without them.

use std::cell::RefCell;
use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::{Duration, Instant};

use crate::world::{World, http, wait_until};

/// A stop waits for answers for a second and for bodies as long as they take; none of these tests has any.
const STOPS_WITHIN: Duration = Duration::from_secs(8);

/// Sends the bytes and leaves the connection open.
fn open(socket: &Path, bytes: &str) -> UnixStream {
    let mut stream = UnixStream::connect(socket).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream.write_all(bytes.as_bytes()).unwrap();
    stream
}

/// Reads what the daemon answers until it closes the connection.
fn read_to_end(mut stream: UnixStream) -> String {
    let mut bytes = Vec::new();
    // A connection that the daemon closes with our bytes unread is reset; its answer was read before that.
    if let Err(error) = stream.read_to_end(&mut bytes) {
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "{error}");
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Reads until the answer has begun.
fn await_answer(stream: &mut UnixStream) {
    let mut byte = [0];
    stream.read_exact(&mut byte).unwrap();
}

fn request(method: &str, path: &str, body: &str) -> String {
    format!("{method} {path} HTTP/1.1\r\nhost: relive\r\ncontent-length: {}\r\n\r\n{body}", body.len())
}

/// Connections that a stop must not wait for, one of each kind.
fn slow_clients(world: &World, uuid: &str) -> Vec<UnixStream> {
    let socket = world.socket();
    let mut clients = vec![
        open(&socket, ""),
        open(&socket, "GET /v1/daemon HT"),
        open(&socket, "POST /v1/processes HTTP/1.1\r\nhost: relive\r\ncontent-length: 1000\r\n\r\n{\"uuid\""),
        open(&socket, "POST /v1/gc HTTP/1.1\r\nhost: relive\r\ntransfer-encoding: chunked\r\n\r\n4\r\n{\"al"),
    ];
    for path in ["journal?follow=true", "events?follow=true"] {
        let mut stream = open(&socket, &request("GET", &format!("/v1/processes/{uuid}/{path}"), ""));
        await_answer(&mut stream);
        clients.push(stream);
    }
    // Asks for more than a socket holds, and never reads it.
    clients.push(open(&socket, &request("GET", &format!("/v1/processes/{uuid}/journal"), "").repeat(200)));
    clients
}

#[test]
fn case_66_a_stop_does_not_wait_for_slow_clients() {
    let world = World::new();
    let process = world.run("turns: [{text: done}]");
    world.relive(&["wait", "1"]).ok();
    let running = world.run_hanging(&[]);
    let clients = [slow_clients(&world, &process.uuid), slow_clients(&world, &running.uuid)];
    let begun = Instant::now();
    world.relive(&["pause", "--now", &running.uuid]).ok();
    world.relive(&["daemon", "restart"]).ok();
    let took = begun.elapsed();
    assert!(took < STOPS_WITHIN, "a restart took {took:?}");
    drop(clients);
    let clients = slow_clients(&world, &running.uuid);
    let (begun, pid) = (Instant::now(), world.daemon_pid().unwrap());
    crate::world::kill(pid, rustix::process::Signal::TERM);
    wait_until("the daemon is gone", || world.daemon_pid().is_none());
    let took = begun.elapsed();
    assert!(took < STOPS_WITHIN, "a stop by SIGTERM took {took:?}");
    drop(clients);
}

#[test]
fn case_66_logs_that_nobody_reads_do_not_keep_the_daemon() {
    let world = World::new();
    // More than the pipe, the socket and the client hold.
    let text = "a line that nobody reads ".repeat(2000);
    let turn = serde_json::json!({"text": text, "calls": [{"name": "list", "args": {"path": "."}}]});
    let mut turns = vec![turn; 40];
    turns.push(serde_json::json!({"hang": true}));
    let process = world.run(&serde_json::json!({ "turns": turns }).to_string());
    world.await_step(&process, 41);
    assert!(fs::metadata(world.steps_file(&process.uuid)).unwrap().len() > 1_500_000);
    let mut logs = world.start(&["logs", "-f", "--json", "1"]);
    let unread = || rustix::io::ioctl_fionread(logs.stdout.as_ref().unwrap()).unwrap();
    let mut before = 0;
    // How much a pipe holds depends on the machine.
    wait_until("the pipe is full", || std::mem::replace(&mut before, unread()) == unread() && before > 0);
    world.relive(&["pause", "--now", "1"]).ok();
    let begun = Instant::now();
    world.relive(&["daemon", "stop"]).ok();
    let took = begun.elapsed();
    assert!(took < STOPS_WITHIN, "{took:?}");
    logs.kill().unwrap();
    logs.wait().unwrap();
}

#[test]
fn case_66_silent_connections_do_not_lock_kill_out() {
    let world = World::new();
    let process = world.run_hanging(&[]);
    let socket = world.socket();
    let silent: Vec<UnixStream> = (0..2000).map(|_| UnixStream::connect(&socket).unwrap()).collect();
    let begun = Instant::now();
    world.relive(&["kill", &process.uuid]).ok();
    let took = begun.elapsed();
    assert!(took < Duration::from_secs(4), "the connections were waited for: {took:?}");
    world.relive(&["wait", &process.uuid]).exits(1);
    drop(silent);
}

#[test]
fn case_66_a_connection_without_a_request_is_closed() {
    let world = World::new();
    world.relive(&["daemon", "start"]).ok();
    let socket = world.socket();
    let begun = Instant::now();
    let clients = [open(&socket, ""), open(&socket, "GET /v1/daemon HTTP/1.1\r\nhost: rel")];
    let half = open(&socket, "POST /v1/gc HTTP/1.1\r\nhost: relive\r\ncontent-length: 50\r\n\r\n{\"all\"");
    for client in clients {
        assert_eq!(read_to_end(client), "");
    }
    assert!(begun.elapsed() > Duration::from_secs(3), "they had their time");
    let answer = read_to_end(half);
    assert!(answer.starts_with("HTTP/1.1 408") && answer.contains("TIMEOUT"), "{answer}");
}

#[test]
fn case_66_waits_that_fill_their_class_leave_room_for_control() {
    let world = World::new();
    let process = world.run_hanging(&[]);
    let socket = world.socket();
    let wait = request("POST", &format!("/v1/processes/{}/wait", process.uuid), "{}");
    let waiting: RefCell<Vec<UnixStream>> = RefCell::new((0..512).map(|_| open(&socket, &wait)).collect());
    let refused = || {
        let (status, answer) = http(&socket, "POST", "/v1/processes/1/wait", "", "{\"timeout_ms\": 1}");
        assert!(status == 200 || (status == 503 && answer.contains("UNAVAILABLE")), "{status} {answer}");
        if status == 200 {
            // A busy machine may have closed one that was too slow to be heard.
            waiting.borrow_mut().push(open(&socket, &wait));
        }
        status == 503 && answer.contains("hint")
    };
    wait_until("the class is full", refused);
    assert_eq!(http(&socket, "GET", "/v1/processes", "", "").0, 200);
    let (status, answer) = http(&socket, "POST", "/v1/processes/1/signal", "", "{\"signal\": \"KILL\"}");
    assert_eq!(status, 200, "{answer}");
    let answers: Vec<String> = waiting.into_inner().into_iter().map(answer_of).collect();
    let told = answers.iter().filter(|answer| answer.starts_with("HTTP/1.1 200") && answer.contains("killed")).count();
    assert!(told >= 500, "{told} of {}", answers.len());
}

/// Reads one answer that has a length.
fn answer_of(mut stream: UnixStream) -> String {
    let mut bytes = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        let count = stream.read(&mut buffer).unwrap();
        bytes.extend_from_slice(&buffer[..count]);
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if count == 0 || text.ends_with('}') {
            return text;
        }
    }
}

#[test]
fn case_66_whoever_waits_is_told_that_the_daemon_stops() {
    let world = World::new();
    world.run_hanging(&[]);
    let socket = world.socket();
    let waiting = open(&socket, &request("POST", "/v1/processes/1/wait", "{}"));
    std::thread::sleep(Duration::from_millis(200));
    world.relive(&["daemon", "stop"]).ok();
    let answer = read_to_end(waiting);
    assert!(answer.starts_with("HTTP/1.1 503") && answer.contains("UNAVAILABLE"), "{answer}");
    assert!(!socket.exists());
}

#[test]
fn case_66_a_socket_that_is_somebody_elses_by_now_is_left() {
    let world = World::new();
    world.relive(&["daemon", "start"]).ok();
    let (socket, pid) = (world.socket(), world.daemon_pid().unwrap());
    fs::remove_file(&socket).unwrap();
    let other = UnixListener::bind(&socket).unwrap();
    crate::world::kill(pid, rustix::process::Signal::TERM);
    wait_until("the daemon is gone", || world.daemon_pid().is_none());
    assert!(socket.exists(), "it is another's");
    drop(other);
}

#[test]
fn case_66_the_log_has_a_time_and_a_level_and_relive_log_sets_it() {
    let check = |level: &str, expected: &[&str], absent: &[&str]| {
        let world = World::new().with_env("RELIVE_LOG", level);
        world.relive(&["daemon", "start"]).ok();
        drop(open(&world.socket(), "nonsense\r\n\r\n"));
        world.relive(&["daemon", "stop"]).ok();
        let log = fs::read_to_string(world.data().join("daemon.log")).unwrap();
        for line in log.lines() {
            let time = line.split(' ').next().unwrap();
            assert!(time.ends_with('Z') && time.parse::<jiff::Timestamp>().is_ok(), "{level}: {line}");
        }
        expected.iter().for_each(|part| assert!(log.contains(part), "{level}: no `{part}` in\n{log}"));
        absent.iter().for_each(|part| assert!(!log.contains(part), "{level}: `{part}` in\n{log}"));
    };
    check("", &["Z serving ", " on ", "Z stopped"], &["debug:"]);
    check("debug", &["Z serving ", "Z debug: "], &[]);
    check("warn", &[], &["serving", "stopped"]);
    check("info,relive_daemon=warn", &[], &["serving"]);
    check("a=b=c", &["Z warning: RELIVE_LOG", "Z serving "], &[]);
}
