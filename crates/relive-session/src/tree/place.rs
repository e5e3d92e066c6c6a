//! Creates a tree, with its limits, and puts its first process into it.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use rustix::fs::{CWD, Mode, OFlags};
use rustix::process::{Pid, Resource, Rlimit};

use super::cgroup::{Leaf, enable_controllers};
use super::{Ahead, Hold, Made, PidNamespace, Plan, Rungs, Tree, V1_FREEZER, V2_FREEZER, Whose};
use crate::proc::{self, Identity};
use crate::spec::{Limits, Unheld};
use crate::stage::Failure;

/// Reported if a process group is all there is.
const WEAK_TREE: &str = "tree: weak, a program whose shim was killed may outlive it";
/// Reported if a user namespace is part of a tree. An unprivileged user cannot map the ids of root into it.
const NOBODYS: &str = "tree: ssh and sudo refuse to work, because in the user namespace of the program the files of root \
                       belong to nobody; `relive doctor` tells how to avoid that";
const SHARED_COUNT: &str = "pids: weak, counted together with all other processes of the user";
const NO_PIDS: &str = "pids: no limit can be held";
const NO_MEMORY: &str = "memory: no limit can be held";
const NO_CPU: &str = "cpu: no limit can be held";
const SWAP_UNLIMITED: &str = "memory: weak, swap is not limited";
const NAME_MAX: usize = 200;

pub(super) fn make(plan: &Plan, name: &str, limits: &Limits, ahead: Option<&mut Ahead>) -> Result<Tree, Failure> {
    if name.is_empty() || name.len() > NAME_MAX || name.contains('/') || name.starts_with('.') {
        return Err(Failure::new("name", libc::EINVAL));
    }
    let made = Made { name: name.into(), pid_namespace: plan.pid_namespace, ..Made::default() };
    let mut tree = Tree {
        made,
        rungs: Rungs::default(),
        v2: None,
        whose: Whose::Ours,
        stopped: Mutex::default(),
        pids_rlimit: None,
        counts_shim: false,
    };
    match fill(&mut tree, plan, limits, ahead) {
        Ok(()) => Ok(tree),
        Err(failure) => {
            // Its parts are empty, and the caller needs the original failure.
            let _ = tree.remove();
            Err(failure)
        }
    }
}

fn fill(tree: &mut Tree, plan: &Plan, limits: &Limits, ahead: Option<&mut Ahead>) -> Result<(), Failure> {
    let name = tree.made.name.clone();
    let leaf = |directory: &Option<PathBuf>| {
        let made = directory.as_ref().map(|directory| Leaf::make(&directory.join(&plan.prefix), &name)).transpose();
        made.map_err(|error| Failure::of("mkdir", &error))
    };
    tree.made.v2 = leaf(&plan.v2)?;
    if let Some(made) = &tree.made.v2 {
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
        let opened = rustix::fs::openat(CWD, made, flags, Mode::empty());
        tree.v2 = Some(opened.map_err(|error| Failure::of("open", &error.into()))?);
    } else {
        tree.made.v1_freezer = leaf(&plan.v1_freezer)?;
    }
    tree.rungs = rungs_of(&tree.made);
    let unheld = limits.unheld;
    // A controller is in one hierarchy only. Enabling takes many calls, so it is done only for what nothing else limits.
    let wanted = [
        (limits.memory.is_some() && plan.v1_memory.is_none(), "memory.max"),
        (limits.cpu.is_some() && plan.v1_cpu.is_none(), "cpu.max"),
        (limits.pids.is_some() && plan.v1_pids.is_none(), "pids.max"),
    ];
    if let Some(made) = &tree.made.v2
        && wanted.iter().any(|(is_wanted, file)| *is_wanted && !Leaf(made).has(file))
        && let Some(directory) = made.parent()
    {
        enable_controllers(directory);
    }
    if let Some(bytes) = limits.memory {
        tree.made.v1_memory = leaf(&plan.v1_memory)?;
        let held = limit_memory(tree, bytes);
        held.or_else(|failure| tree.say_unheld(unheld, failure, NO_MEMORY))?;
    }
    if let Some(thousandths) = limits.cpu {
        tree.made.v1_cpu = leaf(&plan.v1_cpu)?;
        let held = limit_cpu(tree, thousandths);
        held.or_else(|failure| tree.say_unheld(unheld, failure, NO_CPU))?;
    }
    if let Some(limit) = limits.pids {
        // A leaf that cannot get this name is replaced by one that the child is moved into.
        let given = ahead.and_then(|ahead| ahead.give(plan, &name).ok().flatten());
        tree.counts_shim = given.is_some();
        tree.made.v1_pids = match given {
            Some(given) => Some(given),
            None => leaf(&plan.v1_pids)?,
        };
        let unheld = if limit.required { unheld } else { Unheld::Say };
        let held = limit_pids(tree, limit.max);
        held.or_else(|failure| tree.say_unheld(unheld, failure, NO_PIDS))?;
    }
    Ok(())
}

