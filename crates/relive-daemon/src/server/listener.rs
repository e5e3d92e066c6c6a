//! The unix socket: one daemon's, for one uid.

use std::io;
use std::os::unix::fs::{DirBuilderExt as _, FileTypeExt as _, PermissionsExt as _};
use std::os::unix::net::UnixStream as Probe;
use std::path::Path;
use std::sync::Arc;

use axum::serve::Listener;
use relive_journal::Disk;
use tokio::net::unix::SocketAddr;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// How many connections are open at once; the next one waits.
const CONNECTIONS_MAX: usize = 1024;

/// Why the socket cannot be had.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BindError {
    #[error("{path}: something else answers there, and it has not this data folder", path = .0.display())]
    Foreign(std::path::PathBuf),
    #[error("{path}: there is something that is no socket, and it is left alone", path = .0.display())]
    NoSocket(std::path::PathBuf),
    #[error("{path}: {source}", path = path.display())]
    Io { path: std::path::PathBuf, source: io::Error },
}

/// The daemon's socket.
#[derive(Debug)]
pub(crate) struct Gate {
    listener: UnixListener,
    uid: u32,
    slots: Arc<Semaphore>,
}

/// Takes the socket's name. Whoever calls has the data folder's lock, so a socket nobody answers is a dead daemon's.
pub(crate) fn bind(path: &Path) -> Result<Gate, BindError> {
    let failed = |source| BindError::Io { path: path.to_owned(), source };
    if let Some(folder) = path.parent() {
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(failed)?;
    }
    if let Ok(found) = std::fs::symlink_metadata(path) {
        if !found.file_type().is_socket() {
            return Err(BindError::NoSocket(path.to_owned()));
        }
        if Probe::connect(path).is_ok() {
            return Err(BindError::Foreign(path.to_owned()));
        }
        Disk::new().unlink(path).map_err(failed)?;
    }
    let listener = UnixListener::bind(path).map_err(failed)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).map_err(failed)?;
    let uid = rustix::process::getuid().as_raw();
    Ok(Gate { listener, uid, slots: Arc::new(Semaphore::new(CONNECTIONS_MAX)) })
}

impl Listener for Gate {
    type Io = Counted;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Counted, SocketAddr) {
        loop {
            let Ok(slot) = Arc::clone(&self.slots).acquire_owned().await else { std::future::pending().await };
            match self.listener.accept().await {
                Ok((stream, address)) => match stream.peer_cred() {
                    Ok(peer) if peer.uid() == self.uid => return (Counted { stream, _slot: slot }, address),
                    Ok(peer) => tracing::warn!("refused a connection of uid {}", peer.uid()),
                    Err(error) => tracing::warn!("refused a connection: {error}"),
                },
                Err(error) => {
                    // Out of descriptors, as a rule: it passes.
                    tracing::warn!("cannot accept a connection: {error}");
                    tokio::time::sleep(std::time::Duration::from_millis(100)).await;
                }
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// A connection that counts while it is open.
#[derive(Debug)]
pub(crate) struct Counted {
    stream: UnixStream,
    _slot: OwnedSemaphorePermit,
}

mod pass_through {
    use std::io;
    use std::pin::Pin;
    use std::task::{Context, Poll};

    use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

    use super::Counted;

    impl AsyncRead for Counted {
        fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
            Pin::new(&mut self.stream).poll_read(cx, buf)
        }
    }

    impl AsyncWrite for Counted {
        fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
            Pin::new(&mut self.stream).poll_write(cx, buf)
        }

        fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            Pin::new(&mut self.stream).poll_flush(cx)
        }

        fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            Pin::new(&mut self.stream).poll_shutdown(cx)
        }
    }
}
