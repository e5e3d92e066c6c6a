//! Processes that left the cgroup of their tree. Whoever may create a cgroup may also move into another one.
//!
//! The shim knows them as its descendants, because it is a subreaper. Without the shim only the marker in their environment
//! tells.

use std::io;
use std::time::Duration;

use super::cgroup::Leaf;
use super::{Hold, Tree, Whose, has_no_children, sweep};
use crate::proc::{self, Identity};

impl Tree {
    /// Returns the pids of the calling shim's descendants that are no longer in their cgroup.
    #[must_use]
    pub(crate) fn escaped(&self) -> Vec<i32> {
        self.descendants().unwrap_or_default().iter().map(|identity| identity.pid).collect()
    }

    /// Freezes the tree like [`Tree::freeze`], and stops the calling shim's descendants that left their cgroup.
    pub(crate) fn freeze_with_escaped(&self, at_most: Duration) -> io::Result<()> {
        self.freeze(at_most)?;
        // An isolated program cannot write to cgroups.
        if self.rungs.isolation != "none" {
            return Ok(());
        }
        let stopped = self.outside().and_then(|outside| match outside.as_slice() {
            [] => Ok(()),
            _ => sweep::stop(|| self.outside(), &mut self.stopped(), at_most),
        });
        if stopped.as_ref().is_err_and(|error| error.kind() != io::ErrorKind::TimedOut) {
            self.thaw()?;
        }
        stopped
    }

    /// Kills processes that left their cgroup, once it is empty: by the shim those that are below it, without the shim those
    /// with the marker of the session.
    pub(crate) fn kill_escaped(&self) -> io::Result<()> {
        match (self.hold(), self.whose) {
            (Hold::V2(_) | Hold::V1(_), Whose::Ours) if self.is_empty() && !has_no_children() => {
                sweep::kill(|| self.descendants())
            }
            (Hold::V2(_) | Hold::V1(_), Whose::Lost) if self.is_empty() => sweep::kill(|| self.marked()),
            (Hold::V2(_) | Hold::V1(_) | Hold::Namespace | Hold::Group, _) => Ok(()),
        }
    }

    /// Returns whether a process of a tree whose shim is gone left its cgroup, and lives.
    pub(crate) fn has_strays(&self) -> bool {
        match self.hold() {
            Hold::V2(_) | Hold::V1(_) => self.marked().is_ok_and(|marked| !marked.is_empty()),
            Hold::Namespace | Hold::Group => false,
        }
    }

    fn marked(&self) -> io::Result<Vec<Identity>> {
        let all = proc::all()?;
        let mut found = sweep::strays(&all, &self.made.name, None);
        let pids: Vec<i32> = found.iter().map(|identity| identity.pid).collect();
        found.extend(proc::descendants(&all, &pids));
        Ok(found)
    }

    /// Returns the descendants of the calling shim that are not in the cgroup.
    fn outside(&self) -> io::Result<Vec<Identity>> {
        let mut found = self.descendants()?;
        // Listed after the descendants: a process that is born in between is in the cgroup and is not taken for one outside.
        let inside = match self.hold() {
            Hold::V2(leaf) | Hold::V1(leaf) => Leaf(leaf).members()?,
            Hold::Namespace | Hold::Group => return Ok(Vec::new()),
        };
        found.retain(|identity| !inside.contains(&identity.pid));
        Ok(found)
    }

    fn descendants(&self) -> io::Result<Vec<Identity>> {
        Ok(proc::descendants(&proc::all()?, &[std::process::id() as i32]))
    }
}