impl Tree {
    fn say_unheld(&mut self, unheld: Unheld, failure: Failure, said: &str) -> Result<(), Failure> {
        match unheld {
            Unheld::Fail => Err(failure),
            Unheld::Say => {
                self.rungs.degraded.push(said.into());
                Ok(())
            }
        }
    }
}

/// Sets the share of each tenth of a second that the tree gets.
fn limit_cpu(tree: &mut Tree, thousandths: u32) -> Result<(), Failure> {
    const PERIOD_US: u64 = 100_000;
    let quota_us = PERIOD_US * u64::from(thousandths) / 1000;
    let write = |leaf: &Path, file: &str, text: String| {
        Leaf(leaf).write(file, &text).map_err(|error| Failure::of(file, &error))
    };
    let v2 = tree.made.v2.as_deref().filter(|_| tree.made.v1_cpu.is_none());
    if let Some(leaf) = v2.filter(|leaf| Leaf(leaf).has("cpu.max")) {
        write(leaf, "cpu.max", format!("{quota_us} {PERIOD_US}"))?;
        tree.rungs.cpu = "cgroup2".into();
    } else if let Some(leaf) = tree.made.v1_cpu.as_deref().filter(|leaf| Leaf(leaf).has("cpu.cfs_quota_us")) {
        write(leaf, "cpu.cfs_period_us", PERIOD_US.to_string())?;
        write(leaf, "cpu.cfs_quota_us", quota_us.to_string())?;
        tree.rungs.cpu = "cgroup1".into();
    } else {
        return Err(Failure::new("cpu.max", libc::EOPNOTSUPP));
    }
    Ok(())
}

fn limit_memory(tree: &mut Tree, bytes: u64) -> Result<(), Failure> {
    let bytes = bytes.to_string();
    let limited = |leaf: &Path, file: &str| Leaf(leaf).write(file, &bytes).map_err(|error| Failure::of(file, &error));
    let swap_limited;
    let v2 = tree.made.v2.as_deref().filter(|_| tree.made.v1_memory.is_none());
    if let Some(leaf) = v2.filter(|leaf| Leaf(leaf).has("memory.max")) {
        limited(leaf, "memory.max")?;
        swap_limited = Leaf(leaf).write("memory.swap.max", "0").is_ok();
        tree.rungs.memory = "cgroup2".into();
    } else if let Some(leaf) = tree.made.v1_memory.as_deref() {
        limited(leaf, "memory.limit_in_bytes")?;
        swap_limited = limited(leaf, "memory.memsw.limit_in_bytes").is_ok();
        tree.rungs.memory = "cgroup1".into();
    } else {
        return Err(Failure::new("memory.max", libc::EOPNOTSUPP));
    }
    let swaps = std::fs::read_to_string("/proc/swaps").map_or(0, |text| text.lines().skip(1).count());
    if !swap_limited && swaps > 0 {
        tree.rungs.degraded.push(SWAP_UNLIMITED.into());
    }
    Ok(())
}

