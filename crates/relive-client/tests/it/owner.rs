//! Which listeners are accepted in the daemon's place.

use std::fs::Permissions;
use std::io::Read as _;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use relive_api::UnsafeDirectory;
use relive_client::{BlockingClient, Client, Error, UnsafeSocket};
use rustix::process::Uid;
use tempfile::TempDir;

const NOBODY: u32 = 65534;

/// Runs `work` as another user; `None`, with a message, if that is not permitted.
fn as_nobody<T: Send>(work: impl FnOnce() -> T + Send) -> Option<T> {
    std::thread::scope(|scope| {
        let worker = scope.spawn(|| {
            let nobody = Uid::from_raw(NOBODY);
            // For this thread alone.
            if rustix::thread::set_thread_res_uid(nobody, nobody, nobody).is_err() {
                eprintln!("skipped: only root can listen as another user");
                return None;
            }
            Some(work())
        });
        worker.join().unwrap()
    })
}

fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

/// Returns a directory that others can read.
fn directory(mode: u32) -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    set_mode(directory.path(), mode);
    let socket = directory.path().join("socket");
    (directory, socket)
}

fn ask(socket: &Path) -> Result<(), Error> {
    BlockingClient::new(Client::new(socket)).unwrap().call(Client::connect)
}

#[track_caller]
fn check(socket: &Path, expected: &UnsafeSocket) {
    match ask(socket) {
        Err(Error::Unsafe(found)) => assert_eq!(found, *expected),
        other => panic!("{other:?}"),
    }
}

fn ours() -> u32 {
    rustix::process::geteuid().as_raw()
}

#[test]
fn a_socket_of_the_same_user_is_used() {
    for mode in [0o700, 0o755, 0o1777] {
        let (_directory, socket) = directory(mode);
        assert!(matches!(ask(&socket), Err(Error::NotRunning(_))), "there is none yet, mode {mode:o}");
        let _listener = UnixListener::bind(&socket).unwrap();
        assert!(ask(&socket).is_ok(), "mode {mode:o}");
    }
}

#[test]
fn a_directory_that_others_can_write_to_is_refused() {
    for mode in [0o777, 0o770, 0o707] {
        let (directory, socket) = directory(mode);
        let _listener = UnixListener::bind(&socket).unwrap();
        check(&socket, &UnsafeDirectory::Mode { path: directory.path().to_owned(), mode }.into());
    }
}

#[test]
fn a_socket_directory_of_another_user_is_refused() {
    let (directory, _) = directory(0o777);
    let theirs = directory.path().join("theirs");
    let Some(_listener) = as_nobody(|| {
        std::fs::create_dir(&theirs).unwrap();
        UnixListener::bind(theirs.join("socket")).unwrap()
    }) else {
        return;
    };
    set_mode(directory.path(), 0o755);
    check(&theirs.join("socket"), &UnsafeDirectory::Owner { path: theirs, uid: NOBODY, ours: ours() }.into());
}

#[test]
fn a_socket_of_another_user_is_refused() {
    let (_directory, socket) = directory(0o1777);
    let Some(_listener) = as_nobody(|| UnixListener::bind(&socket).unwrap()) else { return };
    check(&socket, &UnsafeSocket::SocketOwner { path: socket.clone(), uid: NOBODY, ours: ours() });
}

#[test]
fn a_listener_of_another_user_is_refused_and_receives_nothing() {
    let (_directory, socket) = directory(0o1777);
    let Some(listener) = as_nobody(|| UnixListener::bind(&socket).unwrap()) else { return };
    // The socket file itself is ours.
    chown(&socket, Some(ours()), None).unwrap();
    check(&socket, &UnsafeSocket::Listener { path: socket.clone(), uid: NOBODY, ours: ours() });
    let (mut connection, _) = listener.accept().unwrap();
    let mut heard = Vec::new();
    connection.read_to_end(&mut heard).unwrap();
    assert_eq!(heard, b"");
}

#[test]
fn a_directory_whose_parent_somebody_else_can_swap_is_refused_and_nobody_hears_a_thing() {
    let (directory, _) = directory(0o755);
    let (theirs, ours_below) = (directory.path().join("theirs"), directory.path().join("theirs/ours"));
    std::fs::create_dir_all(&ours_below).unwrap();
    let listener = UnixListener::bind(ours_below.join("socket")).unwrap();
    if chown(&theirs, Some(NOBODY), None).is_err() {
        eprintln!("skipped: only root can give something to somebody else");
        return;
    }
    check(&ours_below.join("socket"), &UnsafeDirectory::Owner { path: theirs, uid: NOBODY, ours: ours() }.into());
    // A link that somebody else can point elsewhere.
    let (real, link) = (directory.path().join("real"), directory.path().join("link"));
    std::fs::create_dir(&real).unwrap();
    let other = UnixListener::bind(real.join("socket")).unwrap();
    std::os::unix::fs::symlink(&real, &link).unwrap();
    std::os::unix::fs::lchown(&link, Some(NOBODY), None).unwrap();
    check(&link.join("socket"), &UnsafeDirectory::Owner { path: link, uid: NOBODY, ours: ours() }.into());
    for listener in [listener, other] {
        listener.set_nonblocking(true).unwrap();
        assert_eq!(listener.accept().unwrap_err().kind(), std::io::ErrorKind::WouldBlock, "nobody connected");
    }
}
