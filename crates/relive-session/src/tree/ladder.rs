//! Finds out which rungs this machine supports, by trying each.

use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::cgroup::{Controllers, Leaf, Places, wait_until};
use super::child::{Child, Task};
use super::{FREEZE_MAX, PidNamespace, Plan, Rungs, Tree, ahead};
use crate::spec::{Limits, PidsLimit};
use crate::stage::Failure;

/// The variable that makes the ladder begin at a lower rung, for tests.
pub(crate) const VARIABLE: &str = "RELIVE_LADDER";
const KILL_MAX: Duration = Duration::from_secs(5);
const TRIED_MEMORY: u64 = 64 * 1024 * 1024;
/// One core.
const TRIED_CPU: u32 = 1000;
const TRIED_PIDS: PidsLimit = PidsLimit { max: 16, required: true };

/// The result of probing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ladder {
    pub plan: Plan,
    /// The rungs in use; for limits, those that could be enforced if requested.
    pub rungs: Rungs,
    /// The isolation that can be enforced.
    #[serde(default)]
    pub isolation: relive_sandbox::Machine,
    /// Why better rungs were not used, one line each.
    pub notes: Vec<String>,
}

/// The rung at which the ladder begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Start {
    Cgroup2,
    Cgroup1,
    PidNamespace,
    ProcessGroup,
}

impl Ladder {
    /// Tries the rungs from the top, or from the one in `RELIVE_LADDER` (`cgroup1`, `pid-namespace`, `process-group`).
    /// Creates, uses and removes leaves in directories called `prefix`; nothing of them stays. Blocks for some
    /// milliseconds.
    #[must_use]
    pub fn probe(prefix: &str) -> Self {
        let wanted = std::env::var(VARIABLE).ok();
        let (start, note) = match wanted.as_deref() {
            None | Some("" | "cgroup2") => (Start::Cgroup2, None),
            Some("cgroup1") => (Start::Cgroup1, None),
            Some("pid-namespace") => (Start::PidNamespace, None),
            Some("process-group") => (Start::ProcessGroup, None),
            Some(other) => (Start::Cgroup2, Some(format!("{VARIABLE}={other} is not a rung and was ignored"))),
        };
        let mut ladder = Self::probe_from(start, prefix);
        ladder.notes.extend(note);
        ladder
    }

    /// Tries the rungs from this one on.
    #[must_use]
    pub fn probe_from(start: Start, prefix: &str) -> Self {
        let mut notes = Vec::new();
        let places = match Places::find() {
            Ok(places) if start <= Start::Cgroup1 => places,
            Ok(_) => Places::default(),
            Err(error) => {
                notes.push(format!("cgroups: {error}"));
                Places::default()
            }
        };
        clear(&places, prefix);
        let controllers = places.v2.as_deref().map(Controllers::of);
        let mut plan = hold(start, &places, prefix, &mut notes);
        let mut rungs = match attempt(&plan, &Limits::default()) {
            Ok(rungs) => rungs,
            Err(failure) => {
                notes.push(said("tree", &failure));
                Rungs::default()
            }
        };
        let v1 = |controller: &str| places.v1.get(controller).cloned();
        plan.v1_memory = v1("memory");
        match attempt(&plan, &Limits { memory: Some(TRIED_MEMORY), ..Limits::default() }) {
            Ok(with) => {
                rungs.memory = with.memory;
                rungs.degraded = with.degraded;
            }
            Err(failure) => {
                plan.v1_memory = None;
                notes.push(said("memory limit", &failure));
            }
        }
        plan.v1_cpu = v1("cpu");
        match attempt(&plan, &Limits { cpu: Some(TRIED_CPU), ..Limits::default() }) {
            Ok(with) => rungs.cpu = with.cpu,
            Err(failure) => {
                plan.v1_cpu = None;
                notes.push(said("cpu limit", &failure));
            }
        }
        plan.v1_pids = v1("pids");
        let limits = Limits { pids: Some(TRIED_PIDS), ..Limits::default() };
        let tried = attempt(&plan, &limits).or_else(|failure| {
            notes.push(said("pids limit", &failure));
            plan.v1_pids = None;
            attempt(&plan, &limits)
        });
        if let Ok(with) = tried {
            rungs.pids = with.pids;
            rungs.degraded.extend(with.degraded);
            rungs.degraded.sort();
            rungs.degraded.dedup();
        }
        if let Some(before) = controllers {
            before.restore();
        }
        Self { plan, rungs, isolation: relive_sandbox::probe(), notes }
    }
}

/// Tries whether a program can have a PID namespace in a user namespace here.
pub fn try_user_namespace(prefix: &str) -> Result<(), Failure> {
    let namespace = Some(PidNamespace::InUserNamespace);
    let plan = Plan { pid_namespace: namespace, prefix: prefix.into(), ..Plan::default() };
    attempt(&plan, &Limits::default()).map(|_| ())
}

