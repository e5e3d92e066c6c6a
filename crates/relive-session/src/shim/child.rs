//! The cloned child, until it executes the program. Only raw system calls: its memory is a copy of the shim's, so it
//! takes no lock, allocates nothing and never returns.
//!
//! The gate is one socket. The child sends records of eight bytes, a step and a number: [`Step::Ready`] with its own
//! pid, or the step that failed with its error. It receives two bytes: [`PLACED`] when the parent has placed it, and
//! [`OPEN`]. The end of the gate means that the program runs, or that the child died.

use std::os::fd::RawFd;
use std::ptr;

use libc::{c_char, c_int, c_long, c_uint, c_ulong};
use relive_sandbox::{Prepared, Refused};

/// The parent has placed the child: limits, ids.
pub(super) const PLACED: u8 = b'M';
/// The program may run.
pub(super) const OPEN: u8 = b'P';
/// The exit code of a child that has reported its failure through the gate.
const FAILED: c_int = 126;
/// The exit code of a child whose parent is gone.
const ALONE: c_int = 125;

/// The steps of a child, each with the call that failed if it says so.
macro_rules! steps {
    ($($step:ident => $call:literal,)*) => {
        /// A record's first number.
        #[repr(u32)]
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(super) enum Step {
            $($step,)*
        }

        impl Step {
            pub(super) fn from_number(number: u32) -> Option<Self> {
                [$(Self::$step,)*].into_iter().find(|step| *step as u32 == number)
            }

            /// The call that failed.
            pub(super) fn call(self) -> &'static str {
                match self {
                    $(Self::$step => $call,)*
                }
            }
        }
    };
}

steps! {
    Ready => "ready",
    Stdio => "dup2",
    Descriptors => "close_range",
    Mount => "mount",
    MountProc => "mount-proc",
    Session => "setsid",
    Terminal => "tiocsctty",
    Directory => "chdir",
    ParentDeath => "prctl",
    Signals => "signalfd",
    Fork => "clone3",
    Isolation => "isolation",
    Enter => "setns",
    Root => "chroot",
    Exec => "execve",
}

/// Everything that the child needs, prepared before it exists. The pointers outlive it: its memory is a copy.
#[derive(Debug)]
pub(super) struct Orders {
    /// The paths where the program may be, in order, each ended by nul; then null.
    pub(super) candidates: *const *const c_char,
    pub(super) argv: *const *const c_char,
    pub(super) envp: *const *const c_char,
    /// The arguments of a shell that runs a script without `#!`; the second is replaced by the script's path.
    pub(super) shell_argv: *mut *const c_char,
    pub(super) cwd: *const c_char,
    pub(super) stdio: [RawFd; 3],
    pub(super) terminal: bool,
    pub(super) gate: RawFd,
    /// Whether it has its own mount namespace, with a `/proc` of its PID namespace.
    pub(super) own_proc: bool,
    /// The system calls that isolate it, or null.
    pub(super) isolated: *mut Prepared,
    /// The socket for the listener of its proxy.
    pub(super) proxy: Option<RawFd>,
    /// The session that it enters, next to the program of that.
    pub(super) entry: Option<Entry>,
    /// The socket on which the stub init reports the end of the program and receives signals; absent without a stub
    /// init.
    pub(super) init: Option<RawFd>,
    /// Where the heap begins, and its length: the stub init needs none of it.
    pub(super) heap: (usize, usize),
    /// The settings of the shell in which the program was typed.
    pub(super) umask: Option<u32>,
    pub(super) nice: Option<c_int>,
    pub(super) limits: *const (c_uint, libc::rlimit),
    pub(super) limits_count: usize,
    /// The ignored signals, one bit each.
    pub(super) ignored: u64,
    /// The CPUs, one bit each, and the number of bytes; none if they are those of the shim.
    pub(super) cpus: *const u64,
    pub(super) cpus_bytes: usize,
}

/// The session that a child enters.
#[derive(Debug, Clone, Copy)]
pub(super) struct Entry {
    pub(super) pidfd: RawFd,
    pub(super) root: Option<RawFd>,
    /// The namespaces to join.
    pub(super) flags: c_int,
}

