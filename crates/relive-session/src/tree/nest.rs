//! A cgroup and all that a program made below it, however deep.
//!
//! Everything is reached from the descriptor of the cgroup above it: a program can nest cgroups deeper than a path can say.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::Instant;

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags};
use rustix::io::Errno;

/// What becomes of a cgroup that was looked at.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Then {
    Keep,
    Remove,
}

/// A cgroup on the way down, and those in it that are still to be gone into.
struct Level {
    name: CString,
    below: Vec<CString>,
}

/// Looks at all cgroups below one, then at itself: children first. Those that are gone meanwhile are passed over; a program
/// that makes more of them than can be looked at in time is given up on.
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

/// Tells whether a cgroup is not there any more. One that was removed answers by one or the other.
pub(super) fn is_gone(error: Errno) -> bool {
    matches!(error, Errno::NOENT | Errno::NODEV)
}

/// Takes one that is not there for one that was removed.
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
