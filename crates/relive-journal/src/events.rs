//! `events.jsonl`: what happened, as it happens; what `strace` shows.
//!
//! An event is written at once and synced with the next step, or within a second. It is never acknowledged: after a
//! power cut the last ones may be missing, and the new writer's epoch keeps the ids in order all the same. At
//! [`EVENTS_MAX`] bytes the older part is dropped and a `gap` record stands in its place.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use relive_core::{Generation, Timestamp};
use serde::{Deserialize, Serialize};

use crate::disk::{Disk, DiskFile};
use crate::line::{self, Head, LINE_MAX, VERSION};
use crate::pool::Pool;
use crate::reader::Cursor;
use crate::scan::{Line, Lines};

/// The size at which the older part of the file is dropped.
pub const EVENTS_MAX: u64 = 16 << 20;

const SYNC_WITHIN: Duration = Duration::from_secs(1);

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
    seq: u64,
    /// Where it is synced in the background; without one, with the step itself.
    pool: Option<Pool>,
    /// Opened with the first event, so that a process that does nothing holds no descriptor.
    open: Option<Open>,
    max: u64,
    buffer: Vec<u8>,
}

#[derive(Debug)]
struct Open {
    file: Arc<EventFile>,
    len: u64,
}

/// The part of an event log that another thread may sync.
#[derive(Debug)]
pub(crate) struct EventFile {
    disk: Disk,
    file: DiskFile,
    dirty: AtomicBool,
    /// Whether a sync is due within the second, so that there is one such job a file.
    due: AtomicBool,
}

impl EventFile {
    /// Syncs what was written so far. Events are never acknowledged, so a failure is not either: the same disk fails
    /// the journal beside it.
    pub(crate) fn sync(&self) {
        if self.dirty.swap(false, Ordering::AcqRel) {
            let _ = self.disk.sync(&self.file);
        }
    }
}

impl EventLog {
    pub(crate) fn new(disk: Disk, path: PathBuf, epoch: Generation, pool: Option<Pool>) -> Self {
        Self { disk, path, epoch, seq: 0, pool, open: None, max: EVENTS_MAX, buffer: Vec::new() }
    }

    /// Drops the older part at `max` bytes instead of [`EVENTS_MAX`].
    pub fn set_max(&mut self, max: u64) {
        self.max = max;
    }

    /// Writes one event, whose fields are those of `body`, and returns its id. On return it is in the file; that it
    /// is on the disk comes later.
    pub fn append(&mut self, at: Timestamp, step: u32, kind: &str, body: &impl Serialize) -> io::Result<Cursor> {
        if self.open.is_none() {
            self.open = Some(self.open_file()?);
        }
        let id = Cursor { epoch: self.epoch, seq: self.seq + 1 };
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.clear();
        let head = Head { v: VERSION, seq: id.seq, epoch: id.epoch, synced: None, at, kind: kind.into(), step };
        line::encode(&mut buffer, &head, body)?;
        let written = self.write(&buffer, at);
        self.buffer = buffer;
        written?;
        self.seq = id.seq;
        Ok(id)
    }

    fn write(&mut self, line: &[u8], at: Timestamp) -> io::Result<()> {
        if line.len() > LINE_MAX {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "an event is at most 1 MiB"));
        }
        let Some(mut open) = self.open.take() else { return Err(io::ErrorKind::NotFound.into()) };
        if open.len > 0 && open.len + line.len() as u64 > self.max {
            open = self.rotate(&open, at)?;
        }
        // On an error the file is closed: opening it again cuts off what was half written.
        self.disk.append(&open.file.file, line)?;
        open.len += line.len() as u64;
        open.file.dirty.store(true, Ordering::Release);
        if let Some(pool) = &self.pool
            && !open.file.due.swap(true, Ordering::AcqRel)
        {
            let file = Arc::clone(&open.file);
            pool.spawn_after(SYNC_WITHIN, move || {
                file.due.store(false, Ordering::Release);
                file.sync();
            });
        }
        self.open = Some(open);
        Ok(())
    }

    /// Has what was written so far synced, now or, where there are threads for it, beside what comes next.
    pub(crate) fn sync_soon(&self) {
        let Some(open) = &self.open else { return };
        match &self.pool {
            Some(pool) if open.file.dirty.load(Ordering::Acquire) => {
                let file = Arc::clone(&open.file);
                // Without room for it the second runs on.
                pool.try_spawn(move || file.sync());
            }
            Some(_) => {}
            None => open.file.sync(),
        }
    }

    fn open_file(&mut self) -> io::Result<Open> {
        let file = self.disk.open_or_create(&self.path)?;
        let len = file.file().metadata()?.len();
        let whole = whole_lines(file.file(), len)?;
        if whole < len {
            self.disk.truncate(&file, whole)?;
        }
        self.seq = self.seq.max(last_of(file.file(), whole, self.epoch)?);
        Ok(self.opened(file, whole))
    }

    fn opened(&self, file: DiskFile, len: u64) -> Open {
        let file = Arc::new(EventFile {
            disk: self.disk.clone(),
            file,
            dirty: AtomicBool::new(false),
            due: AtomicBool::new(false),
        });
        Open { file, len }
    }

    /// Replaces the file by a gap record and the newer quarter of what it held.
    fn rotate(&self, open: &Open, at: Timestamp) -> io::Result<Open> {
        let old = open.file.file.file();
        let keep_from = line_after(old, open.len.saturating_sub(self.max / 4), open.len)?;
        let mut bytes = Vec::new();
        if let Some(gap) = dropped(old, keep_from)? {
            let Cursor { epoch, seq } = gap.last;
            let head = Head { v: VERSION, seq, epoch, synced: None, at, kind: GAP.into(), step: 0 };
            line::encode(&mut bytes, &head, &gap)?;
        }
        let gap_len = bytes.len();
        bytes.resize(gap_len + usize::try_from(open.len - keep_from).unwrap_or(0), 0);
        old.read_exact_at(&mut bytes[gap_len..], keep_from)?;
        self.disk.put(&self.path, &bytes)?;
        let file = self.disk.open_append(&self.path)?;
        Ok(self.opened(file, bytes.len() as u64))
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

/// How much of a file is whole lines.
pub(crate) fn whole_lines(file: &File, len: u64) -> io::Result<u64> {
    let (mut end, mut part) = (len, Vec::new());
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
            Line::Unfinished | Line::End => break,
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