/// Becomes the program, or its init.
///
/// # Safety
/// Only in a fresh single-threaded child whose memory is a copy, with pointers in `orders` that stay valid for ever.
pub(super) unsafe fn run(orders: &Orders) -> ! {
    // SAFETY: as the caller guarantees; each call below is one system call on values owned here.
    unsafe {
        for (number, descriptor) in orders.stdio.iter().enumerate() {
            check(libc::dup2(*descriptor, number as c_int), orders, Step::Stdio);
        }
        close_others(orders);
        wait_for(orders.gate, PLACED);
        // The parent has one thread, so this takes effect when the shim dies and not before. If it had died already,
        // the gate would end and nothing would run.
        check(libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL), orders, Step::ParentDeath);
        if orders.own_proc {
            mount_proc(orders);
        }
        isolate(orders, |prepared| prepared.enter());
        enter(orders);
        if let Some(report) = orders.init {
            // The program itself waits at the gate, so that its pid is known there.
            fork_below_init(orders, report);
            if orders.entry.is_some() {
                // No PID namespace of its own ends it with its init.
                check(libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL), orders, Step::ParentDeath);
            }
        }
        become_leader(orders);
        check(libc::chdir(orders.cwd), orders, Step::Directory);
        isolate(orders, |prepared| prepared.lock());
        say(orders.gate, Step::Ready, libc::getpid());
        wait_for(orders.gate, OPEN);
        execute(orders)
    }
}

/// Closes every descriptor except 0, 1, 2, the gate, the report, the socket of the proxy and those of the entry: the lock,
/// the log and the other sockets do not belong to the child, and its copy of the parent's end would keep the gate from ending.
unsafe fn close_others(orders: &Orders) {
    let gate = orders.gate;
    let entry = orders.entry.map_or((gate, gate), |entry| (entry.pidfd, entry.root.unwrap_or(gate)));
    let (init, proxy) = (orders.init.unwrap_or(gate), orders.proxy.unwrap_or(gate));
    let mut kept = [gate, init, proxy, entry.0, entry.1].map(|descriptor| descriptor as c_uint);
    kept.sort_unstable();
    let mut first = 3;
    for descriptor in kept {
        close_range(orders, first, descriptor - 1);
        first = first.max(descriptor + 1);
    }
    close_range(orders, first, c_uint::MAX);
}

fn close_range(orders: &Orders, first: c_uint, last: c_uint) {
    if first <= last {
        // SAFETY: plain numbers.
        check(unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) } as c_int, orders, Step::Descriptors);
    }
}

/// Joins the namespaces of another session, and takes its root.
unsafe fn enter(orders: &Orders) {
    let Some(entry) = orders.entry else { return };
    // SAFETY: descriptors that are open here, and a constant string.
    unsafe {
        if entry.flags != 0 {
            check(libc::setns(entry.pidfd, entry.flags), orders, Step::Enter);
        }
        if let Some(root) = entry.root {
            check(libc::fchdir(root), orders, Step::Root);
            check(libc::chroot(c".".as_ptr()), orders, Step::Root);
            libc::close(root);
        }
        libc::close(entry.pidfd);
        // The kernel forgets it when the ids or the capabilities of a process change.
        check(libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL), orders, Step::ParentDeath);
    }
}

unsafe fn mount_proc(orders: &Orders) {
    let (private, flags) = (libc::MS_REC | libc::MS_SLAVE, libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC);
    let (root, proc) = (c"/".as_ptr(), c"proc".as_ptr());
    // SAFETY: constant strings, and null where the kernel reads nothing.
    unsafe {
        check(libc::mount(ptr::null(), root, ptr::null(), private as c_ulong, ptr::null()), orders, Step::Mount);
        let mounted = libc::mount(proc, c"/proc".as_ptr(), proc, flags as c_ulong, ptr::null());
        check(mounted, orders, Step::MountProc);
    }
}

