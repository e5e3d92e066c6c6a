//! Cgroup files: the location of Relive's cgroups, and operations on a leaf.

use std::collections::HashMap;
use std::io::{self, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{CWD, Mode, OFlags};
use rustix::process::{Pid, Signal};

use super::nest::{self, Then};
use super::{FREEZE_MAX, REMOVE_MAX};
use crate::kernel_file;

const SUBTREE_CONTROL: &str = "cgroup.subtree_control";
const LOOK_AGAIN: Duration = Duration::from_micros(200);
/// How long the cgroups that a program created in its leaf are searched.
const WALK_MAX: Duration = Duration::from_secs(2);
/// How long a kill with a v1 freezer tries to freeze all processes first.
const HOLD_MAX: Duration = Duration::from_millis(200);

/// The cgroups of this process in all hierarchies.
#[derive(Debug, Default)]
pub(super) struct Places {
    pub(super) v2: Option<PathBuf>,
    /// By controller.
    pub(super) v1: HashMap<String, PathBuf>,
}

impl Places {
    pub(super) fn find() -> io::Result<Self> {
        Self::of(rustix::process::getpid().as_raw_nonzero().get())
    }

    /// Finds the cgroups of another process, by the mounts of this one.
    pub(super) fn of(pid: i32) -> io::Result<Self> {
        let mounts = std::fs::read_to_string("/proc/self/mountinfo")?;
        Ok(Self::parse(&mounts, &std::fs::read_to_string(format!("/proc/{pid}/cgroup"))?))
    }

    fn parse(mounts: &str, own: &str) -> Self {
        let mut places = Self::default();
        for line in own.lines() {
            let mut fields = line.splitn(3, ':').skip(1);
            let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else { continue };
            for mount in mounts.lines().filter_map(Mount::parse) {
                let Some(directory) = mount.directory_of(path) else { continue };
                if controllers.is_empty() && mount.kind == "cgroup2" {
                    places.v2.get_or_insert(directory);
                } else if mount.kind == "cgroup" {
                    for controller in controllers.split(',').filter(|name| mount.options.split(',').any(|o| o == *name))
                    {
                        places.v1.entry(controller.to_owned()).or_insert_with(|| directory.clone());
                    }
                }
            }
        }
        places
    }
}

struct Mount<'a> {
    root: &'a str,
    point: &'a str,
    kind: &'a str,
    options: &'a str,
}

impl<'a> Mount<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let (left, right) = line.split_once(" - ")?;
        let mut left = left.split(' ').skip(3);
        let mut right = right.split(' ');
        let (root, point) = (left.next()?, left.next()?);
        Some(Self { root, point, kind: right.next()?, options: right.nth(1)? })
    }

    /// Returns the directory of a cgroup in this mount; `None` if the mount does not contain it.
    fn directory_of(&self, path: &str) -> Option<PathBuf> {
        let below = Path::new(path).strip_prefix(self.root).ok()?;
        let plain = below.components().all(|part| matches!(part, std::path::Component::Normal(_)));
        plain.then(|| Path::new(self.point).join(below))
    }
}

/// A leaf cgroup.
#[derive(Clone, Copy)]
pub(super) struct Leaf<'a>(pub(super) &'a Path);

