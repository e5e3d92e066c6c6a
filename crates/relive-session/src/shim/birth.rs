//! The start of a shim: its initial descriptors, and its setup before there is any child.

use std::fs::File;
use std::io;
use std::os::fd::{FromRawFd as _, OwnedFd};
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;

use rustix::fs::{Mode, OFlags};
use rustix::net::SocketType;

use super::{child, spare};
use crate::SHIM;
use crate::kernel_file;
use crate::spec::Spec;
use crate::tree::Ahead;

/// The initial input of a shim.
pub(super) struct Born {
    /// Descriptor 0: the owner's connection.
    pub(super) owner: OwnedFd,
    /// Descriptor 1: the directory's lock. It is never used, only held.
    pub(super) lock: OwnedFd,
    /// Descriptor 2: the spec.
    pub(super) spec: Spec,
    pub(super) directory: PathBuf,
    /// The leaf that it is in already, if it has waited for its session.
    pub(super) ahead: Option<Ahead>,
}

/// Takes the initial descriptors, and closes everything else.
pub(super) fn take() -> io::Result<Born> {
    let stdin = rustix::stdio::stdin();
    let is_socket = rustix::net::sockopt::socket_type(stdin).is_ok_and(|kind| kind == SocketType::SEQPACKET);
    let directory = std::env::args_os().nth(1).map(PathBuf::from).filter(|_| is_socket);
    let Some(directory) = directory else {
        return Err(io::Error::other(format!("{SHIM} is started by the Relive daemon, not by hand")));
    };
    // Any other open descriptor belongs to nobody. SAFETY: nothing of this program is open above 2 yet.
    unsafe { libc::close_range(3, libc::c_uint::MAX, 0) };
    if spare::is_one(&directory) {
        return spare::wait();
    }
    let owner = rustix::io::fcntl_dupfd_cloexec(stdin, 3)?;
    let lock = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdout(), 3)?;
    let spec = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stderr(), 3)?;
    let null = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    rustix::stdio::dup2_stderr(&null)?;
    Ok(Born { owner, lock, spec: read_spec(spec)?, directory, ahead: None })
}

/// Reads the spec from its beginning: another process that has it open may have read it before.
pub(super) fn read_spec(spec: OwnedFd) -> io::Result<Spec> {
    let spec = File::from(spec);
    let length = usize::try_from(spec.metadata()?.len()).map_err(io::Error::other)?;
    let mut text = vec![0; length];
    spec.read_exact_at(&mut text, 0)?;
    Ok(serde_json::from_slice(&text)?)
}

/// Makes the process a parent: leader of its own session, subreaper, and with every signal blocked. The ends of children, and
/// SIGCONT, by which an owner says that it cannot reach the shim, are read from the returned descriptor. Called before any
/// child exists, so that no end is lost.
pub(super) fn become_parent() -> io::Result<OwnedFd> {
    // It is already the leader if it was started as one.
    let _ = rustix::process::setsid();
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    rustix::thread::set_name(c"relive-shim")?;
    // SAFETY: plain structures owned by this function. Dispositions are inherited across execution: the program gets
    // the default ones.
    unsafe {
        let mut all = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        check(libc::sigprocmask(libc::SIG_BLOCK, &raw const all, std::ptr::null_mut()))?;
        let ignored = ignored_signals();
        for number in (1..=64).filter(|number| ignored & 1 << (number - 1) != 0) {
            child::set_disposition(number, libc::SIG_DFL);
        }
        let mut read = std::mem::zeroed();
        libc::sigemptyset(&raw mut read);
        libc::sigaddset(&raw mut read, libc::SIGCHLD);
        libc::sigaddset(&raw mut read, libc::SIGCONT);
        let signals = check(libc::signalfd(-1, &raw const read, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK))?;
        Ok(OwnedFd::from_raw_fd(signals))
    }
}

/// Returns the signals that this process ignores, one bit each. No other needs a reset: it has no handlers of its own.
fn ignored_signals() -> u64 {
    let status = kernel_file::read_once("/proc/self/status").unwrap_or_default();
    let status = String::from_utf8_lossy(&status);
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(u64::MAX)
}

/// Returns a buffer for the rest of the shim's life, in pages of its own: those that are never used take no memory, and most
/// shims only wait.
pub(super) fn buffer(length: usize) -> io::Result<&'static mut [u8]> {
    let (access, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: fresh pages, zeroed, that nobody else knows and nobody unmaps.
    unsafe {
        let pages = libc::mmap(std::ptr::null_mut(), length, access, flags, -1, 0);
        if pages == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(std::slice::from_raw_parts_mut(pages.cast(), length))
    }
}

/// Hides the shim's memory from other processes of this user. Not before the clone: the ids of a child in a user
/// namespace can be written only while it is visible.
pub(super) fn hide() {
    let _ = rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable);
}

fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}
