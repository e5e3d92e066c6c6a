//! One connection to the daemon, kept for the next request.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use tokio::net::UnixStream;

use crate::error::Error;
use crate::http::judge;
use crate::owner::{self, Listener};

#[derive(Debug)]
pub(crate) struct Connection {
    sender: SendRequest<Full<Bytes>>,
    /// The socket, to detect that the daemon has hung up in the meantime.
    socket: OwnedFd,
    pub(crate) listener: Listener,
}

impl Connection {
    /// Connects to the daemon, and verifies its owner.
    pub(crate) async fn open(socket: &Path) -> Result<Self, Error> {
        owner::check_path(socket)?;
        let stream = connect(socket).await?;
        let listener = Listener::of(&stream).map_err(|error| Error::Lost(error.into()))?;
        listener.check(socket)?;
        let kept = stream.as_fd().try_clone_to_owned().map_err(|error| Error::Lost(error.into()))?;
        let (sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(|error| judge(socket, error))?;
        // Ends on its own when the sender and the answer's body are gone.
        tokio::spawn(connection);
        Ok(Self { sender, socket: kept, listener })
    }

    /// Returns whether it accepts another request: the previous answer was read, and the daemon did not hang up.
    pub(crate) async fn is_ready(&mut self) -> bool {
        // Between two calls of a blocking client nothing else notices that a daemon was killed.
        let has_hung_up =
            !matches!(recv(&self.socket, &mut [0_u8], RecvFlags::PEEK | RecvFlags::DONTWAIT), Err(Errno::AGAIN));
        !has_hung_up && self.sender.ready().await.is_ok()
    }

    pub(crate) async fn send(&mut self, request: Request<Full<Bytes>>) -> hyper::Result<Response<Incoming>> {
        self.sender.send_request(request).await
    }
}

async fn connect(socket: &Path) -> Result<UnixStream, Error> {
    use io::ErrorKind::{ConnectionRefused, ConnectionReset, NotFound, WouldBlock};
    UnixStream::connect(socket).await.map_err(|error| {
        if matches!(error.kind(), NotFound | ConnectionRefused) {
            Error::NotRunning(error)
        } else if error.kind() == WouldBlock {
            Error::Full { socket: socket.to_owned(), within: Duration::ZERO, daemon: None }
        } else if error.kind() == ConnectionReset {
            Error::Lost(error.into())
        } else {
            Error::CannotConnect { socket: socket.to_owned(), source: error }
        }
    })
}
