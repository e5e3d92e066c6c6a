//! Settings that a program cannot get here: only a privileged process raises a limit or a priority again that its parent has
//! lowered.

use super::{cpu_mask, field};
use crate::kernel_file;
use crate::spec::Inherited;

const CAP_SYS_NICE: u32 = 23;
const CAP_SYS_RESOURCE: u32 = 24;

/// The limits by their numbers, in words.
const NAMES: [&str; 16] = [
    "CPU time",
    "size of files",
    "size of data",
    "size of the stack",
    "size of core files",
    "resident memory",
    "processes of the user",
    "open files",
    "locked memory",
    "address space",
    "locks",
    "pending signals",
    "message queues",
    "priority",
    "real-time priority",
    "real-time CPU time",
];

/// What decides whether a process can raise something.
#[derive(Debug, Clone, Copy, Default)]
struct Powers {
    resource: bool,
    nice: bool,
}

impl Powers {
    fn of_this_process() -> Self {
        let status = kernel_file::read_once("/proc/self/status").unwrap_or_default();
        let status = String::from_utf8_lossy(&status);
        let held = field(&status, "CapEff:").and_then(|mask| u64::from_str_radix(mask, 16).ok()).unwrap_or(0);
        let has = |capability: u32| held & 1 << capability != 0;
        Self { resource: has(CAP_SYS_RESOURCE), nice: has(CAP_SYS_NICE) }
    }
}

/// Says which of these settings a program gets from this process only in part. One that is isolated has no powers.
#[must_use]
pub fn unheld(wanted: &Inherited, isolated: bool) -> Vec<String> {
    let Some(ours) = super::of_this_process() else { return Vec::new() };
    let mut said = lowered(wanted, &ours, Powers::default());
    if !said.is_empty() && !isolated {
        said = lowered(wanted, &ours, Powers::of_this_process());
    }
    if let Some(cpus) = wanted.cpus.as_deref().filter(|cpus| Some(*cpus) != ours.cpus.as_deref() && !may_use(cpus)) {
        said.push(format!("cpus: {} instead of {cpus}, as the daemon", ours.cpus.as_deref().unwrap_or("others")));
    }
    said
}

fn lowered(wanted: &Inherited, ours: &Inherited, powers: Powers) -> Vec<String> {
    let number = |limit: Option<u64>| limit.unwrap_or(u64::MAX);
    let word = |limit: Option<u64>| limit.map_or_else(|| "unlimited".to_owned(), |limit| limit.to_string());
    let mut said = Vec::new();
    for limit in wanted.limits.iter().filter(|_| !powers.resource) {
        let of_ours = ours.limits.iter().find(|of_ours| of_ours.resource == limit.resource);
        let Some(of_ours) = of_ours.filter(|of_ours| number(of_ours.hard) < number(limit.hard)) else { continue };
        let name = NAMES.get(limit.resource as usize).copied().unwrap_or("another limit");
        let (most, asked) = (word(of_ours.hard), word(limit.hard));
        said.push(format!("{name}: at most {most} instead of {asked}, as the daemon"));
    }
    // The limit of the priority allows as much as 20 minus its value.
    let floor = ours
        .limits
        .iter()
        .find(|limit| limit.resource == 13)
        .map_or(20, |limit| 20 - i32::try_from(number(limit.soft).min(40)).unwrap_or(0));
    if wanted.nice < ours.nice.min(floor) && !powers.nice {
        said.push(format!("nice: {} instead of {}, as the daemon", ours.nice, wanted.nice));
    }
    said
}

/// Tries whether this process may run on these CPUs, and leaves it where it was.
fn may_use(cpus: &str) -> bool {
    let Some(wanted) = cpu_mask(cpus) else { return false };
    let mut before = vec![0_u64; 1024];
    // SAFETY: buffers with their lengths, of the calling thread, which is given back what it had.
    unsafe {
        let length = libc::syscall(libc::SYS_sched_getaffinity, 0, size_of_val(&*before), before.as_mut_ptr());
        let may = libc::syscall(libc::SYS_sched_setaffinity, 0, size_of_val(&*wanted), wanted.as_ptr()) == 0;
        if may && length > 0 {
            libc::syscall(libc::SYS_sched_setaffinity, 0, length, before.as_ptr());
        }
        may
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::ResourceLimit;

    fn settings(nice: i32, files: Option<u64>) -> Inherited {
        let files = ResourceLimit { resource: 7, soft: Some(10), hard: files };
        Inherited { umask: 0, nice, limits: vec![files], ignored: Vec::new(), cpus: None }
    }

    #[test]
    fn what_cannot_be_raised_again_is_said() {
        let check = |wanted: (i32, Option<u64>), ours: (i32, Option<u64>), powers: bool, expect: &[&str]| {
            let powers = Powers { resource: powers, nice: powers };
            let said = lowered(&settings(wanted.0, wanted.1), &settings(ours.0, ours.1), powers);
            assert_eq!(said, expect, "{wanted:?} {ours:?}");
        };
        check((0, Some(100)), (0, Some(100)), false, &[]);
        check((5, Some(50)), (0, Some(100)), false, &[]);
        check((0, None), (0, Some(100)), false, &["open files: at most 100 instead of unlimited, as the daemon"]);
        check((0, Some(200)), (0, Some(100)), false, &["open files: at most 100 instead of 200, as the daemon"]);
        check((0, Some(200)), (0, Some(100)), true, &[]);
        check((0, Some(100)), (5, None), false, &["nice: 5 instead of 0, as the daemon"]);
        check((0, Some(100)), (5, None), true, &[]);
    }

    #[test]
    fn the_settings_of_this_process_are_held() {
        let ours = super::super::of_this_process().unwrap();
        assert_eq!(unheld(&ours, true), [""; 0]);
    }

    #[test]
    fn cpus_that_do_not_exist_are_said_and_the_process_stays_where_it_is() {
        let ours = super::super::of_this_process().unwrap();
        let wanted = Inherited { cpus: Some("60000".to_owned()), ..ours.clone() };
        assert_eq!(unheld(&wanted, false).len(), 1);
        let first = ours.cpus.as_deref().unwrap().split([',', '-']).next().unwrap().to_owned();
        let wanted = Inherited { cpus: Some(first), ..ours.clone() };
        assert_eq!(unheld(&wanted, false), [""; 0]);
        assert_eq!(super::super::of_this_process().unwrap().cpus, ours.cpus);
    }
}
