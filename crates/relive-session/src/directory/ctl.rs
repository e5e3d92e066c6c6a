//! The shim's socket in the directory of its session.
//!
//! The program can remove it, and put anything in its place: the shim makes it again under a name that nobody knows before,
//! and moves away whatever is where it belongs.

use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::fs::{AtFlags, FileType, Mode};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use super::{FILE_MODE, RecordedStage, SessionDirectory};
use crate::protocol::CONNECTIONS_MAX;

pub(super) const CTL: &str = "ctl";

impl SessionDirectory {
    /// Creates the socket that owners connect to, already listening.
    pub fn ctl_bind(&self) -> io::Result<OwnedFd> {
        self.bind_as(CTL)
    }

    /// Creates it again in the place of one that the program removed or replaced.
    pub(crate) fn ctl_bind_again(&self) -> io::Result<OwnedFd> {
        // The program may have made the directory read-only.
        let _ = rustix::fs::fchmod(&self.dir, Mode::RWXU);
        let new = unknown_name();
        let socket = self.bind_as(&new)?;
        match rustix::fs::renameat(&self.dir, &new, &self.dir, CTL) {
            // Only a directory cannot be replaced. What is in it is the program's.
            Err(Errno::ISDIR | Errno::EXIST | Errno::NOTEMPTY) => {
                rustix::fs::renameat(&self.dir, CTL, &self.dir, unknown_name())?;
                rustix::fs::renameat(&self.dir, &new, &self.dir, CTL)?;
            }
            renamed => renamed?,
        }
        Ok(socket)
    }

    fn bind_as(&self, name: &str) -> io::Result<OwnedFd> {
        let socket = ctl_socket()?;
        rustix::net::bind(&socket, &self.address(name)?)?;
        rustix::fs::chmodat(&self.dir, name, FILE_MODE, AtFlags::empty())?;
        rustix::net::listen(&socket, CONNECTIONS_MAX as i32)?;
        Ok(socket)
    }

    /// Returns whether its shim has had a socket that is not there any more, or that something else has replaced.
    pub(crate) fn has_lost_its_socket(&self) -> bool {
        let stage = self.read_state().ok().flatten().map(|state| state.stage);
        let found = rustix::fs::statat(&self.dir, CTL, AtFlags::SYMLINK_NOFOLLOW);
        let is_socket = found.is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Socket);
        stage == Some(RecordedStage::Running) && !is_socket
    }

    /// Removes the socket: the exit record tells everything.
    pub(crate) fn ctl_remove(&self) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(&self.dir, CTL, AtFlags::empty())?)
    }

    /// Connects to the shim; `WouldBlock` if too many clients already wait.
    pub fn ctl_connect(&self) -> io::Result<OwnedFd> {
        let socket = ctl_socket()?;
        rustix::net::connect(&socket, &self.address(CTL)?)?;
        Ok(socket)
    }

    fn address(&self, name: &str) -> io::Result<SocketAddrUnix> {
        // The address of a socket has space for 108 bytes; the directory's own path may be longer.
        Ok(SocketAddrUnix::new(format!("/proc/self/fd/{}/{name}", self.dir.as_raw_fd()))?)
    }
}

/// Returns a name by the clock: a program cannot take it before.
fn unknown_name() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos());
    format!("{CTL}.{now:x}")
}

fn ctl_socket() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?)
}
