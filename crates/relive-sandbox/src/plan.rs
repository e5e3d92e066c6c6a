//! The plan: every decision about a program's isolation, as a value. Pure.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::policy::{GitConfig, Isolation, NamespaceKind, Namespaces, Network, Policy, Unheld};
use crate::probe::Machine;
use crate::surroundings::{Shape, Surroundings};

/// The first version of Landlock that keeps signals and abstract sockets inside.
pub(crate) const SCOPE_ABI: u32 = 6;
/// What the rung without namespaces leaves open.
const LANDLOCK_ONLY: &str = "isolation: Landlock and seccomp only: secrets are readable, git hooks are writable, \
                             the temporary directory is shared, sockets and UDP are not restricted";
const FULL_NETWORK: &str = "isolation: the network is not restricted";
const ABSTRACT_SOCKETS: &str = "isolation: abstract sockets of other programs are reachable, Linux 6.12 is needed";

/// Every decision about the isolation of one program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    pub isolation: Isolation,
    pub namespaces: Namespaces,
    pub root: RootMount,
    /// In the order in which they are made: each after those that contain it.
    pub mounts: Vec<Mount>,
    pub landlock: Landlock,
    pub filter: Filter,
    pub capabilities: Capabilities,
    /// The port of its loopback whose listener is handed to a process outside.
    #[serde(default)]
    pub proxy_port: Option<u16>,
    /// The restrictions that this machine cannot enforce.
    pub degraded: Vec<String>,
}

/// How the program sees the file system where nothing else is mounted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RootMount {
    Unchanged,
    ReadOnly,
}

/// One mount. Paths are canonical.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mount {
    /// The host's, mounted on itself: writable in a read-only root, or visible in a hidden directory.
    Writable { at: PathBuf, shape: Shape },
    /// The host's, mounted on itself and read-only. Sockets can be connected to.
    ReadOnly { at: PathBuf, shape: Shape },
    /// The program's own terminal, which is on the host's, under the name by which programs find it.
    Console { from: PathBuf, at: PathBuf },
    /// An empty directory for temporary files.
    Temporary { at: PathBuf },
    /// An empty directory that stays empty, except for what is mounted below it.
    Hidden { at: PathBuf },
    /// An empty read-only file, in place of a file or socket.
    HiddenFile { at: PathBuf },
    /// A directory for the devices that are mounted below it.
    Devices { at: PathBuf },
    /// Terminals of its own.
    Terminals { at: PathBuf },
    /// The processes of its PID namespace.
    Proc { at: PathBuf },
    /// A part of that, read-only.
    ProcReadOnly { at: PathBuf },
}

/// The use of Landlock.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Landlock {
    Unused,
    /// Signals and abstract sockets stay inside; other processes cannot be traced.
    Scope,
    /// As far as this version knows them, and files change only below these paths.
    Files {
        version: u32,
        writable: Vec<PathBuf>,
    },
}

/// The filter of system calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Filter {
    Unused,
    /// Other processes are out of reach by other means, so a debugger may trace its own children.
    WithTracing,
    /// Nothing else keeps other processes out of reach.
    WithoutTracing,
}

/// The capabilities of a program, which matter if it is root.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Capabilities {
    Unchanged,
    /// The capabilities that package managers and build tools need.
    Reduced,
}

/// The reason why there is no plan.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    #[error("the working directory {} is hidden at isolation {isolation}", cwd.display())]
    HiddenDirectory { cwd: PathBuf, isolation: Isolation },
    #[error("the working directory {} is outside of {}, the directory of the process that started it", cwd.display(), within.display())]
    OutsideDirectory { cwd: PathBuf, within: PathBuf },
    #[error("the program could not keep its own files at isolation {isolation}: {problem}")]
    State { isolation: Isolation, problem: String },
    #[error("this machine cannot enforce isolation {isolation}: {missing}")]
    Unheld { isolation: Isolation, missing: String },
}

impl Plan {
    /// Decides how to isolate a program.
    pub fn new(policy: &Policy, found: &Surroundings, machine: &Machine) -> Result<Self, PlanError> {
        match policy.isolation {
            Isolation::None => Ok(Self::of_namespaces(policy, found)),
            Isolation::Confined | Isolation::Sealed if machine.namespaces_work() => {
                Self::mounted(policy, found, machine)
            }
            Isolation::Confined | Isolation::Sealed => Self::landlocked(policy, found, machine),
        }
    }

