//! Reads a log while it is written, each reader at its own position.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use rustix::fs::{Dir, OFlags};

use super::{END, FRAME_MAX, HEAD, Head, MARK, MARK_SIZE, NAME, Stream, name_of};
use crate::directory::SessionDirectory;

/// The next item of a reader.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Item {
    /// Some output.
    Chunk(Chunk),
    /// The output in this range is gone.
    Gap { from: u64, to: u64 },
}

/// Some output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chunk {
    pub offset: u64,
    /// The offset of the next chunk: a reader opened here continues after this one.
    pub next: u64,
    /// Milliseconds since 1970.
    pub at_ms: u64,
    pub stream: Stream,
    /// At most 64 KiB.
    pub bytes: Vec<u8>,
}

/// A reader with its own position.
#[derive(Debug)]
pub struct Reader {
    directory: SessionDirectory,
    segment: Option<Segment>,
    /// Everything before this was read.
    from: u64,
}

/// The beginning and the end of the output of both streams.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Ends {
    /// The first bytes.
    pub head: Vec<u8>,
    /// How many bytes between the two were left out, including those that are gone.
    pub left_out: u64,
    /// The last bytes.
    pub tail: Vec<u8>,
}

impl Reader {
    /// Reads the log of the session in this directory, from the chunk that contains this offset.
    pub fn open(directory: &Path, from: u64) -> io::Result<Self> {
        Ok(Self { directory: SessionDirectory::open(directory)?, segment: None, from })
    }

    /// Returns the offset at which about the last `bytes` begin; always the beginning of a chunk, or the end.
    pub fn tail(directory: &Path, bytes: u64) -> io::Result<u64> {
        let mut reader = Self::open(directory, 0)?;
        let Some(segment) = Segment::open(&reader.directory, NAME)? else { return Ok(0) };
        let end = segment.first() + segment.file.metadata()?.len();
        reader.from = end.saturating_sub(bytes);
        Ok(match reader.next()? {
            Some(Item::Chunk(chunk)) => chunk.offset,
            Some(Item::Gap { to, .. }) => to,
            None => reader.from,
        })
    }

    /// Returns the offset of the oldest output that still exists.
    pub fn oldest(directory: &Path) -> io::Result<u64> {
        let directory = SessionDirectory::open(directory)?;
        match older(directory.dir())?.first() {
            Some(first) => Ok(*first),
            None => Ok(Segment::open(&directory, NAME)?.map_or(0, |segment| segment.first())),
        }
    }

    /// Returns the next item; `None` if there is none yet. Never waits.
    #[expect(clippy::should_implement_trait, reason = "there may be more after a none, and it can fail")]
    pub fn next(&mut self) -> io::Result<Option<Item>> {
        loop {
            let Some(segment) = &mut self.segment else {
                match self.find()? {
                    Place::In(segment) => self.segment = Some(segment),
                    Place::Gap(to) => return Ok(Some(self.gap(to))),
                    Place::Nowhere => return Ok(None),
                }
                continue;
            };
            match segment.step()? {
                Step::Frame(frame) if frame.next <= self.from => {}
                Step::Frame(frame) => {
                    self.from = frame.next;
                    if let Some(chunk) = frame.chunk() {
                        return Ok(Some(Item::Chunk(chunk)));
                    }
                }
                Step::End => match self.follow()? {
                    Follow::Wait => return Ok(None),
                    Follow::Again => {}
                    Follow::Gap(to) => return Ok(Some(self.gap(to))),
                },
            }
        }
    }

    fn gap(&mut self, to: u64) -> Item {
        let from = std::mem::replace(&mut self.from, to);
        Item::Gap { from, to }
    }

    /// Returns the segment that contains `from`.
    fn find(&self) -> io::Result<Place> {
        loop {
            // The current one first: all older ones have their names by then.
            let current = Segment::open(&self.directory, NAME)?;
            let current = match current {
                Some(segment) if segment.first() <= self.from => return Ok(Place::In(segment)),
                other => other,
            };
            let older = older(self.directory.dir())?;
            let Some(first) = older.iter().rev().find(|first| **first <= self.from) else {
                let oldest = older.first().copied().or(current.map(|segment| segment.first()));
                return Ok(oldest.map_or(Place::Nowhere, Place::Gap));
            };
            if let Some(segment) = Segment::open(&self.directory, &name_of(*first))? {
                return Ok(Place::In(segment));
            }
            // It was removed in between.
        }
    }

    /// Checks for another segment at the end of this one.
    fn follow(&mut self) -> io::Result<Follow> {
        let Some(segment) = &mut self.segment else { return Ok(Follow::Again) };
        match Segment::open(&self.directory, NAME)? {
            Some(current) if current.first() != segment.first() => {}
            Some(_) | None => return Ok(Follow::Wait),
        }
        if !segment.closed {
            // More may have been written before it was closed. Nothing is written after.
            segment.closed = true;
            return Ok(Follow::Again);
        }
        let (reached, end) = (segment.first() + segment.position(), segment.first() + segment.file.metadata()?.len());
        self.segment = None;
        if self.from < end && reached < end {
            // The rest of it cannot be read: the disk lost it.
            return Ok(Follow::Gap(end));
        }
        self.from = self.from.max(end);
        Ok(Follow::Again)
    }
}

