//! Reads small files from the kernel's cache, without a thread of the pool.
//!
//! **Invariant:** nothing here waits, whatever the path leads to. Names are resolved from the kernel's cache alone
//! (`RESOLVE_CACHED`), only a regular file on a file system of a local disk is opened, never one of a network or of a
//! program, and bytes come from the page cache (`RWF_NOWAIT`). A thread of the pool finds out which devices have such a
//! file system, and this is forgotten when anything is mounted or unmounted. Everything else, and every error, is left
//! to the pool.

use std::fs::File;
use std::io::{self, IoSliceMut, Read as _};
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, StatxFlags};
use rustix::io::ReadWriteFlags;

use super::beneath;
use crate::plain_file::Links;

/// Larger files are read on a thread that checks between two chunks whether they are still needed.
const SIZE_MAX: usize = 64 * 1024;
/// A longer table of mounts is not used.
const TABLE_MAX: u64 = 1024 * 1024;
/// File systems whose files are opened without waiting for another program.
const LOCAL: [&str; 5] = ["ext2", "ext3", "ext4", "f2fs", "xfs"];

/// Returns the path of a file relative to the directory `cwd`, and all its bytes, if they are in memory.
pub(super) fn read(cwd: &Path, links: Links, path: &str) -> Option<(PathBuf, Vec<u8>)> {
    let path = beneath::relative(cwd, path).ok()?;
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let directory = open_cached(CWD, cwd, flags | OFlags::DIRECTORY, links.resolution())?;
    let file = open_cached(directory, &path, flags, ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS)?;
    let size = size_of_local(&file)?;
    // By its descriptor, so that it is the same file. Non-blocking: another program may hold a lease on it.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = rustix::fs::open(format!("/proc/self/fd/{}", file.as_raw_fd()), flags, Mode::empty()).ok()?;
    // One more, to detect that it has grown.
    let mut bytes = vec![0; size + 1];
    let read = rustix::io::preadv2(&file, &mut [IoSliceMut::new(&mut bytes)], 0, ReadWriteFlags::NOWAIT).ok()?;
    bytes.truncate(read);
    (read == size).then_some((path, bytes))
}

fn open_cached(directory: impl AsFd, path: &Path, flags: OFlags, resolve: ResolveFlags) -> Option<OwnedFd> {
    rustix::fs::openat2(directory, path, flags, Mode::empty(), resolve | ResolveFlags::CACHED).ok()
}

/// Returns the size of a file, if it is regular, small and on a local disk. Does not use `fstat`, which would ask a
/// FUSE server.
fn size_of_local(file: &OwnedFd) -> Option<usize> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let stat = rustix::fs::statx(file, c"", flags, StatxFlags::TYPE | StatxFlags::SIZE).ok()?;
    let size = usize::try_from(stat.stx_size).ok().filter(|size| *size <= SIZE_MAX)?;
    let is_regular = FileType::from_raw_mode(stat.stx_mode.into()) == FileType::RegularFile;
    (is_regular && is_local((stat.stx_dev_major, stat.stx_dev_minor))).then_some(size)
}

/// The table of mounts, as it was when it was last read.
static MOUNTS: Mutex<Option<Mounts>> = Mutex::new(None);

/// Returns whether the files of a device are known to be on a local disk. `statfs` is not used, because it asks the
/// server of a FUSE file system mounted from a device.
fn is_local(device: (u32, u32)) -> bool {
    // The holder of the lock does not wait either, so this is rare.
    let Ok(mut mounts) = MOUNTS.try_lock() else { return false };
    // A device may have another file system now.
    *mounts = mounts.take().filter(|mounts| !mounts.have_changed());
    mounts.as_ref().is_some_and(|mounts| mounts.local.contains(&device))
}

/// Reads the table of mounts, unless it was read before and has not changed. For a thread that may wait.
pub(super) fn learn_mounts() {
    let lock = || MOUNTS.lock().unwrap_or_else(PoisonError::into_inner);
    if lock().as_ref().is_some_and(|mounts| !mounts.have_changed()) {
        return;
    }
    // Without the lock: nobody waits for the table.
    let read = Mounts::read(Path::new("/proc/self/mountinfo"));
    *lock() = read.ok();
}

/// A table of mounts that was read.
#[derive(Debug)]
struct Mounts {
    /// Open from before it was read, so that the kernel reports every change since.
    table: File,
    /// The devices with a file system whose files are opened without waiting for another program.
    local: Vec<(u32, u32)>,
}

impl Mounts {
    fn read(path: &Path) -> io::Result<Self> {
        let table = File::open(path)?;
        let mut text = String::new();
        (&table).take(TABLE_MAX).read_to_string(&mut text)?;
        // A table that is not read to its end may lack the entry of any device.
        let is_whole = u64::try_from(text.len()).is_ok_and(|length| length < TABLE_MAX);
        let local = if is_whole { text.lines().filter_map(local_device).collect() } else { Vec::new() };
        Ok(Self { table, local })
    }

