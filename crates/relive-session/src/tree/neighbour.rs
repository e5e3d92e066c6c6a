//! A tree inside of another one, which is frozen, limited and killed with that.

use std::io;
use std::path::{Path, PathBuf};

use super::Plan;
use super::cgroup::{Leaf, Places};

/// The place for the tree of a program that enters the session of another program.
#[derive(Debug)]
pub(crate) struct Neighbour {
    /// The plan for its own leaf, below that of the session.
    pub(crate) plan: Plan,
    /// The cgroups of the session with its limits, in hierarchies without a leaf of its own.
    limits: Vec<PathBuf>,
}

impl Neighbour {
    /// Looks where a process of the session is. A session without cgroups gives none: then its namespaces, or the watch on
    /// its program, end the tree with it.
    pub(crate) fn of(pid: i32, plan: &Plan) -> io::Result<Self> {
        let (here, there) = (Places::find()?, Places::of(pid)?);
        // A process in the same cgroup as this one is in no leaf.
        let beside =
            |here: Option<&PathBuf>, there: Option<&PathBuf>| there.filter(|there| here != Some(there)).cloned();
        let v1 = |controller: &str| beside(here.v1.get(controller), there.v1.get(controller));
        let v2 = beside(here.v2.as_ref(), there.v2.as_ref()).filter(|_| plan.v2.is_some());
        let v1_freezer = v1("freezer").filter(|_| v2.is_none() && plan.v1_freezer.is_some());
        Ok(Self {
            plan: Plan { v2, v1_freezer, prefix: plan.prefix.clone(), ..Plan::default() },
            limits: ["memory", "pids", "cpu"].into_iter().filter_map(v1).collect(),
        })
    }

    /// Puts a process under the limits of the session.
    pub(crate) fn join(&self, pid: i32) -> io::Result<()> {
        let join = |cgroup: &PathBuf| Leaf(Path::new(cgroup)).write("cgroup.procs", &pid.to_string());
        self.limits.iter().try_for_each(join)
    }
}
