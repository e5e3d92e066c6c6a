//! What a hostile program tries, one system call at a time. Exits with the error's number, 0 if it succeeded.

use std::ffi::CString;

use libc::{c_int, c_long};

pub(crate) fn main() -> ! {
    let word = |number| std::env::args().nth(number).unwrap_or_default();
    let done = attempt(&word(2), &word(3));
    std::process::exit(if done >= 0 { 0 } else { std::io::Error::last_os_error().raw_os_error().unwrap_or(255) })
}

fn attempt(what: &str, argument: &str) -> c_long {
    let pid = argument.parse::<c_int>().unwrap_or(-1);
    let path = CString::new(argument).unwrap();
    let nothing = std::ptr::null_mut::<libc::c_void>();
    // SAFETY: system calls on values owned here; those that succeed harm nobody.
    unsafe {
        match what {
            "keyctl" => libc::syscall(libc::SYS_keyctl, 0, -3, 1),
            "io_uring" => {
                let mut parameters = [0u8; 120];
                libc::syscall(libc::SYS_io_uring_setup, 1, parameters.as_mut_ptr())
            }
            "bpf" => {
                // A map of one entry.
                let attributes = [2u32, 4, 4, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
                libc::syscall(libc::SYS_bpf, 0, attributes.as_ptr(), size_of_val(&attributes))
            }
            "userfaultfd" => libc::syscall(libc::SYS_userfaultfd, 1),
            "vsock" => libc::socket(libc::AF_VSOCK, libc::SOCK_STREAM, 0).into(),
            "packet" => libc::socket(libc::AF_PACKET, libc::SOCK_RAW, 0).into(),
            "netlink-audit" => libc::socket(libc::AF_NETLINK, libc::SOCK_RAW, 9).into(),
            "netlink-route" => libc::socket(libc::AF_NETLINK, libc::SOCK_RAW, 0).into(),
            "unix" => libc::socket(libc::AF_UNIX, libc::SOCK_STREAM, 0).into(),
            "user-namespace" => libc::unshare(libc::CLONE_NEWUSER).into(),
            "clone-user-namespace" => {
                let flags = (libc::CLONE_NEWUSER | libc::SIGCHLD) as c_long;
                let child = libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0);
                if child == 0 {
                    libc::_exit(0);
                }
                child
            }
            "clone3" => libc::syscall(libc::SYS_clone3, nothing, 0),
            "mount" => libc::mount(c"none".as_ptr(), path.as_ptr(), c"tmpfs".as_ptr(), 0, nothing).into(),
            "tiocsti" => libc::ioctl(0, libc::TIOCSTI, c"x".as_ptr()).into(),
            // The kernel reads the lower half of the request only.
            "tiocsti-high" => libc::syscall(libc::SYS_ioctl, 0, libc::TIOCSTI | 1 << 32, c"x".as_ptr()),
            "ptrace" => libc::ptrace(libc::PTRACE_SEIZE, pid, nothing, nothing),
            "signal" => libc::kill(pid, 0).into(),
            "prlimit" => {
                let mut limit: libc::rlimit = std::mem::zeroed();
                libc::syscall(libc::SYS_prlimit64, pid, libc::RLIMIT_CORE, nothing, &raw mut limit)
            }
            "process_vm_readv" => libc::process_vm_readv(pid, std::ptr::null(), 0, std::ptr::null(), 0, 0) as c_long,
            "abstract" => connect(&[b"\0", argument.as_bytes()].concat()),
            "socket" => connect(argument.as_bytes()),
            "x32" => libc::syscall(0x4000_0000 + libc::SYS_getpid),
            "own-child" => on_own_child(|child| libc::ptrace(libc::PTRACE_SEIZE, child, 0, 0)),
            "prlimit-of-child" | "process_vm_readv-of-child" => {
                let call = what.trim_end_matches("-of-child");
                on_own_child(|child| attempt(call, &child.to_string()))
            }
            other => panic!("{other}: not known"),
        }
    }
}

fn connect(name: &[u8]) -> c_long {
    // SAFETY: a structure owned here, and its length.
    unsafe {
        let socket = libc::socket(libc::AF_UNIX, libc::SOCK_STREAM, 0);
        let mut address: libc::sockaddr_un = std::mem::zeroed();
        address.sun_family = libc::AF_UNIX as u16;
        for (to, from) in address.sun_path.iter_mut().zip(name) {
            *to = *from as libc::c_char;
        }
        let length = (size_of::<libc::sa_family_t>() + name.len()) as libc::socklen_t;
        libc::connect(socket, (&raw const address).cast(), length).into()
    }
}

/// Makes a call about a child that waits, then ends it.
fn on_own_child(call: impl FnOnce(c_int) -> c_long) -> c_long {
    // SAFETY: a child of this process alone, by the call that a filter can look at.
    unsafe {
        let child = libc::syscall(libc::SYS_clone, libc::SIGCHLD as c_long, 0, 0, 0, 0);
        if child == 0 {
            libc::pause();
            libc::_exit(0);
        }
        let done = call(child as c_int);
        let code = *libc::__errno_location();
        libc::kill(child as c_int, libc::SIGKILL);
        libc::waitpid(child as c_int, std::ptr::null_mut(), 0);
        *libc::__errno_location() = code;
        done
    }
}
