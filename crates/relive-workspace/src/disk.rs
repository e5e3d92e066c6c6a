//! The only place where this crate changes files: every change goes through [`Disk`].
//!
//! It decides nothing. In a `faults` build a test can stop it at the n-th change, and from then on nothing changes any
//! more, as if the process had been killed. Reading does not go through it.

use std::collections::hash_map::RandomState;
use std::fs::File;
use std::hash::{BuildHasher as _, Hasher as _};
use std::io::{self, Write as _};
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
#[cfg(feature = "faults")]
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rustix::fs::{AtFlags, CWD, Gid, Mode, OFlags, RenameFlags, Uid};
use rustix::io::Errno;
use rustix::path::Arg;

#[cfg(feature = "faults")]
use crate::faults::Faults;
use crate::stat::Time;

/// A handle to the file system, cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Disk {
    #[cfg(feature = "faults")]
    faults: Option<Arc<Faults>>,
}

/// Files that only the owner may read.
const PRIVATE_FILE: u32 = 0o600;
/// Directories that only the owner may enter.
const PRIVATE_DIRECTORY: u32 = 0o700;
/// How the name of a file ends that is about to replace another one.
const REPLACING_END: &str = ".tmp";
/// No process writes a small file for longer. An older one was left by a process that was killed.
const REPLACING_MAX: Duration = Duration::from_secs(10 * 60);
/// Names that are tried before a file cannot be created.
const CREATE_TRIES: u32 = 8;

#[cfg_attr(
    not(feature = "faults"),
    expect(clippy::unused_self, clippy::unnecessary_wraps, reason = "the shape of the faults build")
)]
impl Disk {
    /// Creates a handle to the real file system.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates a disk on which `faults` decides about each change.
    #[cfg(feature = "faults")]
    #[must_use]
    pub fn with_faults(faults: Arc<Faults>) -> Self {
        Self { faults: Some(faults) }
    }

    /// Counts one change, or refuses it.
    #[cfg(feature = "faults")]
    fn step(&self) -> io::Result<()> {
        self.faults.as_ref().map_or(Ok(()), |faults| faults.step())
    }

    #[cfg(not(feature = "faults"))]
    fn step(&self) -> io::Result<()> {
        Ok(())
    }

    /// Returns whether the stat cache is broken on purpose: it then trusts a file with unchanged size and mtime.
    #[cfg(feature = "faults")]
    pub(crate) fn trusts_equal_mtime(&self) -> bool {
        self.faults.as_ref().is_some_and(|faults| faults.trusts_equal_mtime())
    }

    #[cfg(not(feature = "faults"))]
    pub(crate) fn trusts_equal_mtime(&self) -> bool {
        false
    }

    /// Returns whether the file system is to be treated like one that can only rename.
    #[cfg(feature = "faults")]
    fn has_no_rename_flags(&self) -> bool {
        self.faults.as_ref().is_some_and(|faults| faults.has_no_rename_flags())
    }

    #[cfg(not(feature = "faults"))]
    fn has_no_rename_flags(&self) -> bool {
        false
    }

    /// Returns whether work is done on one thread, so that the n-th change is the same in every run.
    #[cfg(feature = "faults")]
    pub(crate) fn is_counted(&self) -> bool {
        self.faults.is_some()
    }

    #[cfg(not(feature = "faults"))]
    pub(crate) fn is_counted(&self) -> bool {
        false
    }

    /// Creates a file that must not exist yet, for its owner only.
    pub(crate) fn create(&self, directory: impl AsFd, name: impl Arg) -> io::Result<File> {
        self.step()?;
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(rustix::fs::openat(directory, name, flags, Mode::from_raw_mode(PRIVATE_FILE))?.into())
    }

    /// Writes all of `bytes` at the file's position. On an error some of them may have been written.
    pub(crate) fn write(&self, mut file: &File, bytes: &[u8]) -> io::Result<()> {
        if let Err(stopped) = self.step() {
            self.write_part(file, bytes);
            return Err(stopped);
        }
        file.write_all(bytes)
    }

    /// Writes the first half, like a process that is killed in the middle of a write.
    #[cfg(feature = "faults")]
    fn write_part(&self, mut file: &File, bytes: &[u8]) {
        if self.faults.as_ref().is_some_and(|faults| faults.just_stopped()) {
            let _ = file.write_all(&bytes[..bytes.len() / 2]);
        }
    }

    #[cfg(not(feature = "faults"))]
    fn write_part(&self, _: &File, _: &[u8]) {}

    /// Writes all of `bytes` at an offset.
    pub(crate) fn write_at(&self, file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.step()?;
        file.write_all_at(bytes, offset)
    }

