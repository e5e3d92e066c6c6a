//! What can be wrong with the place the daemon lives in: each has its own error, and nothing is lost.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::world::{World, finish, output};

#[test]
fn a_daemon_that_a_command_starts_leaves_the_session_of_its_terminal() {
    let world = World::new();
    world.relive(&["daemon", "start"]).ok();
    let daemon = rustix::process::Pid::from_raw(i32::try_from(world.daemon_pid().unwrap()).unwrap());
    assert_eq!(rustix::process::getsid(daemon).ok(), daemon);
}

#[test]
fn a_socket_that_a_dead_daemon_left_is_taken_over() {
    let world = World::new();
    let socket = world.socket();
    fs::create_dir_all(socket.parent().unwrap()).unwrap();
    drop(UnixListener::bind(&socket).unwrap());
    assert!(socket.exists());
    let process = world.run_hanging(&[]);
    world.kill_daemon();
    assert!(socket.exists());
    assert_eq!(world.info(&process.uuid)["display"], "running");
    world.relive(&["daemon", "stop"]).ok();
    assert!(!socket.exists(), "a daemon that stops leaves none");
}

#[test]
fn a_foreign_listener_is_not_taken_for_the_daemon() {
    let world = World::new();
    let process = world.run_hanging(&[]);
    world.kill_daemon();
    let socket = world.root().join("foreign");
    let listener = UnixListener::bind(&socket).unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let _ = stream.unwrap().write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello");
        }
    });
    let with_socket = |args: &[&str]| output(world.command(args).env("RELIVE_SOCKET", &socket).output().unwrap());
    let path = socket.to_str().unwrap();
    with_socket(&["ps"]).fails(6, &[path, "not a Relive daemon", "hint: "]);
    with_socket(&["run", "-d", "x"]).fails(6, &[path, "not a Relive daemon"]);
    with_socket(&["daemon", "serve"]).fails(6, &[path, "another program listens"]);
    assert!(socket.exists());
    assert_eq!(world.info(&process.uuid)["display"], "running", "the lock was let go");
}

#[test]
fn a_file_in_the_sockets_place_is_left_alone() {
    let world = World::new();
    let notes = world.root().join("notes.txt");
    fs::write(&notes, "mine").unwrap();
    let told = output(
        world.command(&["run", "-d", "--model", "script/demo", "x"]).env("RELIVE_SOCKET", &notes).output().unwrap(),
    );
    told.fails(6, &["notes.txt", "exists and is not a socket"]);
    assert_eq!(fs::read_to_string(&notes).unwrap(), "mine");
}

#[test]
fn a_second_daemon_on_the_same_data_directory_is_refused_and_names_the_first() {
    let world = World::new();
    let process = world.run_hanging(&[]);
    let first = world.daemon_pid().unwrap();
    let before = fs::read(world.steps_file(&process.uuid)).unwrap();
    world.relive(&["daemon", "serve"]).fails(3, &["in use", &format!("pid {first}")]);
    let elsewhere = world.root().join("other-socket");
    let told = output(world.command(&["daemon", "serve"]).env("RELIVE_SOCKET", &elsewhere).output().unwrap());
    told.fails(3, &["in use", &format!("pid {first}")]);
    assert!(!elsewhere.exists());
    assert_eq!(world.daemon_pid(), Some(first));
    assert_eq!(fs::read(world.steps_file(&process.uuid)).unwrap(), before);
    assert!(world.relive(&["daemon", "start"]).ok().stderr.contains("already"));
}

#[test]
fn a_broken_configuration_is_shown_with_its_lines_and_nothing_is_lost() {
    let world = World::new();
    let process = world.run_hanging(&[]);
    world.kill_daemon();
    world.configure("recovery: manuel\ngc:\n  retention_day: 3\n  interval_seconds: 5\n");
    let said = ["config.yaml", "manuel", "retention_day", "interval_seconds", "^"];
    for args in [&["ps"][..], &["config", "show"], &["daemon", "start"], &["daemon", "serve"]] {
        world.relive(args).fails(2, &said);
    }
    world.relive(&["run", "-d", "--model", "script/demo", "x"]).fails(2, &said);
    assert_eq!(world.relive(&["ps", "--json"]).exits(2).json()["error"]["code"], "INVALID");
    assert_eq!(world.daemon_pid(), None);
    world.configure("recovery: auto\n");
    assert_eq!(world.info(&process.uuid)["display"], "running");
}

