//! The single writer of a log.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, IoSlice, Write as _};
use std::os::fd::AsFd as _;
use std::time::SystemTime;

use rustix::fs::{AtFlags, OFlags, SeekFrom};

use super::reader::{Segment, Step, older};
use super::{END, FRAME_MAX, HEAD, Head, MARK, MARK_SIZE, NAME, NEW_NAME, Stream, name_of};
use crate::directory::SessionDirectory;

/// More would only fill the disk: a reader that is faster than the program never has to wait.
const AHEAD_MAX_BYTES: u64 = 1024 * 1024;
const SEGMENT_MIN_BYTES: u64 = 256 * 1024;

/// The one writer of a log.
#[derive(Debug)]
pub struct Writer {
    directory: SessionDirectory,
    file: File,
    /// The first offset of the current segment.
    first: u64,
    end: u64,
    /// Oldest first. There are at most about eight.
    older: VecDeque<Older>,
    segment_bytes: u64,
    max_bytes: u64,
}

/// A segment that is no longer written.
#[derive(Debug)]
struct Older {
    first: u64,
    length: u64,
    /// Present until it is synced.
    unsynced: Option<File>,
}

impl Writer {
    /// Starts a log, or continues an existing one. `max_bytes` below two segments of 256 KiB counts as two.
    pub fn open(directory: &SessionDirectory, max_bytes: u64) -> io::Result<Self> {
        let segment = SEGMENT_MIN_BYTES.max(max_bytes / 8);
        Self::with_segments(directory, max_bytes, segment)
    }

    /// Starts the log of a new directory, in which there is none.
    pub(crate) fn create(directory: &SessionDirectory, max_bytes: u64) -> io::Result<Self> {
        let segment_bytes = SEGMENT_MIN_BYTES.max(max_bytes / 8);
        let directory = directory.again()?;
        let (file, end) = (begin(&directory, 0)?, MARK_SIZE as u64);
        let max_bytes = max_bytes.max(2 * segment_bytes);
        Ok(Self { directory, file, first: 0, end, older: VecDeque::new(), segment_bytes, max_bytes })
    }

    /// Like [`Self::open`], with segments of this size.
    pub(super) fn with_segments(directory: &SessionDirectory, max_bytes: u64, segment_bytes: u64) -> io::Result<Self> {
        let directory = SessionDirectory::open(directory.path())?;
        let mut rotated = VecDeque::new();
        for first in older(directory.dir())? {
            let file = File::from(directory.open_file(&name_of(first), OFlags::RDONLY)?);
            rotated.push_back(Older { first, length: file.metadata()?.len(), unsynced: Some(file) });
        }
        let (file, first, end) = match Segment::open(&directory, NAME)? {
            Some(segment) => take_up(&directory, segment)?,
            None => {
                // Without older segments it is the very first one. With them the previous writer died during a
                // rotation.
                let first = rotated.back().map_or(0, |older| older.first + older.length);
                (begin(&directory, first)?, first, first + MARK_SIZE as u64)
            }
        };
        let max_bytes = max_bytes.max(2 * segment_bytes);
        Ok(Self { directory, file, first, end, older: rotated, segment_bytes, max_bytes })
    }

    /// Appends output with the current time. Output that could not be written completely leaves nothing behind.
    pub fn append(&mut self, stream: Stream, bytes: &[u8]) -> io::Result<()> {
        for bytes in bytes.chunks(FRAME_MAX) {
            let size = (HEAD + bytes.len()) as u64;
            if self.end + size > self.first + self.segment_bytes && self.end > self.first + MARK_SIZE as u64 {
                self.rotate()?;
            }
            self.write(stream.number(), bytes)?;
            self.end += size;
        }
        Ok(())
    }

    /// Adds the exit record, after which nothing comes. It is no output: the log does not reach any further.
    pub(crate) fn append_exit(&mut self, record: &[u8]) -> io::Result<()> {
        if record.len() > FRAME_MAX {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.write(END, record)
    }

    fn write(&mut self, stream: u8, bytes: &[u8]) -> io::Result<()> {
        let head = Head { stream, length: bytes.len(), at_ms: now_ms() }.encode();
        write_frame(&mut self.file, &head, bytes).or_else(|error| {
            let length = self.end - self.first;
            self.file.set_len(length)?;
            rustix::fs::seek(&self.file, SeekFrom::Start(length))?;
            Err(error)
        })
    }

    #[must_use]
    pub fn end(&self) -> u64 {
        self.end
    }

    /// Returns how far a writer may be ahead of a reader that must not miss anything.
    #[must_use]
    pub fn ahead_max(&self) -> u64 {
        // At least one older segment always exists, and what an ended program left in its pipes must fit as well.
        AHEAD_MAX_BYTES.min(self.segment_bytes / 4)
    }

    /// Waits until all of it is on the disk.
    pub fn sync(&mut self) -> io::Result<()> {
        for older in &mut self.older {
            if let Some(file) = &older.unsynced {
                file.sync_data()?;
                older.unsynced = None;
            }
        }
        self.file.sync_data()
    }

    fn rotate(&mut self) -> io::Result<()> {
        let file = begin_new(&self.directory, self.end)?;
        let dir = self.directory.dir();
        rustix::fs::renameat(dir, NAME, dir, name_of(self.first))?;
        rustix::fs::renameat(dir, NEW_NAME, dir, NAME)?;
        let unsynced = Some(std::mem::replace(&mut self.file, file));
        self.older.push_back(Older { first: self.first, length: self.end - self.first, unsynced });
        self.first = self.end;
        self.end += MARK_SIZE as u64;
        let mut total: u64 = self.older.iter().map(|older| older.length).sum();
        while total + self.segment_bytes > self.max_bytes
            && let Some(oldest) = self.older.pop_front()
        {
            rustix::fs::unlinkat(dir, name_of(oldest.first), AtFlags::empty())?;
            total -= oldest.length;
        }
        Ok(())
    }
}

/// Continues the current segment, from its last complete frame.
fn take_up(directory: &SessionDirectory, mut segment: Segment) -> io::Result<(File, u64, u64)> {
    while let Step::Frame(_) = segment.step()? {}
    let length = segment.position();
    let file = File::from(directory.open_file(NAME, OFlags::WRONLY)?);
    file.set_len(length)?;
    rustix::fs::seek(&file, SeekFrom::Start(length))?;
    Ok((file, segment.first(), segment.first() + length))
}

fn begin(directory: &SessionDirectory, first: u64) -> io::Result<File> {
    let file = begin_new(directory, first)?;
    rustix::fs::renameat(directory.dir(), NEW_NAME, directory.dir(), NAME)?;
    Ok(file)
}

fn begin_new(directory: &SessionDirectory, first: u64) -> io::Result<File> {
    let mut file = File::from(directory.open_file(NEW_NAME, OFlags::CREATE | OFlags::TRUNC | OFlags::WRONLY)?);
    let head = Head { stream: MARK, length: MARK_SIZE - HEAD, at_ms: now_ms() }.encode();
    write_frame(&mut file, &head, &first.to_be_bytes())?;
    Ok(file)
}

fn write_frame(file: &mut File, head: &[u8; HEAD], bytes: &[u8]) -> io::Result<()> {
    let written = loop {
        match rustix::io::writev(file.as_fd(), &[IoSlice::new(head), IoSlice::new(bytes)]) {
            Err(rustix::io::Errno::INTR) => {}
            written => break written?,
        }
    };
    if written < HEAD {
        file.write_all(&head[written..])?;
    }
    file.write_all(&bytes[written.saturating_sub(HEAD)..])
}

fn now_ms() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}
