//! The capabilities of a program that is root.

use rustix::io::{Errno, Result};
use rustix::thread::{CapabilitySet, CapabilitySets};

/// Package managers, `chown`, `su` and servers need these. Without `SYS_ADMIN` and `PERFMON` root cannot read the
/// environment of other programs either.
const KEPT: CapabilitySet = CapabilitySet::CHOWN
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::FSETID)
    .union(CapabilitySet::KILL)
    .union(CapabilitySet::SETGID)
    .union(CapabilitySet::SETUID)
    .union(CapabilitySet::SETPCAP)
    .union(CapabilitySet::NET_BIND_SERVICE)
    .union(CapabilitySet::SYS_CHROOT);
/// More than the kernel has.
const NUMBERS: u32 = 63;

/// Drops all capabilities but those above, for ever. Allocates nothing.
pub(crate) fn reduce() -> Result<()> {
    let held = rustix::thread::capabilities(None)?;
    for number in (0..NUMBERS).filter(|number| KEPT.bits() & 1 << number == 0) {
        // SAFETY: plain numbers.
        match crate::system::checked(unsafe { libc::prctl(libc::PR_CAPBSET_DROP, number, 0, 0, 0) }.into()) {
            // The first number that the kernel does not know.
            Err(Errno::INVAL) => break,
            // Not even root may without this one. It matters only to a program that could gain privileges, and none can.
            Err(Errno::PERM) if !held.effective.contains(CapabilitySet::SETPCAP) => break,
            other => drop(other?),
        }
    }
    let kept = if rustix::process::geteuid().is_root() { held.permitted & KEPT } else { CapabilitySet::empty() };
    rustix::thread::set_capabilities(
        None,
        CapabilitySets { effective: kept, permitted: kept, inheritable: CapabilitySet::empty() },
    )?;
    rustix::thread::clear_ambient_capability_set()
}
