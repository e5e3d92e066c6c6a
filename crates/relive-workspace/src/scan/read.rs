//! Reads a changed file so that the stored bytes are those of one moment.

use std::fs::File;
use std::io::Read as _;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::time::Duration;

use rustix::fs::FileType;
use rustix::io::Errno;

use crate::control::Control;
use crate::error::{Context as _, Result};
use crate::object::{Kind, ObjectId};
use crate::path::FilePath;
use crate::snapshot::SkipReason;
use crate::stat::{Stat, Time, open_file, stat_at, stat_of};
use crate::store::{Deflater, LargeFile, ObjectSink};

/// How often a file that changes during the read is read.
const TRIES: usize = 3;
/// Files larger than this are not held in memory.
const LARGE: u64 = 4 << 20;
/// A file changed this recently may have pages that are not written out yet: kernels write them after 30 seconds.
const RECENT: Duration = Duration::from_secs(120);
/// The coarsest resolution of file times that have fractions of a second.
pub(crate) const TICK: Duration = Duration::from_millis(20);
/// The coarsest resolution of others: FAT counts every second second.
pub(super) const COARSE_TICK: Duration = Duration::from_millis(2_100);

/// The result of reading a file.
pub(super) enum Outcome {
    Stored {
        id: ObjectId,
        stat: Stat,
        steadiness: Steadiness,
    },
    Skipped(SkipReason),
    /// It was removed in the meantime.
    Gone,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Steadiness {
    Still,
    /// It changed during every attempt; the version read last is stored.
    Moving,
}

/// Reads files into an [`ObjectSink`].
#[derive(Debug)]
pub(super) struct Reader<'a> {
    pub(super) sink: &'a ObjectSink,
    pub(super) control: &'a Control,
    pub(super) max_file_bytes: u64,
}

impl Reader<'_> {
    pub(super) fn file(
        &self,
        directory: &OwnedFd,
        name: &[u8],
        path: &FilePath,
        deflater: &mut Deflater,
    ) -> Result<Outcome> {
        let mut last = None;
        for _ in 0..TRIES {
            let file = match open_file(directory, name) {
                Ok(file) => file,
                Err(Errno::NOENT) => return Ok(Outcome::Gone),
                // It was replaced by a link.
                Err(Errno::LOOP) => return Ok(Outcome::Skipped(SkipReason::Changing)),
                Err(Errno::NXIO | Errno::NODEV) => return Ok(Outcome::Skipped(SkipReason::Special)),
                Err(error) if is_fatal(error) => return Err(error).context("open", path.as_path()),
                // Also on a damaged disk, or while another program holds a lease: the other files can be kept.
                Err(_) => return Ok(Outcome::Skipped(SkipReason::Unreadable)),
            };
            let Ok(before) = stat_of(&file) else { return Ok(Outcome::Skipped(SkipReason::Unreadable)) };
            if before.file_type() != FileType::RegularFile {
                return Ok(Outcome::Skipped(SkipReason::Special));
            }
            if before.key.size > self.max_file_bytes {
                return Ok(Outcome::Skipped(SkipReason::TooLarge));
            }
            self.write_out(&file, &before);
            let file = File::from(file);
            let id = match self.store(&file, &before, path, deflater) {
                Ok(id) => id,
                Err(crate::Error::Io { source, action: "read", .. })
                    if !Errno::from_io_error(&source).is_some_and(is_fatal) =>
                {
                    return Ok(Outcome::Skipped(SkipReason::Unreadable));
                }
                Err(error) => return Err(error),
            };
            let Ok(stat) = stat_of(&file) else { return Ok(Outcome::Skipped(SkipReason::Unreadable)) };
            if let Some(id) = id {
                if stat.key == before.key {
                    return Ok(Outcome::Stored { id, stat, steadiness: Steadiness::Still });
                }
                last = Some((id, stat));
            }
            self.control.check()?;
        }
        Ok(match last {
            Some((id, stat)) => Outcome::Stored { id, stat, steadiness: Steadiness::Moving },
            None => Outcome::Skipped(SkipReason::Changing),
        })
    }

    /// Stores the bytes of a file up to its known length; `None` if it has become shorter.
    fn store(&self, file: &File, stat: &Stat, path: &FilePath, deflater: &mut Deflater) -> Result<Option<ObjectId>> {
        let len = stat.key.size;
        if len > LARGE {
            let large = LargeFile { file, path: path.as_path(), len };
            return self.sink.add_large(&large, deflater, || self.control.check());
        }
        let mut bytes = Vec::with_capacity(usize::try_from(len).unwrap_or_default());
        file.take(len).read_to_end(&mut bytes).context("read", path.as_path())?;
        if bytes.len() as u64 != len {
            return Ok(None);
        }
        self.sink.add(Kind::Blob, &bytes, deflater).map(Some)
    }

    pub(super) fn symlink(
        &self,
        directory: &OwnedFd,
        name: &[u8],
        path: &FilePath,
        deflater: &mut Deflater,
    ) -> Result<Outcome> {
        let mut last = None;
        for _ in 0..TRIES {
            let before = match stat_at(directory, name) {
                Ok(stat) if stat.file_type() == FileType::Symlink => stat,
                Ok(_) => return Ok(Outcome::Skipped(SkipReason::Changing)),
                Err(Errno::NOENT) => return Ok(Outcome::Gone),
                Err(_) => return Ok(Outcome::Skipped(SkipReason::Unreadable)),
            };
            let Ok(target) = rustix::fs::readlinkat(directory, name, Vec::new()) else { continue };
            let id = self.sink.add(Kind::Blob, target.as_bytes(), deflater)?;
            let stat = stat_at(directory, name).context("look at", path.as_path());
            if stat.as_ref().is_ok_and(|stat| stat.key == before.key) {
                return Ok(Outcome::Stored { id, stat: before, steadiness: Steadiness::Still });
            }
            last = Some((id, before));
        }
        Ok(match last {
            Some((id, stat)) => Outcome::Stored { id, stat, steadiness: Steadiness::Moving },
            None => Outcome::Skipped(SkipReason::Changing),
        })
    }

    /// Writes the file's changed pages out, without waiting for the disk.
    ///
    /// A program that has mapped a file can change a page again without any trace in its times, until the page was
    /// written out once: only then does the kernel notice the next change. On tmpfs, which has no disk, it never does.
    fn write_out(&self, file: &OwnedFd, stat: &Stat) {
        if !stat.key.is_since(Time::before(self.control.clock().now(), RECENT)) {
            return;
        }
        let flags = libc::SYNC_FILE_RANGE_WAIT_BEFORE | libc::SYNC_FILE_RANGE_WRITE;
        // SAFETY: the descriptor is open, and no memory is passed. A failure does not prevent reading the file; the
        // next sync of the file reports it again.
        let _ = unsafe { libc::sync_file_range(file.as_raw_fd(), 0, 0, flags) };
    }
}

/// Returns whether an error does not concern this file alone.
pub(super) fn is_fatal(error: Errno) -> bool {
    matches!(error, Errno::NOMEM | Errno::MFILE | Errno::NFILE)
}
