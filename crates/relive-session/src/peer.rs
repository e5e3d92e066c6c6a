//! Finds the session of the process at the other end of a connection.
//!
//! Every process of a session is a descendant of its shim, which adopts orphans. So the parents tell, on every rung of
//! the ladder: the outermost shim of Relive above a process is that of its session, and a program that pretends to be a
//! shim is below it. If the shim has died, the cgroup tells. A process that only its environment identifies is inside
//! an unknown session.
//!
//! A session is recognized by the UUID of its process, not by its path alone: the data directory may have been moved, or
//! be known by another name, since the session was started.

use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};
use std::path::Path;

use rustix::event::{PollFd, PollFlags, Timespec};

use crate::SHIM;
use crate::kernel_file;
use crate::proc::shim_directory;
use crate::tree::MARKER;

/// The length of a UUID with its hyphens.
const UUID_LENGTH: usize = 36;

/// Deeper nesting than any shell creates. A process behind a deeper one is not found.
const DEPTH_MAX: usize = 1000;
/// How often the parents are read again because one of them ended in the meantime.
const TRIES_MAX: usize = 16;
/// How much of a file in `/proc` is read.
const READ_MAX: usize = 256 << 10;

/// The place of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// In no session of Relive.
    Outside,
    /// In a session of the process with this UUID.
    Session(String),
    /// In an unknown session.
    Unknown,
}

/// The process that made a connection.
#[derive(Debug)]
pub struct Peer {
    pid: i32,
    /// Prevents confusion with a later process of the same pid; absent before Linux 6.5.
    pidfd: Option<OwnedFd>,
}

/// The data of a process that is needed to find its parents.
struct Link {
    parent: i32,
    start_time: u64,
    is_shim: bool,
}

impl Peer {
    /// Returns the process that made a connection; `None` if it is in a PID namespace that is not below this one, and
    /// so in no session of Relive.
    pub fn of(socket: impl AsFd) -> io::Result<Option<Self>> {
        let socket = socket.as_fd();
        let pid = peer_pid(&socket)?;
        Ok((pid > 0).then(|| Self { pid, pidfd: peer_pidfd(&socket) }))
    }

    /// Returns the process that asks.
    #[must_use]
    pub fn this_process() -> Self {
        Self { pid: rustix::process::getpid().as_raw_nonzero().get(), pidfd: None }
    }

    /// Finds the session of the process, among those of the processes whose directories are in `steps`, and whose leaves
    /// are in a directory called `prefix`.
    #[must_use]
    pub fn place(&self, steps: &Path, prefix: &str) -> Place {
        let Ok(place) = place_of(self.pid, steps, prefix) else { return Place::Unknown };
        // If it has ended, the data may be that of another process.
        if self.has_ended() { Place::Unknown } else { place }
    }

    fn has_ended(&self) -> bool {
        let Some(pidfd) = &self.pidfd else { return false };
        let mut watched = [PollFd::new(pidfd, PollFlags::IN)];
        rustix::event::poll(&mut watched, Some(&Timespec::default())).is_ok_and(|count| count > 0)
    }
}

/// Returns whether whoever made a connection is in no session of the data directory with this descriptor. If that cannot be
/// determined, it is not.
#[must_use]
pub fn is_outside(socket: BorrowedFd<'_>, data: BorrowedFd<'_>) -> bool {
    // Whatever its name is now. No directory of cgroups is called this, so that only the processes in it count.
    let (steps, prefix) = (format!("/proc/self/fd/{}/steps", data.as_raw_fd()), "/");
    match Peer::of(socket) {
        Ok(Some(peer)) => peer.place(Path::new(&steps), prefix) == Place::Outside,
        Ok(None) => true,
        Err(_) => false,
    }
}

/// Returns the UUID at the end of the name of a session.
#[must_use]
pub fn uuid_at_end(name: &str) -> Option<&str> {
    let uuid = name.get(name.len().checked_sub(UUID_LENGTH)?..)?;
    uuid.chars().all(|letter| letter.is_ascii_hexdigit() || letter == '-').then_some(uuid)
}

