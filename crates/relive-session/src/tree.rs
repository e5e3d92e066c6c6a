//! What holds a session's processes together, so that all of them can be frozen, counted and killed.
//!
//! A ladder, tried from the top at the daemon's start by [`Ladder::probe`]; the shim is handed the [`Plan`] and makes a fresh
//! [`Tree`] from it for every launch. A limit that cannot be held is an error or a visible `degraded`, never silent.
//!
//! What always holds: a leaf is used for one launch only, because a child cloned into a cgroup that was killed once dies at
//! birth. The shim is in no leaf. No call here waits longer than [`FREEZE_MAX`].

mod cgroup;
mod child;
mod ladder;
mod nest;
mod place;
mod sweep;

use std::collections::HashSet;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use ladder::{Ladder, Start, try_user_namespace};
pub(crate) use place::map_ids;
pub(crate) use sweep::{has_no_children, signal_all};

use crate::proc::{self, Identity};
use crate::spec::Limits;
use crate::stage::Failure;
use cgroup::Leaf;

/// The variable by which every program of a session can be told: its value is the session's name.
pub const MARKER: &str = "RELIVE_SESSION";

/// Where a tree is made: found once by trying, sent to every shim.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Plan {
    /// The cgroup v2 directory in which a leaf is made.
    pub v2: Option<PathBuf>,
    /// The v1 directories in which a leaf is made, where v2 has not got the controller.
    pub v1_freezer: Option<PathBuf>,
    /// The same.
    pub v1_memory: Option<PathBuf>,
    /// The same.
    pub v1_pids: Option<PathBuf>,
    /// The same.
    #[serde(default)]
    pub v1_cpu: Option<PathBuf>,
    /// Whether a PID namespace is what holds the tree, and, where it takes one, in a user namespace.
    pub pid_namespace: Option<PidNamespace>,
    /// The name of the directory, in each of those above, in which the leaves are. Made when it is needed, removed when it is
    /// empty.
    pub prefix: String,
}

/// What a PID namespace takes here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PidNamespace {
    /// Nothing else: we are privileged.
    Plain,
    /// A user namespace around it.
    InUserNamespace,
}

/// What a tree consists of: enough to find it again when its shim has gone.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Made {
    /// The session's name: the leaf's in each hierarchy, and the value of [`MARKER`] in the program's environment.
    pub name: String,
    /// The leaf of the v2 hierarchy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub v2: Option<PathBuf>,
    /// The v1 leaf that is the list of members.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub v1_freezer: Option<PathBuf>,
    /// The v1 leaf with the limit of memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub v1_memory: Option<PathBuf>,
    /// The v1 leaf with the limit of processes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub v1_pids: Option<PathBuf>,
    /// The v1 leaf with the limit of processor time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub v1_cpu: Option<PathBuf>,
    /// Whether it has a PID namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid_namespace: Option<PidNamespace>,
    /// The first process, as soon as it is placed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub root: Option<Identity>,
}

/// Which rung of each ladder is in force, in the words that `doctor` and `info` show.
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
    /// What was wanted and cannot be held, or holds only weakly; empty when all is well.
    pub degraded: Vec<String>,
}

/// The longest a freeze may take.
pub const FREEZE_MAX: Duration = Duration::from_secs(2);
/// The longest a removal waits for the kernel to let go of a leaf.
const REMOVE_MAX: Duration = Duration::from_secs(1);

const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;

/// What holds the processes of one launch together.
#[derive(Debug)]
pub struct Tree {
    made: Made,
    rungs: Rungs,
    /// The v2 leaf, to clone into.
    v2: Option<OwnedFd>,
    whose: Whose,
    /// Those that were stopped one by one, and have to be continued. Others may have stopped themselves.
    stopped: Mutex<HashSet<Identity>>,
    /// The limit of processes the first one is to be given for itself and those below it.
    pids_rlimit: Option<u64>,
}

/// From where a tree is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Whose {
    /// From the shim, below which all of it is.
    Ours,
    /// From elsewhere: its shim has gone.
    Lost,
}