impl Leaf<'_> {
    /// Creates it in `directory`, which is created too if necessary. An empty one of the same name is replaced.
    pub(super) fn make(directory: &Path, name: &str) -> io::Result<PathBuf> {
        const TRIES: u32 = 16;
        let leaf = directory.join(name);
        for _ in 0..TRIES {
            match make_directory(directory) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                Ok(()) | Err(_) => {}
            }
            match make_directory(&leaf) {
                // Another session was the last in the directory, and has just removed it.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                // A launch of the same session was lost. One that still has processes cannot be removed.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    Leaf(&leaf).remove(REMOVE_MAX).map_err(|_| error)?;
                }
                made => return made.map(|()| leaf),
            }
        }
        Err(io::ErrorKind::NotFound.into())
    }

    pub(super) fn has(self, file: &str) -> bool {
        self.0.join(file).exists()
    }

    pub(super) fn write(self, file: &str, text: &str) -> io::Result<()> {
        write(&self.0.join(file), text)
    }

    /// Returns the number after a word in a file of such lines.
    pub(super) fn count(self, file: &str, word: &str) -> Option<u64> {
        let text = String::from_utf8(kernel_file::read_once(self.0.join(file)).ok()?).ok()?;
        let line = text.lines().find_map(|line| line.strip_prefix(word)?.strip_prefix(' '))?;
        line.trim().parse().ok()
    }

    /// Returns the pids in it and below it.
    pub(super) fn members(self) -> io::Result<Vec<i32>> {
        let mut found = Vec::new();
        nest::walk(self.0, Instant::now() + WALK_MAX, &mut |cgroup| {
            let flags = OFlags::RDONLY | OFlags::CLOEXEC;
            match read(rustix::fs::openat(cgroup, "cgroup.procs", flags, Mode::empty())) {
                Ok(text) => found.extend(text.lines().filter_map(|line| line.parse::<i32>().ok())),
                Err(error) if is_gone(&error) => {}
                Err(error) => return Err(error),
            }
            Ok(Then::Keep)
        })?;
        Ok(found)
    }

    pub(super) fn freeze_v2(self, at_most: Duration) -> io::Result<()> {
        self.write("cgroup.freeze", "1")?;
        wait_until(at_most, || Ok(self.is_frozen_v2()))
    }

    pub(super) fn is_frozen_v2(self) -> bool {
        self.count("cgroup.events", "frozen") == Some(1)
    }

    pub(super) fn is_frozen_v1(self) -> bool {
        std::fs::read_to_string(self.0.join("freezer.state")).is_ok_and(|state| state.trim() == "FROZEN")
    }

    pub(super) fn thaw_v2(self) -> io::Result<()> {
        self.write("cgroup.freeze", "0")
    }

    pub(super) fn freeze_v1(self, at_most: Duration) -> io::Result<()> {
        self.hold_v1(at_most)
    }

    pub(super) fn thaw_v1(self) -> io::Result<()> {
        self.write("freezer.state", "THAWED")
    }

    pub(super) fn kill_v2(self) -> io::Result<()> {
        match self.write("cgroup.kill", "1") {
            Err(error) if error.kind() == io::ErrorKind::NotFound && self.has("cgroup.freeze") => {
                // Before Linux 5.14. Frozen processes can be killed here, and cannot fork.
                let held = self.freeze_v2(FREEZE_MAX);
                self.kill_members()?;
                self.thaw_v2()?;
                held.or_else(|error| if error.kind() == io::ErrorKind::TimedOut { Ok(()) } else { Err(error) })
            }
            Err(error) if is_gone(&error) => Ok(()),
            outcome => outcome,
        }
    }

    /// Kills everything. In v1 frozen processes do not die, so they are frozen to catch them all, killed, and thawed to
    /// die.
    pub(super) fn kill_v1(self) -> io::Result<()> {
        let held = self.hold_v1(HOLD_MAX);
        let killed = self.kill_members();
        let thawed = self.thaw_v1();
        match held.and(killed).and(thawed) {
            Err(error) if is_gone(&error) || error.kind() == io::ErrorKind::TimedOut => Ok(()),
            outcome => outcome,
        }
    }

    fn hold_v1(self, at_most: Duration) -> io::Result<()> {
        let state = self.0.join("freezer.state");
        wait_until(at_most, || {
            // Written again each time: a process that was added during the freeze may need it.
            write(&state, "FROZEN")?;
            Ok(std::fs::read_to_string(&state)?.trim() == "FROZEN")
        })
    }

    fn kill_members(self) -> io::Result<()> {
        for pid in self.members()?.into_iter().filter_map(Pid::from_raw) {
            match rustix::process::kill_process(pid, Signal::KILL) {
                Ok(()) | Err(rustix::io::Errno::SRCH) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Returns whether nothing lives in it and below it. A missing cgroup is empty.
    pub(super) fn is_unpopulated(self) -> bool {
        self.count("cgroup.events", "populated") == Some(0) || !self.0.exists()
    }

    /// Removes it and everything that a program created below it, as soon as the kernel allows it.
    pub(super) fn remove(self, at_most: Duration) -> io::Result<()> {
        let until = Instant::now() + at_most;
        wait_until(at_most, || {
            // Usually there is nothing below it.
            if nest::removed(rustix::fs::rmdir(self.0)).is_ok() {
                return Ok(true);
            }
            let below = nest::walk(self.0, until, &mut |_| Ok(Then::Remove));
            match below.and_then(|()| nest::removed(rustix::fs::rmdir(self.0))) {
                Err(error) if error.kind() == io::ErrorKind::ResourceBusy => Ok(false),
                outcome => outcome.map(|()| true),
            }
        })
    }
}

/// Enables memory, pids and cpu for the leaves below `directory` in the v2 hierarchy, also for those that exist. A controller
/// that cannot be enabled shows by files that a leaf lacks.
pub(super) fn enable_controllers(directory: &Path) {
    for place in [directory.parent(), Some(directory)].into_iter().flatten() {
        let there = std::fs::read_to_string(place.join("cgroup.controllers")).unwrap_or_default();
        let enabled = Controllers::of(place);
        for controller in there.split_ascii_whitespace().filter(|name| ["memory", "pids", "cpu"].contains(name)) {
            if !enabled.has(controller) {
                // Refused if `place` has processes of its own and is not the root: then there is none to enable.
                let _ = write(&place.join(SUBTREE_CONTROL), &format!("+{controller}"));
            }
        }
    }
}

/// The controllers that a v2 cgroup enables for its children.
pub(super) struct Controllers {
    place: PathBuf,
    enabled: Vec<String>,
}

impl Controllers {
    pub(super) fn of(place: &Path) -> Self {
        let enabled = std::fs::read_to_string(place.join(SUBTREE_CONTROL)).unwrap_or_default();
        let enabled = enabled.split_ascii_whitespace().map(str::to_owned).collect();
        Self { place: place.into(), enabled }
    }

    fn has(&self, controller: &str) -> bool {
        self.enabled.iter().any(|name| name == controller)
    }

    /// Disables controllers that were enabled since. Refused, correctly, if they are in use by now.
    pub(super) fn restore(&self) {
        for controller in Self::of(&self.place).enabled.iter().filter(|name| !self.has(name)) {
            let _ = write(&self.place.join(SUBTREE_CONTROL), &format!("-{controller}"));
        }
    }
}

/// Returns whether a cgroup was removed: the kernel reports one or the other.
fn is_gone(error: &io::Error) -> bool {
    rustix::io::Errno::from_io_error(error).is_some_and(nest::is_gone)
}

fn read(opened: rustix::io::Result<OwnedFd>) -> io::Result<String> {
    let mut text = String::new();
    std::fs::File::from(opened?).read_to_string(&mut text)?;
    Ok(text)
}

fn make_directory(path: &Path) -> io::Result<()> {
    Ok(rustix::fs::mkdirat(CWD, path, Mode::RWXU | Mode::RGRP | Mode::XGRP | Mode::ROTH | Mode::XOTH)?)
}

/// Writes to a file of the kernel in one call, because each call is a command.
pub(super) fn write(path: &Path, text: &str) -> io::Result<()> {
    let file = rustix::fs::openat(CWD, path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
    std::fs::File::from(file).write_all(text.as_bytes())
}

pub(super) fn wait_until(at_most: Duration, mut done: impl FnMut() -> io::Result<bool>) -> io::Result<()> {
    let until = Instant::now() + at_most;
    while !done()? {
        if Instant::now() > until {
            return Err(rustix::io::Errno::TIMEDOUT.into());
        }
        std::thread::sleep(LOOK_AGAIN);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cgroups_are_found_on_hybrid_pure_and_namespaced_machines() {
        let hybrid = "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n\
            37 31 0:34 / /sys/fs/cgroup/freezer rw,relatime shared:9 - cgroup cgroup rw,freezer\n\
            41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n";
        let places = Places::parse(hybrid, "6:freezer:/\n4:memory:/a/b\n0::/c\n");
        assert_eq!(places.v2.as_deref(), Some(Path::new("/sys/fs/cgroup/unified/c")));
        assert_eq!(places.v1["memory"], Path::new("/sys/fs/cgroup/memory/a/b"));
        assert_eq!(places.v1["freezer"], Path::new("/sys/fs/cgroup/freezer"));

        let pure = "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate\n";
        assert_eq!(Places::parse(pure, "0::/u.slice/x\n").v2.as_deref(), Some(Path::new("/sys/fs/cgroup/u.slice/x")));

        let bound = "30 23 0:26 /docker/1 /sys/fs/cgroup ro - cgroup2 cgroup2 rw\n";
        assert_eq!(Places::parse(bound, "0::/docker/1/sub\n").v2.as_deref(), Some(Path::new("/sys/fs/cgroup/sub")));
        assert_eq!(Places::parse(bound, "0::/elsewhere\n").v2, None);
        assert_eq!(Places::parse(pure, "0::/../outside\n").v2, None);
    }
}