/// Returns the best rung that works.
fn hold(start: Start, places: &Places, prefix: &str, notes: &mut Vec<String>) -> Plan {
    let bottom = Plan { prefix: prefix.into(), ..Plan::default() };
    let v2 = |directory: &PathBuf| Plan { v2: Some(directory.clone()), ..bottom.clone() };
    let v1 = |directory: &PathBuf| Plan { v1_freezer: Some(directory.clone()), ..bottom.clone() };
    let namespace =
        if rustix::process::geteuid().is_root() { PidNamespace::Plain } else { PidNamespace::InUserNamespace };
    let namespace = Plan { pid_namespace: Some(namespace), ..bottom.clone() };
    let rungs = [
        (Start::Cgroup2, "cgroup2", places.v2.as_ref().map(v2)),
        (Start::Cgroup1, "cgroup1", places.v1.get("freezer").map(v1)),
        (Start::PidNamespace, "pid-namespace", Some(namespace)),
    ];
    for (rung, name, plan) in rungs {
        match plan {
            _ if rung < start => {}
            None => notes.push(format!("{name}: not mounted, or not visible here")),
            Some(plan) => match attempt(&plan, &Limits::default()) {
                Ok(_) => return plan,
                Err(failure) => notes.push(said(name, &failure)),
            },
        }
    }
    bottom
}

/// Removes the remains of a probe that was killed: a leaf, and at worst a frozen child in it; and the leaves of shims that
/// ended in them.
fn clear(places: &Places, prefix: &str) {
    for directory in places.v2.iter().chain(places.v1.values()) {
        ahead::remove_left(&directory.join(prefix));
        for entry in std::fs::read_dir(directory.join(prefix)).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let tried = name.to_str().and_then(|name| name.strip_prefix("probe-")?.split_once('-'));
            let Some((whose, _)) = tried else { continue };
            if !std::path::Path::new("/proc").join(whose).exists() {
                let path = entry.path();
                let leaf = Leaf(&path);
                // Remains that cannot be killed or removed do no harm.
                let _ = if leaf.has("freezer.state") { leaf.kill_v1() } else { leaf.kill_v2() };
                let _ = leaf.remove(KILL_MAX);
            }
        }
    }
}

/// Creates a tree, puts a child into it, freezes, thaws and kills it, and removes it.
fn attempt(plan: &Plan, limits: &Limits) -> Result<Rungs, Failure> {
    static TRIED: AtomicU32 = AtomicU32::new(0);
    let name = format!("probe-{}-{}", std::process::id(), TRIED.fetch_add(1, Ordering::Relaxed));
    let mut tree = Tree::make(plan, &name, limits)?;
    let used = if plan.holds_nothing() { Ok(()) } else { exercise(&mut tree) };
    let removed = tree.remove().map_err(|error| Failure::of("rmdir", &error));
    used.and(removed).map(|()| tree.rungs().clone())
}

fn exercise(tree: &mut Tree) -> Result<(), Failure> {
    let failed = |stage: &'static str| move |error: io::Error| Failure::of(stage, &error);
    let task = if tree.made().pid_namespace.is_some() { Task::MountProc } else { Task::Wait };
    let mut child = Child::clone_into(tree, task).map_err(failed("clone3"))?;
    tree.place(child.pid)?;
    child.run().map_err(failed(if task == Task::MountProc { "mount /proc" } else { "run" }))?;
    if !tree.members().contains(&child.pid) {
        return Err(Failure::new("members", libc::ESRCH));
    }
    if tree.rungs().tree == "process-group" {
        // Only its limits are tried: the caller is not a shim, and its descendants are not the tree.
        return Ok(());
    }
    tree.freeze(FREEZE_MAX).map_err(failed("freeze"))?;
    tree.thaw().map_err(failed("thaw"))?;
    tree.kill().map_err(failed("kill"))?;
    wait_until(KILL_MAX, || Ok(tree.is_empty())).map_err(failed("kill"))?;
    child.reap();
    Ok(())
}

impl Plan {
    /// Returns whether it has only what every process has, so that there is nothing to try.
    fn holds_nothing(&self) -> bool {
        let Self { v2, v1_freezer, v1_memory, v1_pids, v1_cpu, pid_namespace, prefix: _ } = self;
        let leaves = [v2, v1_freezer, v1_memory, v1_pids, v1_cpu];
        leaves.into_iter().all(Option::is_none) && pid_namespace.is_none()
    }
}

fn said(what: &str, failure: &Failure) -> String {
    format!("{what}: {} failed with {}", failure.stage, failure.errno)
}