/// Reads a whole log, and keeps the first `head` and the last `tail` bytes of the output of both streams.
pub fn read_ends(directory: &Path, head: usize, tail: usize) -> io::Result<Ends> {
    let mut reader = Reader::open(directory, 0)?;
    let mut ends = Ends::default();
    let mut last = VecDeque::new();
    while let Some(item) = reader.next()? {
        match item {
            Item::Gap { from, to } => {
                // The beginning is gone: the rest is not the beginning.
                ends.left_out += to - from + last.len() as u64;
                last.clear();
            }
            Item::Chunk(chunk) => {
                let room = if ends.left_out == 0 { head - ends.head.len() } else { 0 };
                let (first, rest) = chunk.bytes.split_at(room.min(chunk.bytes.len()));
                ends.head.extend_from_slice(first);
                last.extend(rest);
                let excess = last.len().saturating_sub(tail);
                last.drain(..excess);
                ends.left_out += excess as u64;
            }
        }
    }
    ends.tail = last.into();
    Ok(ends)
}

/// Returns the exit record with which the log ends, if it does.
pub(crate) fn read_exit(directory: &SessionDirectory) -> io::Result<Option<Vec<u8>>> {
    let Some(mut segment) = Segment::open(directory, NAME)? else { return Ok(None) };
    let mut last = None;
    while let Step::Frame(frame) = segment.step()? {
        last = (frame.head.stream == END).then(|| frame.bytes.to_vec());
    }
    Ok(last)
}

enum Place {
    In(Segment),
    Gap(u64),
    Nowhere,
}

enum Follow {
    Wait,
    Again,
    Gap(u64),
}

/// One file of the log, read from its beginning.
#[derive(Debug)]
pub(super) struct Segment {
    file: File,
    first: u64,
    /// The bytes of the file from `start` on.
    buffer: Vec<u8>,
    start: u64,
    /// How many of them were read.
    used: usize,
    /// Whether there is a newer one.
    closed: bool,
}

pub(super) enum Step<'a> {
    Frame(Frame<'a>),
    /// No complete frame follows.
    End,
}

pub(super) struct Frame<'a> {
    head: Head,
    offset: u64,
    next: u64,
    bytes: &'a [u8],
}

impl Frame<'_> {
    fn chunk(&self) -> Option<Chunk> {
        let stream = match self.head.stream {
            1 => Stream::Out,
            2 => Stream::Err,
            0 | 3.. => return None,
        };
        let (offset, next, at_ms) = (self.offset, self.next, self.head.at_ms);
        Some(Chunk { offset, next, at_ms, stream, bytes: self.bytes.to_vec() })
    }
}

impl Segment {
    /// Returns `None` if there is no such file.
    pub(super) fn open(directory: &SessionDirectory, name: &str) -> io::Result<Option<Self>> {
        let file = match directory.open_file(name, OFlags::RDONLY) {
            Ok(file) => File::from(file),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let mut mark = [0; MARK_SIZE];
        let cut = |error: io::Error| {
            let is_cut = error.kind() == io::ErrorKind::UnexpectedEof;
            if is_cut { io::Error::new(io::ErrorKind::InvalidData, format!("{name} was cut off")) } else { error }
        };
        file.read_exact_at(&mut mark, 0).map_err(cut)?;
        let (head, first) = mark.split_at(HEAD);
        let marked = head[0] == MARK && head[1..4] == [0, 0, 8];
        let (true, Ok(first)) = (marked, first.try_into().map(u64::from_be_bytes)) else {
            return Err(io::Error::new(io::ErrorKind::InvalidData, format!("{name} is not a log")));
        };
        Ok(Some(Self { file, first, buffer: Vec::new(), start: 0, used: 0, closed: false }))
    }

    pub(super) fn first(&self) -> u64 {
        self.first
    }

    /// Returns how much of the file was read.
    pub(super) fn position(&self) -> u64 {
        self.start + self.used as u64
    }

    pub(super) fn step(&mut self) -> io::Result<Step<'_>> {
        if !self.has(HEAD)? {
            return Ok(Step::End);
        }
        let Some(head) = self.buffer[self.used..].first_chunk().and_then(Head::decode) else {
            self.buffer.truncate(self.used);
            return Ok(Step::End);
        };
        if !self.has(HEAD + head.length)? {
            return Ok(Step::End);
        }
        let offset = self.first + self.position();
        let bytes = self.used + HEAD..self.used + HEAD + head.length;
        self.used = bytes.end;
        Ok(Step::Frame(Frame { next: self.first + self.position(), head, offset, bytes: &self.buffer[bytes] }))
    }

    /// Returns whether this many unread bytes are available, reading more from the file if necessary.
    fn has(&mut self, count: usize) -> io::Result<bool> {
        if self.buffer.len() - self.used >= count {
            return Ok(true);
        }
        self.buffer.drain(..self.used);
        self.start += self.used as u64;
        self.used = 0;
        while self.buffer.len() < count {
            let at = self.start + self.buffer.len() as u64;
            self.buffer.reserve(FRAME_MAX);
            if rustix::io::pread(&self.file, rustix::buffer::spare_capacity(&mut self.buffer), at)? == 0 {
                // A torn frame may be complete, and different, the next time.
                self.buffer.clear();
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Returns the first offsets of the older segments, smallest first.
pub(super) fn older(dir: BorrowedFd<'_>) -> io::Result<Vec<u64>> {
    let mut found = Vec::new();
    for entry in Dir::read_from(dir)? {
        let entry = entry?;
        let number = entry.file_name().to_str().ok().and_then(|name| name.strip_prefix("log."));
        found.extend(number.and_then(|number| number.parse::<u64>().ok()));
    }
    found.sort_unstable();
    Ok(found)
}
