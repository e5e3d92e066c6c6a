//! Reads small files that the kernel has in memory, without a thread of the pool.
//!
//! **Invariant:** nothing here waits, whoever is behind the path. Names are resolved from the kernel's cache alone
//! (`RESOLVE_CACHED`), only a regular file on a file system of a local disk is opened, never one of a network or of a
//! program, and bytes come from the page cache (`RWF_NOWAIT`). Whatever cannot be had that way, and every error, is left
//! to the pool.

use std::fs::File;
use std::io::IoSliceMut;
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, StatxFlags};
use rustix::io::ReadWriteFlags;

use super::beneath;

/// Larger files are read on a thread, where somebody looks between two chunks whether they are still wanted.
const SIZE_MAX: usize = 64 * 1024;
/// File systems whose files are opened without asking anybody.
const LOCAL: [&str; 5] = ["ext2", "ext3", "ext4", "f2fs", "xfs"];

/// Returns the path of a file as seen from the directory `cwd`, and all its bytes, if they are at hand.
pub(super) fn read(cwd: &Path, path: &str) -> Option<(PathBuf, Vec<u8>)> {
    let path = beneath::relative(cwd, path).ok()?;
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let directory = open_cached(CWD, cwd, flags | OFlags::DIRECTORY, ResolveFlags::empty())?;
    let file = open_cached(directory, &path, flags, ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS)?;
    let size = size_of_local(&file)?;
    // By its descriptor, so that it is the file that was looked at. Not blocking: somebody may hold a lease on it.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = rustix::fs::open(format!("/proc/self/fd/{}", file.as_raw_fd()), flags, Mode::empty()).ok()?;
    // One more, to see whether it has grown.
    let mut bytes = vec![0; size + 1];
    let read = rustix::io::preadv2(&file, &mut [IoSliceMut::new(&mut bytes)], 0, ReadWriteFlags::NOWAIT).ok()?;
    bytes.truncate(read);
    (read == size).then_some((path, bytes))
}

fn open_cached(directory: impl AsFd, path: &Path, flags: OFlags, resolve: ResolveFlags) -> Option<OwnedFd> {
    rustix::fs::openat2(directory, path, flags, Mode::empty(), resolve | ResolveFlags::CACHED).ok()
}

/// Returns the size of a file, if it is regular, small and on a local disk. Asks nobody: `fstat` would ask a FUSE server.
fn size_of_local(file: &OwnedFd) -> Option<usize> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let stat = rustix::fs::statx(file, c"", flags, StatxFlags::TYPE | StatxFlags::SIZE).ok()?;
    let size = usize::try_from(stat.stx_size).ok().filter(|size| *size <= SIZE_MAX)?;
    let is_regular = FileType::from_raw_mode(stat.stx_mode.into()) == FileType::RegularFile;
    (is_regular && is_local((stat.stx_dev_major, stat.stx_dev_minor))).then_some(size)
}

/// Tells whether the files of a device are on a local disk. What is mounted from a device stays as it is while the
/// daemon lives, so each is looked for once.
fn is_local(device: (u32, u32)) -> bool {
    static LOOKED_FOR: Mutex<Vec<((u32, u32), bool)>> = Mutex::new(Vec::new());
    // The numbers of file systems without a device are given to others later.
    if device.0 == 0 {
        return false;
    }
    let mut looked_for = LOOKED_FOR.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, local)) = looked_for.iter().find(|(known, _)| *known == device) {
        return *local;
    }
    let local = file_system(device).is_some_and(|kind| LOCAL.contains(&kind.as_str()));
    looked_for.push((device, local));
    local
}

fn file_system((major, minor): (u32, u32)) -> Option<String> {
    let mounts = std::io::read_to_string(File::open("/proc/self/mountinfo").ok()?).ok()?;
    let device = format!("{major}:{minor}");
    let mount = mounts.lines().find(|mount| mount.split(' ').nth(2) == Some(&device))?;
    Some(mount.split_once(" - ")?.1.split(' ').next()?.to_owned())
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "the files of a test need not last")]
mod tests {
    use std::os::unix::fs::{MetadataExt as _, symlink};

    use super::*;

    fn device(path: &Path) -> (u32, u32) {
        let device = std::fs::metadata(path).unwrap().dev();
        (rustix::fs::major(device), rustix::fs::minor(device))
    }

    #[test]
    fn only_small_regular_files_inside_the_directory_are_at_hand() {
        let outside = tempfile::tempdir().unwrap();
        std::fs::write(outside.path().join("secret"), "secret").unwrap();
        let cwd = outside.path().join("work");
        std::fs::create_dir_all(cwd.join("sub")).unwrap();
        std::fs::write(cwd.join("sub/note"), "a note").unwrap();
        std::fs::write(cwd.join("large"), vec![b'x'; SIZE_MAX + 1]).unwrap();
        symlink("../secret", cwd.join("out")).unwrap();
        symlink("sub/note", cwd.join("in")).unwrap();
        rustix::fs::mkfifoat(CWD, cwd.join("pipe"), Mode::RWXU).unwrap();
        let found = |path: &str| read(&cwd, path).map(|(_, bytes)| bytes);
        let note = is_local(device(&cwd)).then(|| b"a note".to_vec());
        // Looked at before, so that the names are in the kernel's cache.
        for name in ["out", "in", "sub/note", "large"] {
            std::fs::metadata(cwd.join(name)).unwrap();
        }
        assert_eq!((found("sub/note"), found("in")), (note.clone(), note));
        let absolute = cwd.join("sub/note");
        assert_eq!(read(&cwd, absolute.to_str().unwrap()), read(&cwd, "sub/note"));
        for refused in ["out", "../secret", "/etc/passwd", "pipe", "large", "sub", "nothing", ""] {
            assert_eq!(found(refused), None, "{refused}");
        }
    }

    #[test]
    fn file_systems_without_a_disk_are_left_to_the_pool() {
        for (path, kind) in [("/proc", "proc"), ("/sys", "sysfs"), ("/dev/shm", "tmpfs")] {
            let device = device(Path::new(path));
            assert_eq!(file_system(device).as_deref(), Some(kind));
            assert!(!is_local(device), "{path}");
        }
    }
}
