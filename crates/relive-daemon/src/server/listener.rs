//! The unix socket: one daemon, one uid.

use std::io;
use std::os::unix::fs::{DirBuilderExt as _, FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use axum::Router;
use relive_api::{UnsafeDirectory, check_directory};
use relive_journal::{DataDirectory, Disk};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior};

use super::connections::Connections;
use super::identity::Identities;

/// How long to wait after a failed accept, and how often that is logged.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);
const LOG_EVERY: Duration = Duration::from_secs(10);
/// How often to check that the socket file is still there. An idle daemon wakes up for it.
const CHECK_EVERY: Duration = Duration::from_secs(5);

/// The reason why the socket cannot be bound.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BindError {
    #[error("{path}: another program listens on this socket", path = .0.display())]
    Foreign(PathBuf),
    #[error("{path}: exists and is not a socket", path = .0.display())]
    NoSocket(PathBuf),
    #[error(transparent)]
    Unsafe(#[from] UnsafeDirectory),
    #[error("{path}: {source}", path = path.display())]
    Io { path: PathBuf, source: io::Error },
}

/// The daemon's socket.
#[derive(Debug)]
pub(crate) struct Socket {
    listener: UnixListener,
    file: SocketFile,
}

/// The socket file.
#[derive(Debug)]
pub(crate) struct SocketFile {
    path: PathBuf,
    device: u64,
    inode: u64,
}

/// Binds the socket. The caller holds the data directory's lock, so a socket without an answer belongs to a dead
/// daemon.
pub(crate) async fn bind(path: &Path) -> Result<Socket, BindError> {
    let failed = |source| BindError::Io { path: path.to_owned(), source };
    if let Some(directory) = path.parent() {
        // Also before anything is made in a directory that is not ours to make something in.
        check_directory(directory)?;
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(failed)?;
        check_directory(directory)?;
    }
    if let Ok(found) = std::fs::symlink_metadata(path) {
        if !found.file_type().is_socket() {
            return Err(BindError::NoSocket(path.to_owned()));
        }
        // It does not block: a listener with a full queue is alive as well.
        match UnixStream::connect(path).await {
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                Disk::new().unlink(path).map_err(failed)?
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Ok(_) | Err(_) => return Err(BindError::Foreign(path.to_owned())),
        }
    }
    let listener = UnixListener::bind(path).map_err(failed)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).map_err(failed)?;
    let bound = std::fs::symlink_metadata(path).map_err(failed)?;
    let file = SocketFile { path: path.to_owned(), device: bound.dev(), inode: bound.ino() };
    Ok(Socket { listener, file })
}

impl SocketFile {
    /// Removes the file, unless another program has replaced it.
    pub(crate) fn remove(self) {
        if self.is_there() {
            let _ = Disk::new().unlink(&self.path);
        }
    }

    fn is_there(&self) -> bool {
        let found = std::fs::symlink_metadata(&self.path);
        found.is_ok_and(|found| (found.dev(), found.ino()) == (self.device, self.inode))
    }
}

impl Socket {
    /// Accepts connections until the daemon stops.
    pub(crate) async fn accept(
        mut self,
        connections: &Connections,
        identities: &Identities,
        router: &Router,
        data: &DataDirectory,
        mut stop: watch::Receiver<bool>,
    ) -> SocketFile {
        let uid = rustix::process::getuid().as_raw();
        let (mut logged, mut refused) = (None::<Instant>, None);
        let mut checks = tokio::time::interval(CHECK_EVERY);
        checks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let next = tokio::select! {
                biased;
                _ = stop.wait_for(|stopping| *stopping) => return self.file,
                _ = checks.tick() => None,
                next = async { (connections.accepts().await, self.listener.accept().await) } => Some(next),
            };
            let Some((turn, accepted)) = next else {
                self.listen_again(data, &mut refused).await;
                continue;
            };
            match accepted.and_then(|(stream, _)| Ok((stream.peer_cred()?.uid(), stream))) {
                Ok((peer, stream)) if peer == uid => {
                    let identities = identities.clone();
                    connections.serve(stream, move |stream| identities.caller(stream), router.clone(), turn);
                }
                Ok((peer, _)) => tracing::warn!("refused a connection of uid {peer}"),
                Err(error) => {
                    // Usually out of descriptors.
                    if logged.is_none_or(|logged| logged.elapsed() >= LOG_EVERY) {
                        tracing::warn!("cannot accept a connection: {error}");
                        logged = Some(Instant::now());
                    }
                    connections.make_room();
                    tokio::time::sleep(ACCEPT_AGAIN).await;
                }
            }
        }
    }

    /// Binds the socket again if its file was removed or replaced, as by a cleaner of `/tmp` or at a logout: nobody could
    /// reach this daemon, and no other can start. The reason why it cannot is logged once.
    async fn listen_again(&mut self, data: &DataDirectory, refused: &mut Option<String>) {
        if self.file.is_there() {
            *refused = None;
            return;
        }
        match bind(&self.file.path).await {
            Ok(socket) => {
                tracing::warn!("{}: the socket was gone; listening again", self.file.path.display());
                *self = socket;
                // Only for messages.
                let _ = data.tell_socket(&self.file.path);
            }
            Err(error) => {
                let reason = error.to_string();
                if refused.as_ref() != Some(&reason) {
                    tracing::warn!("the socket is gone, and cannot be bound again: {reason}");
                    *refused = Some(reason);
                }
            }
        }
    }
}
