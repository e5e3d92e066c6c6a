//! Process trees: keep the processes of a session together, so that all of them can be frozen, counted and killed.
//!
//! The mechanisms form a ladder. [`Ladder::probe`] tries its rungs from the top at the daemon's start; the shim gets
//! the [`Plan`] and creates a fresh [`Tree`] from it for every launch. A limit that cannot be enforced is an error or a
//! visible `degraded`, never silent.
//!
//! **Invariant:** a leaf is used for one launch only, because a child cloned into a cgroup that was killed once dies at
//! birth. The empty leaf of a launch that was lost is replaced by a new one. The shim is in no leaf but the one that counts processes, if it waited in it. No call here waits longer than [`FREEZE_MAX`].

mod ahead;
pub mod below;
mod cgroup;
mod child;
mod escaped;
mod ladder;
mod neighbour;
mod nest;
mod place;
mod sweep;

use std::collections::HashSet;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use relive_sandbox::Namespaces;
use serde::{Deserialize, Serialize};

pub(crate) use ahead::{Ahead, remove_leaf_of_shim};
pub(crate) use ladder::VARIABLE as LADDER_VARIABLE;
pub use ladder::{Ladder, Start, try_user_namespace};
pub(crate) use neighbour::Neighbour;
pub(crate) use sweep::{has_no_children, signal_all};

use crate::proc::{self, Identity};
use crate::spec::Limits;
use crate::stage::Failure;
use cgroup::Leaf;

/// The environment variable that marks every program of a session: its value is the session's name.
pub const MARKER: &str = "RELIVE_SESSION";

/// Where trees are created: found once by probing, sent to every shim.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Plan {
    /// The cgroup v2 directory for the leaves.
    pub v2: Option<PathBuf>,
    /// The v1 directories for the leaves, for controllers that v2 does not have.
    pub v1_freezer: Option<PathBuf>,
    pub v1_memory: Option<PathBuf>,
    pub v1_pids: Option<PathBuf>,
    #[serde(default)]
    pub v1_cpu: Option<PathBuf>,
    /// Set if a PID namespace keeps the tree together, and whether it needs a user namespace.
    pub pid_namespace: Option<PidNamespace>,
    /// The name of the directory with the leaves, in each of those above. Created when it is needed, removed when it is
    /// empty.
    pub prefix: String,
}

/// What a PID namespace needs on this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PidNamespace {
    /// Nothing else: the user is privileged.
    Plain,
    /// A user namespace around it.
    InUserNamespace,
}

/// The parts of a tree: enough to find it again when its shim is gone.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Made {
    /// The session's name: that of the leaf in each hierarchy, and the value of [`MARKER`] in the program's
    /// environment.
    pub name: String,
    /// The leaf of the v2 hierarchy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub v2: Option<PathBuf>,
    /// The v1 leaf that lists the members.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub v1_freezer: Option<PathBuf>,
    /// The v1 leaf with the memory limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub v1_memory: Option<PathBuf>,
    /// The v1 leaf with the limit of processes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub v1_pids: Option<PathBuf>,
    /// The v1 leaf with the CPU limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub v1_cpu: Option<PathBuf>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid_namespace: Option<PidNamespace>,
    /// The first process, as soon as it is placed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub root: Option<Identity>,
}

/// The rung in use of each ladder, as `doctor` and `info` show it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Rungs {
    /// `cgroup2`, `cgroup1`, `pid-namespace`, `process-group`.
    pub tree: String,
    /// `cgroup2-freeze`, `cgroup1-freezer`, `sigstop`.
    pub pause: String,
    /// `cgroup-kill`, `cgroup-sweep` (freeze, kill each, thaw), `pid-namespace`, `subreaper`.
    pub kill: String,
    /// `cgroup2`, `cgroup1`, `pid-namespace`, `rlimit`, `none`.
    pub pids: String,
    /// `cgroup2`, `cgroup1`, `none`.
    pub memory: String,
    /// `cgroup2`, `cgroup1`, `none`.
    #[serde(default)]
    pub cpu: String,
    /// `none`, `confined`, `sealed`: what the program may reach.
    #[serde(default)]
    pub isolation: String,
    /// `full`, `none` or `allow:...`: what it reaches of the network.
    #[serde(default)]
    pub network: String,
    /// The namespaces of its own: `user pid mount net ipc uts cgroup time`.
    #[serde(default)]
    pub namespaces: Vec<String>,
    /// Limits that cannot be enforced, or only weakly; empty if everything works.
    pub degraded: Vec<String>,
}

/// The version of the cgroup freezer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FreezerVersion {
    /// A frozen process does not die before it is thawed.
    V1,
    V2,
}

