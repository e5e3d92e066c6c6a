//! The settings that a program inherits from the shell in which its command is typed, instead of the daemon's.

use relive_api::{Inherited, ResourceLimit};
use rustix::process::{Resource, getpriority_process, getrlimit};

/// The number of SIGPIPE, which the Rust runtime has ignored in this process before this code runs.
const SIGPIPE: u8 = 13;
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

/// Returns the inherited settings of this process; `None` if the system does not tell.
pub(super) fn inherited() -> Option<Inherited> {
    let status = String::from_utf8(relive_session::kernel_file::read_once("/proc/self/status").ok()?).ok()?;
    let limits = RESOURCES.into_iter().map(|(number, resource)| {
        let limit = getrlimit(resource);
        ResourceLimit { resource: number, soft: limit.current, hard: limit.maximum }
    });
    Some(Inherited {
        umask: u32::from_str_radix(field(&status, "Umask:")?, 8).ok()?,
        nice: getpriority_process(None).ok()?,
        limits: limits.collect(),
        ignored: numbers(u64::from_str_radix(field(&status, "SigIgn:")?, 16).ok()?),
    })
}

fn field<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim)
}

fn numbers(mask: u64) -> Vec<u8> {
    (1..=64).filter(|number| *number != SIGPIPE && mask & 1 << (number - 1) != 0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mask_is_a_list_of_signals() {
        assert_eq!(numbers(0b1_0000_0000_0011), [1, 2]);
        assert_eq!(field("Name:\tx\nUmask:\t0022\n", "Umask:"), Some("0022"));
    }
}
