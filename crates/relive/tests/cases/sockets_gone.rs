//! A daemon whose socket file was removed, or replaced: it listens again, or is found and stopped without it.

use std::fs;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;

use crate::impostors::listen_and_be_full;
use crate::start_and_stop::daemons;
use crate::world::{World, finish, wait_until};

/// Puts a file where the socket is, which no daemon removes.
fn obstruct(world: &World) -> PathBuf {
    let socket = world.socket();
    let file = socket.with_extension("file");
    fs::write(&file, "").unwrap();
    // In one step: the daemon listens again at once where there is no file.
    fs::rename(&file, &socket).unwrap();
    socket
}

#[test]
fn a_daemon_whose_socket_is_removed_listens_again() {
    let world = World::new();
    world.run_hanging(&[]);
    let daemon = world.daemon_pid();
    let socket = world.socket();
    for removes_directory in [false, true] {
        match removes_directory {
            false => fs::remove_file(&socket).unwrap(),
            // The daemon listens again as soon as the socket is gone, which may be before its directory is.
            true => wait_until("the directory is removed", || fs::remove_dir_all(socket.parent().unwrap()).is_ok()),
        }
        // A command waits for it, also one that starts no daemon.
        world.relive(&["daemon", "status"]).ok();
        assert!(socket.exists());
        assert_eq!(world.info(1)["display"], "running");
        assert_eq!(world.daemon_pid(), daemon, "the same one");
    }
    fs::remove_file(&socket).unwrap();
    assert!(world.relive(&["daemon", "stop"]).ok().stderr.contains("has stopped (OS pid "));
    assert!(!socket.exists());
}

#[test]
fn a_daemon_that_cannot_listen_again_is_reported_and_stopped() {
    let world = World::new();
    world.run_hanging(&[]);
    let daemon = world.daemon_pid().unwrap();
    let socket = obstruct(&world);
    let said = format!("the daemon with OS pid {daemon} is running, but its socket {} is gone", socket.display());
    world.relive(&["daemon", "status"]).fails(6, &[&said, "hint: relive daemon stop"]);
    let rows = world.relive(&["doctor", "--json"]).json();
    let row = rows["rows"].as_array().unwrap().iter().find(|row| row["name"] == "daemon").unwrap().clone();
    assert_eq!((&row["state"], &row["hint"]), (&"failed".into(), &"relive daemon stop".into()), "{row}");
    assert!(row["means"].as_str().unwrap().contains(&said), "{row}");

    let told = world.relive(&["daemon", "stop"]).ok();
    assert_eq!(told.stderr, format!("the daemon has stopped (OS pid {daemon})\n"));
    assert_eq!(world.daemon_pid(), None);
    assert_eq!(fs::read(&socket).unwrap(), b"", "the file is left alone");
    fs::remove_file(&socket).unwrap();
    assert_eq!(world.info(1)["display"], "running");
}

#[test]
fn a_start_that_fails_never_has_a_daemon_that_waits_for_the_end_of_another() {
    let world = World::new();
    world.run_hanging(&[]);
    let daemon = world.daemon_pid().unwrap();
    let socket = obstruct(&world);
    // It would take the place of the other one when that is stopped, after the command was refused.
    let mut command = world.start(&["ps"]);
    wait_until("the command has ended", || {
        assert_eq!(daemons(&world), [daemon], "one waits for the lock");
        command.try_wait().unwrap().is_some()
    });
    let told = finish(command).fails(6, &["its socket", "is gone", "hint: relive daemon stop"]);
    assert!(!told.stderr.contains("export RELIVE_SOCKET"), "{told:?}");
    world.kill_daemon();
    fs::remove_file(&socket).unwrap();
    world.relive(&["daemon", "status"]).exits(3);
}

