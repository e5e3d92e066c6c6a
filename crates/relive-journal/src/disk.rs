//! The only place where Relive changes its files: every change goes through [`Disk`].
//!
//! It sets permissions (`0600`, `0700`), counts the cost of durability, and is, in a `faults` build, the place where a
//! test can stop everything, fail an operation or cut the power. It decides nothing: the caller chooses what to sync,
//! and in which order. Reading does not go through it.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

#[cfg(feature = "faults")]
use crate::faults::Faults;
use crate::hook::{Hook, Op, Verdict};
use crate::regular;

/// A handle to the file system, cheap to clone. Clones share their counters.
#[derive(Debug, Clone, Default)]
pub struct Disk {
    counters: Arc<Counters>,
    hook: Hook,
}

/// A file opened for change through a [`Disk`].
#[derive(Debug)]
pub struct DiskFile(File);

impl DiskFile {
    /// Returns the file itself, for reading and for its metadata.
    #[must_use]
    pub fn file(&self) -> &File {
        &self.0
    }
}

impl Drop for DiskFile {
    /// Releases the lock, if there is one. Closing alone would not: a child that is being spawned has a copy of every
    /// descriptor until it executes its program.
    fn drop(&mut self) {
        let _ = flock(self.0.as_fd(), FlockOperation::Unlock);
    }
}

#[derive(Debug, Default)]
struct Counters {
    reads: AtomicU64,
    opens: AtomicU64,
    writes: AtomicU64,
    bytes: AtomicU64,
    syncs: AtomicU64,
    renames: AtomicU64,
    unlinks: AtomicU64,
}

/// The operations of a [`Disk`] so far, counted in system calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Journals opened for reading.
    pub reads: u64,
    /// Files and directories opened or created for changes.
    pub opens: u64,
    pub writes: u64,
    pub bytes: u64,
    /// Syncs of files and directories.
    pub syncs: u64,
    pub renames: u64,
    pub unlinks: u64,
}

