//! The shim's side of the launch: the clone, and the gate.

use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};

use rustix::net::{AddressFamily, SocketFlags, SocketType};

use super::child::{self, OPEN, PLACED, Step};
use super::enter::Entered;
use super::isolate::Isolated;
use super::program::Program;
use super::stdio::Stdio;
use crate::packet;
use crate::proc;
use crate::spec::Namespace;
use crate::stage::{End, Failure};
use crate::tree::{PidNamespace, Tree};

const NAMESPACES: u64 = (libc::CLONE_NEWPID | libc::CLONE_NEWNS) as u64;
const USER_NAMESPACE: u64 = libc::CLONE_NEWUSER as u64;
/// The flag in `/proc/PID/stat` of a forked process that has not executed anything yet.
const FORKED_NOT_EXECUTED: u64 = 0x40;

/// The shim's child: the program, or its init.
pub(super) struct Child {
    pub(super) pid: i32,
    pidfd: OwnedFd,
    gate: Option<OwnedFd>,
    init: Option<OwnedFd>,
    /// The steps of its isolation, for the one that fails.
    steps: Vec<String>,
}

/// A message from the gate.
pub(super) enum Said {
    Ready {
        child_pid: i32,
    },
    Failed(Failure),
    Executed,
    /// The child is dying, or has died, before it was the program.
    Died,
    Nothing,
}

impl Child {
    /// Clones the child into its tree and lets it run up to the gate.
    pub(super) fn spawn(
        program: &mut Program,
        stdio: &mut Stdio,
        namespace: Namespace,
        isolated: &mut Isolated,
        tree: &mut Tree,
    ) -> Result<Self, Failure> {
        let planned = tree.clone_flags() | isolated.clone_flags();
        let wanted = match namespace {
            Namespace::AsPlanned => 0,
            Namespace::Pid | Namespace::PidWithoutInit => NAMESPACES,
        };
        let flags = planned | wanted;
        match Self::clone(program, stdio, namespace, isolated, tree, flags) {
            // An unprivileged user may still have a PID namespace, inside a user namespace.
            Err(failure)
                if failure.stage == "clone3"
                    && failure.code == libc::EPERM
                    && wanted != 0
                    && flags & USER_NAMESPACE == 0 =>
            {
                Self::clone(program, stdio, namespace, isolated, tree, flags | USER_NAMESPACE)
            }
            other => other,
        }
    }

    fn clone(
        program: &mut Program,
        stdio: &mut Stdio,
        namespace: Namespace,
        isolated: &mut Isolated,
        tree: &mut Tree,
        mut flags: u64,
    ) -> Result<Self, Failure> {
        let own_pids = flags & libc::CLONE_NEWPID as u64 != 0;
        if own_pids {
            // The namespace's own /proc needs a mount point.
            flags |= NAMESPACES;
        }
        let (gate, childs_gate) = pair()?;
        let (init, childs_init) = match namespace {
            // A PID namespace is joined only by the children of the one that joins it.
            Namespace::AsPlanned | Namespace::Pid if own_pids || isolated.entered().is_some() => {
                pair().map(|(ours, theirs)| (Some(ours), Some(theirs)))?
            }
            Namespace::AsPlanned | Namespace::Pid | Namespace::PidWithoutInit => (None, None),
        };
        let init_number = childs_init.as_ref().map(|descriptor| descriptor.as_raw_fd());
        let own_proc = own_pids && !isolated.mounts_proc();
        let mut orders = program.orders(childs_gate.as_raw_fd(), init_number, own_proc, stdio);
        orders.isolated = isolated.pointer();
        orders.proxy = isolated.proxy();
        orders.entry = isolated.entered().map(Entered::entry);
        let mut pidfd: libc::c_int = -1;
        // SAFETY: the structure is plain numbers, zero where nothing is requested.
        let mut request: libc::clone_args = unsafe { std::mem::zeroed() };
        request.flags = flags | libc::CLONE_PIDFD as u64;
        request.pidfd = &raw mut pidfd as u64;
        request.exit_signal = libc::SIGCHLD as u64;
        if let Some(leaf) = tree.cgroup() {
            request.cgroup = leaf.as_raw_fd() as u64;
        }
        // SAFETY: no memory is shared and the shim has one thread; the child goes straight to `child::run`, with every
        // signal blocked and every disposition the default one, and its copy of `orders` and everything it points to is
        // never freed.
        let pid = unsafe {
            let pid = libc::syscall(libc::SYS_clone3, &raw const request, size_of::<libc::clone_args>());
            if pid == 0 {
                child::run(&orders);
            }
            pid
        };
        if pid < 0 {
            return Err(Failure::of("clone3", &io::Error::last_os_error()));
        }
        // SAFETY: the kernel has just created it for this process.
        let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
        let made = Self { pid: pid as i32, pidfd, gate: Some(gate), init, steps: isolated.steps() };
        stdio.handed_over();
        tree.set_namespaces(flags | isolated.entered().map_or(0, Entered::flags));
        let placed = made.place(tree, flags, isolated.entered());
        placed.inspect_err(|_| made.signal(libc::SIGKILL).unwrap_or(()))?;
        Ok(made)
    }

