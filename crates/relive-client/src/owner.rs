//! Verifies that the user's own daemon listens. A request may contain keys, so nothing is sent to anybody else.
//!
//! The directory determines who may replace the socket, and the kernel knows who listens. Root may do either: nothing
//! can be kept from root.

use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use relive_api::{UnsafeDirectory, check_directory};
use tokio::net::UnixStream;

const ROOT: u32 = 0;

/// Another user listens on the daemon's socket, or could.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnsafeSocket {
    /// Other users can replace the socket.
    #[error(transparent)]
    Directory(#[from] UnsafeDirectory),
    /// The socket belongs to another user.
    #[error("{}: the daemon's socket belongs to uid {uid}, not to you (uid {ours})", path.display())]
    SocketOwner { path: PathBuf, uid: u32, ours: u32 },
    /// Another user listens on the socket.
    #[error("{}: a process of uid {uid} listens on the daemon's socket, but you are uid {ours}", path.display())]
    Listener { path: PathBuf, uid: u32, ours: u32 },
}

fn is_trusted(uid: u32, ours: u32) -> bool {
    uid == ours || uid == ROOT
}

/// Checks the socket and its directory. Connecting reports a missing or inaccessible one.
pub(crate) fn check_path(socket: &Path) -> Result<(), UnsafeSocket> {
    let ours = rustix::process::geteuid().as_raw();
    let directory = match socket.parent() {
        Some(parent) if parent != Path::new("") => parent,
        Some(_) | None => Path::new("."),
    };
    check_directory(directory)?;
    match socket.symlink_metadata() {
        Ok(found) if !is_trusted(found.uid(), ours) => {
            Err(UnsafeSocket::SocketOwner { path: socket.to_owned(), uid: found.uid(), ours })
        }
        Ok(_) | Err(_) => Ok(()),
    }
}

/// The process at the other end of a connection.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Listener {
    uid: u32,
    /// Absent if it is in another PID namespace.
    pub(crate) os_pid: Option<u32>,
}

impl Listener {
    pub(crate) fn of(stream: &UnixStream) -> io::Result<Self> {
        let peer = stream.peer_cred()?;
        let os_pid = peer.pid().and_then(|pid| u32::try_from(pid).ok()).filter(|pid| *pid > 0);
        Ok(Self { uid: peer.uid(), os_pid })
    }

    pub(crate) fn check(self, socket: &Path) -> Result<(), UnsafeSocket> {
        let ours = rustix::process::geteuid().as_raw();
        if is_trusted(self.uid, ours) {
            return Ok(());
        }
        Err(UnsafeSocket::Listener { path: socket.to_owned(), uid: self.uid, ours })
    }
}