impl Rungs {
    /// Returns which freezer pauses the tree, with all that is in cgroups below it; `None` if its processes are stopped one
    /// by one.
    #[must_use]
    pub fn freezer(&self) -> Option<FreezerVersion> {
        match self.pause.as_str() {
            V2_FREEZER => Some(FreezerVersion::V2),
            V1_FREEZER => Some(FreezerVersion::V1),
            _ => None,
        }
    }
}

const V2_FREEZER: &str = "cgroup2-freeze";
const V1_FREEZER: &str = "cgroup1-freezer";

/// The longest a freeze may take.
pub const FREEZE_MAX: Duration = Duration::from_secs(2);
/// The longest wait for the kernel to release a leaf.
const REMOVE_MAX: Duration = Duration::from_secs(1);

const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;

/// The process tree of one launch.
#[derive(Debug)]
pub struct Tree {
    made: Made,
    rungs: Rungs,
    /// The v2 leaf, to clone into.
    v2: Option<OwnedFd>,
    whose: Whose,
    /// Processes that were stopped one by one, and have to be continued. Others may have stopped themselves.
    stopped: Mutex<HashSet<Identity>>,
    /// The limit of processes for the first one and its descendants.
    pids_rlimit: Option<u64>,
    /// Whether its leaf for the limit of processes is one that the shim is in.
    counts_shim: bool,
}

/// The position from which a tree is observed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Whose {
    /// From the shim, which is its ancestor.
    Ours,
    /// From another process, because its shim is gone.
    Lost,
}

