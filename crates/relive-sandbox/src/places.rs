//! Mount points in a repository that lacks what has to be protected: nothing can be mounted on what is missing.
//!
//! They are on the host while a program runs, and are removed after the last one that needs them: removing one also
//! removes the mounts of other programs on it. So every launch holds a shared lock on the directory, and whoever gets it
//! alone removes them. They are known by their time of change, so those of a launch that was killed are removed as well, and
//! what somebody else has put there never is.

use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, CWD, FileType, FlockOperation, Mode, OFlags, ResolveFlags, Stat, Timespec, Timestamps};
use rustix::io::{Errno, Result};

use crate::planted::{Guard, GuardedDirectory, NotDisabled, PlantedRepository};

/// The time of change of everything that is made here: a moment of 2001.
const MADE_AT: i64 = 981_173_106;
/// How long to wait for somebody who removes them.
const LOCK_PATIENCE: Duration = Duration::from_millis(500);
const LOCK_AGAIN: Duration = Duration::from_millis(1);

/// Something that can be missing in a repository. Git reads each as if it were missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    Hooks,
    /// Names the repository itself. A program could otherwise write one that names a configuration of its own.
    CommonDirectory,
    Config,
    WorktreeConfig,
}

impl Place {
    const ALL: [Self; 4] = [Self::Hooks, Self::CommonDirectory, Self::Config, Self::WorktreeConfig];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Hooks => "hooks",
            Self::CommonDirectory => "commondir",
            Self::Config => "config",
            Self::WorktreeConfig => "config.worktree",
        }
    }

    /// Returns the content of a file; a directory has none.
    fn content(self) -> Option<&'static [u8]> {
        match self {
            Self::Hooks => None,
            Self::CommonDirectory => Some(b".\n"),
            Self::Config | Self::WorktreeConfig => Some(b"# made by relive while a confined program runs\n"),
        }
    }

    fn is_made_here(self, found: &Stat) -> bool {
        let kind = FileType::from_raw_mode(found.st_mode);
        let is_same = match self.content() {
            None => kind == FileType::Directory,
            Some(content) => kind == FileType::RegularFile && found.st_size == content.len() as i64,
        };
        is_same && (found.st_mtime, found.st_mtime_nsec as i64) == (MADE_AT, 0)
    }
}

/// The mount points that were made for a launch. Removed when this is dropped, unless another launch needs them.
#[derive(Debug, Default)]
#[must_use]
pub struct Places {
    directories: Vec<OwnedFd>,
    guard: Option<Guard>,
}

impl Places {
    /// Has a repository disabled that the program plants in its working directory.
    pub(crate) fn guard(&mut self, directory: &Path, planted: PlantedRepository) -> Result<()> {
        self.guard = Some(Guard::new(directory, planted)?);
        Ok(())
    }

    /// Returns the directory in which a planted repository has to be disabled after the end of the program.
    #[must_use]
    pub fn guarded(&self) -> Option<&GuardedDirectory> {
        self.guard.as_ref().and_then(Guard::record)
    }

    /// Disables the repository that the program may have planted in its working directory.
    pub fn disable_planted(&mut self) -> std::result::Result<(), NotDisabled> {
        self.guard.take().map_or(Ok(()), |guard| guard.disable())
    }

    /// Keeps others from removing what is made in a directory, and makes what is missing there. Returns the places that are
    /// missing still and that the program could make.
    pub(crate) fn make(&mut self, directory: &Path, wanted: &[Place]) -> Vec<(Place, Errno)> {
        let opened = match open_directory(directory) {
            Ok(opened) => opened,
            Err(error) => return wanted.iter().map(|place| (*place, error)).collect(),
        };
        lock(&opened);
        let is_own = rustix::fs::fstat(&opened).is_ok_and(|found| found.st_uid == rustix::process::geteuid().as_raw());
        let make = |place: &Place| match make(&opened, *place) {
            Ok(()) | Err(Errno::EXIST | Errno::ROFS | Errno::PERM) => None,
            // The program cannot either, unless the directory is its own: then it gives itself the right.
            Err(Errno::ACCESS) if !is_own => None,
            Err(error) => Some((*place, error)),
        };
        let missing = wanted.iter().filter_map(make).collect();
        self.directories.push(opened);
        missing
    }
}

fn open_directory(path: &Path) -> Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let careful = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    rustix::fs::openat2(CWD, path, flags, Mode::empty(), careful)
}

impl Drop for Places {
    fn drop(&mut self) {
        // Callers that report failures call it before the drop.
        let _ = self.disable_planted();
        for directory in &self.directories {
            if rustix::fs::flock(directory, FlockOperation::NonBlockingLockExclusive).is_err() {
                continue;
            }
            for place in Place::ALL {
                let found = rustix::fs::statat(directory, place.name(), AtFlags::SYMLINK_NOFOLLOW);
                if found.is_ok_and(|found| place.is_made_here(&found)) {
                    let flags = if place.content().is_none() { AtFlags::REMOVEDIR } else { AtFlags::empty() };
                    // What cannot be removed is tried again after the next launch.
                    let _ = rustix::fs::unlinkat(directory, place.name(), flags);
                }
            }
        }
    }
}

/// Takes the shared lock. Whoever else holds it for long is no launch, and does not keep this one from going on.
fn lock(directory: &OwnedFd) {
    let due = Instant::now() + LOCK_PATIENCE;
    while rustix::fs::flock(directory, FlockOperation::NonBlockingLockShared) == Err(Errno::WOULDBLOCK)
        && Instant::now() < due
    {
        std::thread::sleep(LOCK_AGAIN);
    }
}

fn make(directory: &OwnedFd, place: Place) -> Result<()> {
    let made_at = Timespec { tv_sec: MADE_AT, tv_nsec: 0 };
    let times = Timestamps { last_access: made_at, last_modification: made_at };
    let Some(content) = place.content() else {
        rustix::fs::mkdirat(directory, place.name(), Mode::from_raw_mode(0o755))?;
        return rustix::fs::utimensat(directory, place.name(), &times, AtFlags::SYMLINK_NOFOLLOW);
    };
    make_file(directory, Path::new(place.name()), content, 0o644, Some(&times))
}

/// Makes a file that is missing. It has its name only when it is complete: an empty `commondir` would break the repository.
pub(crate) fn make_file(
    directory: &OwnedFd,
    name: &Path,
    content: &[u8],
    mode: u32,
    times: Option<&Timestamps>,
) -> Result<()> {
    let mode = Mode::from_raw_mode(mode);
    let fill = |file: &OwnedFd| {
        // It fits into one block: it is written whole or not at all.
        if rustix::io::write(file, content)? != content.len() {
            return Err(Errno::NOSPC);
        }
        times.map_or(Ok(()), |times| rustix::fs::futimens(file, times))
    };
    match rustix::fs::openat(directory, ".", OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC, mode) {
        Ok(file) => {
            fill(&file)?;
            let unnamed = format!("/proc/self/fd/{}", file.as_fd().as_raw_fd());
            rustix::fs::linkat(CWD, unnamed, directory, name, AtFlags::SYMLINK_FOLLOW)
        }
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::NOENT) => {
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let file = rustix::fs::openat(directory, name, flags, mode)?;
            fill(&file).inspect_err(|_| {
                let _ = rustix::fs::unlinkat(directory, name, AtFlags::empty());
            })
        }
        Err(error) => Err(error),
    }
}
