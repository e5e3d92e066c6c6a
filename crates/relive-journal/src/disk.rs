//! The seam: every change Relive makes to its files goes through [`Disk`].
//!
//! It owns permissions (`0600`, `0700`), the counting of what durability costs, and, in a `faults` build, the place
//! where a test can stop the world, fail an operation or cut the power. It decides nothing: what must be synced, and
//! in which order, is the caller's business. Reading is not a change and does not pass here.

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
    /// The file itself, for reading and for its metadata.
    #[must_use]
    pub fn file(&self) -> &File {
        &self.0
    }
}

impl Drop for DiskFile {
    /// Lets go of the lock, if it has one. Closing alone would not: a child that is just being spawned has, until it
    /// executes, a copy of every descriptor.
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

/// What a [`Disk`] has done so far, each counted as the system calls it took.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Journals opened to be read.
    pub reads: u64,
    /// Files and directories opened or made for change.
    pub opens: u64,
    /// Calls that wrote.
    pub writes: u64,
    /// Bytes written.
    pub bytes: u64,
    /// Syncs of files and of directories.
    pub syncs: u64,
    /// Renames.
    pub renames: u64,
    /// Files and directories removed.
    pub unlinks: u64,
}

impl Counts {
    /// What was done between `earlier` and this.
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
    /// The real thing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A disk on which `faults` has a say before each change.
    #[cfg(feature = "faults")]
    #[must_use]
    pub fn with_faults(faults: Arc<Faults>) -> Self {
        Self { counters: Arc::default(), hook: Hook::new(faults) }
    }

    /// What was done so far.
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

    /// One change: the hook before it, the change unless the hook did it, the hook after it.
    fn change(&self, op: Op<'_>, count: &AtomicU64, act: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        match self.hook.before(&op)? {
            Verdict::Proceed => act()?,
            Verdict::Skip => {}
        }
        self.hook.after(&op);
        count.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Makes a file that must not be there yet.
    pub fn create(&self, path: &Path) -> io::Result<DiskFile> {
        let mut made = None;
        self.change(Op::Create { path }, &self.counters.opens, || {
            made = Some(options().create_new(true).open(path)?);
            Ok(())
        })?;
        made.map(DiskFile).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// Opens a regular file to append to, and to read.
    pub fn open_append(&self, path: &Path) -> io::Result<DiskFile> {
        let file = options().custom_flags(regular::flags()).open(path)?;
        regular::check(&file)?;
        self.counters.opens.fetch_add(1, Ordering::Relaxed);
        Ok(DiskFile(file))
    }

    /// Opens a journal to read. Reading is no change; it passes here so that it is counted, and a test can make it fail.
    pub fn open_read(&self, path: &Path) -> io::Result<File> {
        self.hook.before_read(path)?;
        self.counters.reads.fetch_add(1, Ordering::Relaxed);
        regular::open(path)
    }

    /// Opens a file to append to, making it if need be. With a full disk a file that is there is still opened.
    pub fn open_or_create(&self, path: &Path) -> io::Result<DiskFile> {
        match self.open_append(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => match self.create(path) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => self.open_append(path),
                other => other,
            },
            other => other,
        }
    }

    /// Appends all of `bytes`: one `write(2)` unless the kernel takes less. On an error some of them may be there.
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

    /// Opens a regular file to overwrite, making it if need be.
    pub fn open_in_place(&self, path: &Path) -> io::Result<DiskFile> {
        let file = self.open_or_create(path)?;
        let flags = rustix::fs::fcntl_getfl(&file.0)?;
        rustix::fs::fcntl_setfl(&file.0, flags - rustix::fs::OFlags::APPEND)?;
        Ok(file)
    }

    /// Overwrites the beginning of a file that was opened for that. What was there after it stays.
    pub fn overwrite(&self, file: &DiskFile, bytes: &[u8]) -> io::Result<()> {
        self.change(Op::Overwrite { file: &file.0, bytes }, &self.counters.writes, || file.0.write_all_at(bytes, 0))
    }

