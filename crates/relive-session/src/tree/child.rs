//! A child for probing. It only waits, and, if requested, mounts `/proc` in its namespaces. It never holds descriptors
//! of its creator.

use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};

use super::Tree;

/// Handlers of this process must not run in the child.
const CLONE_CLEAR_SIGHAND: u64 = 0x1_0000_0000;

/// The task of the child when the gate opens, before it waits to be killed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Task {
    Wait,
    /// If that fails, it exits with the error number.
    MountProc,
}

/// A child, which is killed and reaped when this is dropped.
pub(super) struct Child {
    pub(super) pid: i32,
    gate: OwnedFd,
    answers: OwnedFd,
    reaped: bool,
}

impl Child {
    /// Clones a child into the tree. It waits at its gate.
    pub(super) fn clone_into(tree: &Tree, task: Task) -> io::Result<Self> {
        let (gate, opener) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
        let (answers, answer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
        // SAFETY: numbers only, for which zero means nothing.
        let mut arguments: libc::clone_args = unsafe { std::mem::zeroed() };
        arguments.flags = tree.clone_flags() | CLONE_CLEAR_SIGHAND;
        arguments.cgroup = tree.cgroup().map_or(0, |leaf| leaf.as_raw_fd() as u64);
        let (gate_number, answer_number) = (gate.as_raw_fd(), answer.as_raw_fd());
        // SAFETY: the arguments are complete and live through the call. No memory is shared with the child, and until
        // it ends it makes only system calls, which is all that is allowed in the copy of a process with threads.
        let pid = unsafe { libc::syscall(libc::SYS_clone3, &raw const arguments, size_of::<libc::clone_args>()) };
        if pid == 0 {
            // SAFETY: this is the child, on its own copy of everything.
            unsafe { be_the_child(gate_number, answer_number, task) }
        }
        if pid < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Self { pid: pid as i32, gate: opener, answers, reaped: false })
    }

    /// Opens the gate and waits until the task is done.
    pub(super) fn run(&mut self) -> io::Result<()> {
        rustix::io::write(&self.gate, b"g")?;
        let mut answer = [0; 1];
        match rustix::io::retry_on_intr(|| rustix::io::read(&self.answers, &mut answer))? {
            1 if answer[0] == 0 => Ok(()),
            1 => Err(io::Error::from_raw_os_error(i32::from(answer[0]))),
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    /// Waits for its end. It must have been killed.
    pub(super) fn reap(&mut self) {
        while !self.reaped {
            // SAFETY: a child of this process that nobody else waits for; no status is requested.
            let reaped = unsafe { libc::waitpid(self.pid, std::ptr::null_mut(), libc::__WALL) };
            self.reaped = reaped == self.pid || io::Error::last_os_error().raw_os_error() != Some(libc::EINTR);
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if !self.reaped {
            // SAFETY: a child of this process that was not reaped: the pid is still its own.
            unsafe { libc::kill(self.pid, libc::SIGKILL) };
            self.reap();
        }
    }
}

/// # Safety
/// Only in a child that shares no memory with anybody.
unsafe fn be_the_child(gate: i32, answer: i32, task: Task) -> ! {
    // SAFETY: plain system calls on own copies; every pointer is to a literal or to a local.
    unsafe {
        // Before anything can freeze this child: a copy of the creator's locks and sockets would outlive the creator.
        // With the other end of its own gate open, the child would not see it close.
        let (low, high) = (gate.min(answer) as u32, gate.max(answer) as u32);
        libc::close_range(0, low.saturating_sub(1), 0);
        libc::close_range(low + 1, high.saturating_sub(1), 0);
        libc::close_range(high + 1, libc::c_uint::MAX, 0);
        // Frozen processes do not see a gate close.
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        let mut byte = 0u8;
        let opened = libc::read(gate, (&raw mut byte).cast(), 1) == 1;
        let done = opened
            && match task {
                Task::Wait => true,
                Task::MountProc => {
                    let private = libc::MS_REC | libc::MS_PRIVATE;
                    let careful = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC;
                    let (root, proc) = (c"/".as_ptr(), c"/proc".as_ptr());
                    let none = std::ptr::null();
                    libc::mount(none, root, none, private, none.cast()) == 0
                        && libc::mount(c"proc".as_ptr(), proc, c"proc".as_ptr(), careful, none.cast()) == 0
                }
            };
        byte = if done { 0 } else { *libc::__errno_location() as u8 };
        libc::write(answer, (&raw const byte).cast(), 1);
        // The creator is gone when the gate closes.
        while opened && libc::read(gate, (&raw mut byte).cast(), 1) != 0 {}
        libc::_exit(0)
    }
}
