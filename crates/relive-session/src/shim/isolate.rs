//! The isolation of a program: decided and prepared by the shim, carried out by its child.

use std::os::fd::{OwnedFd, RawFd};
use std::path::Path;

use relive_sandbox::{NamespaceKind, Places, Plan, Prepared, Surroundings};
use relive_types::Network;

use super::enter::Entered;
use super::stdio::Stdio;
use crate::spec::Spec;
use crate::stage::Failure;
use crate::tree::{self, Tree};

/// The isolation of one program: its own, or that of the session that it enters.
#[derive(Debug, Default)]
pub(super) struct Isolated {
    own: Option<(Plan, Prepared)>,
    entered: Option<Entered>,
    /// The mount points, which have to last as long as the program.
    places: Places,
}

/// Decides how to isolate the program of a spec, and prepares it.
pub(super) fn prepare(spec: &Spec, stdio: &Stdio) -> Result<Isolated, Failure> {
    let entered = spec.enter.as_ref().map(|enter| Entered::open(enter, &spec.tree)).transpose()?;
    let policy = &spec.isolation.policy;
    if policy.is_empty() || entered.is_some() {
        return Ok(Isolated { entered, ..Isolated::default() });
    }
    let found = Surroundings::look(policy, Path::new(&spec.cwd), &spec.env);
    let (mut found, places) = found.map_err(|error| Failure::of("chdir", &error))?;
    found.terminal = stdio.terminal_name();
    let refused = |errno: String, code| Failure { stage: "isolation".into(), errno, code };
    let plan = Plan::new(policy, &found, &spec.isolation.machine);
    let plan = plan.map_err(|error| refused(error.to_string(), libc::EOPNOTSUPP))?;
    let prepared = Prepared::new(&plan).map_err(|error| refused(error.to_string(), libc::EINVAL))?;
    Ok(Isolated { own: Some((plan, prepared)), entered: None, places })
}

impl Isolated {
    /// Adds what is in force to the rungs of the tree.
    pub(super) fn describe(&self, tree: &mut Tree, proxy: Option<&relive_proxy::Settings>) {
        if let Some((plan, _)) = &self.own {
            let network = match proxy.filter(|_| plan.proxy_port.is_some()) {
                Some(settings) => Network::Allow(settings.allow.clone()),
                None if plan.namespaces.has(NamespaceKind::Net) => Network::None,
                None => Network::Full,
            };
            tree.set_isolation(plan.isolation.name(), network.to_string(), &plan.degraded);
        }
    }

    /// Takes the socket through which the child hands its listener to the proxy.
    pub(super) fn set_proxy(&mut self, socket: OwnedFd) {
        if let Some((_, prepared)) = &mut self.own {
            prepared.set_proxy(socket);
        }
    }

    /// Returns the descriptor of that socket.
    pub(super) fn proxy(&self) -> Option<RawFd> {
        self.own.as_ref().and_then(|(_, prepared)| prepared.proxy())
    }

    pub(super) fn clone_flags(&self) -> u64 {
        self.own.as_ref().map_or(0, |(_, prepared)| prepared.clone_flags())
    }

    /// Returns whether it gives the program a `/proc` of its PID namespace.
    pub(super) fn mounts_proc(&self) -> bool {
        self.own.as_ref().is_some_and(|(plan, _)| plan.namespaces.has(NamespaceKind::Pid))
    }

    /// Returns the names of its steps, by their numbers.
    pub(super) fn steps(&self) -> Vec<String> {
        self.own.as_ref().map_or_else(Vec::new, |(_, prepared)| prepared.step_names())
    }

    /// Returns the system calls for the child, whose memory is a copy.
    pub(super) fn pointer(&mut self) -> *mut Prepared {
        self.own.as_mut().map_or(std::ptr::null_mut(), |(_, prepared)| &raw mut *prepared)
    }

    pub(super) fn entered(&self) -> Option<&Entered> {
        self.entered.as_ref()
    }

    /// Returns where the tree is created, if not where others are.
    pub(super) fn tree_plan(&self) -> Option<&tree::Plan> {
        self.entered.as_ref().map(Entered::tree_plan)
    }

    /// Returns the descriptor that tells when the session that was entered ends, and what has to last until the program has
    /// ended.
    pub(super) fn into_kept(self) -> (Option<OwnedFd>, Places) {
        (self.entered.map(Entered::into_pidfd), self.places)
    }
}
