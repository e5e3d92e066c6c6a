//! File attributes, and opening files without blocking or leaving the workspace.

use std::fs::File;
use std::io::Read as _;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, StatxFlags};
use rustix::io::Errno;
use rustix::path::Arg;
use rustix::time::{ClockId, clock_gettime};

use crate::path::FilePath;

/// A file time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Time {
    pub(crate) seconds: i64,
    pub(crate) nanoseconds: u32,
}

impl Time {
    /// Returns the time with which a local file system stamps a file that is created now.
    pub(crate) fn stamped_now() -> Self {
        let now = clock_gettime(ClockId::RealtimeCoarse);
        Self { seconds: now.tv_sec, nanoseconds: u32::try_from(now.tv_nsec).unwrap_or_default() }
    }

    /// Returns the moment `by` before `now`.
    pub(crate) fn before(now: SystemTime, by: Duration) -> Self {
        let since = now.checked_sub(by).unwrap_or(UNIX_EPOCH).duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { seconds: i64::try_from(since.as_secs()).unwrap_or(i64::MAX), nanoseconds: since.subsec_nanos() }
    }
}

/// The attributes that change when a file's bytes change, as far as stat can tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileKey {
    pub(crate) inode: u64,
    pub(crate) size: u64,
    pub(crate) mtime: Time,
    pub(crate) ctime: Time,
    /// Type and permissions.
    pub(crate) mode: u32,
}

impl FileKey {
    /// Returns the permissions, the sticky bit and the set-id bits. The set-user-id bit of a directory means nothing.
    pub(crate) fn permissions(&self) -> u32 {
        let is_directory = FileType::from_raw_mode(self.mode) == FileType::Directory;
        self.mode & if is_directory { 0o3777 } else { 0o7777 }
    }

    /// Returns whether its file system seems to keep no fractions of a second.
    pub(crate) fn has_whole_seconds(&self) -> bool {
        self.mtime.nanoseconds == 0 && self.ctime.nanoseconds == 0
    }

    /// Returns whether the file was, or may have been, changed at that moment or later.
    pub(crate) fn is_since(&self, moment: Time) -> bool {
        self.mtime >= moment || self.ctime >= moment
    }
}

/// The attributes of a file.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stat {
    pub(crate) key: FileKey,
    pub(crate) device: u64,
    pub(crate) links: u64,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

impl Stat {
    pub(crate) fn file_type(&self) -> FileType {
        FileType::from_raw_mode(self.key.mode)
    }

    /// Returns whether it is a regular file with set-id bits.
    pub(crate) fn has_set_id_bits(&self) -> bool {
        self.key.mode & 0o6000 != 0 && self.file_type() == FileType::RegularFile
    }

    /// Returns the identity of the file on this machine.
    pub(crate) fn identity(&self) -> (u64, u64) {
        (self.device, self.key.inode)
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "nanoseconds are below a billion, sizes not negative"
)]
#[expect(clippy::useless_conversion, reason = "the number of links has 32 bits on some machines")]
impl From<rustix::fs::Stat> for Stat {
    fn from(stat: rustix::fs::Stat) -> Self {
        let time = |seconds, nanoseconds| Time { seconds, nanoseconds: nanoseconds as u32 };
        let key = FileKey {
            inode: stat.st_ino,
            size: stat.st_size as u64,
            mtime: time(stat.st_mtime, stat.st_mtime_nsec),
            ctime: time(stat.st_ctime, stat.st_ctime_nsec),
            mode: stat.st_mode,
        };
        Self { key, device: stat.st_dev, links: u64::from(stat.st_nlink), uid: stat.st_uid, gid: stat.st_gid }
    }
}

pub(crate) type Answer<T> = Result<T, Errno>;

/// Returns the attributes of a directory entry, without following a link.
pub(crate) fn stat_at(directory: impl AsFd, name: impl Arg) -> Answer<Stat> {
    rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW).map(Stat::from)
}

/// Returns whether this machine's clock stamps the files of a file system.
pub(crate) fn has_local_times(file: impl AsFd) -> bool {
    // NFS, SMB (three versions), FUSE, 9P, Ceph and AFS.
    const REMOTE: [u64; 8] =
        [0x6969, 0x517b, 0xff53_4d42, 0xfe53_4d42, 0x6573_5546, 0x0102_1997, 0x00c3_6400, 0x6b41_4653];
    // The type has 32 bits; where it is a signed number, they are extended.
    let kind = |found: rustix::fs::StatFs| u64::try_from(found.f_type & 0xffff_ffff);
    rustix::fs::fstatfs(file).is_ok_and(|found| kind(found).is_ok_and(|kind| !REMOTE.contains(&kind)))
}