    /// Namespaces one by one, which hide nothing by themselves.
    fn of_namespaces(policy: &Policy, found: &Surroundings) -> Self {
        let mut namespaces = policy.namespaces.and(own_network(policy).then_some(NamespaceKind::Net));
        if namespaces.has(NamespaceKind::Pid) {
            // Its own /proc needs a mount point.
            namespaces = namespaces.and([NamespaceKind::Mount]);
        }
        if !found.is_root && !namespaces.is_empty() {
            namespaces = namespaces.and([NamespaceKind::User]);
        }
        let proc = namespaces.has(NamespaceKind::Pid).then(|| Mount::Proc { at: "/proc".into() });
        Self {
            isolation: Isolation::None,
            namespaces,
            root: RootMount::Unchanged,
            mounts: proc.into_iter().collect(),
            landlock: Landlock::Unused,
            filter: Filter::Unused,
            capabilities: Capabilities::Unchanged,
            proxy_port: proxy_port(policy),
            degraded: Vec::new(),
        }
    }

    fn mounted(policy: &Policy, found: &Surroundings, machine: &Machine) -> Result<Self, PlanError> {
        let isolation = policy.isolation;
        check_directory(isolation, found)?;
        let mut namespaces = policy.namespaces.and([NamespaceKind::Pid, NamespaceKind::Mount, NamespaceKind::Ipc]);
        if isolation == Isolation::Sealed {
            namespaces = namespaces.and([NamespaceKind::User, NamespaceKind::Uts, NamespaceKind::Cgroup]);
        }
        if !found.is_root {
            namespaces = namespaces.and([NamespaceKind::User]);
        }
        namespaces = namespaces.and(own_network(policy).then_some(NamespaceKind::Net));
        let mut degraded: Vec<String> = Vec::new();
        let scoped = machine.landlock_abi >= SCOPE_ABI;
        if !scoped && !namespaces.has(NamespaceKind::Net) {
            degraded.push(ABSTRACT_SOCKETS.into());
        }
        let unprotected = found.unprotected.iter().chain(&found.state.unprotected);
        degraded.extend(unprotected.map(|what| format!("isolation: {what}")));
        accept(isolation, policy.unheld, &degraded)?;
        // Nothing is less protected by it.
        degraded.extend(found.read_only.clone());
        Ok(Self {
            isolation,
            namespaces,
            root: RootMount::ReadOnly,
            mounts: mounts(policy, found),
            landlock: if scoped { Landlock::Scope } else { Landlock::Unused },
            filter: Filter::WithTracing,
            capabilities: Capabilities::Reduced,
            proxy_port: proxy_port(policy),
            degraded,
        })
    }

    /// The lower rung, without namespaces.
    fn landlocked(policy: &Policy, found: &Surroundings, machine: &Machine) -> Result<Self, PlanError> {
        let isolation = policy.isolation;
        check_directory(isolation, found)?;
        let missing = match machine.landlock_abi {
            0 => format!("isolation: files are not restricted: no namespaces ({}) and no Landlock", machine.refusal()),
            _ => LANDLOCK_ONLY.to_owned(),
        };
        let network = own_network(policy).then(|| FULL_NETWORK.to_owned());
        let mut degraded: Vec<String> = [missing].into_iter().chain(network).collect();
        accept(isolation, policy.unheld, &degraded)?;
        degraded.extend(found.read_only.clone());
        let rules = [&found.temporary, &found.caches, &found.writable, &found.state.writable].into_iter().flatten();
        let git = found.git.iter().flat_map(|git| &git.pinned);
        let own = (found.cwd.parent().is_some()).then_some(&found.cwd);
        let writable = rules.chain(git).chain(own).cloned().chain(["/dev".into()]).collect();
        Ok(Self {
            isolation,
            namespaces: Namespaces::default(),
            root: RootMount::Unchanged,
            mounts: Vec::new(),
            landlock: match machine.landlock_abi {
                0 => Landlock::Unused,
                version => Landlock::Files { version, writable },
            },
            filter: if machine.landlock_abi == 0 { Filter::WithoutTracing } else { Filter::WithTracing },
            capabilities: Capabilities::Reduced,
            proxy_port: None,
            degraded,
        })
    }
}

/// Returns whether the program has a network of its own, without a way out except for a proxy.
fn own_network(policy: &Policy) -> bool {
    match policy.network {
        Network::None | Network::Proxy(_) => true,
        Network::Full => false,
        Network::ByIsolation => policy.isolation == Isolation::Sealed,
    }
}

