//! `events.jsonl`: what happened, as it happens; what `strace` shows.
//!
//! Events are written, those of a moment together, and never synced: the kernel writes them out in its own time. They are
//! never acknowledged: after a power cut the last ones may be missing, and the new writer's epoch keeps the ids in order
//! all the same. At [`EVENTS_MAX`] bytes the older part is dropped and a `gap` record stands in its place. What a file
//! holds beyond twice that is not ours, and is cut off.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;

use relive_core::{Generation, Timestamp};
use serde::{Deserialize, Serialize};

use crate::disk::{Disk, DiskFile};
use crate::line::{self, Head, LINE_MAX, VERSION};
use crate::reader::Cursor;
use crate::scan::{Line, Lines};

/// The size at which the older part of the file is dropped.
pub const EVENTS_MAX: u64 = 16 << 20;

/// How much room for lines is kept from one write to the next.
const BUFFER_KEPT: usize = 16 << 10;

/// The kind of the record that stands for dropped events.
pub const GAP: &str = "gap";

/// What a `gap` record says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gap {
    /// How many events are gone.
    pub dropped: u64,
    /// The first of them.
    pub first: Cursor,
    /// The last of them; also the gap record's own place.
    pub last: Cursor,
}

/// The events of one process, for its writer.
#[derive(Debug)]
pub struct EventLog {
    disk: Disk,
    path: PathBuf,
    epoch: Generation,
    /// The last event that was pushed.
    seq: u64,
    /// The last one that is in the file.
    written_seq: u64,
    /// Opened with the first event, so that a process that does nothing holds no descriptor.
    open: Option<Open>,
    max: u64,
    /// Lines that are not written yet.
    buffer: Vec<u8>,
}

#[derive(Debug)]
struct Open {
    file: DiskFile,
    len: u64,
}

impl EventLog {
    pub(crate) fn new(disk: Disk, path: PathBuf, epoch: Generation) -> Self {
        Self { disk, path, epoch, seq: 0, written_seq: 0, open: None, max: EVENTS_MAX, buffer: Vec::new() }
    }

    /// Drops the older part at `max` bytes instead of [`EVENTS_MAX`].
    pub fn set_max(&mut self, max: u64) {
        self.max = max;
    }

    /// Writes one event, whose fields are those of `body`, and returns its id. On return it is in the file.
    pub fn append(&mut self, at: Timestamp, step: u32, kind: &str, body: &impl Serialize) -> io::Result<Cursor> {
        let id = self.push(at, step, kind, body)?;
        self.flush(at)?;
        Ok(id)
    }

    /// Keeps one event for the next [`Self::flush`], and returns its id.
    pub fn push(&mut self, at: Timestamp, step: u32, kind: &str, body: &impl Serialize) -> io::Result<Cursor> {
        if self.open.is_none() {
            self.open = Some(self.open_file()?);
        }
        let id = Cursor { epoch: self.epoch, seq: self.seq + 1 };
        let start = self.buffer.len();
        let head =
            Head { v: VERSION, seq: id.seq, epoch: id.epoch, synced: None, at, kind: kind.into(), step, up: None };
        let encoded = line::encode(&mut self.buffer, &head, body).map_err(io::Error::from).and_then(|()| {
            let fits = self.buffer.len() - start <= LINE_MAX;
            fits.then_some(()).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "an event is at most 1 MiB"))
        });
        if let Err(error) = encoded {
            self.buffer.truncate(start);
            return Err(error);
        }
        self.seq = id.seq;
        Ok(id)
    }

    /// Writes the events that were pushed, in one write. If that fails they are lost.
    pub fn flush(&mut self, at: Timestamp) -> io::Result<()> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        let lines = std::mem::take(&mut self.buffer);
        let written = self.write(&lines, at);
        self.buffer = lines;
        self.buffer.clear();
        // One large event is no reason to keep so much memory.
        self.buffer.shrink_to(BUFFER_KEPT);
        match &written {
            Ok(()) => self.written_seq = self.seq,
            Err(_) => self.seq = self.written_seq,
        }
        written
    }

    fn write(&mut self, lines: &[u8], at: Timestamp) -> io::Result<()> {
        let Some(mut open) = self.open.take() else { return Err(io::ErrorKind::NotFound.into()) };
        if open.len > 0 && open.len + lines.len() as u64 > self.max {
            open = self.rotate(&open, at)?;
        }
        // On an error the file is closed: opening it again cuts off what was half written.
        self.disk.append(&open.file, lines)?;
        open.len += lines.len() as u64;
        self.open = Some(open);
        Ok(())
    }

    fn open_file(&mut self) -> io::Result<Open> {
        let file = self.disk.open_or_create(&self.path)?;
        let len = file.file().metadata()?.len();
        let whole = whole_lines(file.file(), len, self.max.max(EVENTS_MAX).saturating_mul(2))?;
        if whole < len {
            self.disk.truncate(&file, whole)?;
        }
        self.seq = self.seq.max(last_of(file.file(), whole, self.epoch)?);
        self.written_seq = self.seq;
        Ok(Open { file, len: whole })
    }

    /// Replaces the file by a gap record and the newer quarter of what it held.
    fn rotate(&self, open: &Open, at: Timestamp) -> io::Result<Open> {
        let old = open.file.file();
        let keep_from = line_after(old, open.len.saturating_sub(self.max / 4), open.len)?;
        let mut bytes = Vec::new();
        if let Some(gap) = dropped(old, keep_from)? {
            let Cursor { epoch, seq } = gap.last;
            let head = Head { v: VERSION, seq, epoch, synced: None, at, kind: GAP.into(), step: 0, up: None };
            line::encode(&mut bytes, &head, &gap)?;
        }
        let gap_len = bytes.len();
        bytes.resize(gap_len + usize::try_from(open.len - keep_from).unwrap_or(0), 0);
        old.read_exact_at(&mut bytes[gap_len..], keep_from)?;
        self.disk.put_unsynced(&self.path, &bytes)?;
        let file = self.disk.open_append(&self.path)?;
        Ok(Open { file, len: bytes.len() as u64 })
    }
}