    /// Returns whether anything was mounted or unmounted since.
    fn have_changed(&self) -> bool {
        let mut polled = [PollFd::new(&self.table, PollFlags::PRI)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        rustix::event::poll(&mut polled, Some(&now)) != Ok(0)
    }
}

/// Returns the device of a mount with a file system of a local disk.
fn local_device(mount: &str) -> Option<(u32, u32)> {
    let (major, minor) = mount.split(' ').nth(2)?.split_once(':')?;
    let device = (major.parse().ok()?, minor.parse().ok()?);
    let kind = mount.split_once(" - ")?.1.split(' ').next()?;
    // The numbers of file systems without a device are reused later.
    (device.0 != 0 && LOCAL.contains(&kind)).then_some(device)
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "the files of a test need not last")]
mod tests {
    use std::io::{BufRead as _, Write as _};
    use std::os::unix::fs::symlink;
    use std::process::{Command, Stdio};

    use super::*;

    /// Returns the name that coreutils have for the file system of a path.
    fn file_system(path: &Path) -> String {
        let stat = Command::new("stat").args(["--file-system", "--format=%T"]).arg(path).output().unwrap();
        String::from_utf8(stat.stdout).unwrap().trim().to_owned()
    }

    #[test]
    fn only_small_regular_files_inside_the_directory_are_read_from_memory() {
        let outside = tempfile::tempdir().unwrap();
        std::fs::write(outside.path().join("secret"), "secret").unwrap();
        let cwd = outside.path().join("work");
        std::fs::create_dir_all(cwd.join("sub")).unwrap();
        std::fs::write(cwd.join("sub/note"), "a note").unwrap();
        std::fs::write(cwd.join("large"), vec![b'x'; SIZE_MAX + 1]).unwrap();
        symlink("../secret", cwd.join("out")).unwrap();
        symlink("sub/note", cwd.join("in")).unwrap();
        rustix::fs::mkfifoat(CWD, cwd.join("pipe"), Mode::RWXU).unwrap();
        let found = |path: &str| read(&cwd, Links::Refuse, path).map(|(_, bytes)| bytes);
        let kind = file_system(&cwd);
        let note = ["ext2/ext3", "xfs", "f2fs"].contains(&kind.as_str()).then(|| b"a note".to_vec());
        learn_mounts();
        // Read before, so that the names are in the kernel's cache.
        for name in ["out", "in", "sub/note", "large"] {
            std::fs::metadata(cwd.join(name)).unwrap();
        }
        assert_eq!((found("sub/note"), found("in")), (note.clone(), note), "on {kind}");
        let absolute = cwd.join("sub/note");
        assert_eq!(found(absolute.to_str().unwrap()), found("sub/note"));
        for refused in ["out", "../secret", "/etc/passwd", "pipe", "large", "sub", "nothing", ""] {
            assert_eq!(found(refused), None, "{refused}");
        }
    }

    #[test]
    fn only_devices_of_local_file_systems_are_local() {
        let check = |mount: &str, expect| assert_eq!(local_device(mount), expect, "{mount}");
        check("29 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw", Some((8, 1)));
        check("30 1 259:3 /home /home rw - xfs /dev/nvme0n1p3 rw", Some((259, 3)));
        check("31 1 8:2 / /mnt rw shared:2 master:3 - fuseblk /dev/sda2 rw", None);
        check("32 1 0:21 / /proc rw - proc proc rw", None);
        check("33 1 0:40 / /net rw - nfs4 host:/ext4 rw", None);
        check("34 1 0:41 / /odd rw - ext4 none rw", None);
        check("nonsense", None);
    }

    #[test]
    fn the_mount_table_is_forgotten_when_it_changes() {
        let place = tempfile::tempdir().unwrap();
        let script = "echo ready; read go; mount -t tmpfs none \"$0\" && echo done; read go";
        let mut child = Command::new("unshare")
            .args(["--user", "--map-root-user", "--mount", "sh", "-c", script])
            .arg(place.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (mut stdin, stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let mut said = io::BufReader::new(stdout).lines();
        let mut says = |word: &str| said.next().is_some_and(|line| line.unwrap() == word);
        if says("ready") {
            let path = PathBuf::from(format!("/proc/{}/mountinfo", child.id()));
            let mounts = Mounts::read(&path).unwrap();
            assert!(!mounts.have_changed());
            stdin.write_all(b"\n").unwrap();
            assert!(says("done"));
            assert!(mounts.have_changed());
        } else {
            eprintln!("skipped: this user cannot have a table of mounts of their own");
        }
        drop(stdin);
        child.wait().unwrap();
    }
}
