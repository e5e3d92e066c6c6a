//! Somebody else listens where the daemon should: they hear nothing, and the user learns who it is.

use std::fs;
use std::io::Read as _;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Stdio;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

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
