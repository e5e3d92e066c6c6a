//! Events: what happened, as it happens; what `strace` shows.
//!
//! Events that only repeat a record (`model`, `thinking`, `text`, `call`, `call_result`) are derived from the journal
//! ([`EventReader`]). `events.jsonl` has the others and, while a model answers, the pieces of its answer, which are cut off
//! once the journal has the whole. All have their places in one order: after which record they happened, and their part
//! there. A piece of an answer takes as many parts as it has bytes, so that a reader that has seen some of the pieces gets
//! the rest from the record.
//!
//! Events are written, those of a moment together, and never synced: the kernel writes them out in its own time. They are
//! never acknowledged: after a power cut the last ones may be missing, and the new writer's epoch keeps the ids in order
//! all the same. At [`EVENTS_MAX`] bytes the older part is dropped and a `gap` record stands in its place. What a file
//! holds beyond twice that is not ours, and is cut off.

mod derive;
mod reader;

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;

use relive_core::{Generation, Timestamp};
use serde::{Deserialize, Serialize};

use crate::disk::{Disk, DiskFile};
use crate::line::{self, Head, LINE_MAX, VERSION};
use crate::reader::Cursor;
use crate::regular;
use crate::scan::{Line, Lines};

pub use reader::EventReader;

/// The size at which the older part of the file is dropped.
pub const EVENTS_MAX: u64 = 16 << 20;

/// The capacity of the line buffer that is kept between writes.
const BUFFER_KEPT: usize = 16 << 10;

/// The kind of the record that stands for dropped events.
pub const GAP: &str = "gap";

/// The kind of the event that a call is made.
pub const CALL: &str = "call";
/// The kind of a piece of a model's answer.
pub const TEXT: &str = "text";
/// The kind of a piece of a model's thinking.
pub const THINKING: &str = "thinking";

/// Tells whether events of this kind are pieces of an answer, which the journal repeats as a whole.
pub(crate) fn is_piece(kind: &str) -> bool {
    kind == TEXT || kind == THINKING
}

/// The content of a `gap` record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gap {
    /// The number of lost events.
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
    last: Place,
    /// The last one that is in the file.
    written: Place,
    /// The pieces of an answer at the end of the file.
    pieces: Option<Pieces>,
    /// Opened with the first event, so that a process that does nothing holds no descriptor.
    open: Option<Open>,
    max: u64,
    /// Lines that are not written yet.
    buffer: Vec<u8>,
}

/// The position of an event: the record before it, and its part after that record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
struct Place {
    seq: u64,
    part: u64,
}

/// Pieces of one answer that are the last events.
#[derive(Debug, Clone, Copy)]
struct Pieces {
    /// Where the first of them begins in the file.
    from: u64,
    /// The `model_started` they follow.
    seq: u64,
    order: Order,
    /// Whether the journal has the whole answer.
    recorded: bool,
}

/// In which order the pieces of an answer came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    Thinking,
    /// No more thinking, as the record has it.
    Text,
    /// Thinking after text: a record does not tell in which order they came.
    Mixed,
}

impl Order {
    fn after(before: Option<Self>, kind: &str) -> Self {
        match (before, kind) {
            (None | Some(Self::Thinking), THINKING) => Self::Thinking,
            (Some(Self::Text | Self::Mixed), THINKING) | (Some(Self::Mixed), _) => Self::Mixed,
            (None | Some(Self::Thinking | Self::Text), _) => Self::Text,
        }
    }
}

#[derive(Debug)]
struct Open {
    file: DiskFile,
    len: u64,
}

impl EventLog {
    pub(crate) fn new(disk: Disk, path: PathBuf, epoch: Generation) -> Self {
        Self {
            disk,
            path,
            epoch,
            last: Place::default(),
            written: Place::default(),
            pieces: None,
            open: None,
            max: EVENTS_MAX,
            buffer: Vec::new(),
        }
    }

    /// Drops the older part at `max` bytes instead of [`EVENTS_MAX`].
    pub fn set_max(&mut self, max: u64) {
        self.max = max;
    }

