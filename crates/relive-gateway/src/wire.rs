//! Lines on the control socket. A line may come with a descriptor.

use std::collections::VecDeque;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, OwnedFd};

use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use tokio::io::{AsyncWriteExt as _, Interest};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};

use crate::protocol::LINE_MAX;

const READ_BYTES: usize = 64 << 10;
/// How many descriptors wait for the lines that they belong to.
const DESCRIPTORS_MAX: usize = 16;

/// Writes a line, with a descriptor if there is one.
pub(crate) async fn write(to: &mut OwnedWriteHalf, line: &[u8], descriptor: Option<OwnedFd>) -> io::Result<()> {
    let Some(descriptor) = descriptor else { return to.write_all(line).await };
    let stream = to.as_ref();
    let sent = stream.async_io(Interest::WRITABLE, || {
        let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut room);
        let descriptors = [descriptor.as_fd()];
        control.push(SendAncillaryMessage::ScmRights(&descriptors));
        Ok(rustix::net::sendmsg(stream, &[IoSlice::new(line)], &mut control, SendFlags::NOSIGNAL)?)
    });
    let sent = sent.await?;
    to.write_all(&line[sent..]).await
}

/// Reads lines, and the descriptors that came with some of them, in their order.
pub(crate) struct Lines {
    from: OwnedReadHalf,
    received: Vec<u8>,
    pub(crate) descriptors: VecDeque<OwnedFd>,
}

impl Lines {
    pub(crate) fn new(from: OwnedReadHalf) -> Self {
        Self { from, received: Vec::new(), descriptors: VecDeque::new() }
    }

    /// Returns the next line; `None` at the end.
    pub(crate) async fn next(&mut self) -> io::Result<Option<Vec<u8>>> {
        let mut searched = 0;
        loop {
            if let Some(end) = memchr::memchr(b'\n', &self.received[searched..]) {
                let rest = self.received.split_off(searched + end + 1);
                return Ok(Some(std::mem::replace(&mut self.received, rest)));
            }
            searched = self.received.len();
            if searched > LINE_MAX || self.descriptors.len() > DESCRIPTORS_MAX {
                return Err(io::ErrorKind::InvalidData.into());
            }
            if self.receive().await? == 0 {
                return Ok(None);
            }
        }
    }

    async fn receive(&mut self) -> io::Result<usize> {
        let mut buffer = vec![0; READ_BYTES];
        let (stream, descriptors) = (self.from.as_ref(), &mut self.descriptors);
        let received = stream.async_io(Interest::READABLE, || {
            let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut control = RecvAncillaryBuffer::new(&mut room);
            let into = &mut [IoSliceMut::new(&mut buffer)];
            let received = rustix::net::recvmsg(stream, into, &mut control, RecvFlags::CMSG_CLOEXEC)?;
            for message in control.drain() {
                if let RecvAncillaryMessage::ScmRights(received) = message {
                    descriptors.extend(received);
                }
            }
            Ok(received.bytes)
        });
        let count = received.await?;
        self.received.extend_from_slice(&buffer[..count]);
        Ok(count)
    }
}
