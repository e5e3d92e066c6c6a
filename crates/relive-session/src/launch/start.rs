//! A new process as `posix_spawn` makes one: it borrows our memory until it executes, so it costs the same however large we are.
//!
//! The C library's own looks at every signal in turn. That is not needed here: all signals are blocked while the memory is
//! shared, so no handler runs in it; the shim wants to begin with all of them blocked, and resets what is ignored itself.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, FromRawFd as _, OwnedFd, RawFd};
use std::ptr;

use libc::{c_char, c_int, c_void};
use rustix::process::Pid;

/// More than the few calls of the child need.
const STACK_BYTES: usize = 64 * 1024;
/// The exit code of a child that could not execute; nobody looks at it.
const FAILED: c_int = 127;

/// A process that was started, and the descriptor that keeps its pid from being mistaken for that of another one.
#[derive(Debug)]
pub(super) struct Started {
    pub(super) pid: Pid,
    pub(super) pidfd: OwnedFd,
}

/// The input of the child, and where it reports an error.
struct Orders {
    program: *const c_char,
    argv: *const *const c_char,
    envp: *const *const c_char,
    stdio: [RawFd; 3],
    errno: c_int,
}

/// Starts a program without an environment, with these descriptors and with all signals blocked. Blocks until it executes.
pub(super) fn start(program: &CStr, argv: &[CString], stdio: [OwnedFd; 3]) -> io::Result<Started> {
    let argv: Vec<*const c_char> = argv.iter().map(|word| word.as_ptr()).chain([ptr::null()]).collect();
    let envp = [ptr::null()];
    // Above those that they are to be: the copies stay open across the execution, these do not.
    let [input, output, error] = stdio;
    let above = |descriptor: OwnedFd| match descriptor.as_raw_fd() {
        0..3 => rustix::io::fcntl_dupfd_cloexec(descriptor.as_fd(), 3),
        _ => Ok(descriptor),
    };
    let stdio = [above(input)?, above(output)?, above(error)?];
    let mut orders = Orders {
        program: program.as_ptr(),
        argv: argv.as_ptr(),
        envp: envp.as_ptr(),
        stdio: stdio.each_ref().map(|descriptor| descriptor.as_raw_fd()),
        errno: 0,
    };
    let mut stack = vec![0_u128; STACK_BYTES / size_of::<u128>()];
    let mut pidfd: c_int = -1;
    // SAFETY: we wait until the child has executed or gone, so that everything it is shown outlives its look; the stack is its
    // own and grows down from its end; while all signals are blocked nothing of ours but `run` runs in it.
    let (pid, pidfd) = unsafe {
        let mut all = std::mem::zeroed();
        let mut before = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
        let top: *mut c_void = stack.as_mut_ptr().add(stack.len()).cast();
        // With its descriptor, so that there is no child without one.
        let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::CLONE_PIDFD | libc::SIGCHLD;
        let pid = libc::clone(run, top, flags, (&raw mut orders).cast(), &raw mut pidfd);
        let failed = io::Error::last_os_error();
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, ptr::null_mut());
        if pid < 0 {
            return Err(failed);
        }
        (pid, OwnedFd::from_raw_fd(pidfd))
    };
    let pid = Pid::from_raw(pid).ok_or(io::ErrorKind::NotFound)?;
    // SAFETY: the child wrote it, or did not; it has gone or has memory of its own by now.
    match unsafe { ptr::read_volatile(&raw const orders.errno) } {
        0 => Ok(Started { pid, pidfd }),
        errno => {
            let _ = rustix::process::waitpid(Some(pid), rustix::process::WaitOptions::empty());
            Err(io::Error::from_raw_os_error(errno))
        }
    }
}

/// Runs in the child, in memory that it shares with its parent: only system calls.
extern "C" fn run(orders: *mut c_void) -> c_int {
    let orders: *mut Orders = orders.cast();
    // SAFETY: the parent waits, and has made all of it for us.
    unsafe {
        for (number, descriptor) in (*orders).stdio.iter().enumerate() {
            if libc::dup2(*descriptor, number as c_int) < 0 {
                (*orders).errno = *libc::__errno_location();
                libc::_exit(FAILED);
            }
        }
        libc::execve((*orders).program, (*orders).argv, (*orders).envp);
        (*orders).errno = *libc::__errno_location();
        libc::_exit(FAILED)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    fn null() -> OwnedFd {
        std::fs::File::options().read(true).write(true).open("/dev/null").unwrap().into()
    }

    fn words(words: &[&str]) -> Vec<CString> {
        words.iter().map(|word| CString::new(*word).unwrap()).collect()
    }

    #[test]
    fn a_program_gets_its_arguments_its_descriptors_and_nothing_of_the_environment() {
        let (mut reader, writer) = std::io::pipe().unwrap();
        let argv = words(&["sh", "-c", "echo $0 $RELIVE_HOME $1; /usr/bin/env | grep -c CARGO", "one", "two"]);
        let pid = start(c"/bin/sh", &argv, [null(), writer.into(), null()]).unwrap().pid;
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        assert_eq!(text, "one two\n0\n");
        let (_, status) = rustix::process::waitpid(Some(pid), rustix::process::WaitOptions::empty()).unwrap().unwrap();
        assert_eq!(status.exit_status(), Some(1));
    }

    #[test]
    fn a_missing_shim_is_an_error_and_leaves_no_zombie() {
        let error = start(c"/nonexistent", &words(&["x"]), [null(), null(), null()]).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ENOENT));
    }

    #[test]
    fn our_own_signals_are_as_before() {
        let blocked = || {
            let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
            status.lines().find(|line| line.starts_with("SigBlk")).unwrap().to_owned()
        };
        let before = blocked();
        let pid = start(c"/bin/true", &words(&["true"]), [null(), null(), null()]).unwrap().pid;
        assert_eq!(blocked(), before);
        rustix::process::waitpid(Some(pid), rustix::process::WaitOptions::empty()).unwrap();
    }
}
