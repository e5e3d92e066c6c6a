//! What a program has from its shim, and anybody of the same user can change from outside.

use std::io;

use libc::{c_int, c_long};

/// The resources with a limit, by their numbers on Linux.
const RESOURCES: std::ops::Range<c_int> = 0..16;
/// Room for this many CPUs.
const CPUS_BYTES: usize = 1024;
/// The kernel's number for "of a process", for the priority of its disk accesses.
const OF_PROCESS: c_int = 1;

/// The priorities, limits and CPUs of a process, which its children have as well.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Attributes {
    limits: Vec<(u64, u64)>,
    nice: c_int,
    scheduler: c_int,
    disk_priority: c_long,
    cpus: Vec<u8>,
}

impl Attributes {
    /// Returns those of a process; 0 is the calling one, which has one value for all its threads that start processes.
    pub(super) fn of(pid: i32) -> io::Result<Self> {
        let mut limits = Vec::with_capacity(RESOURCES.len());
        for resource in RESOURCES {
            // SAFETY: a structure owned here, to be written to.
            let limit = unsafe {
                let mut limit: libc::rlimit64 = std::mem::zeroed();
                check(libc::prlimit64(pid, resource as _, std::ptr::null(), &raw mut limit).into())?;
                limit
            };
            limits.push((limit.rlim_cur, limit.rlim_max));
        }
        let mut cpus = vec![0; CPUS_BYTES];
        // SAFETY: plain numbers, and a buffer with its length. The system calls themselves: the C library's make a failure of
        // some of the values.
        unsafe {
            let nice = check(libc::syscall(libc::SYS_getpriority, libc::PRIO_PROCESS, pid))? as c_int;
            let scheduler = check(libc::syscall(libc::SYS_sched_getscheduler, pid))? as c_int;
            let disk_priority = check(libc::syscall(libc::SYS_ioprio_get, OF_PROCESS, pid))?;
            let length = check(libc::syscall(libc::SYS_sched_getaffinity, pid, cpus.len(), cpus.as_mut_ptr()))?;
            cpus.truncate(length as usize);
            Ok(Self { limits, nice, scheduler, disk_priority, cpus })
        }
    }
}

fn check(result: c_long) -> io::Result<c_long> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_has_those_of_its_parent_until_they_are_changed() {
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let pid = child.id() as i32;
        let ours = Attributes::of(0).unwrap();
        assert_eq!(Attributes::of(pid).unwrap(), ours);
        let lower = libc::rlimit64 { rlim_cur: 7, rlim_max: 7 };
        // SAFETY: a child of this process, and a structure owned here.
        assert_eq!(unsafe { libc::prlimit64(pid, libc::RLIMIT_CORE, &raw const lower, std::ptr::null_mut()) }, 0);
        assert_ne!(Attributes::of(pid).unwrap(), ours);
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