fn limit_pids(tree: &mut Tree, max: u32) -> Result<(), Failure> {
    let v2 = tree.made.v2.as_deref().filter(|_| tree.made.v1_pids.is_none());
    let v2 = v2.filter(|leaf| Leaf(leaf).has("pids.max"));
    if let Some(leaf) = v2.or(tree.made.v1_pids.as_deref()) {
        let max = u64::from(max) + u64::from(tree.counts_shim);
        Leaf(leaf).write("pids.max", &max.to_string()).map_err(|error| Failure::of("pids.max", &error))?;
        tree.rungs.pids = if v2.is_some() { "cgroup2" } else { "cgroup1" }.into();
        return Ok(());
    }
    if rustix::process::geteuid().is_root() {
        // The kernel does not count the processes of root.
        return Err(Failure::new("pids.max", libc::EOPNOTSUPP));
    }
    tree.rungs.pids = "rlimit".into();
    let shared = match tree.made.pid_namespace {
        // A user namespace counts its own.
        Some(PidNamespace::InUserNamespace) => 0,
        Some(PidNamespace::Plain) | None => {
            tree.rungs.degraded.push(SHARED_COUNT.into());
            our_tasks().map_err(|error| Failure::of("pids.max", &error))?
        }
    };
    tree.pids_rlimit = Some(shared + u64::from(max));
    Ok(())
}

/// Returns how many threads the user has, in all processes: the number that the kernel compares with the limit.
pub(super) fn our_tasks() -> io::Result<u64> {
    use std::os::unix::fs::MetadataExt as _;
    let me = rustix::process::geteuid().as_raw();
    let mut count = 0;
    for stat in proc::all()? {
        let directory = format!("/proc/{}/task", stat.identity.pid);
        // Processes that end in the meantime are not counted.
        if std::fs::metadata(&directory).is_ok_and(|directory| directory.uid() == me) {
            count += std::fs::read_dir(&directory).map_or(0, |tasks| tasks.count() as u64);
        }
    }
    Ok(count)
}

pub(super) fn place(tree: &mut Tree, pid: i32) -> Result<(), Failure> {
    let failed = |stage: &'static str| move |error: io::Error| Failure::of(stage, &error);
    tree.made.root = Some(Identity::of(pid).map_err(failed("stat"))?);
    // It was born in the one that its shim is in.
    let pids = tree.made.v1_pids.as_ref().filter(|_| !tree.counts_shim);
    let others = [&tree.made.v1_freezer, &tree.made.v1_memory, &tree.made.v1_cpu].into_iter().flatten();
    for leaf in others.chain(pids) {
        Leaf(leaf).write("cgroup.procs", &pid.to_string()).map_err(failed("cgroup.procs"))?;
    }
    if tree.made.pid_namespace == Some(PidNamespace::InUserNamespace) {
        relive_sandbox::map_ids(pid).map_err(failed("uid_map"))?;
    }
    if let (Some(max), Some(pid)) = (tree.pids_rlimit, Pid::from_raw(pid)) {
        let limit = Rlimit { current: Some(max), maximum: Some(max) };
        rustix::process::prlimit(Some(pid), Resource::Nproc, limit).map_err(|error| failed("prlimit")(error.into()))?;
    }
    Ok(())
}

/// Returns the rungs of a tree, without its limits.
pub(super) fn rungs_of(made: &Made) -> Rungs {
    let (tree, pause, kill) = match made.hold() {
        Hold::V2(leaf) if Leaf(leaf).has("cgroup.kill") => ("cgroup2", V2_FREEZER, "cgroup-kill"),
        Hold::V2(_) => ("cgroup2", V2_FREEZER, "cgroup-sweep"),
        Hold::V1(_) => ("cgroup1", V1_FREEZER, "cgroup-sweep"),
        Hold::Namespace => ("pid-namespace", "sigstop", "pid-namespace"),
        Hold::Group => ("process-group", "sigstop", "subreaper"),
    };
    let weak = match (made.hold(), made.pid_namespace) {
        (Hold::Group, _) => vec![WEAK_TREE.into()],
        (Hold::Namespace, Some(PidNamespace::InUserNamespace)) => vec![NOBODYS.into()],
        (Hold::V2(_) | Hold::V1(_) | Hold::Namespace, _) => Vec::new(),
    };
    let none = || "none".to_owned();
    let (tree, pause, kill) = (tree.into(), pause.into(), kill.into());
    let (isolation, namespaces) = (none(), Vec::new());
    Rungs {
        tree,
        pause,
        kill,
        pids: none(),
        memory: none(),
        cpu: none(),
        isolation,
        network: String::new(),
        namespaces,
        degraded: weak,
    }
}