/// Returns when a directory entry, which is this file, was created, if its file system tells.
pub(crate) fn birth_at(directory: impl AsFd, name: impl Arg, inode: u64) -> Option<Time> {
    let wanted = StatxFlags::BTIME | StatxFlags::INO;
    let found = rustix::fs::statx(directory, name, AtFlags::SYMLINK_NOFOLLOW, wanted).ok()?;
    let has_all = StatxFlags::from_bits_retain(found.stx_mask).contains(wanted) && found.stx_ino == inode;
    let birth = found.stx_btime;
    has_all.then_some(Time { seconds: birth.tv_sec, nanoseconds: birth.tv_nsec })
}

pub(crate) fn stat_of(file: impl AsFd) -> Answer<Stat> {
    rustix::fs::fstat(file).map(Stat::from)
}

/// A FIFO or a device that has replaced the file must not block Relive.
const QUIET: OFlags =
    OFlags::RDONLY.union(OFlags::NOFOLLOW).union(OFlags::NONBLOCK).union(OFlags::CLOEXEC).union(OFlags::NOCTTY);

/// Opens a directory entry for reading; the caller has to check what it got.
pub(crate) fn open_file(directory: impl AsFd, name: impl Arg) -> Answer<OwnedFd> {
    rustix::fs::openat(directory, name, QUIET, Mode::empty())
}

/// Opens a subdirectory.
pub(crate) fn open_child(directory: impl AsFd, name: impl Arg) -> Answer<OwnedFd> {
    rustix::fs::openat(directory, name, QUIET | OFlags::DIRECTORY, Mode::empty())
}

/// Opens a subdirectory, unless something is mounted on it.
pub(crate) fn open_child_of_same_mount(directory: impl AsFd, name: &[u8]) -> Answer<OwnedFd> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
    match rustix::fs::openat2(&directory, name, QUIET | OFlags::DIRECTORY, Mode::empty(), resolve) {
        // An old kernel, or a system call filter that does not know the call.
        Err(Errno::NOSYS | Errno::PERM) => open_child(directory, name),
        other => other,
    }
}

/// Opens a directory of the workspace. No component may be a link or a mount: the owner of the repository must not
/// redirect Relive elsewhere.
pub(crate) fn open_beneath(root: impl AsFd, path: &FilePath) -> Answer<OwnedFd> {
    let name: &[u8] = if path.is_root() { b"." } else { path.as_bytes() };
    let resolve =
        ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_XDEV;
    match rustix::fs::openat2(&root, name, QUIET | OFlags::DIRECTORY, Mode::empty(), resolve) {
        // An old kernel, or a system call filter that does not know the call.
        Err(Errno::NOSYS | Errno::PERM) => open_step_by_step(root, path),
        other => other,
    }
}

fn open_step_by_step(root: impl AsFd, path: &FilePath) -> Answer<OwnedFd> {
    let mut directory = open_child(&root, ".")?;
    let device = stat_of(&directory)?.device;
    for name in path.as_bytes().split(|&byte| byte == b'/').filter(|name| !name.is_empty()) {
        directory = open_child(&directory, name)?;
        if stat_of(&directory)?.device != device {
            return Err(Errno::XDEV);
        }
    }
    Ok(directory)
}

/// Reads a small regular file of a directory; `None` if it is missing, of another kind, or larger.
pub(crate) fn read_small_at(directory: impl AsFd, name: impl Arg, most: u64) -> Option<Vec<u8>> {
    read_small_file(open_file(directory, name).ok()?, most)
}

/// Reads a small regular file by its path, which may contain links: for files that the user names.
pub(crate) fn read_small(path: &Path, most: u64) -> Option<Vec<u8>> {
    let flags = QUIET.difference(OFlags::NOFOLLOW);
    read_small_file(rustix::fs::openat(CWD, path, flags, Mode::empty()).ok()?, most)
}

fn read_small_file(file: OwnedFd, most: u64) -> Option<Vec<u8>> {
    let stat = stat_of(&file).ok()?;
    if stat.file_type() != FileType::RegularFile || stat.key.size > most {
        return None;
    }
    let mut bytes = Vec::new();
    File::from(file).take(most + 1).read_to_end(&mut bytes).ok()?;
    (bytes.len() as u64 <= most).then_some(bytes)
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests make files as a person would")]
mod tests {
    use super::*;

    #[test]
    fn opening_beneath_and_step_by_step_agree() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join("a/b")).unwrap();
        std::os::unix::fs::symlink("a", root.path().join("link")).unwrap();
        let directory: OwnedFd = File::open(root.path()).unwrap().into();
        for (path, expected) in [("", true), ("a/b", true), ("link", false), ("link/b", false), ("a/c", false)] {
            let path: FilePath = path.parse().unwrap();
            assert_eq!(open_beneath(&directory, &path).is_ok(), expected, "{path}");
            assert_eq!(open_step_by_step(&directory, &path).is_ok(), expected, "{path}");
        }
    }
}
