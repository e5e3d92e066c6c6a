//! Somebody else listens where the daemon should: they hear nothing, and the user learns who it is.

use std::fs;
use std::io::Read as _;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Stdio;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen, socket_with};
use rustix::process::Uid;

use super::environments::SECRET;
use crate::world::{World, finish};

const NOBODY: u32 = 65534;
/// So long that only a test that would never end reaches it.
const WITHIN: Duration = Duration::from_secs(30);

/// Listens as a user in a thread of its own; what is heard arrives connection by connection, at the latest when the secret
/// has been heard. `None` if this user cannot be had.
fn listen_as(uid: u32, socket: &Path) -> Option<Receiver<String>> {
    let (said, heard) = channel();
    let (bound, is_bound) = channel();
    let socket = socket.to_owned();
    std::thread::spawn(move || {
        let user = Uid::from_raw(uid);
        // For this thread alone.
        let is_user = rustix::thread::set_thread_res_uid(user, user, user).is_ok();
        let listener = is_user.then(|| UnixListener::bind(&socket).unwrap());
        bound.send(listener.is_some()).unwrap();
        for mut connection in listener.iter().flat_map(UnixListener::incoming).flatten() {
            let (mut all, mut part) = (Vec::new(), [0; 65536]);
            while let Ok(count @ 1..) = connection.read(&mut part) {
                all.extend_from_slice(&part[..count]);
                if String::from_utf8_lossy(&all).contains(SECRET) {
                    break;
                }
            }
            if said.send(String::from_utf8_lossy(&all).into_owned()).is_err() {
                return;
            }
        }
    });
    is_bound.recv().unwrap().then_some(heard)
}

/// A runtime directory that another user owns, also behind a link, is not used, and the user is told which one is.
#[test]
fn a_runtime_directory_that_leads_to_another_user_is_not_used() {
    let ours = rustix::process::getuid().as_raw();
    if ours != 0 {
        eprintln!("skipped: only root can give a directory to somebody else");
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let (theirs, link) = (place.path().join("theirs"), place.path().join("link"));
    fs::create_dir(&theirs).unwrap();
    fs::set_permissions(&theirs, fs::Permissions::from_mode(0o700)).unwrap();
    chown(&theirs, Some(NOBODY), None).unwrap();
    std::os::unix::fs::symlink(&theirs, &link).unwrap();
    for directory in [&theirs, &link] {
        let world = World::new();
        let relive = |args: &[&str]| world.relive_with(&[("XDG_RUNTIME_DIR", directory.to_str().unwrap())], args);
        let paths = relive(&["paths", "--json"]).ok();
        let said = format!("note: XDG_RUNTIME_DIR ({}) is not used: {}", directory.display(), theirs.display());
        assert!(paths.stderr.contains(&said), "{paths:?}");
        let socket = paths.json()["socket"].as_str().unwrap().to_owned();
        assert!(!socket.starts_with(place.path().to_str().unwrap()), "{socket}");
        relive(&["exec", "--", "true"]).ok();
        let status = relive(&["daemon", "status", "--json"]).ok().json();
        let warnings = status["daemon"]["warnings"].to_string();
        assert!(warnings.contains("is not used"), "{status}");
        relive(&["daemon", "stop"]).ok();
        assert_eq!(fs::read_dir(&theirs).unwrap().count(), 0);
        fs::remove_dir_all(Path::new(&socket).parent().unwrap()).unwrap();
    }
}

/// The same listener hears the keys if it is the user's own, so it would hear them as somebody else, too.
#[test]
fn a_listener_of_another_user_hears_no_key() {
    let ours = rustix::process::getuid().as_raw();
    let place = tempfile::tempdir().unwrap();
    // Anybody can put a socket here, and nobody can replace that of another.
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o1777)).unwrap();
    let world = World::new();
    for uid in [ours, NOBODY] {
        let socket = place.path().join(uid.to_string());
        let Some(heard) = listen_as(uid, &socket) else {
            eprintln!("skipped: only root can listen as another user");
            return;
        };
        // The owner of the file says nothing about who listens.
        chown(&socket, Some(ours), None).unwrap();
        let mut command = world.command(&["run", "-d", "--model", "script/demo", "x"]);
        command.env("RELIVE_SOCKET", &socket).env("ANTHROPIC_API_KEY", SECRET);
        let mut run = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let said = heard.recv_timeout(WITHIN).unwrap();
        if uid == ours {
            run.kill().unwrap();
            run.wait().unwrap();
            assert!(said.contains(SECRET), "the attack does not work: {said:?}");
            continue;
        }
        assert_eq!(said, "", "somebody else heard it");
        let told = format!("a process of uid {NOBODY} listens on the daemon's socket, but you are uid {ours}");
        finish(run).fails(5, &[&told, "hint: "]);
    }
}

/// A program of the same user that listens on the daemon's socket and says nothing is named, and not waited for.
#[test]
fn a_listener_that_never_answers_is_named_and_not_waited_for() {
    let check = |args: &[&str]| {
        let world = World::new();
        let socket = world.root().join("mute");
        let _listener = UnixListener::bind(&socket).unwrap();
        let socket = socket.display().to_string();
        let us = std::process::id();
        let begun = std::time::Instant::now();
        let waits = format!("waiting for OS pid {us}, which listens on {socket} and does not answer\n");
        let fails = format!("error: {socket}: the program that listens on this socket (OS pid {us}) has not answered");
        let said = world.relive_with(&[("RELIVE_SOCKET", &socket)], args);
        said.fails(6, &[&waits, &fails, "hint: unset RELIVE_SOCKET\n"]);
        assert!(begun.elapsed() < WITHIN, "{:?}", begun.elapsed());
    };
    std::thread::scope(|scope| {
        for args in [&["ps"][..], &["daemon", "status"], &["run", "-d", "--model", "script/demo", "x"]] {
            scope.spawn(move || check(args));
        }
    });
}

/// Listens on a socket whose queue is full: the listener, and the connections in its queue.
pub(crate) fn listen_and_be_full(path: &Path) -> Vec<OwnedFd> {
    let stream = || socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::NONBLOCK, None).unwrap();
    let (address, listener) = (SocketAddrUnix::new(path).unwrap(), stream());
    bind(&listener, &address).unwrap();
    listen(&listener, 0).unwrap();
    let mut all = vec![listener];
    loop {
        let connection = stream();
        match connect(&connection, &address) {
            Ok(()) => all.push(connection),
            Err(Errno::AGAIN) => return all,
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn a_listener_that_accepts_no_connections_is_not_waited_for() {
    let check = |args: &[&str]| {
        let world = World::new();
        let socket = world.root().join("full");
        let _queue = listen_and_be_full(&socket);
        let socket = socket.display().to_string();
        let begun = std::time::Instant::now();
        let waits = format!("waiting for the program that listens on {socket} and accepts no connections\n");
        let fails =
            format!("error: {socket}: the program that listens on this socket has not accepted a connection for");
        let said = world.relive_with(&[("RELIVE_SOCKET", &socket)], args);
        said.fails(6, &[&waits, &fails, "hint: unset RELIVE_SOCKET\n"]);
        assert!(begun.elapsed() < WITHIN / 2, "{:?}", begun.elapsed());
    };
    std::thread::scope(|scope| {
        for args in [&["ps"][..], &["daemon", "status"], &["daemon", "stop"], &["exec", "-d", "--", "true"]] {
            scope.spawn(move || check(args));
        }
    });
}