#[test]
fn ps_fits_eighty_columns_on_a_terminal_and_is_whole_in_a_pipe() {
    let world = World::new();
    let name = "a-name-that-is-longer-than-the-room-that-a-terminal-has-for-it";
    world.run_hanging(&["--name", name, "--max-steps", "1000000"]);
    world.relive(&["pause", "--now", name]).ok();
    world.await_display(name, "suspended");
    let intent = "what it is for, with \u{1b}[31mcolours\u{1b}[0m and\nseveral\nlines ".repeat(4);
    let model = world.hanging();
    world.relive(&["run", "-d", "--model", &model, &intent]).ok();
    let shown = world.on_terminal("ps").ok().stdout;
    let lines: Vec<&str> = shown.lines().collect();
    assert_eq!(lines.len(), 3, "{shown}");
    assert!(lines.iter().all(|line| line.chars().count() <= 80), "{shown}");
    assert!(lines[0].starts_with("PID  STATE"), "{shown}");
    assert!(lines[1].contains("[P] suspended") && lines[1].contains("a-name") && lines[1].contains("..."), "{shown}");
    assert!(!shown.contains('\u{1b}'), "{shown:?}");
    let piped = world.relive(&["ps"]).ok().stdout;
    assert!(piped.contains(name), "{piped}");
    assert_eq!(piped.lines().count(), 3);
}

#[test]
fn files_of_the_data_directory_belong_to_the_user_only() {
    let world = World::new();
    let process = world.run("turns: [{text: done}]");
    world.relive(&["wait", "1"]).ok();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    for directory in [world.data(), world.directory(&process.uuid), world.socket().parent().unwrap().to_owned()] {
        assert_eq!(mode(&directory), 0o700, "{}", directory.display());
    }
    for file in [world.steps_file(&process.uuid), world.data().join("daemon.log"), world.socket()] {
        assert_eq!(mode(&file), 0o600, "{}", file.display());
    }
}

/// The data directory on a small file system of its own; absent where that takes rights we have not.
pub(crate) struct Mount<'w>(&'w World);

impl<'w> Mount<'w> {
    pub(crate) fn new(world: &'w World, size: &str) -> Option<Self> {
        fs::create_dir_all(world.data()).unwrap();
        let mounted = mount(&["-t", "tmpfs", "-o", &format!("size={size},mode=0700"), "tmpfs"], &world.data());
        if !mounted {
            eprintln!("skipped: no file system can be mounted here");
        }
        mounted.then_some(Self(world))
    }

    fn remount(&self, options: &str) {
        // The last thread of a daemon that was killed may still hold a file.
        let remounted = || mount(&["-o", &format!("remount,{options}"), "tmpfs"], &self.0.data());
        crate::world::wait_until("it is remounted", remounted);
    }
}

fn mount(args: &[&str], at: &Path) -> bool {
    Command::new("mount").args(args).arg(at).output().is_ok_and(|done| done.status.success())
}

impl Drop for Mount<'_> {
    fn drop(&mut self) {
        if self.0.daemon_pid().is_some() {
            self.0.kill_daemon();
        }
        let _ = Command::new("umount").arg("-l").arg(self.0.data()).status();
    }
}

#[test]
fn a_full_disk_suspends_what_runs_refuses_what_is_new_and_loses_nothing() {
    let world = World::with_config("limits: {floor_mb: 6}");
    let Some(disk) = Mount::new(&world, "12m") else { return };
    let quiet = world.run_hanging(&[]);
    // Each step keeps a quarter of a megabyte of its own.
    let files = 48;
    let turns: Vec<Value> = (0..files)
        .map(|number| {
            let name = format!("file{number}");
            fs::write(world.work().join(&name), format!("{number:031}\n").repeat(7500)).unwrap();
            json!({"usage": {"input": 1, "output": 1}, "calls": [{"name": "read", "args": {"path": name}}]})
        })
        .collect();
    let process = world.run(&json!({ "turns": turns }).to_string());
    let info = world.await_field(&process.uuid, "suspend_reason", "disk_full");
    assert!(info["step"].as_u64().unwrap() < files, "{info}");
    world.await_field(&quiet.uuid, "suspend_reason", "disk_full");
    let refused = world.relive(&["run", "-d", "--model", "script/demo", "x"]);
    refused.fails(1, &["free", "hint: ", "gc"]);
    let status = world.relive(&["daemon", "status"]).ok().stdout;
    assert!(status.contains("the disk is full"), "{status}");

    world.kill_daemon();
    world.await_field(&process.uuid, "suspend_reason", "disk_full");
    assert_eq!(world.info(&process.uuid)["display"], "suspended", "it waits for a person");
    disk.remount("size=64m");
    world.relive(&["resume", &process.uuid]).ok();
    world.relive(&["wait", &process.uuid]).ok();
    let results = world.records(&process.uuid, "call_ended");
    assert_eq!(results.len() as u64, files);
    assert!(results.iter().all(|record| record["ok"] == true));
    let steps: Vec<u64> = results.iter().map(|record| record["step"].as_u64().unwrap()).collect();
    assert_eq!(steps, (1..=files).collect::<Vec<_>>());
    world.relive(&["resume", &quiet.uuid]).ok();
    world.await_display(&quiet.uuid, "running");
}