/// The last event that this epoch has written to the file's first `len` bytes; 0 if there is none.
fn last_of(file: &File, len: u64, epoch: Generation) -> io::Result<u64> {
    let from = len.saturating_sub(LINE_MAX as u64);
    let mut tail = vec![0; usize::try_from(len - from).unwrap_or(0)];
    file.read_exact_at(&mut tail, from)?;
    let last = tail.split(|byte| *byte == b'\n').rev().find(|line| !line.is_empty());
    let head = last.filter(|line| line::is_intact(line)).and_then(|line| line::head(line).ok());
    Ok(head.filter(|head| head.epoch == epoch).map_or(0, |head| head.seq))
}

/// How much of a file is whole lines. No more than its first `max` bytes count: a sparse file can claim any length.
pub(crate) fn whole_lines(file: &File, len: u64, max: u64) -> io::Result<u64> {
    let (mut end, mut part) = (len.min(max), Vec::new());
    while end > 0 {
        let from = end.saturating_sub(LINE_MAX as u64);
        part.resize(usize::try_from(end - from).unwrap_or(0), 0);
        file.read_exact_at(&mut part, from)?;
        if let Some(at) = memchr::memrchr(b'\n', &part) {
            return Ok(from + at as u64 + 1);
        }
        end = from;
    }
    Ok(0)
}

/// Where the first line at or after `from` begins; `len` where there is none.
fn line_after(file: &File, from: u64, len: u64) -> io::Result<u64> {
    if from == 0 {
        return Ok(0);
    }
    let from = from - 1;
    let mut part = vec![0; usize::try_from(len - from).unwrap_or(0).min(LINE_MAX)];
    file.read_exact_at(&mut part, from)?;
    Ok(memchr::memchr(b'\n', &part).map_or(len, |at| from + at as u64 + 1))
}

/// What a file loses with its first `len` bytes.
fn dropped(file: &File, len: u64) -> io::Result<Option<Gap>> {
    let mut lines = Lines::new(file, 0, 0)?;
    let mut gap: Option<Gap> = None;
    while lines.next < len {
        let line = match lines.read()? {
            Line::Whole(line) => line,
            Line::TooLong => continue,
            Line::Unfinished | Line::Endless | Line::End => break,
        };
        let Ok(head) = line::head(line) else { continue };
        let id = Cursor { epoch: head.epoch, seq: head.seq };
        let earlier = (head.kind == GAP).then(|| serde_json::from_slice::<Gap>(line).ok()).flatten();
        let (more, first) = earlier.map_or((1, id), |gap| (gap.dropped, gap.first));
        let gap = gap.get_or_insert(Gap { dropped: 0, first, last: id });
        gap.dropped += more;
        gap.last = id;
    }
    Ok(gap)
}