/// What its members are found by.
enum Hold<'a> {
    V2(&'a Path),
    V1(&'a Path),
    Namespace,
    Group,
}

impl Tree {
    /// Makes a fresh tree for a session of this name: one component of a path, used once.
    pub fn make(plan: &Plan, name: &str, limits: &Limits) -> Result<Self, Failure> {
        place::make(plan, name, limits)
    }

    /// Finds a tree again whose shim has gone.
    #[must_use]
    pub fn reopen(made: &Made) -> Self {
        let rungs = place::rungs_of(made);
        Self { made: made.clone(), rungs, v2: None, whose: Whose::Lost, stopped: Mutex::default(), pids_rlimit: None }
    }

    /// What [`Tree::make`] may have come to make, whose maker was lost before it could say so.
    pub(crate) fn planned(plan: &Plan, name: &str) -> Self {
        Self::reopen(&Made::planned(plan, name))
    }

    /// What `clone3` has to be told.
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

    /// The cgroup to clone into, for the flag above.
    #[must_use]
    pub fn cgroup(&self) -> Option<BorrowedFd<'_>> {
        self.v2.as_ref().map(|leaf| leaf.as_fd())
    }

    /// Puts the child that waits at the gate where it belongs: into its v1 cgroups, its ids into its user namespace, its
    /// limit upon it. From then on it is the tree's first process.
    pub fn place(&mut self, pid: i32) -> Result<(), Failure> {
        place::place(self, pid)
    }

    /// Lets the whole tree stand still, and returns when it does. Where that takes longer, as it does for a process that
    /// waits in the kernel, it stays told to, and `TimedOut` is returned; after any other error it goes on as before.
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

    /// Whether a cgroup holds it that is still there.
    #[must_use]
    pub(crate) fn has_leaf(&self) -> bool {
        match self.hold() {
            Hold::V2(leaf) | Hold::V1(leaf) => leaf.exists(),
            Hold::Namespace | Hold::Group => false,
        }
    }

    /// Whether it stands still as a whole.
    #[must_use]
    pub fn is_frozen(&self) -> bool {
        match self.hold() {
            Hold::V2(leaf) => Leaf(leaf).is_frozen_v2(),
            Hold::V1(leaf) => Leaf(leaf).is_frozen_v1(),
            Hold::Namespace | Hold::Group => self.identities().is_ok_and(|members| sweep::are_stopped(&members)),
        }
    }

    /// Lets it go on.
    pub fn thaw(&self) -> io::Result<()> {
        match self.hold() {
            Hold::V2(leaf) => Leaf(leaf).thaw_v2(),
            Hold::V1(leaf) => Leaf(leaf).thaw_v1(),
            Hold::Namespace | Hold::Group => {
                let stopped: Vec<Identity> = self.stopped().drain().collect();
                sweep::signal_all(&stopped, rustix::process::Signal::CONT)
            }
        }
    }

    /// Whether only the one who froze it can thaw it: those that were stopped one by one are known to nobody else.
    pub(crate) fn is_swept(&self) -> bool {
        matches!(self.hold(), Hold::Namespace | Hold::Group)
    }

    fn stopped(&self) -> MutexGuard<'_, HashSet<Identity>> {
        self.stopped.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Kills all that is in it now, frozen or not. One pass: who wants it empty asks [`Tree::is_empty`], and again.
    pub fn kill(&self) -> io::Result<()> {
        match self.hold() {
            Hold::V2(leaf) => Leaf(leaf).kill_v2(),
            Hold::V1(leaf) => Leaf(leaf).kill_v1(),
            // Its first process takes all the others with it.
            Hold::Namespace => sweep::signal_all(self.made.root.as_slice(), rustix::process::Signal::KILL),
            Hold::Group => sweep::kill(|| self.identities()),
        }
    }

    /// The pids of those who are below the shim, which asks, and no longer in the cgroup that held them.
    #[must_use]
    pub(crate) fn escaped(&self) -> Vec<i32> {
        self.escapees().unwrap_or_default().iter().map(|identity| identity.pid).collect()
    }

    /// Kills those who left their cgroup. To be asked by the shim, whose descendants they still are.
    pub(crate) fn kill_escaped(&self) -> io::Result<()> {
        match self.hold() {
            Hold::V2(_) | Hold::V1(_) if self.is_empty() && !has_no_children() => sweep::kill(|| self.escapees()),
            Hold::V2(_) | Hold::V1(_) | Hold::Namespace | Hold::Group => Ok(()),
        }
    }

    fn escapees(&self) -> io::Result<Vec<Identity>> {
        Ok(proc::descendants(&proc::all()?, &[std::process::id() as i32]))
    }

    /// Whether nothing of it is left.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        match self.hold() {
            Hold::V2(leaf) => Leaf(leaf).is_unpopulated(),
            Hold::V1(leaf) => Leaf(leaf).members().is_ok_and(|members| members.is_empty()),
            Hold::Namespace => !self.made.root.is_some_and(Identity::lives),
            Hold::Group if self.whose == Whose::Ours && sweep::has_no_children() => true,
            // One look may miss who was born while it looked, of a parent that died before it was looked at.
            Hold::Group => (0..3).all(|_| self.identities().is_ok_and(|members| members.is_empty())),
        }
    }

    /// The pids of all that is in it; the shim's is not.
    #[must_use]
    pub fn members(&self) -> Vec<i32> {
        match self.hold() {
            Hold::V2(leaf) | Hold::V1(leaf) => Leaf(leaf).members().unwrap_or_default(),
            Hold::Namespace | Hold::Group => {
                self.identities().unwrap_or_default().iter().map(|identity| identity.pid).collect()
            }
        }
    }

    /// How many of its processes the kernel killed for memory.
    #[must_use]
    pub fn oom_kills(&self) -> u64 {
        let v2 = self.made.v2.as_deref().and_then(|leaf| Leaf(leaf).count("memory.events", "oom_kill"));
        let v1 = self.made.v1_memory.as_deref().and_then(|leaf| Leaf(leaf).count("memory.oom_control", "oom_kill"));
        v2.unwrap_or(0) + v1.unwrap_or(0)
    }

    /// Removes the leaves, which must be empty.
    pub fn remove(&self) -> io::Result<()> {
        let mut outcome = Ok(());
        for leaf in self.made.leaves() {
            outcome = outcome.and(Leaf(leaf).remove(REMOVE_MAX));
            if let Some(directory) = leaf.parent() {
                // It stays while other leaves are in it.
                let _ = rustix::fs::rmdir(directory);
            }
        }
        outcome
    }

    /// What it consists of, for the session's directory.
    #[must_use]
    pub fn made(&self) -> &Made {
        &self.made
    }

    /// What holds it, and what cannot be held.
    #[must_use]
    pub fn rungs(&self) -> &Rungs {
        &self.rungs
    }

    fn hold(&self) -> Hold<'_> {
        self.made.hold()
    }

    /// The members, where no cgroup lists them.
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
    /// Whether these are the places of a session of this name.
    pub(crate) fn is_of(&self, name: &str) -> bool {
        self.name == name && self.leaves().all(|leaf| leaf.file_name().is_some_and(|leaf| leaf == name))
    }

    /// All leaves there can be.
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
