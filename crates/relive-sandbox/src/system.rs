//! System calls that the libraries do not have. None of them allocates.

use std::ffi::CStr;
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};
use rustix::io::{Errno, Result};
use rustix::mount::{MoveMountFlags, OpenTreeFlags};

const MOUNT_ATTR_RDONLY: u64 = 1;
const LOOPBACK: &[u8] = b"lo";
/// How many connections to the proxy wait to be accepted.
const BACKLOG: i32 = 512;

#[repr(C)]
struct MountAttributes {
    set: u64,
    clear: u64,
    propagation: u64,
    user_namespace: u64,
}

/// Returns the result of a raw system call.
pub(crate) fn checked(result: libc::c_long) -> Result<libc::c_long> {
    if result >= 0 {
        return Ok(result);
    }
    // SAFETY: the thread's own.
    Err(Errno::from_raw_os_error(unsafe { *libc::__errno_location() }))
}

/// Finds a path, which must not lead through a symbolic link.
pub(crate) fn find(path: &CStr) -> Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat2(CWD, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS)
}

/// Returns a detached copy of the mounts at a path and below it.
pub(crate) fn copy_mounts(path: &CStr) -> Result<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_RECURSIVE
        | OpenTreeFlags::AT_EMPTY_PATH;
    rustix::mount::open_tree(find(path)?, c"", flags)
}

pub(crate) fn attach(mount: &OwnedFd, at: &CStr) -> Result<()> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    rustix::mount::move_mount(mount, c"", find(at)?, c"", flags)
}

/// Makes mounts read-only: those of a detached copy, or with an absolute path those of this namespace.
pub(crate) fn make_read_only(mount: BorrowedFd<'_>, path: &CStr) -> Result<()> {
    let attributes = MountAttributes { set: MOUNT_ATTR_RDONLY, clear: 0, propagation: 0, user_namespace: 0 };
    let flags = libc::AT_EMPTY_PATH | libc::AT_RECURSIVE;
    let (size, attributes) = (size_of::<MountAttributes>(), &raw const attributes);
    // SAFETY: a string that ends, and a structure with its size.
    let done =
        unsafe { libc::syscall(libc::SYS_mount_setattr, mount.as_raw_fd(), path.as_ptr(), flags, attributes, size) };
    checked(done).map(drop)
}

/// Listens on a port of the loopback, and sends the listener with one byte.
pub(crate) fn hand_over_listener(port: u16, to: &OwnedFd) -> Result<()> {
    use rustix::net::{AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType};
    let listener = rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    rustix::net::bind(&listener, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, port))?;
    rustix::net::listen(&listener, BACKLOG)?;
    let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut room);
    let descriptors = [listener.as_fd()];
    control.push(SendAncillaryMessage::ScmRights(&descriptors));
    rustix::net::sendmsg(to, &[IoSlice::new(b"L")], &mut control, SendFlags::NOSIGNAL).map(drop)
}

/// Brings up the loopback interface of a new network namespace.
pub(crate) fn bring_loopback_up() -> Result<()> {
    use rustix::net::{AddressFamily, SocketFlags, SocketType};
    let socket = rustix::net::socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    // SAFETY: the structure is plain numbers; both calls read and write only it.
    unsafe {
        let mut request: libc::ifreq = std::mem::zeroed();
        for (to, from) in request.ifr_name.iter_mut().zip(LOOPBACK) {
            *to = *from as libc::c_char;
        }
        checked(libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFFLAGS as _, &raw mut request).into())?;
        request.ifr_ifru.ifru_flags |= (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
        checked(libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS as _, &raw const request).into()).map(drop)
    }
}
