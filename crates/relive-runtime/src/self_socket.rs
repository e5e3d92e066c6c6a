//! The socket of one process: whoever connects to it from inside of the process is that process.
//!
//! It is there while a program of the process may run, so a suspended agent has none. It is next to the daemon's own
//! socket, in a directory that is the user's alone. A daemon that is killed leaves its name behind; the next one takes it.
//!
//! Each process has a directory for it, which stays while the process lives: an isolated program has that directory mounted,
//! and finds the socket of the next daemon in it, and no socket of another process.

use std::collections::HashSet;
use std::io;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use relive_api::Paths;
use relive_core::Uuid;
use relive_journal::Disk;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

/// How many connections wait to be served; more wait in the system's queue.
const WAITING_MAX: usize = 64;
/// The longest path a unix socket may have.
const PATH_MAX: usize = 107;

/// How long accepting pauses after it failed.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);

/// A connection to the socket of a process.
#[derive(Debug)]
pub struct SelfConnection {
    /// Whose socket it is.
    pub uuid: Uuid,
    /// The connection.
    pub stream: UnixStream,
}

/// The sockets of all processes.
#[derive(Debug)]
pub(crate) struct SelfSockets {
    paths: Paths,
    disk: Disk,
    /// Where programs find the daemon.
    address: Vec<(String, String)>,
    accepted: mpsc::Sender<SelfConnection>,
    connections: Mutex<Option<mpsc::Receiver<SelfConnection>>>,
}

/// The socket of one process, until it is dropped.
#[derive(Debug)]
pub(crate) struct SelfSocket {
    path: PathBuf,
    disk: Disk,
    device: u64,
    inode: u64,
    accepting: AbortHandle,
}

impl SelfSockets {
    pub(crate) fn new(paths: &Paths) -> Arc<Self> {
        let (accepted, connections) = mpsc::channel(WAITING_MAX);
        let text = |path: &Path| path.to_str().map(str::to_owned);
        let address = [("RELIVE_DATA_DIR", text(&paths.data)), ("RELIVE_SOCKET", text(&paths.socket))];
        Arc::new(Self {
            paths: paths.clone(),
            disk: Disk::new(),
            address: address.into_iter().filter_map(|(name, path)| Some((name.to_owned(), path?))).collect(),
            accepted,
            connections: Mutex::new(Some(connections)),
        })
    }