fn proxy_port(policy: &Policy) -> Option<u16> {
    match policy.network {
        Network::Proxy(port) => Some(port),
        Network::None | Network::Full | Network::ByIsolation => None,
    }
}

fn accept(isolation: Isolation, unheld: Unheld, degraded: &[String]) -> Result<(), PlanError> {
    match unheld {
        Unheld::Fail if !degraded.is_empty() => Err(PlanError::Unheld {
            isolation,
            missing: degraded.iter().map(|line| line.trim_start_matches("isolation: ")).collect::<Vec<_>>().join("; "),
        }),
        Unheld::Fail | Unheld::Say => Ok(()),
    }
}

fn check_directory(isolation: Isolation, found: &Surroundings) -> Result<(), PlanError> {
    if let Some(within) = found.within.as_ref().filter(|within| !found.cwd.starts_with(within)) {
        return Err(PlanError::OutsideDirectory { cwd: found.cwd.clone(), within: within.clone() });
    }
    let mut hidden = found.hidden.iter().map(|(path, _)| path).chain(&found.private);
    if hidden.any(|path| found.cwd.starts_with(path)) {
        return Err(PlanError::HiddenDirectory { cwd: found.cwd.clone(), isolation });
    }
    match found.state.problems.as_slice() {
        [] => Ok(()),
        problems => Err(PlanError::State { isolation, problem: problems.join("; ") }),
    }
}

/// Returns the mounts, one for each path: of two for the same path the later one here counts.
fn mounts(policy: &Policy, found: &Surroundings) -> Vec<Mount> {
    let mut chosen: BTreeMap<(usize, PathBuf), Mount> = BTreeMap::new();
    let mut choose = |mount: Mount| {
        let at = mount.at().to_owned();
        chosen.insert((at.components().count(), at), mount);
    };
    // Directories and files are mounted on themselves, so the shape matters only in empty directories.
    let read_only = |at: &PathBuf| Mount::ReadOnly { at: at.clone(), shape: Shape::Directory };
    let writable = |at: &PathBuf| Mount::Writable { at: at.clone(), shape: Shape::Directory };
    let is_hidden = |path: &Path| found.hidden.iter().any(|(hidden, _)| path.starts_with(hidden));
    for at in found.temporary.iter().chain(&found.own_temporary) {
        choose(Mount::Temporary { at: at.clone() });
    }
    let own = found.cwd.parent().is_some().then_some(&found.cwd);
    let git = found.git.iter().flat_map(|git| &git.pinned);
    let caches = found.caches.iter().filter(|path| !is_hidden(path));
    let state = found.state.writable.iter().filter(|path| !is_hidden(path));
    let changed: Vec<&PathBuf> = caches.chain(&found.writable).chain(state).chain(git).chain(own).collect();
    changed.iter().copied().chain(&above_hidden(found, &changed)).for_each(|at| choose(writable(at)));
    // Where nothing is writable, nothing has to be protected.
    let is_writable = |path: &&PathBuf| changed.iter().any(|other| path.starts_with(other));
    for at in found.protected.iter().filter(is_writable) {
        // Its directory cannot be renamed either: another one would take its place.
        at.parent()
            .map(Path::to_owned)
            .filter(|parent| is_writable(&parent))
            .iter()
            .for_each(|at| choose(writable(at)));
        choose(read_only(at));
    }
    let configs = found.git.iter().filter(|_| policy.git_config == GitConfig::ReadOnly).flat_map(|git| &git.configs);
    let executed = found.git.iter().flat_map(|git| &git.protected);
    executed.chain(configs).filter(is_writable).for_each(|at| choose(read_only(at)));
    state_mounts(found).for_each(&mut choose);
    found.private.iter().for_each(|at| choose(Mount::Hidden { at: at.clone() }));
    for (at, shape) in &found.hidden {
        choose(match shape {
            Shape::Directory => Mount::Hidden { at: at.clone() },
            Shape::Other => Mount::HiddenFile { at: at.clone() },
        });
    }
    for (at, shape) in &found.shown {
        choose(Mount::ReadOnly { at: at.clone(), shape: *shape });
    }
    device_mounts(found).for_each(&mut choose);
    choose(Mount::Proc { at: "/proc".into() });
    if found.is_root {
        found.proc_controls.iter().for_each(|at| choose(Mount::ProcReadOnly { at: at.clone() }));
    }
    // A program that is visible anyway needs no mount: its directory decides whether it is writable.
    let covered: Vec<Mount> = chosen.values().cloned().collect();
    let programs = found.programs.iter().filter(|path| !is_hidden(path));
    for at in programs.filter(|path| is_in_empty(&covered, path)) {
        let mount = Mount::ReadOnly { at: at.clone(), shape: Shape::Other };
        chosen.insert((at.components().count(), at.clone()), mount);
    }
    let mounts: Vec<Mount> = chosen.into_values().collect();
    // In an empty directory there is nothing to hide.
    let matters = |mount: &&Mount| match mount {
        Mount::Hidden { at } | Mount::HiddenFile { at } => !is_in_empty(&mounts, at),
        Mount::Writable { .. }
        | Mount::ReadOnly { .. }
        | Mount::Console { .. }
        | Mount::Temporary { .. }
        | Mount::Devices { .. }
        | Mount::Terminals { .. }
        | Mount::Proc { .. }
        | Mount::ProcReadOnly { .. } => true,
    };
    mounts.iter().filter(matters).cloned().collect()
}