/// How its members are found.
enum Hold<'a> {
    V2(&'a Path),
    V1(&'a Path),
    Namespace,
    Group,
}

impl Tree {
    /// Creates a fresh tree for a session of this name: one component of a path, used once.
    pub fn make(plan: &Plan, name: &str, limits: &Limits) -> Result<Self, Failure> {
        place::make(plan, name, limits, None)
    }

    /// Creates one in the leaf that the shim is in, where that can be used: it is taken back when nothing else is in it.
    pub(crate) fn make_around(plan: &Plan, name: &str, limits: &Limits, ahead: &mut Ahead) -> Result<Self, Failure> {
        place::make(plan, name, limits, Some(ahead))
    }

    /// Finds the tree of a lost shim.
    #[must_use]
    pub fn reopen(made: &Made) -> Self {
        let rungs = place::rungs_of(made);
        Self {
            made: made.clone(),
            rungs,
            v2: None,
            whose: Whose::Lost,
            stopped: Mutex::default(),
            pids_rlimit: None,
            counts_shim: false,
        }
    }

    /// Returns everything that [`Tree::make`] may have created if its creator was lost before it could report it.
    pub(crate) fn planned(plan: &Plan, name: &str) -> Self {
        Self::reopen(&Made::planned(plan, name))
    }

    /// Returns the names of all leaves that exist, of any session.
    pub(crate) fn leaves_in(plan: &Plan) -> Vec<String> {
        let held_by = plan.v2.as_ref().or(plan.v1_freezer.as_ref());
        let entries = held_by.and_then(|directory| std::fs::read_dir(directory.join(&plan.prefix)).ok());
        let entries = entries.into_iter().flatten().flatten();
        let directories = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        directories.filter_map(|entry| entry.file_name().into_string().ok()).collect()
    }

    /// Returns the flags for `clone3`.
    #[must_use]
    pub fn clone_flags(&self) -> u64 {
        let cgroup = if self.v2.is_some() { CLONE_INTO_CGROUP } else { 0 };
        let namespace = (libc::CLONE_NEWPID | libc::CLONE_NEWNS) as u64;
        cgroup
            | match self.made.pid_namespace {
                None => 0,
                Some(PidNamespace::Plain) => namespace,
                Some(PidNamespace::InUserNamespace) => namespace | libc::CLONE_NEWUSER as u64,
            }
    }

    /// Returns the cgroup to clone into, for the flag above.
    #[must_use]
    pub fn cgroup(&self) -> Option<BorrowedFd<'_>> {
        self.v2.as_ref().map(|leaf| leaf.as_fd())
    }

    /// Places the child that waits at the gate: into its v1 cgroups, its ids into its user namespace, with its limits.
    /// From then on it is the tree's first process.
    pub fn place(&mut self, pid: i32) -> Result<(), Failure> {
        place::place(self, pid)
    }

    /// Freezes the whole tree, and returns when it is frozen. If that takes longer, for example because a process waits
    /// in the kernel, the order stays and `TimedOut` is returned; after any other error the tree continues as before.
    pub fn freeze(&self, at_most: Duration) -> io::Result<()> {
        let frozen = match self.hold() {
            Hold::V2(leaf) => Leaf(leaf).freeze_v2(at_most),
            Hold::V1(leaf) => Leaf(leaf).freeze_v1(at_most),
            Hold::Namespace | Hold::Group => sweep::stop(|| self.identities(), &mut self.stopped(), at_most),
        };
        if frozen.as_ref().is_err_and(|error| error.kind() != io::ErrorKind::TimedOut) {
            self.thaw()?;
        }
        frozen
    }

    /// Returns whether it has a cgroup that still exists.
    #[must_use]
    pub(crate) fn has_leaf(&self) -> bool {
        match self.hold() {
            Hold::V2(leaf) | Hold::V1(leaf) => leaf.exists(),
            Hold::Namespace | Hold::Group => false,
        }
    }

    /// Returns whether it is completely frozen.
    #[must_use]
    pub fn is_frozen(&self) -> bool {
        let leaf = match self.hold() {
            Hold::V2(leaf) => Leaf(leaf).is_frozen_v2(),
            Hold::V1(leaf) => Leaf(leaf).is_frozen_v1(),
            Hold::Namespace | Hold::Group => {
                return self.identities().is_ok_and(|members| sweep::are_stopped(&members));
            }
        };
        let escaped: Vec<Identity> = self.stopped().iter().copied().collect();
        leaf && (escaped.is_empty() || sweep::are_stopped(&escaped))
    }

    pub fn thaw(&self) -> io::Result<()> {
        let thawed = match self.hold() {
            Hold::V2(leaf) => Leaf(leaf).thaw_v2(),
            Hold::V1(leaf) => Leaf(leaf).thaw_v1(),
            Hold::Namespace | Hold::Group => Ok(()),
        };
        let stopped: Vec<Identity> = self.stopped().drain().collect();
        thawed.and(sweep::signal_all(&stopped, rustix::process::Signal::CONT))
    }

    /// Thaws it for whoever froze it: every stopped process continues.
    pub(crate) fn thaw_all(&self) -> io::Result<()> {
        if self.is_swept() {
            self.stopped().extend(self.identities()?);
        }
        self.thaw()
    }

    /// Returns whether only the process that froze it can thaw it: nobody else knows which processes were stopped one
    /// by one.
    pub(crate) fn is_swept(&self) -> bool {
        matches!(self.hold(), Hold::Namespace | Hold::Group)
    }

    fn stopped(&self) -> MutexGuard<'_, HashSet<Identity>> {
        self.stopped.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Kills everything in it, frozen or not, once. Call [`Tree::is_empty`], and repeat, to empty it.
    pub fn kill(&self) -> io::Result<()> {
        match self.hold() {
            Hold::V2(leaf) => Leaf(leaf).kill_v2(),
            Hold::V1(leaf) => Leaf(leaf).kill_v1(),
            // Its first process takes all the others with it.
            Hold::Namespace => sweep::signal_all(self.made.root.as_slice(), rustix::process::Signal::KILL),
            Hold::Group => sweep::kill(|| self.identities()),
        }
    }

    /// Returns whether nothing of it is left.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        match self.hold() {
            Hold::V2(leaf) => Leaf(leaf).is_unpopulated(),
            Hold::V1(leaf) => Leaf(leaf).members().is_ok_and(|members| members.is_empty()),
            Hold::Namespace => !self.made.root.is_some_and(Identity::lives),
            Hold::Group if self.whose == Whose::Ours && sweep::has_no_children() => true,
            // One look may miss a process that was born during it, of a parent that died before it was examined.
            Hold::Group => (0..3).all(|_| self.identities().is_ok_and(|members| members.is_empty())),
        }
    }

    /// Returns the pids of all processes in it, without the shim's.
    #[must_use]
    pub fn members(&self) -> Vec<i32> {
        match self.hold() {
            Hold::V2(leaf) | Hold::V1(leaf) => Leaf(leaf).members().unwrap_or_default(),
            Hold::Namespace | Hold::Group => {
                self.identities().unwrap_or_default().iter().map(|identity| identity.pid).collect()
            }
        }
    }

    /// Returns how many of its processes the kernel killed for lack of memory.
    #[must_use]
    pub fn oom_kills(&self) -> u64 {
        let v2 = self.made.v2.as_deref().and_then(|leaf| Leaf(leaf).count("memory.events", "oom_kill"));
        let v1 = self.made.v1_memory.as_deref().and_then(|leaf| Leaf(leaf).count("memory.oom_control", "oom_kill"));
        v2.unwrap_or(0) + v1.unwrap_or(0)
    }

    /// Removes the leaves, which must be empty, except the one that the shim is in.
    pub fn remove(&self) -> io::Result<()> {
        let mut outcome = Ok(());
        let shims = self.made.v1_pids.as_deref().filter(|leaf| self.counts_shim || self.is_of_living_shim(leaf));
        for leaf in self.made.leaves().filter(|leaf| Some(*leaf) != shims) {
            outcome = outcome.and(Leaf(leaf).remove(REMOVE_MAX));
            if let Some(directory) = leaf.parent() {
                // It stays while it contains other leaves.
                let _ = rustix::fs::rmdir(directory);
            }
        }
        outcome
    }

    /// Returns whether a shim that does not answer is in a leaf: that cannot be removed before it is gone. One that was killed
    /// is in it for a moment longer.
    fn is_of_living_shim(&self, leaf: &Path) -> bool {
        self.whose == Whose::Lost
            && Leaf(leaf)
                .members()
                .is_ok_and(|members| members.iter().any(|member| proc::shim_directory(*member).is_some()))
    }

    /// Lets the shim leave the leaf that it shares with the tree, for good.
    pub(crate) fn release_shim(&mut self, ahead: Ahead) -> io::Result<()> {
        if !std::mem::take(&mut self.counts_shim) {
            // Nothing is limited by it.
            drop(ahead);
            return Ok(());
        }
        ahead.abandon()
    }

    /// Returns its parts, for the session's directory.
    #[must_use]
    pub fn made(&self) -> &Made {
        &self.made
    }

    /// Adds what its program is isolated by.
    pub(crate) fn set_isolation(&mut self, name: &str, network: String, degraded: &[String]) {
        self.rungs.isolation = name.to_owned();
        self.rungs.network = network;
        self.rungs.degraded.extend_from_slice(degraded);
    }

    /// Adds what its program cannot have.
    pub(crate) fn say_degraded(&mut self, said: Vec<String>) {
        self.rungs.degraded.extend(said);
    }

    /// Adds the namespaces that its first process was cloned into.
    pub(crate) fn set_namespaces(&mut self, flags: u64) {
        let made = Namespaces::of_flags(flags);
        self.rungs.namespaces = made.iter().map(|kind| kind.name().to_owned()).collect();
    }

    /// Returns the rungs in use, and what cannot be enforced.
    #[must_use]
    pub fn rungs(&self) -> &Rungs {
        &self.rungs
    }

    fn hold(&self) -> Hold<'_> {
        self.made.hold()
    }

    /// Returns the members, if no cgroup lists them.
    fn identities(&self) -> io::Result<Vec<Identity>> {
        let all = proc::all()?;
        let root = self.made.root.filter(|root| root.lives());
        let mut found: Vec<Identity> = match (self.hold(), self.whose) {
            (Hold::Group, Whose::Ours) => return Ok(proc::descendants(&all, &[std::process::id() as i32])),
            (Hold::Group, Whose::Lost) => sweep::strays(&all, &self.made.name, root),
            (Hold::Namespace | Hold::V1(_) | Hold::V2(_), _) => root.into_iter().collect(),
        };
        let pids: Vec<i32> = found.iter().map(|identity| identity.pid).collect();
        found.extend(proc::descendants(&all, &pids));
        Ok(found)
    }
}

