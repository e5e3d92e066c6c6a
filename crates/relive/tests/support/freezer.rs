//! Whether a program stands still, asked of the machine and not of the daemon.

use std::fs;

/// Whether the tree of an OS process is frozen, or stopped where there is no freezer.
pub(crate) fn is_frozen(pid: u64) -> bool {
    let read = |path: String| fs::read_to_string(path).unwrap_or_default();
    let is_frozen = |line: &str| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { return false };
        if controllers == "freezer" {
            return read(format!("/sys/fs/cgroup/freezer{path}/freezer.state")).starts_with("FROZEN");
        }
        let mounts = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"];
        controllers.is_empty() && mounts.iter().any(|at| read(format!("{at}{path}/cgroup.events")).contains("frozen 1"))
    };
    let stat = read(format!("/proc/{pid}/stat"));
    let is_stopped = stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T'));
    is_stopped || read(format!("/proc/{pid}/cgroup")).lines().any(is_frozen)
}
