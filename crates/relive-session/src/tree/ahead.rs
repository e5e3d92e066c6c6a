//! The cgroup that counts the processes of a session, made and joined before the session is known.
//!
//! Moving a process into another cgroup of the first version waits until every CPU has passed through the scheduler, which takes
//! 5 to 35 ms, more than all the rest of a launch. A child is born in the cgroups of its parent. So a shim that waits for its
//! session moves into a leaf of its own meanwhile; the leaf gets the name of the session at the launch, and one more process is
//! allowed in it. To leave it would take as long again, so a shim ends in it, and its owner or the next shim removes it.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::Pid;

use super::Plan;
use super::cgroup::Leaf;
use crate::kernel_file;

/// Begins the name of a leaf of a shim without a session, before its pid.
const NAME: &str = "spare-";
const MEMBERS: &str = "cgroup.procs";
const LIMIT: &str = "pids.max";
/// How long the kernel may take to release a leaf that this process has left.
const REMOVE_MAX: Duration = Duration::from_millis(50);

/// A leaf that this process is in. Dropping it leaves it, which takes as long as joining it.
#[derive(Debug)]
pub(crate) struct Ahead {
    /// Where the process came from.
    above: PathBuf,
    /// The directory of the leaves.
    directory: PathBuf,
    leaf: PathBuf,
    /// The process that started this one.
    owner: Option<Pid>,
}

impl Ahead {
    /// Returns where a shim would wait; nothing where no process has to be moved for its session.
    pub(crate) fn leaf_of(plan: &Plan, pid: i32) -> Option<PathBuf> {
        plan.v1_pids.as_ref().map(|above| above.join(&plan.prefix).join(format!("{NAME}{pid}")))
    }

    /// Moves this process into a leaf of its own; nothing where that is of no use.
    pub(crate) fn join(plan: &Plan) -> io::Result<Option<Self>> {
        let Some(above) = plan.v1_pids.clone() else { return Ok(None) };
        let directory = above.join(&plan.prefix);
        remove_left(&directory);
        let leaf = Leaf::make(&directory, &own_name())?;
        // Left, and removed, also if the next step fails.
        let ahead = Self { above, directory, leaf, owner: rustix::process::getppid() };
        Leaf(&ahead.leaf).write(MEMBERS, &std::process::id().to_string())?;
        Ok(Some(ahead))
    }

    /// Makes it the leaf of a session, unless that has its leaves elsewhere.
    pub(super) fn give(&mut self, plan: &Plan, name: &str) -> io::Result<Option<PathBuf>> {
        if plan.v1_pids.as_deref() != Some(&self.above) || self.above.join(&plan.prefix) != self.directory {
            return Ok(None);
        }
        self.rename(name)?;
        Ok(Some(self.leaf.clone()))
    }

    /// Takes it back from its session, of which nothing is left. One that cannot be renamed is left at once.
    pub(crate) fn take_back(mut self) -> Option<Self> {
        self.rename(&own_name()).ok().map(|()| self)
    }

    /// Returns whether the owner, which would remove it when this process has ended, is gone.
    pub(crate) fn is_orphaned(&self) -> bool {
        rustix::process::getppid() != self.owner
    }

    /// Leaves it to the session that it is the leaf of.
    pub(super) fn abandon(self) -> io::Result<()> {
        self.move_out()?;
        let limit = kernel_file::read_once(self.leaf.join(LIMIT))?;
        // No limit at all is a word.
        let limit = std::str::from_utf8(&limit).ok().and_then(|limit| limit.trim().parse::<u64>().ok());
        let leaf = self.leaf.clone();
        std::mem::forget(self);
        limit.map_or(Ok(()), |limit| Leaf(&leaf).write(LIMIT, &limit.saturating_sub(1).to_string()))
    }

    fn rename(&mut self, name: &str) -> io::Result<()> {
        let leaf = self.directory.join(name);
        rustix::fs::rename(&self.leaf, &leaf)?;
        self.leaf = leaf;
        Ok(())
    }

    fn move_out(&self) -> io::Result<()> {
        Leaf(&self.above).write(MEMBERS, &std::process::id().to_string())
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        let _ = self.move_out();
        remove_leaf_of_shim(&self.leaf);
    }
}

fn own_name() -> String {
    format!("{NAME}{}", std::process::id())
}

/// Removes the leaf of a shim that has gone, or of one that has left it, and the directory of the leaves if it was the last.
/// One that cannot be removed is empty, and is removed by the next shim.
pub(crate) fn remove_leaf_of_shim(leaf: &Path) {
    if Leaf(leaf).remove(REMOVE_MAX).is_ok()
        && let Some(directory) = leaf.parent()
    {
        // It stays while it contains other leaves.
        let _ = rustix::fs::rmdir(directory);
    }
}

/// Removes the leaves of shims that have ended in them.
pub(super) fn remove_left(directory: &Path) {
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let pid = name.to_str().and_then(|name| name.strip_prefix(NAME));
        // One that has the pid of this process is of an earlier one.
        let is_left = |pid: &str| pid == std::process::id().to_string() || !Path::new("/proc").join(pid).exists();
        if pid.is_some_and(is_left) {
            // Another one may remove it at the same time.
            let _ = Leaf(&entry.path()).remove(Duration::ZERO);
        }
    }
}
