//! One packet of a SEQPACKET socket, with one descriptor or none.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags,
};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// A received packet.
#[derive(Debug)]
pub(crate) struct Received {
    /// The length of the packet; 0 at the end.
    pub(crate) length: usize,
    /// Whether the packet was longer than the buffer.
    pub(crate) truncated: bool,
    pub(crate) descriptor: Option<OwnedFd>,
}

/// Registers a descriptor with the runtime.
pub(crate) fn watch(descriptor: OwnedFd, interest: Interest) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: it is owned, and stays open as long as it is registered.
    Ok(unsafe { AsyncFd::register_with_interest(descriptor, interest) }?)
}

/// Sends one packet, whole or not at all; `WouldBlock` if there is no space for it.
pub(crate) fn send(socket: impl AsFd, parts: &[&[u8]], descriptor: Option<BorrowedFd<'_>>) -> io::Result<()> {
    let parts: Vec<IoSlice<'_>> = parts.iter().map(|part| IoSlice::new(part)).collect();
    let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut room);
    let descriptors = descriptor.map(|descriptor| [descriptor]);
    if let Some(descriptors) = &descriptors {
        control.push(SendAncillaryMessage::ScmRights(descriptors));
    }
    rustix::net::sendmsg(socket, &parts, &mut control, SendFlags::NOSIGNAL | SendFlags::DONTWAIT)?;
    Ok(())
}

/// Receives one packet; `WouldBlock` if there is none.
pub(crate) fn receive(socket: impl AsFd, buffer: &mut [u8]) -> io::Result<Received> {
    let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    loop {
        let mut control = RecvAncillaryBuffer::new(&mut room);
        let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
        match rustix::net::recvmsg(&socket, &mut [IoSliceMut::new(buffer)], &mut control, flags) {
            Ok(received) => {
                let descriptor = control.drain().find_map(|message| {
                    if let RecvAncillaryMessage::ScmRights(mut descriptors) = message {
                        descriptors.next()
                    } else {
                        None
                    }
                });
                let truncated = received.flags.contains(ReturnFlags::TRUNC);
                return Ok(Received { length: received.bytes.min(buffer.len()), truncated, descriptor });
            }
            // Reported once if the other side left something unread; packets it sent before can still be received.
            Err(Errno::CONNRESET | Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Splits a packet into the line of JSON and the bytes after it.
pub(crate) fn split(packet: &[u8]) -> (&[u8], &[u8]) {
    match packet.iter().position(|byte| *byte == b'\n') {
        Some(end) => (&packet[..end], &packet[end + 1..]),
        None => (packet, &[]),
    }
}
