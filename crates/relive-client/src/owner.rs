//! Whether it is our daemon that listens. A request may carry keys, so nothing is sent to anybody else.
//!
//! Who may take the socket's name is decided by its directory, and who listens is known by the kernel. Root may do
//! either: nothing can be kept from root.

use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use tokio::net::UnixStream;

const ROOT: u32 = 0;
const WRITABLE_BY_OTHERS: u32 = 0o022;
/// In such a directory only its owner, and the owner of a file, can replace the file.
const STICKY: u32 = 0o1000;

/// Somebody else listens on the daemon's socket, or could.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the names of the fields say it")]
pub enum UnsafeSocket {
    /// The directory of the socket belongs to somebody else.
    #[error("{}: the directory of the daemon's socket belongs to uid {uid}, not to you (uid {ours})", path.display())]
    DirectoryOwner { path: PathBuf, uid: u32, ours: u32 },
    /// Others can put a socket of theirs in the place of ours.
    #[error("{}: others can write to the directory of the daemon's socket (mode {mode:04o})", path.display())]
    DirectoryMode { path: PathBuf, mode: u32 },
    /// The socket belongs to somebody else.
    #[error("{}: the daemon's socket belongs to uid {uid}, not to you (uid {ours})", path.display())]
    SocketOwner { path: PathBuf, uid: u32, ours: u32 },
    /// Somebody else listens on the socket.
    #[error("{}: a process of uid {uid} listens on the daemon's socket, and you are uid {ours}", path.display())]
    Listener { path: PathBuf, uid: u32, ours: u32 },
}

fn is_trusted(uid: u32, ours: u32) -> bool {
    uid == ours || uid == ROOT
}

/// Checks the socket and its directory. What is not there, or cannot be looked at, is told by connecting.
pub(crate) fn check_path(socket: &Path) -> Result<(), UnsafeSocket> {
    let ours = rustix::process::geteuid().as_raw();
    let directory = match socket.parent() {
        Some(parent) if parent != Path::new("") => parent,
        Some(_) | None => Path::new("."),
    };
    let path = directory.to_owned();
    match directory.metadata() {
        Ok(found) if !is_trusted(found.uid(), ours) => {
            return Err(UnsafeSocket::DirectoryOwner { path, uid: found.uid(), ours });
        }
        Ok(found) if found.mode() & WRITABLE_BY_OTHERS != 0 && found.mode() & STICKY == 0 => {
            return Err(UnsafeSocket::DirectoryMode { path, mode: found.mode() & 0o7777 });
        }
        Ok(_) | Err(_) => {}
    }
    match socket.symlink_metadata() {
        Ok(found) if !is_trusted(found.uid(), ours) => {
            Err(UnsafeSocket::SocketOwner { path: socket.to_owned(), uid: found.uid(), ours })
        }
        Ok(_) | Err(_) => Ok(()),
    }
}

/// Who listens at the other end of a connection.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Listener {
    uid: u32,
    /// Absent where it is in another PID namespace.
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
