//! A plan as system calls.

use std::ffi::NulError;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use rustix::fs::Mode;
use rustix::io::Errno;
use seccompiler::BpfProgram;

use crate::landlock::{self, Rules};
use crate::mounts::{Operations, c_path};
use crate::plan::{Capabilities, Filter, Landlock, Plan};
use crate::policy::Namespaces;
use crate::{capabilities, filter};

/// The reason why a plan cannot be prepared.
#[derive(Debug, thiserror::Error)]
pub enum PrepareError {
    #[error("a path contains a NUL byte: {0}")]
    Path(#[from] NulError),
    #[error("the filter of system calls cannot be made: {0}")]
    Filter(#[from] seccompiler::BackendError),
}

/// The step that the kernel refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refused {
    /// Its place in [`Prepared::step_names`].
    pub step: u16,
    pub errno: i32,
}

/// A plan as system calls, made by one process: the program's before it executes.
#[derive(Debug)]
pub struct Prepared {
    namespaces: Namespaces,
    operations: Operations,
    slots: Vec<Option<OwnedFd>>,
    rules: Rules,
    filters: Vec<BpfProgram>,
    filter: Filter,
    capabilities: Capabilities,
}

/// The steps of [`Prepared::lock`], in their order.
const LOCKS: [&str; 4] = ["no_new_privs", "landlock", "capset", "seccomp"];

impl Prepared {
    pub fn new(plan: &Plan) -> Result<Self, PrepareError> {
        let operations = Operations::new(plan)?;
        let mut slots = Vec::new();
        slots.resize_with(operations.slots, || None);
        Ok(Self {
            namespaces: plan.namespaces.clone(),
            slots,
            operations,
            rules: match &plan.landlock {
                Landlock::Unused => Rules::Unused,
                Landlock::Scope => Rules::Scope,
                Landlock::Files { version, writable } => Rules::Files {
                    version: *version,
                    writable: writable.iter().map(|path| c_path(path)).collect::<Result<_, _>>()?,
                },
            },
            filters: filter::compile(plan.filter)?,
            filter: plan.filter,
            capabilities: plan.capabilities,
        })
    }

    /// Takes the socket to the process that is to accept on the port of the plan.
    pub fn set_proxy(&mut self, socket: OwnedFd) {
        if let Some(place) = self.operations.proxy.and_then(|slot| self.slots.get_mut(slot)) {
            *place = Some(socket);
        }
    }

    /// Returns the descriptor of that socket, which has to be open in [`Prepared::enter`].
    #[must_use]
    pub fn proxy(&self) -> Option<RawFd> {
        let socket = self.operations.proxy.and_then(|slot| self.slots.get(slot)?.as_ref());
        socket.map(AsRawFd::as_raw_fd)
    }

    /// Returns the flags with which the program's process, or its init, is cloned.
    #[must_use]
    pub fn clone_flags(&self) -> u64 {
        self.namespaces.clone_flags()
    }

    /// Returns the names of the steps, by their numbers: system calls and mounts.
    #[must_use]
    pub fn step_names(&self) -> Vec<String> {
        let mounts = self.operations.list.iter().map(|(_, name)| name.clone());
        mounts.chain(LOCKS.iter().map(|&name| name.to_owned())).collect()
    }

    /// Makes the mounts, in the namespaces that [`Prepared::clone_flags`] made, once. Allocates nothing.
    pub fn enter(&mut self) -> Result<(), Refused> {
        let mask = rustix::process::umask(Mode::empty());
        let mut entered = Ok(());
        for (step, (operation, _)) in self.operations.list.iter().enumerate() {
            if let Err(error) = operation.run(&mut self.slots) {
                entered = Err(refused(step, error));
                break;
            }
        }
        rustix::process::umask(mask);
        entered
    }

    /// Gives up everything that the plan does not allow, for ever. Allocates nothing.
    pub fn lock(&self) -> Result<(), Refused> {
        let first = self.operations.list.len();
        let steps: [fn(&Self) -> rustix::io::Result<()>; LOCKS.len()] = [
            Self::give_up_privileges,
            |prepared| landlock::restrict(&prepared.rules),
            |prepared| match prepared.capabilities {
                Capabilities::Unchanged => Ok(()),
                Capabilities::Reduced => capabilities::reduce(),
            },
            Self::filter_calls,
        ];
        for (number, step) in steps.into_iter().enumerate() {
            step(self).map_err(|error| refused(first + number, error))?;
        }
        Ok(())
    }

    fn give_up_privileges(&self) -> rustix::io::Result<()> {
        match self.filter {
            Filter::Unused => Ok(()),
            Filter::WithTracing | Filter::WithoutTracing => rustix::thread::set_no_new_privs(true),
        }
    }

    fn filter_calls(&self) -> rustix::io::Result<()> {
        for program in &self.filters {
            match seccompiler::apply_filter(program) {
                Ok(()) => {}
                Err(seccompiler::Error::Prctl(error) | seccompiler::Error::Seccomp(error)) => {
                    return Err(Errno::from_io_error(&error).unwrap_or(Errno::INVAL));
                }
                Err(_) => return Err(Errno::INVAL),
            }
        }
        Ok(())
    }
}

fn refused(step: usize, error: Errno) -> Refused {
    Refused { step: u16::try_from(step).unwrap_or(u16::MAX), errno: error.raw_os_error() }
}