impl Counts {
    /// Returns the operations between `earlier` and this.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        Self {
            reads: self.reads - earlier.reads,
            opens: self.opens - earlier.opens,
            writes: self.writes - earlier.writes,
            bytes: self.bytes - earlier.bytes,
            syncs: self.syncs - earlier.syncs,
            renames: self.renames - earlier.renames,
            unlinks: self.unlinks - earlier.unlinks,
        }
    }
}

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
        Self { counters: Arc::default(), hook: Hook::new(faults) }
    }

    #[must_use]
    pub fn counts(&self) -> Counts {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Counts {
            reads: read(&self.counters.reads),
            opens: read(&self.counters.opens),
            writes: read(&self.counters.writes),
            bytes: read(&self.counters.bytes),
            syncs: read(&self.counters.syncs),
            renames: read(&self.counters.renames),
            unlinks: read(&self.counters.unlinks),
        }
    }

    /// Makes one change: the hook before it, the change unless the hook made it, the hook after it.
    fn change(&self, op: Op<'_>, count: &AtomicU64, act: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        match self.hook.before(&op)? {
            Verdict::Proceed => act()?,
            Verdict::Skip => {}
        }
        self.hook.after(&op);
        count.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Creates a file that must not exist yet.
    pub fn create(&self, path: &Path) -> io::Result<DiskFile> {
        let mut made = None;
        self.change(Op::Create { path }, &self.counters.opens, || {
            made = Some(options().create_new(true).open(path)?);
            Ok(())
        })?;
        made.map(DiskFile).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// Opens a regular file for appending and reading.
    pub fn open_append(&self, path: &Path) -> io::Result<DiskFile> {
        let file = options().custom_flags(regular::flags()).open(path)?;
        regular::check(&file)?;
        self.counters.opens.fetch_add(1, Ordering::Relaxed);
        Ok(DiskFile(file))
    }

    /// Opens a journal for reading. It goes through here so that it is counted, and a test can make it fail.
    pub fn open_read(&self, path: &Path) -> io::Result<File> {
        self.hook.before_read(path)?;
        self.counters.reads.fetch_add(1, Ordering::Relaxed);
        regular::open(path)
    }

    /// Opens a file for appending, and creates it if necessary. On a full disk an existing file is still opened.
    pub fn open_or_create(&self, path: &Path) -> io::Result<DiskFile> {
        match self.open_append(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => match self.create(path) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => self.open_append(path),
                other => other,
            },
            other => other,
        }
    }

    /// Appends all of `bytes`: one `write(2)` unless the kernel accepts less. On an error some of them may have been
    /// written.
    pub fn append(&self, to: &DiskFile, bytes: &[u8]) -> io::Result<()> {
        let mut rest = bytes;
        while !rest.is_empty() {
            let offered = self.hook.offer(&to.0, rest)?;
            match (&to.0).write(offered) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(taken) => {
                    self.hook.after(&Op::Write { file: &to.0, bytes: &rest[..taken] });
                    self.wrote(taken);
                    rest = &rest[taken..];
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Opens a regular file for overwriting, and creates it if necessary.
    pub fn open_in_place(&self, path: &Path) -> io::Result<DiskFile> {
        let file = self.open_or_create(path)?;
        let flags = rustix::fs::fcntl_getfl(&file.0)?;
        rustix::fs::fcntl_setfl(&file.0, flags - rustix::fs::OFlags::APPEND)?;
        Ok(file)
    }

    /// Overwrites the beginning of a file opened for that. The rest stays unchanged.
    pub fn overwrite(&self, file: &DiskFile, bytes: &[u8]) -> io::Result<()> {
        self.change(Op::Overwrite { file: &file.0, bytes }, &self.counters.writes, || file.0.write_all_at(bytes, 0))
    }

    fn wrote(&self, bytes: usize) {
        self.counters.writes.fetch_add(1, Ordering::Relaxed);
        self.counters.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Appends the first `len` bytes of `from`: by reference if the file system can, else inside the kernel, else by
    /// reading and writing.
    pub fn append_copy(&self, from: &File, len: u64, to: &DiskFile) -> io::Result<()> {
        let done = if self.hook.watches() { 0 } else { self.copy_in_kernel(from, len, to)? };
        self.copy_by_hand(from, done, len, to)
    }

    fn copy_in_kernel(&self, from: &File, len: u64, to: &DiskFile) -> io::Result<u64> {
        // copy_file_range refuses a descriptor opened for appending.
        let flags = rustix::fs::fcntl_getfl(&to.0)?;
        rustix::fs::fcntl_setfl(&to.0, flags - rustix::fs::OFlags::APPEND)?;
        let mut source = 0;
        let mut target = to.0.metadata()?.len();
        let outcome = loop {
            if source >= len {
                break Ok(source);
            }
            let want = usize::try_from(len - source).unwrap_or(usize::MAX).min(1 << 30);
            match rustix::fs::copy_file_range(from, Some(&mut source), &to.0, Some(&mut target), want) {
                Ok(0) | Err(Errno::XDEV | Errno::NOSYS | Errno::OPNOTSUPP | Errno::INVAL) => break Ok(source),
                Ok(taken) => self.wrote(taken),
                Err(Errno::INTR) => {}
                Err(error) => break Err(error.into()),
            }
        };
        rustix::fs::fcntl_setfl(&to.0, flags)?;
        outcome
    }

    fn copy_by_hand(&self, from: &File, mut offset: u64, len: u64, to: &DiskFile) -> io::Result<()> {
        let mut buffer = vec![0; usize::try_from(len - offset).unwrap_or(usize::MAX).min(256 * 1024)];
        while offset < len {
            let want = usize::try_from(len - offset).unwrap_or(usize::MAX).min(buffer.len());
            let taken = from.read_at(&mut buffer[..want], offset)?;
            if taken == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            self.append(to, &buffer[..taken])?;
            offset += taken as u64;
        }
        Ok(())
    }

    /// Truncates a file to `len` bytes.
    pub fn truncate(&self, file: &DiskFile, len: u64) -> io::Result<()> {
        self.change(Op::Truncate { file: &file.0, len }, &self.counters.writes, || file.0.set_len(len))
    }

    /// Allocates real blocks for `len` bytes of a file.
    pub fn allocate(&self, file: &DiskFile, len: u64) -> io::Result<()> {
        self.change(Op::Allocate, &self.counters.writes, || {
            Ok(rustix::fs::fallocate(&file.0, rustix::fs::FallocateFlags::empty(), 0, len)?)
        })
    }

    /// Waits until the file's bytes are on the disk. After an error their state is unknown: never call it again for the
    /// same bytes.
    pub fn sync(&self, file: &DiskFile) -> io::Result<()> {
        self.change(Op::Sync { file: &file.0 }, &self.counters.syncs, || file.0.sync_data())
    }

    /// Waits until a directory's entries are on the disk.
    pub fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.change(Op::SyncDir { path }, &self.counters.syncs, || open_dir(path)?.sync_all())
    }

    /// Returns whether the names in a directory reach the disk in the order of their creation, and the name of a new file
    /// with the sync of the file. POSIX guarantees neither. These file systems do both: their journal keeps the order of
    /// changes, or a sync writes all names on the path to the file. On others each directory needs its own sync.
    #[must_use]
    pub fn keeps_names_in_order(&self, path: &Path) -> bool {
        const KNOWN: [u32; 7] = [
            0xef53,      // ext4
            0x5846_5342, // XFS
            0x9123_683e, // btrfs
            0xf2f5_2010, // F2FS
            0xca45_1a4e, // bcachefs
            0x2fc1_2fc1, // ZFS
            0x0102_1994, // tmpfs, which has no disk
        ];
        if let Some(known) = self.hook.keeps_names_in_order() {
            return known;
        }
        rustix::fs::statfs(path).is_ok_and(|found| u32::try_from(found.f_type).is_ok_and(|kind| KNOWN.contains(&kind)))
    }

    /// Renames a file, replacing one with the new name.
    #[expect(clippy::disallowed_methods, reason = "this is the place where it is allowed")]
    pub fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.change(Op::Rename { from, to }, &self.counters.renames, || {
            std::fs::rename(from, to).map_err(|error| {
                // The system's words for it name neither.
                let (from, to) = (from.display(), to.display());
                let apart = format!("{from} and {to} are not on the same file system");
                if error.kind() == io::ErrorKind::CrossesDevices { io::Error::new(error.kind(), apart) } else { error }
            })
        })
    }

    /// Removes a file. A missing file is not an error.
    #[expect(clippy::disallowed_methods, reason = "this is the place where it is allowed")]
    pub fn unlink(&self, path: &Path) -> io::Result<()> {
        match std::fs::symlink_metadata(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            _ => self.change(Op::Unlink { path }, &self.counters.unlinks, || std::fs::remove_file(path)),
        }
    }

    /// Creates a directory that must not exist yet.
    pub fn mkdir(&self, path: &Path) -> io::Result<()> {
        self.change(Op::Mkdir { path }, &self.counters.opens, || std::fs::DirBuilder::new().mode(0o700).create(path))
    }

    /// Removes a directory and everything below it, one entry at a time. A missing directory is not an error.
    pub fn remove_tree(&self, path: &Path) -> io::Result<()> {
        match std::fs::symlink_metadata(path) {
            Ok(metadata) if metadata.is_dir() => {}
            // Other files are removed themselves; a link is removed without its target.
            Ok(_) => return self.unlink(path),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error),
        }
        for entry in std::fs::read_dir(path)? {
            self.remove_tree(&entry?.path())?;
        }
        self.change(Op::Unlink { path }, &self.counters.unlinks, || std::fs::remove_dir(path))
    }

    /// Takes the file's lock for as long as it stays open; returns `false` if another process holds it.
    pub fn try_lock(&self, file: &DiskFile) -> io::Result<bool> {
        if self.hook.grants_every_lock() {
            return Ok(true);
        }
        match flock(file.0.as_fd(), FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(true),
            Err(Errno::WOULDBLOCK) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Replaces a small file as a whole: writes a temporary file next to it, syncs, renames, and syncs the directory.
    /// Afterwards the file has either the old or the new content, even after a power cut.
    pub fn replace(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        self.put(path, bytes)?;
        self.sync_dir(path.parent().unwrap_or(Path::new(".")))
    }

    /// Like [`Self::replace`] without syncing the directory, for a caller that syncs it once for several files.
    pub fn put(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let temporary = temporary_beside(path);
        self.unlink(&temporary)?;
        let file = self.create(&temporary)?;
        self.append(&file, bytes)?;
        self.sync(&file)?;
        self.rename(&temporary, path)
    }

    /// Like [`Self::put`] without syncing the file either, for a file that nothing depends on.
    pub fn put_unsynced(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let temporary = temporary_beside(path);
        self.unlink(&temporary)?;
        let file = self.create(&temporary)?;
        self.append(&file, bytes)?;
        self.rename(&temporary, path)
    }

    /// Returns whether a torn journal is repaired before appending; only a `faults` build can say no.
    pub(crate) fn repairs(&self) -> bool {
        self.hook.repairs()
    }
}

/// The suffix of an unfinished file; it may be removed after a crash.
pub(crate) const TEMPORARY: &str = ".tmp";

pub(crate) fn temporary_beside(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    name.push(TEMPORARY);
    path.with_file_name(name)
}

/// Returns whether an error means that the disk is full.
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

fn open_dir(path: &Path) -> io::Result<File> {
    let flags = regular::flags() | rustix::fs::OFlags::DIRECTORY.bits().cast_signed();
    OpenOptions::new().read(true).custom_flags(flags).open(path)
}

fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).append(true).mode(0o600);
    options
}
