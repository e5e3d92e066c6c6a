//! A spare shim: it waits until it is told which session it is the shim of.
//!
//! **Invariants:**
//! - it ends as soon as its owner is gone, and does nothing then;
//! - before it says that it is ready its command line has the path of the session, by which every owner finds it;
//! - it launches only when it has the lock of the session.

use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use rustix::event::{PollFd, PollFlags};
use rustix::fs::{Mode, OFlags};
use rustix::process::DumpableBehavior;

use super::birth::{self, Born};
use crate::launch::{ORDER_MAX, Order, PATH_ROOM, READY, is_filler};
use crate::proc;
use crate::tree::Ahead;
use crate::{SHIM, packet};

/// Returns whether a shim with this first argument is a spare.
pub(super) fn is_one(argument: &Path) -> bool {
    is_filler(argument.as_os_str().as_bytes())
}

/// Waits for the orders. The process ends when there will be none any more.
pub(super) fn wait() -> io::Result<Born> {
    // First of all: a spare that could not be found later is none.
    let room = CommandLine::of_this_process()?;
    let owner = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3)?;
    let null = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    rustix::stdio::dup2_stdin(&null)?;
    drop(null);
    // The terminal of its owner, if there is one, is not its own.
    let _ = rustix::process::setsid();
    // Nobody may attach to it while it waits, and read later what it is told.
    birth::hide();
    let mut buffer = vec![0; ORDER_MAX];
    let (mut told, mut ahead) = (None, None);
    loop {
        let Some((order, descriptor)) = next_order(&owner, &mut buffer)? else {
            // Its owner is gone: nobody waits for this process.
            drop(ahead);
            std::process::exit(0);
        };
        let descriptor = descriptor.ok_or(io::ErrorKind::InvalidData);
        match (order, told.take()) {
            // What cannot be done beforehand is done for the session.
            (Order::Prepare { plan }, _) => ahead = Ahead::join(&plan).ok().flatten(),
            (Order::Become { directory }, _) => {
                let descriptor = descriptor?;
                let spec = birth::read_spec(descriptor)?;
                room.set(&directory)?;
                packet::send(&owner, &[READY], None)?;
                told = Some((spec, directory));
            }
            (Order::Launch, Some((spec, directory))) => {
                rustix::process::set_dumpable_behavior(DumpableBehavior::Dumpable)?;
                return Ok(Born { owner, lock: descriptor?, spec, directory, ahead });
            }
            (Order::Launch, None) => return Err(io::ErrorKind::InvalidData.into()),
        }
    }
}

/// Waits for an order, which is `None` if there will be none.
fn next_order(owner: &OwnedFd, buffer: &mut [u8]) -> io::Result<Option<(Order, Option<OwnedFd>)>> {
    let received = loop {
        let mut watched = [PollFd::new(owner, PollFlags::IN)];
        match rustix::event::poll(&mut watched, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        match packet::receive(owner, buffer) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            received => break received?,
        }
    };
    if received.length == 0 {
        return Ok(None);
    }
    Ok(Some((serde_json::from_slice(&buffer[..received.length])?, received.descriptor)))
}

/// The part of this process's command line that has room for the path of its session.
struct CommandLine(Range<usize>);

impl CommandLine {
    fn of_this_process() -> io::Result<Self> {
        let unknown = || io::Error::from(io::ErrorKind::Unsupported);
        let all = proc::own_command_line().ok_or_else(unknown)?;
        let room = all.start + SHIM.len() + 1..all.end;
        // Each argument ends with a zero.
        if room.len() == PATH_ROOM + 1 { Ok(Self(room)) } else { Err(unknown()) }
    }

    /// Puts a path there, and looks whether others see it.
    fn set(&self, path: &Path) -> io::Result<()> {
        let bytes = path.as_os_str().as_bytes();
        let room = self.0.len().checked_sub(bytes.len()).filter(|room| *room > 0).ok_or(io::ErrorKind::InvalidInput)?;
        // SAFETY: the kernel has put the arguments of this process there, in its stack, writable; this process has one thread
        // and keeps no reference to them.
        unsafe {
            let text = self.0.start as *mut u8;
            text.copy_from(bytes.as_ptr(), bytes.len());
            text.add(bytes.len()).write_bytes(0, room);
        }
        let seen = proc::shim_directory(rustix::process::getpid().as_raw_nonzero().get());
        if seen.as_deref() == Some(path) { Ok(()) } else { Err(io::ErrorKind::Unsupported.into()) }
    }
}