/// Returns the mounts of /dev.
fn device_mounts(found: &Surroundings) -> impl Iterator<Item = Mount> + '_ {
    let devices = found.devices.iter().map(|at| Mount::Writable { at: at.clone(), shape: Shape::Other });
    let console = found.terminal.iter().map(|from| Mount::Console { from: from.clone(), at: "/dev/console".into() });
    let others = [Mount::Terminals { at: "/dev/pts".into() }, Mount::Temporary { at: "/dev/shm".into() }];
    std::iter::once(Mount::Devices { at: "/dev".into() }).chain(devices).chain(console).chain(others)
}

/// Returns the mounts for the parts of a program's state that it cannot change.
fn state_mounts(found: &Surroundings) -> impl Iterator<Item = Mount> + '_ {
    let private = found.state.private.iter().map(|at| Mount::Temporary { at: at.clone() });
    // Whoever works in one of them means to change it.
    let fixed = found.state.fixed.iter().filter(|(at, _)| *at != found.cwd);
    private.chain(fixed.map(|(at, shape)| Mount::ReadOnly { at: at.clone(), shape: *shape }))
}

/// Returns the directories above hidden ones that a program could otherwise rename: elsewhere, nothing would be hidden in them.
fn above_hidden(found: &Surroundings, changed: &[&PathBuf]) -> Vec<PathBuf> {
    let hidden = || found.hidden.iter().map(|(path, _)| path).chain(&found.private);
    let is_hidden = |path: &Path| hidden().any(|hidden| path.starts_with(hidden));
    let is_below = |path: &Path| changed.iter().any(|other| path != other.as_path() && path.starts_with(other));
    let above = hidden().flat_map(|path| path.ancestors().skip(1));
    above.filter(|path| is_below(path) && !is_hidden(path)).map(Path::to_owned).collect()
}

/// Returns the mount that a path is on, apart from its own, and its place in the list.
pub(crate) fn nearest<'a>(mounts: &'a [Mount], path: &Path) -> Option<(usize, &'a Mount)> {
    mounts.iter().enumerate().rfind(|(_, mount)| mount.at() != path && path.starts_with(mount.at()))
}

fn is_in_empty(mounts: &[Mount], path: &Path) -> bool {
    nearest(mounts, path).is_some_and(|(_, above)| above.begins_empty())
}

impl Mount {
    #[must_use]
    pub fn at(&self) -> &Path {
        match self {
            Self::Writable { at, .. }
            | Self::ReadOnly { at, .. }
            | Self::Console { at, .. }
            | Self::Temporary { at }
            | Self::Hidden { at }
            | Self::HiddenFile { at }
            | Self::Devices { at }
            | Self::Terminals { at }
            | Self::Proc { at }
            | Self::ProcReadOnly { at } => at,
        }
    }

    /// Returns whether nothing of the host is below it.
    pub(crate) fn begins_empty(&self) -> bool {
        match self {
            Self::Temporary { .. } | Self::Hidden { .. } | Self::Devices { .. } => true,
            Self::Writable { .. }
            | Self::ReadOnly { .. }
            | Self::Console { .. }
            | Self::HiddenFile { .. }
            | Self::Terminals { .. }
            | Self::Proc { .. }
            | Self::ProcReadOnly { .. } => false,
        }
    }
}

#[cfg(test)]
mod tests;