fn place_of(pid: i32, steps: &Path, prefix: &str) -> io::Result<Place> {
    if let Some(uuid) = shim_above(pid, steps)? {
        return Ok(Place::Session(uuid));
    }
    if let Some(uuid) = leaf_in(&read(pid, "cgroup")?, steps, prefix) {
        return Ok(Place::Session(uuid));
    }
    let environment = read(pid, "environ").unwrap_or_default();
    let marked = environment.split(|byte| *byte == 0).any(|entry| is_marked(entry, steps));
    Ok(if marked { Place::Unknown } else { Place::Outside })
}

/// Returns the process of the outermost shim of Relive at or above a process.
fn shim_above(pid: i32, steps: &Path) -> io::Result<Option<String>> {
    for _ in 0..TRIES_MAX {
        if let Some(found) = walk(pid, steps)? {
            return Ok(found);
        }
    }
    Err(io::ErrorKind::TimedOut.into())
}

/// Walks up once; `None` if a parent ended in the meantime.
fn walk(pid: i32, steps: &Path) -> io::Result<Option<Option<String>>> {
    // The process itself has to exist.
    let mut link = Link::of(pid)?;
    let (mut here, mut found) = (pid, None);
    for _ in 0..DEPTH_MAX {
        if link.is_shim
            && let Some(uuid) = shim_directory(here).and_then(|directory| process_of(&directory, steps))
        {
            found = Some(uuid);
        }
        here = link.parent;
        // Above the daemon are the sessions of whoever started it, if it was started in one.
        if here <= 0 || here == rustix::process::getpid().as_raw_nonzero().get() {
            return Ok(Some(found));
        }
        let Ok(above) = Link::of(here) else { return Ok(None) };
        // A parent is not younger than its child: this is another process with the parent's pid.
        if above.start_time > link.start_time {
            return Ok(None);
        }
        link = above;
    }
    Err(io::ErrorKind::InvalidData.into())
}