impl Made {
    /// Returns whether these are the parts of a session of this name.
    pub(crate) fn is_of(&self, name: &str) -> bool {
        self.name == name && self.leaves().all(|leaf| leaf.file_name().is_some_and(|leaf| leaf == name))
    }

    /// Returns all leaves that may exist.
    fn planned(plan: &Plan, name: &str) -> Self {
        let leaf =
            |directory: &Option<PathBuf>| directory.as_ref().map(|directory| directory.join(&plan.prefix).join(name));
        Self {
            name: name.into(),
            v2: leaf(&plan.v2),
            v1_freezer: leaf(&plan.v1_freezer),
            v1_memory: leaf(&plan.v1_memory),
            v1_pids: leaf(&plan.v1_pids),
            v1_cpu: leaf(&plan.v1_cpu),
            ..Self::default()
        }
    }

    fn hold(&self) -> Hold<'_> {
        match (&self.v2, &self.v1_freezer, self.pid_namespace) {
            (Some(leaf), _, _) => Hold::V2(leaf),
            (None, Some(leaf), _) => Hold::V1(leaf),
            (None, None, Some(_)) => Hold::Namespace,
            (None, None, None) => Hold::Group,
        }
    }

    fn leaves(&self) -> impl Iterator<Item = &Path> {
        let leaves = [&self.v2, &self.v1_freezer, &self.v1_memory, &self.v1_pids, &self.v1_cpu];
        leaves.into_iter().filter_map(|leaf| leaf.as_deref())
    }
}

#[cfg(test)]
mod tests;