    /// Truncates a file, and moves its position to the new end.
    pub(crate) fn truncate(&self, mut file: &File, len: u64) -> io::Result<()> {
        self.step()?;
        file.set_len(len)?;
        io::Seek::seek(&mut file, io::SeekFrom::Start(len)).map(drop)
    }

    /// Waits until the file's bytes are on the disk.
    pub(crate) fn sync(&self, file: &File) -> io::Result<()> {
        self.step()?;
        file.sync_data()
    }

    /// Waits until a file's bytes and permissions are on the disk.
    pub(crate) fn sync_with_mode(&self, file: impl AsFd) -> io::Result<()> {
        self.step()?;
        Ok(rustix::fs::fsync(file)?)
    }

    /// Waits until a directory's entries and permissions are on the disk.
    pub(crate) fn sync_directory(&self, directory: impl AsFd) -> io::Result<()> {
        self.step()?;
        Ok(rustix::fs::fsync(directory)?)
    }

    /// Waits until all data of the file system is on the disk.
    pub(crate) fn sync_file_system(&self, directory: impl AsFd) -> io::Result<()> {
        self.step()?;
        Ok(rustix::fs::syncfs(directory)?)
    }

    /// Renames inside one directory, replacing a file with the new name.
    pub(crate) fn rename(&self, directory: impl AsFd, from: impl Arg, to: impl Arg) -> io::Result<()> {
        self.step()?;
        Ok(rustix::fs::renameat(&directory, from, &directory, to)?)
    }

    /// Swaps two names of one directory. Returns `Ok(false)` if the file system does not support it.
    pub(crate) fn exchange(&self, directory: impl AsFd, one: impl Arg, other: impl Arg) -> io::Result<bool> {
        self.rename_with(directory, one, other, RenameFlags::EXCHANGE)
    }

    /// Renames one of Relive's own files inside one directory. A file that has the new name, also since a moment ago, is
    /// never replaced: that is an error.
    pub(crate) fn rename_new(
        &self,
        directory: impl AsFd,
        from: impl Arg + Copy,
        to: impl Arg + Copy,
    ) -> io::Result<()> {
        if self.rename_with(&directory, from, to, RenameFlags::NOREPLACE)? {
            return Ok(());
        }
        match self.link((&directory, from), (&directory, to)) {
            Ok(()) => self.unlink(&directory, from),
            Err(error) if is_without_links(&error) => {
                // Neither has this file system links, nor can a directory have two names.
                if rustix::fs::statat(&directory, to, AtFlags::SYMLINK_NOFOLLOW).is_ok() {
                    return Err(io::ErrorKind::AlreadyExists.into());
                }
                self.rename(&directory, from, to)
            }
            Err(error) => Err(error),
        }
    }