#[test]
fn a_data_directory_that_cannot_be_written_is_named() {
    let world = World::with_config("limits: {floor_mb: 1}");
    let Some(disk) = Mount::new(&world, "64m") else { return };
    let process = world.run_hanging(&[]);
    world.kill_daemon();
    disk.remount("ro");
    let data = world.data();
    for args in
        [&["ps"][..], &["run", "-d", "--model", "script/demo", "x"], &["info", &process.uuid], &["daemon", "start"]]
    {
        world.relive(args).fails(6, &[data.to_str().unwrap(), "read-only file system"]);
    }
    disk.remount("rw");
    assert_eq!(world.info(&process.uuid)["display"], "running");
}

#[test]
fn two_data_directories_have_separate_daemons() {
    let (one, two) = (World::new(), World::new());
    let shared = one.root().join("run");
    let in_two = |args: &[&str]| output(two.command(args).env("XDG_RUNTIME_DIR", &shared).output().unwrap());
    one.run_hanging(&[]);
    let model = two.hanging();
    in_two(&["run", "-d", "--model", &model, "x"]).ok();
    in_two(&["kill", "1"]).ok();
    in_two(&["wait", "1"]).exits(1);
    assert_eq!(one.info(1)["display"], "running");
    assert_ne!(one.daemon_pid(), two.daemon_pid());
}

#[test]
fn a_socket_of_another_data_directory_is_refused_before_anything_is_done() {
    let (one, two) = (World::new(), World::new());
    let process = one.run_hanging(&[]);
    two.run("turns: [{text: done}]");
    let socket = one.socket();
    let in_two = |args: &[&str]| output(two.command(args).env("RELIVE_SOCKET", &socket).output().unwrap());
    let serves = format!("serves {}, not {}", one.data().display(), two.data().display());
    for args in [
        &["ps"][..],
        &["kill", "-s", "KILL", "1"],
        &["run", "-d", "--model", "script/demo", "x"],
        &["daemon", "start"],
        &["daemon", "status"],
        &["daemon", "stop"],
        &["daemon", "restart"],
    ] {
        in_two(args).fails(2, &[&serves, socket.to_str().unwrap(), "hint: unset RELIVE_SOCKET"]);
    }
    assert_eq!(one.info(&process.uuid)["display"], "running");
    assert_eq!(one.relive(&["ps", "-q"]).ok().stdout, "1\n");

    // The same directory by another name, and a socket that is named alone.
    let link = two.root().join("link");
    std::os::unix::fs::symlink(one.data(), &link).unwrap();
    let mut by_link = two.command(&["ps", "-q"]);
    by_link.env("RELIVE_SOCKET", &socket).env("RELIVE_DATA_DIR", &link);
    assert_eq!(output(by_link.output().unwrap()).ok().stdout, "1\n");
    let mut alone = two.command(&["ps", "-q"]);
    alone.env("RELIVE_SOCKET", &socket).env_remove("RELIVE_DATA_DIR");
    assert_eq!(output(alone.output().unwrap()).ok().stdout, "1\n");
}

#[test]
fn ctrl_c_on_run_asks_it_to_stop() {
    let world = World::new();
    let model = world.script("turns: [{text: hello, hang: true}]");
    let run = world.start(&["run", "--model", &model, "greet"]);
    crate::world::wait_until("it runs", || world.relive(&["ps", "-q"]).stdout == "1\n");
    crate::world::kill(run.id(), rustix::process::Signal::INT);
    let told = finish(run).exits(130);
    assert!(told.stderr.contains(" to stop (SIGINT)"), "{told:?}");
    let answer = world.relive(&["wait", "--json", "1"]).exits(1).json();
    assert_eq!(answer["status"], json!({"kind": "killed", "signal": "SIGINT"}));
}

#[test]
fn a_dry_run_of_install_prints_the_unit_also_as_json() {
    let world = World::new();
    let text = world.relive(&["daemon", "install", "--dry-run"]).ok().stdout;
    let told = world.relive(&["daemon", "install", "--dry-run", "--json"]).ok().json();
    assert_eq!(told["text"], text);
    let path = told["unit"].as_str().unwrap();
    assert!(path.ends_with("/systemd/user/relive.service"), "{path}");
    assert!(!Path::new(path).exists(), "nothing is written");
}
