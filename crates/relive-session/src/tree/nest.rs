//! A cgroup and everything that a program created below it, at any depth.
//!
//! Everything is reached from the descriptor of the parent cgroup: a program can nest cgroups deeper than a path can
//! express.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::Instant;

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags};
use rustix::io::Errno;

/// What to do with a visited cgroup.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Then {
    Keep,
    Remove,
}

/// A cgroup on the way down, and its children that are still to be visited.
struct Level {
    name: CString,
    below: Vec<CString>,
}

/// Visits all cgroups below one, then the cgroup itself: children first. Removed ones are skipped; if a program creates
/// more than can be visited in time, the walk gives up.
pub(super) fn walk(
    top: &Path,
    until: Instant,
    each: &mut impl FnMut(BorrowedFd<'_>) -> io::Result<Then>,
) -> io::Result<()> {
    let mut here = match open(CWD, top) {
        Err(error) if is_gone(error) => return Ok(()),
        opened => opened?,
    };
    let mut levels = Vec::<Level>::new();
    let mut below = children(&here)?;
    loop {
        if Instant::now() > until {
            return Err(Errno::TIMEDOUT.into());
        }
        if let Some(name) = below.pop() {
            match open(here.as_fd(), &name) {
                Err(error) if is_gone(error) => continue,
                opened => here = opened?,
            }
            levels.push(Level { name, below: std::mem::replace(&mut below, children(&here)?) });
            continue;
        }
        let then = each(here.as_fd())?;
        let Some(level) = levels.pop() else { break };
        let above = open(here.as_fd(), c"..")?;
        if then == Then::Remove {
            removed(rustix::fs::unlinkat(&above, &level.name, AtFlags::REMOVEDIR))?;
        }
        (here, below) = (above, level.below);
    }
    Ok(())
}

/// Returns whether a cgroup no longer exists. The kernel reports one or the other for a removed one.
pub(super) fn is_gone(error: Errno) -> bool {
    matches!(error, Errno::NOENT | Errno::NODEV)
}

/// Treats a missing cgroup as removed.
pub(super) fn removed(outcome: rustix::io::Result<()>) -> io::Result<()> {
    match outcome {
        Err(error) if is_gone(error) => Ok(()),
        outcome => Ok(outcome?),
    }
}

fn open(above: BorrowedFd<'_>, name: impl rustix::path::Arg) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    rustix::fs::openat(above, name, flags, Mode::empty())
}

fn children(here: &OwnedFd) -> io::Result<Vec<CString>> {
    let mut found = Vec::new();
    for entry in Dir::read_from(here)? {
        match entry {
            Ok(entry)
                if entry.file_type() == FileType::Directory
                    && !matches!(entry.file_name().to_bytes(), b"." | b"..") =>
            {
                found.push(entry.file_name().to_owned());
            }
            Ok(_) => {}
            Err(error) if is_gone(error) => break,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(found)
}
