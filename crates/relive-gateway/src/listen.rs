//! The sockets that listen at the ports of processes.
//!
//! The daemon opens the socket of a process. The gateway, the daemon and the shim of the process each have it, so that it
//! stays when a gateway is killed or replaced: connections wait in its queue for the next one.

use std::io;
use std::net::Ipv4Addr;
use std::os::fd::OwnedFd;

use tokio::net::TcpListener;

/// Opens a socket that listens on the loopback: at a port, or at any free one.
pub fn listen(port: Option<u16>) -> io::Result<OwnedFd> {
    std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, port.unwrap_or(0))).map(OwnedFd::from)
}

/// Returns the port at which a socket of the daemon listens.
pub fn port_of(listener: &OwnedFd) -> io::Result<u16> {
    std::net::TcpListener::from(listener.try_clone()?).local_addr().map(|address| address.port())
}

/// Accepts connections at a socket, which must be at this port.
pub(crate) fn accept_at(listener: OwnedFd, port: Option<u16>) -> io::Result<(TcpListener, u16)> {
    let listener = std::net::TcpListener::from(listener);
    let address = listener.local_addr()?;
    if !address.ip().is_loopback() || port.is_some_and(|port| port != address.port()) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("the socket listens at {address}")));
    }
    listener.set_nonblocking(true)?;
    Ok((TcpListener::from_std(listener)?, address.port()))
}