/// Makes one half of the system calls that isolate the program, if it is isolated.
unsafe fn isolate(orders: &Orders, half: impl FnOnce(&mut Prepared) -> Result<(), Refused>) {
    // SAFETY: the child's own copy, which nothing else uses.
    let Some(prepared) = (unsafe { orders.isolated.as_mut() }) else { return };
    if let Err(refused) = half(prepared) {
        say_part(orders.gate, Step::Isolation, refused.step, refused.errno);
        // SAFETY: it does not return.
        unsafe { libc::_exit(FAILED) }
    }
}

unsafe fn become_leader(orders: &Orders) {
    // SAFETY: plain numbers.
    unsafe {
        check(libc::setsid(), orders, Step::Session);
        if orders.terminal {
            check(libc::ioctl(0, libc::TIOCSCTTY, 0), orders, Step::Terminal);
        }
    }
}

/// Applies the settings that a shell would have passed on. Settings that the kernel refuses stay unchanged: a limit is
/// never higher than the shim's, which has said so.
unsafe fn inherit(orders: &Orders) {
    // SAFETY: plain numbers, and an array with its length.
    unsafe {
        if let Some(umask) = orders.umask {
            libc::umask(umask);
        }
        if let Some(nice) = orders.nice {
            libc::setpriority(libc::PRIO_PROCESS, 0, nice);
        }
        if orders.cpus_bytes > 0 {
            libc::syscall(libc::SYS_sched_setaffinity, 0, orders.cpus_bytes, orders.cpus);
        }
        for index in 0..orders.limits_count {
            let (resource, wanted) = *orders.limits.add(index);
            let mut ours: libc::rlimit = std::mem::zeroed();
            if libc::getrlimit(resource, &raw mut ours) != 0 {
                continue;
            }
            // The limit of processes may have been set for the tree.
            let for_the_tree = resource == libc::RLIMIT_NPROC;
            if for_the_tree || libc::setrlimit(resource, &raw const wanted) != 0 {
                let hard = wanted.rlim_max.min(ours.rlim_max);
                let soft = if for_the_tree { wanted.rlim_cur.min(ours.rlim_cur) } else { wanted.rlim_cur };
                let lower = libc::rlimit { rlim_cur: soft.min(hard), rlim_max: hard };
                libc::setrlimit(resource, &raw const lower);
            }
        }
        for number in 1..=64 {
            if orders.ignored & 1 << (number - 1) != 0 {
                set_disposition(number, libc::SIG_IGN);
            }
        }
    }
}

/// Makes a signal ignored or default. Bypasses the C library, which refuses to change the signals that it uses itself.
///
/// # Safety
/// Only in a process without threads.
pub(super) unsafe fn set_disposition(number: c_int, handler: usize) {
    const MASK_BYTES: usize = 8;
    let action = [handler, 0, 0, 0];
    // SAFETY: the kernel's own structure, which begins with the handler; everything else in it is zero.
    unsafe { libc::syscall(libc::SYS_rt_sigaction, number, action.as_ptr(), ptr::null::<usize>(), MASK_BYTES) };
}

/// Searches the program like `execvp`.
unsafe fn execute(orders: &Orders) -> ! {
    // SAFETY: the arrays end with null; the memory is the child's own copy.
    unsafe {
        inherit(orders);
        let mut none = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, ptr::null_mut());
        let mut code = libc::ENOENT;
        let mut candidate = orders.candidates;
        while !(*candidate).is_null() {
            libc::execve(*candidate, orders.argv, orders.envp);
            match errno() {
                libc::ENOEXEC => {
                    *orders.shell_argv.add(1) = *candidate;
                    libc::execve(*orders.shell_argv, orders.shell_argv, orders.envp);
                    fail(orders, Step::Exec, errno());
                }
                libc::EACCES => code = libc::EACCES,
                libc::ENOENT | libc::ENOTDIR => {}
                other => fail(orders, Step::Exec, other),
            }
            candidate = candidate.add(1);
        }
        fail(orders, Step::Exec, code)
    }
}