impl Link {
    fn of(pid: i32) -> io::Result<Self> {
        Self::parse(&kernel_file::read_once(format!("/proc/{pid}/stat"))?)
            .ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    fn parse(stat: &[u8]) -> Option<Self> {
        // The name, in brackets, may contain anything, including brackets and newlines.
        let (from, to) = (stat.iter().position(|byte| *byte == b'(')?, stat.iter().rposition(|byte| *byte == b')')?);
        let is_shim = stat.get(from + 1..to)? == SHIM.as_bytes();
        let fields = std::str::from_utf8(stat.get(to + 2..)?).ok()?;
        let mut fields = fields.split_ascii_whitespace().skip(1);
        let parent = fields.next()?.parse().ok()?;
        let start_time = fields.nth(17)?.parse().ok()?;
        Some(Self { parent, start_time, is_shim })
    }
}

/// Returns the process of a session in this directory, `UUID/sessions/NAME`, if it is one of those in `steps`.
fn process_of(directory: &Path, steps: &Path) -> Option<String> {
    let uuid = uuid_at_end(directory.parent()?.parent()?.file_name()?.to_str()?)?;
    (directory.starts_with(steps) || steps.join(uuid).exists()).then(|| uuid.to_owned())
}

/// Returns the process of the outermost leaf that a process is in or below: one in a directory called `prefix`, or of a
/// process in `steps`.
fn leaf_in(cgroups: &[u8], steps: &Path, prefix: &str) -> Option<String> {
    let cgroups = std::str::from_utf8(cgroups).ok()?;
    cgroups.lines().find_map(|line| {
        let mut above = None;
        line.splitn(3, ':').nth(2)?.split('/').find_map(|part| {
            let is_in_ours = above.replace(part) == Some(prefix);
            uuid_at_end(part).filter(|uuid| is_in_ours || steps.join(uuid).exists()).map(str::to_owned)
        })
    })
}

/// Returns whether this variable names a session of Relive.
fn is_marked(variable: &[u8], steps: &Path) -> bool {
    let value = variable.strip_prefix(MARKER.as_bytes()).and_then(|rest| rest.strip_prefix(b"="));
    let uuid = value.and_then(|name| uuid_at_end(std::str::from_utf8(name).ok()?));
    uuid.is_some_and(|uuid| steps.join(uuid).exists())
}

fn read(pid: i32, file: &str) -> io::Result<Vec<u8>> {
    kernel_file::read_whole(format!("/proc/{pid}/{file}"), READ_MAX)
}

fn peer_pid(socket: &impl AsFd) -> io::Result<i32> {
    let mut peer = libc::ucred { pid: 0, uid: 0, gid: 0 };
    option(socket, libc::SO_PEERCRED, &mut peer)?;
    Ok(peer.pid)
}

fn peer_pidfd(socket: &impl AsFd) -> Option<OwnedFd> {
    const SO_PEERPIDFD: libc::c_int = 77;
    let mut descriptor: libc::c_int = -1;
    option(socket, SO_PEERPIDFD, &mut descriptor).ok()?;
    // SAFETY: the kernel has just created this descriptor for this process, and nobody else knows it.
    (descriptor >= 0).then(|| unsafe { OwnedFd::from_raw_fd(descriptor) })
}

fn option<T>(socket: &impl AsFd, name: libc::c_int, value: &mut T) -> io::Result<()> {
    let mut length = libc::socklen_t::try_from(size_of::<T>()).map_err(io::Error::other)?;
    let descriptor = socket.as_fd().as_raw_fd();
    // SAFETY: `value` is a plain structure owned here, and `length` is its size.
    let outcome = unsafe {
        libc::getsockopt(descriptor, libc::SOL_SOCKET, name, std::ptr::from_mut(value).cast(), &raw mut length)
    };
    if outcome < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    const UUID: &str = "0198f3c1-0000-7000-8000-000000000000";
    const OTHER: &str = "0198f3c1-0000-7000-8000-000000000001";

    #[test]
    fn a_leaf_is_found_in_every_hierarchy_and_from_below() {
        let check = |cgroups: String, expect: Option<&str>| {
            let found = leaf_in(cgroups.as_bytes(), Path::new("/nowhere/steps"), "c0ffee");
            assert_eq!(found.as_deref(), expect, "{cgroups}");
        };
        check(format!("0::/user.slice/c0ffee/1-{UUID}\n"), Some(UUID));
        check(format!("9:name=systemd:/\n6:freezer:/c0ffee/call-7-{UUID}/nested\n0::/\n"), Some(UUID));
        check(format!("0::/c0ffee/1-{UUID}/2-{OTHER}\n"), Some(UUID));
        check("0::/c0ffee\n".to_owned(), None);
        check(format!("0::/user.slice/other/1-{UUID}\n"), None);
        check(String::new(), None);
    }

    #[test]
    fn a_session_of_a_data_directory_that_was_moved_is_found() {
        let directory = tempfile::tempdir().unwrap();
        let steps = directory.path();
        let _process = tempfile::Builder::new().prefix(UUID).rand_bytes(0).tempdir_in(steps).unwrap();
        let before = |uuid: &str| Path::new("/before/steps").join(uuid).join("sessions/1");
        assert_eq!(process_of(&before(UUID), steps).as_deref(), Some(UUID));
        assert_eq!(process_of(&before(OTHER), steps), None, "it is of another data directory");
        assert_eq!(process_of(&steps.join(OTHER).join("sessions/1"), steps).as_deref(), Some(OTHER));
        let leaf = |uuid: &str| leaf_in(format!("0::/before/1-{uuid}\n").as_bytes(), steps, "now");
        assert_eq!([leaf(UUID).as_deref(), leaf(OTHER).as_deref()], [Some(UUID), None]);
    }

    #[test]
    fn the_name_of_a_process_cannot_hide_its_parent() {
        let stat = |name: &str| {
            let line = format!("7 ({name}) S 42 7 7 0 -1 0 0 0 0 0 1 2 0 0 20 0 1 0 9000 0 0\n");
            Link::parse(line.as_bytes()).map(|link| (link.parent, link.start_time, link.is_shim))
        };
        assert_eq!(stat("sh"), Some((42, 9000, false)));
        assert_eq!(stat("relive-shim"), Some((42, 9000, true)));
        assert_eq!(stat(") S 1 1 ("), Some((42, 9000, false)));
    }

    #[test]
    fn a_connection_from_this_test_is_outside_and_has_a_pidfd() {
        let (one, _two) = UnixStream::pair().unwrap();
        let peer = Peer::of(&one).unwrap().unwrap();
        assert_eq!(peer.pid, rustix::process::getpid().as_raw_nonzero().get());
        assert_eq!(peer.place(Path::new("/nowhere/steps"), "no-such-prefix"), Place::Outside);
    }
}
