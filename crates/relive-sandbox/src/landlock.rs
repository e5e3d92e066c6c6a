//! Landlock, by its three system calls: the library for it allocates.

use std::ffi::CString;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};

use rustix::io::Result;

use crate::system::{checked, find};

/// Signals to, and abstract sockets of, processes outside.
const SCOPE: u64 = 0b11;
const VERSION_FLAG: u32 = 1;
const RULE_PATH_BENEATH: u32 = 1;
const WRITE_FILE: u64 = 1 << 1;
const TRUNCATE: u64 = 1 << 14;
/// Everything that changes a directory, in version 1.
const CHANGE_DIRECTORY: u64 = 0b1_1111_1111 << 4;
/// Linking and renaming between directories.
const REFER: u64 = 1 << 13;

/// The rules of one program.
#[derive(Debug)]
pub(crate) enum Rules {
    Unused,
    Scope,
    Files { version: u32, writable: Vec<CString> },
}

#[repr(C)]
struct Ruleset {
    files: u64,
    network: u64,
    scoped: u64,
}

#[repr(C, packed)]
struct PathBeneath {
    allowed: u64,
    parent: i32,
}

/// Returns the version of Landlock, 0 if there is none.
pub(crate) fn version() -> u32 {
    let none = std::ptr::null::<Ruleset>();
    // SAFETY: with this flag the kernel reads nothing.
    let version = unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, none, 0usize, VERSION_FLAG) };
    u32::try_from(version).unwrap_or(0)
}

/// Restricts this process for ever. It must have given up new privileges.
pub(crate) fn restrict(rules: &Rules) -> Result<()> {
    match rules {
        Rules::Unused => Ok(()),
        Rules::Scope => enforce(&create(&Ruleset { files: 0, network: 0, scoped: SCOPE }, size_of::<Ruleset>())?),
        Rules::Files { version, writable } => {
            let files = changes(*version);
            let (scoped, size) = match version {
                0..=3 => (0, size_of::<u64>()),
                4..=5 => (0, 2 * size_of::<u64>()),
                6.. => (SCOPE, size_of::<Ruleset>()),
            };
            let ruleset = create(&Ruleset { files, network: 0, scoped }, size)?;
            for path in writable {
                // It may have gone since.
                let Ok(parent) = find(path) else { continue };
                let rule = PathBeneath { allowed: files, parent: parent.as_raw_fd() };
                let (kind, rule) = (RULE_PATH_BENEATH, &raw const rule);
                // SAFETY: a descriptor and a structure owned here.
                let added =
                    unsafe { libc::syscall(libc::SYS_landlock_add_rule, ruleset.as_raw_fd(), kind, rule, 0u32) };
                checked(added)?;
            }
            enforce(&ruleset)
        }
    }
}

/// Returns all rights to change files that a version knows.
fn changes(version: u32) -> u64 {
    let refer = if version >= 2 { REFER } else { 0 };
    let truncate = if version >= 3 { TRUNCATE } else { 0 };
    WRITE_FILE | CHANGE_DIRECTORY | refer | truncate
}

fn create(ruleset: &Ruleset, size: usize) -> Result<OwnedFd> {
    // SAFETY: a structure of at least this size.
    let created = unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, ruleset as *const Ruleset, size, 0u32) };
    // SAFETY: the kernel has just made it for this process.
    checked(created).map(|descriptor| unsafe { OwnedFd::from_raw_fd(descriptor as i32) })
}

fn enforce(ruleset: &OwnedFd) -> Result<()> {
    // SAFETY: a descriptor owned by the caller.
    checked(unsafe { libc::syscall(libc::SYS_landlock_restrict_self, ruleset.as_raw_fd(), 0u32) }).map(drop)
}