/// Another program listens on the socket of a daemon that runs: one that is silent, one with a full queue, one that
/// talks, and one that hangs up.
#[test]
fn a_daemon_whose_socket_was_taken_by_another_program_is_named_and_stopped() {
    let check = |takes: &dyn Fn(&std::path::Path) -> Box<dyn std::any::Any>, said: &str| {
        let world = World::new();
        world.run_hanging(&[]);
        let (daemon, socket) = (world.daemon_pid().unwrap(), world.socket());
        let other = socket.with_extension("other");
        let _listener = takes(&other);
        // In one step: the daemon listens again at once where nobody does.
        fs::rename(&other, &socket).unwrap();
        let runs = format!("; the daemon of this data directory has OS pid {daemon}");
        world.relive(&["daemon", "status"]).fails(6, &[said, &runs, "hint: relive daemon stop\n"]);
        let told = world.relive(&["daemon", "stop"]).ok();
        assert!(told.stderr.ends_with(&format!("the daemon has stopped (OS pid {daemon})\n")), "{told:?}");
        assert_eq!(world.daemon_pid(), None);
        assert!(socket.exists(), "that of the other program is left alone");
        world.relive(&["daemon", "status"]).fails(6, &[said, "hint: export RELIVE_SOCKET="]);
        fs::remove_file(&socket).unwrap();
        assert_eq!(world.info(1)["display"], "running");
    };
    std::thread::scope(|scope| {
        let mute = |path: &std::path::Path| Box::new(UnixListener::bind(path).unwrap()) as Box<dyn std::any::Any>;
        let full = |path: &std::path::Path| Box::new(listen_and_be_full(path)) as Box<dyn std::any::Any>;
        scope.spawn(move || check(&mute, "has not answered for"));
        scope.spawn(move || check(&full, "has not accepted a connection for"));
        let talks = |path: &std::path::Path| {
            let listener = UnixListener::bind(path).unwrap();
            std::thread::spawn(move || {
                let mut kept = Vec::new();
                for mut connection in listener.incoming().flatten() {
                    let _ = std::io::Write::write_all(&mut connection, b"hello\r\n\r\n");
                    kept.push(connection);
                }
            });
            Box::new(()) as Box<dyn std::any::Any>
        };
        scope.spawn(move || check(&talks, "is not a Relive daemon"));
        let hangs_up = |path: &std::path::Path| {
            let listener = UnixListener::bind(path).unwrap();
            std::thread::spawn(move || {
                for mut connection in listener.incoming().flatten() {
                    let _ = std::io::Read::read(&mut connection, &mut [0; 4096]);
                }
            });
            Box::new(()) as Box<dyn std::any::Any>
        };
        scope.spawn(move || check(&hangs_up, "has not answered for"));
    });
}

/// A daemon that answers may have its reasons: one that refuses a stop is not stopped by a signal.
#[test]
fn a_daemon_that_refuses_to_stop_is_not_signalled() {
    let world = World::new();
    world.run_hanging(&[]);
    let (daemon, socket) = (world.daemon_pid().unwrap(), world.socket());
    let other = socket.with_extension("other");
    let listener = UnixListener::bind(&other).unwrap();
    fs::rename(&other, &socket).unwrap();
    std::thread::spawn(move || {
        let body = r#"{"error":{"code":"UNAVAILABLE","message":"too many requests at once","hint":null}}"#;
        let answer = format!(
            "HTTP/1.1 503 Service Unavailable\r\nrelive-version: 0.1.0\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        for mut connection in listener.incoming().flatten() {
            std::thread::spawn({
                let answer = answer.clone();
                move || {
                    while let Ok(1..) = std::io::Read::read(&mut connection, &mut [0; 65536]) {
                        let _ = std::io::Write::write_all(&mut connection, answer.as_bytes());
                    }
                }
            });
        }
    });
    world.relive(&["daemon", "stop"]).fails(6, &["too many requests at once"]);
    assert_eq!(world.daemon_pid(), Some(daemon), "it was not stopped");
    fs::remove_file(&socket).unwrap();
    assert_eq!(world.info(1)["display"], "running");
}

/// `RELIVE_SOCKET` alone may lead to the daemon of any data directory. Where it leads to none, the one that runs is not denied.
#[test]
fn a_socket_that_leads_nowhere_does_not_hide_the_daemon_that_runs() {
    let world = World::new();
    let home = world.root().join("share").display().to_string();
    let nowhere = world.root().join("nowhere").display().to_string();
    let ours = [("RELIVE_DATA_DIR", ""), ("XDG_DATA_HOME", home.as_str())];
    let elsewhere = [&ours[..], &[("RELIVE_SOCKET", nowhere.as_str())]].concat();
    let status = world.relive_with(&ours, &["daemon", "start", "--json"]).ok().json();
    let (os_pid, socket) = (&status["daemon"]["os_pid"], status["daemon"]["socket"].as_str().unwrap());
    let said = format!(
        "the daemon with OS pid {os_pid} is running, but its socket {socket} is not {nowhere}, which this command uses"
    );
    let hint = format!("hint: export RELIVE_SOCKET={socket}\n");
    for verb in ["status", "stop"] {
        world.relive_with(&elsewhere, &["daemon", verb]).fails(6, &[&said, &hint]);
    }
    let rows = world.relive_with(&elsewhere, &["doctor", "--json"]).json();
    let row = rows["rows"].as_array().unwrap().iter().find(|row| row["name"] == "daemon").unwrap().clone();
    assert!(row["state"] == "failed" && row["means"].as_str().unwrap().contains(&said), "{row}");
    world.relive_with(&ours, &["daemon", "stop"]).ok();
    world.relive_with(&elsewhere, &["daemon", "status"]).exits(3);
}