    fn place(&self, tree: &mut Tree, flags: u64, entered: Option<&Entered>) -> Result<(), Failure> {
        let maps_by_plan = tree.made().pid_namespace == Some(PidNamespace::InUserNamespace);
        if flags & USER_NAMESPACE != 0 && !maps_by_plan {
            relive_sandbox::map_ids(self.pid).map_err(|error| Failure::of("uid_map", &error))?;
        }
        tree.place(self.pid)?;
        entered.map_or(Ok(()), |entered| entered.place(self.pid))?;
        self.send(PLACED)
    }

    /// Lets the program run.
    pub(super) fn open_gate(&self) -> Result<(), Failure> {
        self.send(OPEN)
    }

    fn send(&self, byte: u8) -> Result<(), Failure> {
        let Some(gate) = &self.gate else { return Ok(()) };
        match packet::send(gate, &[&[byte]], None) {
            // It has died: the reason is known when it is reaped.
            Err(error) if matches!(error.raw_os_error(), Some(libc::EPIPE | libc::ECONNRESET)) => Ok(()),
            other => other.map_err(|error| Failure::of("gate", &error)),
        }
    }

    /// Returns the descriptor to watch until the program runs.
    pub(super) fn gate(&self) -> Option<&OwnedFd> {
        self.gate.as_ref()
    }

    /// Reads the gate once. Its end is verified, not trusted: it comes when the program runs, and when the child dies.
    pub(super) fn hear(&mut self) -> Said {
        let Some(gate) = &self.gate else { return Said::Nothing };
        let mut record = [0u8; 8];
        match packet::receive(gate, &mut record) {
            Ok(received) if received.length == record.len() => {
                let [a, b, c, d, number @ ..] = record;
                let number = i32::from_ne_bytes(number);
                let (step, part) = child::parted(u32::from_ne_bytes([a, b, c, d]));
                match Step::from_number(step) {
                    Some(Step::Ready) => Said::Ready { child_pid: number },
                    Some(Step::Isolation) => {
                        let step = self.steps.get(part).map_or(Step::Isolation.call(), String::as_str);
                        Said::Failed(Failure::new(step, number))
                    }
                    Some(step) => Said::Failed(Failure::new(step.call(), number)),
                    None => Said::Nothing,
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Said::Nothing,
            Ok(_) | Err(_) => {
                self.gate = None;
                if self.has_executed() { Said::Executed } else { Said::Died }
            }
        }
    }

    /// Returns the OS pid of the program below the init, if there is an init.
    pub(super) fn below_init(&self) -> Option<i32> {
        self.init.as_ref().and_then(|_| first_child(self.pid))
    }

    /// Also works for a process that has ended, as long as it is not reaped.
    fn has_executed(&self) -> bool {
        let program = match &self.init {
            None => Some(self.pid),
            Some(_) => first_child(self.pid),
        };
        program.and_then(|pid| proc::Stat::of(pid).ok()).is_some_and(|stat| stat.flags & FORKED_NOT_EXECUTED == 0)
    }

    /// Sends a signal to the program, an interrupt to its process group. SIGKILL goes to the child itself: a frozen
    /// init could not forward it.
    pub(super) fn signal(&self, number: i32) -> io::Result<()> {
        match &self.init {
            Some(init) if self.gate.is_none() && number != libc::SIGKILL => {
                let sent = packet::send(init, &[&number.to_ne_bytes()], None);
                // It ended with the program, but the shim has not noticed yet.
                sent.map_err(|error| match error.raw_os_error() {
                    Some(libc::EPIPE | libc::ECONNRESET) => io::Error::from_raw_os_error(libc::ESRCH),
                    Some(_) | None => error,
                })
            }
            None if self.gate.is_none() && number == libc::SIGINT => {
                // SAFETY: plain numbers. The child is not reaped yet, so its group is still its own.
                let sent = unsafe { libc::kill(child::reached(self.pid, number), number) };
                if sent == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
            }
            Some(_) | None => {
                let none = std::ptr::null::<libc::siginfo_t>();
                // SAFETY: a descriptor owned here, and no information to read.
                let sent =
                    unsafe { libc::syscall(libc::SYS_pidfd_send_signal, self.pidfd.as_raw_fd(), number, none, 0) };
                if sent == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
            }
        }
    }

    /// Returns how the program ended, given the status of the child.
    pub(super) fn end(&self, status: i32) -> End {
        let mut said = [0u8; 4];
        let reported = self.init.as_ref().and_then(|init| packet::receive(init, &mut said).ok());
        end_of(match reported {
            Some(received) if received.length == said.len() => i32::from_ne_bytes(said),
            Some(_) | None => status,
        })
    }
}

fn end_of(status: i32) -> End {
    if libc::WIFSIGNALED(status) {
        End::Signaled(libc::WTERMSIG(status))
    } else {
        End::Exited(libc::WEXITSTATUS(status))
    }
}

fn pair() -> Result<(OwnedFd, OwnedFd), Failure> {
    let made = rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None);
    made.map_err(|error| Failure::new("socketpair", error.raw_os_error()))
}

/// Returns the program below an init: its oldest child.
fn first_child(pid: i32) -> Option<i32> {
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).ok()?;
    children.split_ascii_whitespace().next()?.parse().ok()
}
