//! The settings that a program has from the shell in which its command was typed: read by the client, applied by the shim.

mod unheld;

use std::sync::atomic::{AtomicBool, Ordering};

use rustix::process::{Resource, getpriority_process, getrlimit};

use crate::kernel_file;
use crate::spec::{Inherited, ResourceLimit};

pub use unheld::unheld;

/// The limits, with their numbers on Linux.
const RESOURCES: [(u32, Resource); 16] = [
    (0, Resource::Cpu),
    (1, Resource::Fsize),
    (2, Resource::Data),
    (3, Resource::Stack),
    (4, Resource::Core),
    (5, Resource::Rss),
    (6, Resource::Nproc),
    (7, Resource::Nofile),
    (8, Resource::Memlock),
    (9, Resource::As),
    (10, Resource::Locks),
    (11, Resource::Sigpending),
    (12, Resource::Msgqueue),
    (13, Resource::Nice),
    (14, Resource::Rtprio),
    (15, Resource::Rttime),
];

static SIGPIPE_WAS_IGNORED: AtomicBool = AtomicBool::new(false);

/// Run by the C library before `main`: the Rust runtime ignores SIGPIPE from then on.
#[used]
#[unsafe(link_section = ".init_array")]
static LOOK_AT_SIGPIPE: extern "C" fn() = look_at_sigpipe;

extern "C" fn look_at_sigpipe() {
    // SAFETY: a structure owned here, to be written to.
    let ignored = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        let asked = libc::sigaction(libc::SIGPIPE, std::ptr::null(), &raw mut action);
        asked == 0 && action.sa_sigaction == libc::SIG_IGN
    };
    SIGPIPE_WAS_IGNORED.store(ignored, Ordering::Relaxed);
}

/// Returns the settings that this process was started with; `None` if the system does not tell.
#[must_use]
pub fn of_this_process() -> Option<Inherited> {
    // Otherwise the linker may leave it out.
    std::hint::black_box(&LOOK_AT_SIGPIPE);
    let status = String::from_utf8(kernel_file::read_once("/proc/self/status").ok()?).ok()?;
    let limits = RESOURCES.into_iter().map(|(number, resource)| {
        let limit = getrlimit(resource);
        ResourceLimit { resource: number, soft: limit.current, hard: limit.maximum }
    });
    let ignored = u64::from_str_radix(field(&status, "SigIgn:")?, 16).ok()?;
    Some(Inherited {
        umask: u32::from_str_radix(field(&status, "Umask:")?, 8).ok()?,
        nice: getpriority_process(None).ok()?,
        limits: limits.collect(),
        ignored: numbers(ignored, SIGPIPE_WAS_IGNORED.load(Ordering::Relaxed)),
        cpus: field(&status, "Cpus_allowed_list:").map(str::to_owned),
    })
}

fn field<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim)
}

fn numbers(mask: u64, pipe: bool) -> Vec<i32> {
    let is_ignored = |number: &i32| if *number == libc::SIGPIPE { pipe } else { mask & 1 << (number - 1) != 0 };
    (1..=64).filter(is_ignored).collect()
}

/// Returns a list of CPUs like `0-3,7` as the kernel wants it, one bit each.
pub(crate) fn cpu_mask(list: &str) -> Option<Vec<u64>> {
    /// More than any kernel supports.
    const CPUS_MAX: usize = 64 * 1024;
    let mut mask = Vec::new();
    for part in list.split(',').map(str::trim) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (first.parse::<usize>().ok()?, last.parse::<usize>().ok()?);
        if last < first || last >= CPUS_MAX {
            return None;
        }
        mask.resize(mask.len().max(last / 64 + 1), 0);
        for cpu in first..=last {
            mask[cpu / 64] |= 1 << (cpu % 64);
        }
    }
    Some(mask)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mask_is_a_list_of_signals() {
        assert_eq!(numbers(0b1_0000_0000_0011, false), [1, 2]);
        assert_eq!(numbers(0b11, true), [1, 2, libc::SIGPIPE]);
        assert_eq!(field("Name:\tx\nUmask:\t0022\n", "Umask:"), Some("0022"));
    }

    #[test]
    fn a_list_of_cpus_is_a_mask() {
        let check = |list: &str, expect: Option<&[u64]>| assert_eq!(cpu_mask(list).as_deref(), expect, "{list}");
        check("0", Some(&[1]));
        check("0-3,7", Some(&[0b1000_1111]));
        check("1,64-65", Some(&[0b10, 0b11]));
        check("3-1", None);
        check("0-99999999", None);
        check("", None);
        check("a", None);
    }
}