/// Becomes PID 1 of a namespace, and returns in the process below it, which becomes the program. The init forwards
/// signals to the program, reaps orphans, and reports how the program ended. The namespace ends with it.
unsafe fn fork_below_init(orders: &Orders, report: RawFd) {
    // SAFETY: system calls on values owned here; every signal is blocked, so nothing interrupts them.
    unsafe {
        let mut all = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        check(libc::setsid(), orders, Step::Session);
        let signals = libc::signalfd(-1, &raw const all, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK);
        check(signals, orders, Step::Signals);
        let program = fork();
        check(program as c_int, orders, Step::Fork);
        if program == 0 {
            libc::close(signals);
            return;
        }
        let program = program as c_int;
        // What follows uses the stack alone. The pages would be its own as soon as the shim changes them.
        libc::madvise(orders.heap.0 as *mut libc::c_void, orders.heap.1, libc::MADV_DONTNEED);
        // The terminal, the pipes and the gate end with the program, not with the init.
        for descriptor in [0, 1, 2, orders.gate] {
            libc::close(descriptor);
        }
        loop {
            let mut wait = [signals, report].map(|fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 });
            libc::poll(wait.as_mut_ptr(), 2, -1);
            let mut number: c_int = 0;
            match libc::recv(report, (&raw mut number).cast(), size_of::<c_int>(), libc::MSG_DONTWAIT) {
                0 => libc::_exit(ALONE),
                4 => drop(libc::kill(reached(program, number), number)),
                _ => {}
            }
            let mut info: libc::signalfd_siginfo = std::mem::zeroed();
            while libc::read(signals, (&raw mut info).cast(), size_of::<libc::signalfd_siginfo>()) > 0 {
                let number = info.ssi_signo as c_int;
                if number != libc::SIGCHLD {
                    libc::kill(reached(program, number), number);
                }
            }
            let mut status: c_int = 0;
            loop {
                let ended = libc::waitpid(-1, &raw mut status, libc::WNOHANG);
                if ended == program {
                    libc::send(report, (&raw const status).cast(), size_of::<c_int>(), libc::MSG_NOSIGNAL);
                    libc::_exit(0);
                }
                if ended <= 0 {
                    break;
                }
            }
        }
    }
}

/// Returns the target of a signal to a program: itself, and for an interrupt its process group, like Ctrl-C on a
/// terminal. A program leads the group it began in.
pub(super) fn reached(program: c_int, number: c_int) -> c_int {
    if number == libc::SIGINT { -program } else { program }
}

/// A raw fork, because the C library's runs handlers.
unsafe fn fork() -> c_long {
    // SAFETY: no memory is shared; the rest of the structure is zero.
    unsafe {
        let mut request: libc::clone_args = std::mem::zeroed();
        request.exit_signal = libc::SIGCHLD as u64;
        libc::syscall(libc::SYS_clone3, &raw const request, size_of::<libc::clone_args>())
    }
}

/// Waits for one byte; the end of the gate means that the shim is gone, and nothing may run.
unsafe fn wait_for(gate: RawFd, wanted: u8) {
    let mut byte = 0u8;
    // SAFETY: one byte owned here.
    unsafe {
        while libc::recv(gate, (&raw mut byte).cast(), 1, 0) < 0 && errno() == libc::EINTR {}
        if byte != wanted {
            libc::_exit(ALONE);
        }
    }
}

fn check(result: c_int, orders: &Orders, step: Step) {
    if result < 0 {
        fail(orders, step, errno());
    }
}

fn fail(orders: &Orders, step: Step, code: c_int) -> ! {
    say(orders.gate, step, code);
    // SAFETY: it does not return.
    unsafe { libc::_exit(FAILED) }
}

fn say(gate: RawFd, step: Step, number: c_int) {
    say_part(gate, step, 0, number);
}

/// Splits the first number of a record into the step and the part of it that failed.
pub(super) fn parted(number: u32) -> (u32, usize) {
    (number & 0xffff, (number >> 16) as usize)
}

fn say_part(gate: RawFd, step: Step, part: u16, number: c_int) {
    let record = [step as u32 | u32::from(part) << 16, number as u32];
    // SAFETY: eight bytes owned here.
    unsafe {
        libc::send(gate, record.as_ptr().cast(), size_of_val(&record), libc::MSG_NOSIGNAL);
    }
}

fn errno() -> c_int {
    // SAFETY: the thread's own.
    unsafe { *libc::__errno_location() }
}