    /// Returns the connections to come, once.
    pub(crate) fn connections(&self) -> Option<mpsc::Receiver<SelfConnection>> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Listens on the socket of a process; in the directory of the process whose session it has entered, if it has.
    pub(crate) fn open(&self, uuid: Uuid, entered: Option<Uuid>) -> io::Result<SelfSocket> {
        let path = match entered {
            None => self.paths.own_socket(uuid),
            Some(entered) => self.paths.entered_socket(uuid, entered),
        };
        if path.as_os_str().len() > PATH_MAX {
            return Err(io::Error::other(format!("{}: too long for a socket", path.display())));
        }
        self.make_directory(&self.paths.own_sockets())?;
        if let Some(directory) = path.parent() {
            if directory.symlink_metadata().is_ok_and(|found| !found.is_dir()) {
                // The socket that an earlier version had in this place.
                self.disk.unlink(directory)?;
            }
            self.make_directory(directory)?;
        }
        // Left by a daemon that was killed: nobody else makes one of this name.
        self.disk.unlink(&path)?;
        let listener = UnixListener::bind(&path)?;
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))?;
        let bound = std::fs::symlink_metadata(&path)?;
        let accepted = self.accepted.clone();
        let accepting = tokio::spawn(async move {
            pass_on(uuid, accepted, |cx| listener.poll_accept(cx).map_ok(|(stream, _)| stream)).await;
        });
        let (device, inode) = (bound.dev(), bound.ino());
        Ok(SelfSocket { path, disk: self.disk.clone(), device, inode, accepting: accepting.abort_handle() })
    }

    /// Adds what the programs of a process find Relive by: the daemon, and the socket of the process if it has one.
    pub(crate) fn added_to(
        &self,
        mut environment: Vec<(String, String)>,
        socket: Option<&SelfSocket>,
    ) -> Vec<(String, String)> {
        let own =
            socket.and_then(|socket| socket.path.to_str()).map(|path| ("RELIVE_SELF".to_owned(), path.to_owned()));
        let added: Vec<_> = self.address.iter().cloned().chain(own).collect();
        environment.retain(|(name, _)| !added.iter().any(|(other, _)| other == name));
        environment.extend(added);
        environment
    }

    /// Removes the directory of a process that has ended. That of one in whose session another one is stays.
    pub(crate) fn remove(&self, uuid: Uuid) {
        let socket = self.paths.own_socket(uuid);
        if let Some(directory) = socket.parent().filter(|directory| directory.exists()) {
            let _ = self.disk.unlink(&socket);
            let _ = rustix::fs::rmdir(directory);
        }
    }

    /// Removes what daemons that were killed have left of processes that are not among these.
    pub(crate) fn keep_only(&self, living: &HashSet<Uuid>) {
        for entry in std::fs::read_dir(self.paths.own_sockets()).into_iter().flatten().flatten() {
            let uuid = entry.file_name().to_str().and_then(|name| Uuid::try_parse(name).ok());
            if uuid.is_none_or(|uuid| living.contains(&uuid)) {
                continue;
            }
            let left = entry.path();
            for socket in std::fs::read_dir(&left).into_iter().flatten().flatten() {
                let _ = self.disk.unlink(&socket.path());
            }
            // A socket of an earlier version is no directory.
            if rustix::fs::rmdir(&left).is_err() {
                let _ = self.disk.unlink(&left);
            }
        }
    }

    fn make_directory(&self, directory: &Path) -> io::Result<()> {
        match self.disk.mkdir(directory) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            made => made?,
        }
        let found = std::fs::symlink_metadata(directory)?;
        let is_ours = found.is_dir() && found.uid() == rustix::process::getuid().as_raw();
        if is_ours && found.permissions().mode().trailing_zeros() >= 6 {
            return Ok(());
        }
        let message = format!("{}: not a directory of yours alone", directory.display());
        Err(io::Error::new(io::ErrorKind::PermissionDenied, message))
    }
}

/// Passes connections on until nobody takes them. Without a descriptor to spare one cannot be accepted, and waits.
async fn pass_on(
    uuid: Uuid,
    to: mpsc::Sender<SelfConnection>,
    mut accept: impl FnMut(&mut Context<'_>) -> Poll<io::Result<UnixStream>>,
) {
    loop {
        match std::future::poll_fn(&mut accept).await {
            Ok(stream) => {
                if to.send(SelfConnection { uuid, stream }).await.is_err() {
                    return;
                }
            }
            Err(error) => {
                tracing::debug!("the socket of {uuid} cannot accept a connection: {error}");
                tokio::time::sleep(ACCEPT_AGAIN).await;
            }
        }
    }
}

impl Drop for SelfSocket {
    fn drop(&mut self) {
        self.accepting.abort();
        let found = std::fs::symlink_metadata(&self.path);
        if found.is_ok_and(|found| (found.dev(), found.ino()) == (self.device, self.inode)) {
            let _ = self.disk.unlink(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_connection_is_passed_on_after_one_that_could_not_be_accepted() {
        let (to, mut passed) = mpsc::channel(1);
        let mut has_failed = false;
        let accept = |_: &mut Context<'_>| match std::mem::replace(&mut has_failed, true) {
            false => Poll::Ready(Err(io::Error::other("too many open files"))),
            true => Poll::Ready(UnixStream::pair().map(|(one, _)| one)),
        };
        let uuid = Uuid::from_u128(7);
        tokio::select! {
            () = pass_on(uuid, to, accept) => panic!("it has ended"),
            connection = passed.recv() => assert_eq!(connection.map(|connection| connection.uuid), Some(uuid)),
        }
    }
}
