//! Entering: a program that runs in the namespaces, the root and the cgroups of another session.

use std::os::fd::{AsRawFd as _, OwnedFd};

use relive_sandbox::{NamespaceKind, Namespaces};
use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, PidfdFlags};

use super::child::Entry;
use crate::spec::Enter;
use crate::stage::Failure;
use crate::tree::{Neighbour, Plan};

/// The session that a program enters, held so that no other process can take its place.
#[derive(Debug)]
pub(super) struct Entered {
    pidfd: OwnedFd,
    /// The root of its program; absent if the mounts are not joined.
    root: Option<OwnedFd>,
    namespaces: Namespaces,
    cgroups: Neighbour,
}

impl Entered {
    /// Finds the session; fails with `ESRCH` if its program has ended, whoever has its pid now.
    pub(super) fn open(enter: &Enter, plan: &Plan) -> Result<Self, Failure> {
        let program = enter.program;
        let failed = |error: std::io::Error| Failure::of("enter", &error);
        let gone = || Failure::new("enter", libc::ESRCH);
        let pid = Pid::from_raw(program.pid).ok_or_else(gone)?;
        let pidfd = rustix::process::pidfd_open(pid, PidfdFlags::empty()).map_err(|error| failed(error.into()))?;
        let root = if enter.namespaces.has(NamespaceKind::Mount) {
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let opened = rustix::fs::open(format!("/proc/{}/root", program.pid), flags, Mode::empty());
            Some(opened.map_err(|error| failed(error.into()))?)
        } else {
            None
        };
        let cgroups = Neighbour::of(program.pid, plan).map_err(failed)?;
        // Last: if it lives now, nobody else had its pid in the meantime.
        if !program.lives() {
            return Err(gone());
        }
        Ok(Self { pidfd, root, namespaces: enter.namespaces.clone(), cgroups })
    }

    pub(super) fn tree_plan(&self) -> &Plan {
        &self.cgroups.plan
    }

    pub(super) fn flags(&self) -> u64 {
        self.namespaces.clone_flags()
    }

    /// Returns what the child needs. The descriptors stay open in this process until the child has its copies.
    pub(super) fn entry(&self) -> Entry {
        Entry {
            pidfd: self.pidfd.as_raw_fd(),
            root: self.root.as_ref().map(|root| root.as_raw_fd()),
            flags: self.flags() as libc::c_int,
        }
    }

    /// Puts the child under the limits of the session.
    pub(super) fn place(&self, pid: i32) -> Result<(), Failure> {
        self.cgroups.join(pid).map_err(|error| Failure::of("cgroup.procs", &error))
    }

    pub(super) fn into_pidfd(self) -> OwnedFd {
        self.pidfd
    }
}