    fn wrote(&self, bytes: usize) {
        self.counters.writes.fetch_add(1, Ordering::Relaxed);
        self.counters.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Appends the first `len` bytes of `from`: by reference where the file system can, else inside the kernel, else
    /// by hand.
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

    /// Cuts a file to `len` bytes.
    pub fn truncate(&self, file: &DiskFile, len: u64) -> io::Result<()> {
        self.change(Op::Truncate { file: &file.0, len }, &self.counters.writes, || file.0.set_len(len))
    }

    /// Gives a file real blocks for `len` bytes.
    pub fn allocate(&self, file: &DiskFile, len: u64) -> io::Result<()> {
        self.change(Op::Allocate, &self.counters.writes, || {
            Ok(rustix::fs::fallocate(&file.0, rustix::fs::FallocateFlags::empty(), 0, len)?)
        })
    }

    /// Waits until what was written to the file is on the disk. After an error nothing is known: never call it again
    /// for the same bytes.
    pub fn sync(&self, file: &DiskFile) -> io::Result<()> {
        self.change(Op::Sync { file: &file.0 }, &self.counters.syncs, || file.0.sync_data())
    }

    /// Waits until a directory's entries are on the disk.
    pub fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.change(Op::SyncDir { path }, &self.counters.syncs, || open_dir(path)?.sync_all())
    }

    /// Renames, replacing what has the new name.
    #[expect(clippy::disallowed_methods, reason = "this is the place where it is allowed")]
    pub fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.change(Op::Rename { from, to }, &self.counters.renames, || std::fs::rename(from, to))
    }

    /// Removes a file. That it is not there is no error.
    #[expect(clippy::disallowed_methods, reason = "this is the place where it is allowed")]
    pub fn unlink(&self, path: &Path) -> io::Result<()> {
        match std::fs::symlink_metadata(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            _ => self.change(Op::Unlink { path }, &self.counters.unlinks, || std::fs::remove_file(path)),
        }
    }

    /// Makes a directory that must not be there yet.
    pub fn mkdir(&self, path: &Path) -> io::Result<()> {
        self.change(Op::Mkdir { path }, &self.counters.opens, || std::fs::DirBuilder::new().mode(0o700).create(path))
    }

    /// Removes a directory and all below it, one entry at a time. That it is not there is no error.
    pub fn remove_tree(&self, path: &Path) -> io::Result<()> {
        match std::fs::symlink_metadata(path) {
            Ok(metadata) if metadata.is_dir() => {}
            // What is not a directory goes by itself, and a link without what it leads to.
            Ok(_) => return self.unlink(path),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error),
        }
        for entry in std::fs::read_dir(path)? {
            self.remove_tree(&entry?.path())?;
        }
        self.change(Op::Unlink { path }, &self.counters.unlinks, || std::fs::remove_dir(path))
    }

    /// Takes the file's lock for as long as it stays open; `false` when somebody else holds it.
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

    /// Replaces a small file whole: temporary beside it, synced, renamed, directory synced. Afterwards the file is
    /// either as before or as given, also after a power cut.
    pub fn replace(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        self.put(path, bytes)?;
        self.sync_dir(path.parent().unwrap_or(Path::new(".")))
    }

    /// [`Self::replace`] without the directory's sync, for a caller that syncs the directory once for several files.
    pub fn put(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let temporary = temporary_beside(path);
        self.unlink(&temporary)?;
        let file = self.create(&temporary)?;
        self.append(&file, bytes)?;
        self.sync(&file)?;
        self.rename(&temporary, path)
    }

    /// [`Self::put`] without the file's sync either, for a file that nothing depends on.
    pub fn put_unsynced(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let temporary = temporary_beside(path);
        self.unlink(&temporary)?;
        let file = self.create(&temporary)?;
        self.append(&file, bytes)?;
        self.rename(&temporary, path)
    }

    /// Whether a torn journal is repaired before it is appended to; only a `faults` build can say no.
    pub(crate) fn repairs(&self) -> bool {
        self.hook.repairs()
    }
}

/// The ending of a file that is not finished; whoever finds one after a crash may remove it.
pub(crate) const TEMPORARY: &str = ".tmp";

pub(crate) fn temporary_beside(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    name.push(TEMPORARY);
    path.with_file_name(name)
}

/// Tells whether an error says that there is no room left.
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
