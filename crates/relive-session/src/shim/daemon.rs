//! Starts the daemon again, for a program of the session that needs one and finds none.
//!
//! A daemon that the program started itself would be in the session's tree, and would end with it. The shim is outside;
//! the daemon becomes its sibling, so that it is not a descendant of the shim either.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd as _, RawFd};
use std::ptr;

use rustix::fs::{CWD, Mode, OFlags};

use crate::spec::DaemonStart;

const ARGUMENTS: [&str; 3] = ["relive", "daemon", "serve"];
/// This very program, if the file it was started from is gone.
const SELF: &std::ffi::CStr = c"/proc/self/exe";
const CANNOT_RUN: libc::c_int = 127;

/// Starts the daemon, which itself finds out whether another one is running.
pub(super) fn start(daemon: &DaemonStart) -> io::Result<()> {
    let invalid = |_| io::Error::from_raw_os_error(libc::EINVAL);
    let program = CString::new(daemon.program.as_str()).map_err(invalid)?;
    let argv = ARGUMENTS.map(CString::new).into_iter().collect::<Result<Vec<_>, _>>().map_err(invalid)?;
    let env = daemon.env.iter().map(|(name, value)| CString::new(format!("{name}={value}")));
    let env = env.collect::<Result<Vec<_>, _>>().map_err(invalid)?;
    let pointers = |strings: &[CString]| strings.iter().map(|s| s.as_ptr()).chain([ptr::null()]).collect::<Vec<_>>();
    let (argv_pointers, env_pointers) = (pointers(&argv), pointers(&env));
    let log = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOFOLLOW;
    let log = rustix::fs::openat(CWD, &daemon.log, log, Mode::RUSR | Mode::WUSR)?;
    let null = rustix::fs::openat(CWD, "/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    let descriptors = [null.as_raw_fd(), null.as_raw_fd(), log.as_raw_fd()];
    // SAFETY: the structure is plain numbers, zero where nothing is requested.
    let mut request: libc::clone_args = unsafe { std::mem::zeroed() };
    request.flags = libc::CLONE_PARENT as u64;
    // SAFETY: no memory is shared and the shim has one thread; the child executes or ends.
    let pid = unsafe {
        let pid = libc::syscall(libc::SYS_clone3, &raw const request, size_of::<libc::clone_args>());
        if pid == 0 {
            run(descriptors, &[program.as_ptr(), SELF.as_ptr()], argv_pointers.as_ptr(), env_pointers.as_ptr());
        }
        pid
    };
    if pid < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// # Safety
/// Only in a fresh single-threaded child whose memory is a copy, with arrays that end with null.
unsafe fn run(
    descriptors: [RawFd; 3],
    programs: &[*const libc::c_char],
    argv: *const *const libc::c_char,
    envp: *const *const libc::c_char,
) -> ! {
    // SAFETY: as the caller guarantees; each call is one system call on values owned here.
    unsafe {
        libc::setsid();
        for (number, descriptor) in descriptors.into_iter().enumerate() {
            libc::dup2(descriptor, number as RawFd);
        }
        libc::close_range(3, libc::c_uint::MAX, 0);
        let mut none = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, ptr::null_mut());
        for program in programs {
            libc::execve(*program, argv, envp);
        }
        libc::_exit(CANNOT_RUN)
    }
}