    /// Keeps one event, which happened after record `after`, for the next [`Self::flush`]. Returns its id. Its fields are
    /// those of `body`, and it takes `parts` places.
    pub(crate) fn push(
        &mut self,
        at: Timestamp,
        (after, step): (u64, u32),
        kind: &str,
        body: &impl Serialize,
        parts: u64,
    ) -> io::Result<Cursor> {
        if self.open.is_none() {
            self.open = Some(self.open_file()?);
        }
        let part = if after > self.last.seq { 0 } else { self.last.part };
        let place = Place { seq: after.max(self.last.seq), part: part + parts };
        let id = Cursor { epoch: self.epoch, seq: place.seq, part: place.part };
        let start = self.buffer.len();
        let head = Head {
            v: VERSION,
            seq: id.seq,
            epoch: id.epoch,
            part: Some(id.part),
            synced: None,
            at,
            kind: kind.into(),
            step,
            skip: false,
            up: None,
        };
        let encoded = line::encode(&mut self.buffer, &head, body).map_err(io::Error::from).and_then(|()| {
            let fits = self.buffer.len() - start <= LINE_MAX;
            fits.then_some(()).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "an event is at most 1 MiB"))
        });
        if let Err(error) = encoded {
            self.buffer.truncate(start);
            return Err(error);
        }
        self.note_pieces(kind, place.seq, start as u64);
        self.last = place;
        Ok(id)
    }

    /// Keeps track of the pieces of an answer that are the last events, of which the next begins `at` that place of the
    /// buffer.
    fn note_pieces(&mut self, kind: &str, seq: u64, at: u64) {
        let before = self.pieces.filter(|pieces| pieces.seq == seq && !pieces.recorded);
        if !is_piece(kind) {
            self.pieces = None;
            return;
        }
        let order = Order::after(before.map(|pieces| pieces.order), kind);
        let from = before.map_or_else(|| self.open.as_ref().map_or(0, |open| open.len) + at, |pieces| pieces.from);
        self.pieces = Some(Pieces { from, seq, order, recorded: false });
    }

    /// Takes note that the journal is about to have the whole of the answer whose pieces are in the file, also of those
    /// that are not in the file, whose kinds are `dropped`.
    pub(crate) fn answer_recorded<'a>(&mut self, dropped: impl Iterator<Item = &'a str>) {
        if let Some(pieces) = &mut self.pieces {
            pieces.order = dropped.fold(pieces.order, |order, kind| Order::after(Some(order), kind));
            pieces.recorded = true;
        }
    }

    /// Cuts off the pieces of an answer that the journal has: they would take more room than the answer itself.
    pub(crate) fn cut_pieces(&mut self) -> io::Result<()> {
        let Some(pieces) = self.pieces.filter(|pieces| pieces.recorded && self.buffer.is_empty()) else {
            return Ok(());
        };
        self.pieces = None;
        if let Some(open) = self.open.as_mut().filter(|open| pieces.order != Order::Mixed && pieces.from < open.len) {
            self.disk.truncate(&open.file, pieces.from)?;
            open.len = pieces.from;
        }
        Ok(())
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
            Ok(()) => self.written = self.last,
            Err(_) => (self.last, self.pieces) = (self.written, None),
        }
        written
    }

    fn write(&mut self, lines: &[u8], at: Timestamp) -> io::Result<()> {
        let Some(mut open) = self.open.take() else { return Err(io::ErrorKind::NotFound.into()) };
        if open.len > 0 && open.len + lines.len() as u64 > self.max {
            open = self.rotate(&open, at)?;
            self.pieces = None;
        }
        // On an error the file is closed: opening it again cuts off what was half written.
        self.disk.append(&open.file, lines)?;
        open.len += lines.len() as u64;
        self.open = Some(open);
        Ok(())
    }

    fn open_file(&mut self) -> io::Result<Open> {
        let file = match self.disk.open_or_create(&self.path) {
            // A pipe, for example. What was there cannot be read, and new events need a file.
            Err(error) if regular::is_other(&error) => {
                self.disk.put_unsynced(&self.path, &[])?;
                self.disk.open_append(&self.path)?
            }
            opened => opened?,
        };
        let len = file.file().metadata()?.len();
        let whole = whole_lines(file.file(), len, self.max.max(EVENTS_MAX).saturating_mul(2))?;
        if whole < len {
            self.disk.truncate(&file, whole)?;
        }
        self.last = self.last.max(last_of(file.file(), whole, self.epoch)?);
        self.written = self.last;
        Ok(Open { file, len: whole })
    }

    /// Replaces the file by a gap record and the newer quarter of what it held.
    fn rotate(&self, open: &Open, at: Timestamp) -> io::Result<Open> {
        let old = open.file.file();
        let keep_from = line_after(old, open.len.saturating_sub(self.max / 4), open.len)?;
        let mut bytes = Vec::new();
        if let Some(gap) = dropped(old, keep_from)? {
            let Cursor { epoch, seq, part } = gap.last;
            // The first events of all were numbered by themselves.
            let part = (part > 0).then_some(part);
            let head = Head {
                v: VERSION,
                seq,
                epoch,
                part,
                synced: None,
                at,
                kind: GAP.into(),
                step: 0,
                skip: false,
                up: None,
            };
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

/// The last event that this epoch has written to the file's first `len` bytes.
fn last_of(file: &File, len: u64, epoch: Generation) -> io::Result<Place> {
    let from = len.saturating_sub(LINE_MAX as u64);
    let mut tail = vec![0; usize::try_from(len - from).unwrap_or(0)];
    file.read_exact_at(&mut tail, from)?;
    let last = tail.split(|byte| *byte == b'\n').rev().find(|line| !line.is_empty());
    let head = last.filter(|line| line::is_intact(line)).and_then(|line| line::head(line).ok());
    let place = |head: Head<'_>| Place { seq: head.seq, part: head.part.unwrap_or(0) };
    Ok(head.filter(|head| head.epoch == epoch).map(place).unwrap_or_default())
}

/// Returns the length of the complete lines in the first `max` bytes: a sparse file can claim any length.
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

/// Returns the start of the first line at or after `from`; `len` if there is none.
fn line_after(file: &File, from: u64, len: u64) -> io::Result<u64> {
    if from == 0 {
        return Ok(0);
    }
    let from = from - 1;
    let mut part = vec![0; usize::try_from(len - from).unwrap_or(0).min(LINE_MAX)];
    file.read_exact_at(&mut part, from)?;
    Ok(memchr::memchr(b'\n', &part).map_or(len, |at| from + at as u64 + 1))
}

/// Returns the events that are lost with the first `len` bytes of a file.
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
        let id = head.id();
        let earlier = (head.kind == GAP).then(|| serde_json::from_slice::<Gap>(line).ok()).flatten();
        let (more, first) = earlier.map_or((1, id), |gap| (gap.dropped, gap.first));
        let gap = gap.get_or_insert(Gap { dropped: 0, first, last: id });
        gap.dropped += more;
        gap.last = id;
    }
    Ok(gap)
}
