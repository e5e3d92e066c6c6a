//! One connection to the daemon. It is kept for the next request.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;

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
    /// Its socket, to see whether the daemon has hung up while nobody looked.
    socket: OwnedFd,
    pub(crate) listener: Listener,
}

impl Connection {
    /// Connects to the daemon, and makes sure that it is nobody else.
    pub(crate) async fn open(socket: &Path) -> Result<Self, Error> {
        owner::check_path(socket)?;
        let stream = connect(socket).await?;
        let listener = Listener::of(&stream).map_err(|error| Error::Lost(error.into()))?;
        listener.check(socket)?;
        let kept = stream.as_fd().try_clone_to_owned().map_err(|error| Error::Lost(error.into()))?;
        let (sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(|error| judge(socket, error))?;
        // Ends by itself when the sender and the answer's body are gone.
        tokio::spawn(connection);
        Ok(Self { sender, socket: kept, listener })
    }

    /// Tells whether it takes another request: the answer to the one before was read, and the daemon did not hang up.
    pub(crate) async fn is_ready(&mut self) -> bool {
        // Between two calls of a blocking client nothing else notices a daemon that was killed.
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
        } else if matches!(error.kind(), WouldBlock | ConnectionReset) {
            // A daemon that has more callers than it has taken yet.
            Error::Lost(error.into())
        } else {
            Error::CannotConnect { socket: socket.to_owned(), source: error }
        }
    })
}