    fn rename_with(&self, directory: impl AsFd, from: impl Arg, to: impl Arg, flags: RenameFlags) -> io::Result<bool> {
        self.step()?;
        if self.has_no_rename_flags() {
            return Ok(false);
        }
        match rustix::fs::renameat_with(&directory, from, &directory, to, flags) {
            Ok(()) => Ok(true),
            Err(Errno::INVAL | Errno::NOSYS) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Removes a file. A missing file is not an error.
    pub(crate) fn unlink(&self, directory: impl AsFd, name: impl Arg) -> io::Result<()> {
        self.remove(directory, name, AtFlags::empty())
    }

    /// Removes an empty directory. A missing directory is not an error.
    pub(crate) fn remove_directory(&self, directory: impl AsFd, name: impl Arg) -> io::Result<()> {
        self.remove(directory, name, AtFlags::REMOVEDIR)
    }

    fn remove(&self, directory: impl AsFd, name: impl Arg, flags: AtFlags) -> io::Result<()> {
        self.step()?;
        match rustix::fs::unlinkat(directory, name, flags) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Creates a directory that must not exist yet, for its owner only.
    pub(crate) fn create_directory(&self, directory: impl AsFd, name: impl Arg) -> io::Result<()> {
        self.step()?;
        Ok(rustix::fs::mkdirat(directory, name, Mode::from_raw_mode(PRIVATE_DIRECTORY))?)
    }

    /// Creates a symbolic link that must not exist yet.
    pub(crate) fn symlink(&self, target: &[u8], directory: impl AsFd, name: impl Arg) -> io::Result<()> {
        self.step()?;
        Ok(rustix::fs::symlinkat(target, directory, name)?)
    }

    /// Gives a file a second name.
    pub(crate) fn link(&self, from: (impl AsFd, impl Arg), to: (impl AsFd, impl Arg)) -> io::Result<()> {
        self.step()?;
        Ok(rustix::fs::linkat(from.0, from.1, to.0, to.1, AtFlags::empty())?)
    }

    /// Sets the permissions of an open file or directory.
    pub(crate) fn set_mode(&self, file: impl AsFd, mode: u32) -> io::Result<()> {
        self.step()?;
        Ok(rustix::fs::fchmod(file, Mode::from_raw_mode(mode))?)
    }

    /// Sets the permissions of a directory that cannot be opened. A link is not followed.
    pub(crate) fn set_directory_mode(&self, directory: impl AsFd, name: impl Arg, mode: u32) -> io::Result<()> {
        self.step()?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = rustix::fs::openat(directory, name, flags, Mode::empty())?;
        // `fchmod` refuses an `O_PATH` descriptor, so the mode is set through `/proc/self/fd`.
        let path = format!("/proc/self/fd/{}", opened.as_raw_fd());
        Ok(rustix::fs::chmod(path, Mode::from_raw_mode(mode))?)
    }

    /// Changes the owner of an open file.
    pub(crate) fn set_owner(&self, file: impl AsFd, uid: u32, gid: u32) -> io::Result<()> {
        self.step()?;
        Ok(rustix::fs::fchown(file, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)))?)
    }

    /// Creates a directory and its missing parents.
    pub(crate) fn create_directories(&self, path: &Path) -> io::Result<()> {
        // The parent of a relative path with one component is empty.
        if path.is_dir() || path.as_os_str().is_empty() {
            return Ok(());
        }
        if let Some(parent) = path.parent() {
            self.create_directories(parent)?;
        }
        match self.create_directory(CWD, path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
            other => other,
        }
    }

    /// Replaces a small file as a whole. Afterwards it has either the old or the new content; with
    /// [`Durability::Synced`] even after a power cut.
    pub(crate) fn replace(
        &self,
        directory: &OwnedFd,
        name: &str,
        bytes: &[u8],
        durability: Durability,
    ) -> io::Result<()> {
        self.sweep_replaced(directory, name);
        let (temporary, file) = self.create_temporary(directory, name)?;
        let written = self.write(&file, bytes).and_then(|()| match durability {
            Durability::Synced => self.sync(&file),
            Durability::Disposable => Ok(()),
        });
        if let Err(error) = written.and_then(|()| self.rename(directory, &*temporary, name)) {
            // Otherwise the next one removes it.
            let _ = self.unlink(directory, &*temporary);
            return Err(error);
        }
        if durability == Durability::Synced {
            self.sync_directory(directory)?;
        }
        Ok(())
    }

    /// Creates a file for the new version of `name`, under a name that nobody else has.
    fn create_temporary(&self, directory: &OwnedFd, name: &str) -> io::Result<(String, File)> {
        let mut tries = 0;
        loop {
            let number = RandomState::new().build_hasher().finish();
            let temporary = format!("{name}.{number:016x}{REPLACING_END}");
            match self.create(directory, &*temporary) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && tries < CREATE_TRIES => tries += 1,
                created => return Ok((temporary, created?)),
            }
        }
    }

    /// Removes new versions of `name` that a killed process left. Those of a process that is writing now are younger.
    /// Something else with such a name is no obstacle, and stays.
    fn sweep_replaced(&self, directory: &OwnedFd, name: &str) {
        let Ok(names) = crate::remove::names(directory) else { return };
        let earlier = format!("{name}{REPLACING_END}");
        let digits = |found: &[u8]| {
            let rest = found.strip_prefix(name.as_bytes())?.strip_prefix(b".")?;
            rest.strip_suffix(REPLACING_END.as_bytes()).map(<[u8]>::to_vec)
        };
        let is_number = |digits: Vec<u8>| digits.len() == 16 && digits.iter().all(u8::is_ascii_hexdigit);
        let is_left = |found: &&Vec<u8>| **found == earlier.as_bytes() || digits(found).is_some_and(is_number);
        for found in names.iter().filter(is_left) {
            let old = Time::before(SystemTime::now(), REPLACING_MAX);
            if crate::stat::stat_at(directory, &**found).is_ok_and(|stat| stat.key.mtime < old) {
                let _ = self.unlink(directory, &**found);
            }
        }
    }
}

/// Returns whether a file cannot get a second name.
fn is_without_links(error: &io::Error) -> bool {
    let errno = Errno::from_io_error(error);
    matches!(errno, Some(Errno::PERM | Errno::OPNOTSUPP | Errno::MLINK | Errno::NOSYS | Errno::XDEV))
}

/// Whether a file has to survive a power cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Durability {
    Synced,
    /// It can be recreated.
    Disposable,
}
