//! The one writer of a journal.
//!
//! Every batch of records is one `write(2)`, together with those that were deferred before it; what must be acknowledged
//! is synced before [`Writer::append`] returns, or by [`Writer::sync`]. After an error nothing half-written stays: the file is cut back to the last whole batch, or,
//! where even that fails or a sync failed, the writer is poisoned and takes nothing more.
//!
//! It blocks. It is meant to be moved to a thread of [`crate::Pool`] for each batch and back; that there is one
//! writer follows from ownership.

use std::collections::HashSet;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use relive_core::{Generation, Moment, Timestamp};
use serde::Serialize;

use crate::beside::{Mark, PendingSync, SyncTracker, SyncedEnd};
use crate::checkpoint;
use crate::directory::ProcessDirectory;
use crate::disk::{Disk, DiskFile, is_full, temporary_beside};
use crate::events::EventLog;
use crate::history::{History, Place};
use crate::line::{self, Head, LINE_MAX, VERSION};
use crate::payload::{Blobs, INLINE_MAX};
use crate::reader::Cursor;
use crate::record::{Body, Record, Repair};
use crate::scan::{Health, Hole, fold_lines, scan};

/// When a line would be too long, payloads above this go to `blobs/` as well.
const SMALL_INLINE_MAX: usize = 1024;

/// The capacity of the record buffer that is kept between writes.
const UNWRITTEN_KEPT: usize = 64 << 10;

/// How much of a torn end is kept. A batch is never that long; a file full of rubbish may be.
const CUT_KEPT_MAX: usize = 64 << 20;

/// Whether a batch is on the disk when [`Writer::append`] returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// On the disk: it may be acknowledged.
    Synced,
    /// In the file, and synced concurrently with the next work of the process ([`Writer::sync_beside`]).
    Beside,
    /// In the file, and on the disk with the next batch that is synced.
    Written,
    /// In memory, and in the file with the next batch: nothing outside depends on it.
    Deferred,
}

/// Why a journal could not be opened or written.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    #[error("{path}: another writer has this journal", path = path.display())]
    Busy { path: PathBuf },
    #[error("{path}: there is no journal", path = path.display())]
    Absent { path: PathBuf },
    #[error("{path}: damaged at {hole}", path = path.display())]
    Damaged { path: PathBuf, hole: Hole },
    #[error("{path}: written by a newer Relive: {hole}", path = path.display())]
    ReadOnly { path: PathBuf, hole: Hole },
    #[error("{path}: an earlier write failed and nothing more is written", path = path.display())]
    Poisoned { path: PathBuf },
    #[error("{path}: the disk is full", path = path.display())]
    DiskFull { path: PathBuf },
    #[error("a `{kind}` record does not fit here: {why}")]
    Misplaced { kind: &'static str, why: &'static str },
    #[error("a `{kind}` record has more than {LINE_MAX} bytes even without its payloads")]
    TooLong { kind: &'static str },
    #[error("{path}: {source}", path = path.display())]
    Io { path: PathBuf, source: io::Error },
}

/// The disk that a writer uses, and the journals that must not be written.
#[derive(Debug, Clone, Default)]
pub struct Io {
    pub disk: Disk,
    /// The journals whose sync failed: what the cache says of them may not be on the disk, and never will be.
    poisoned: Poisoned,
}

type Poisoned = Arc<Mutex<HashSet<PathBuf>>>;

/// How a writer gets its file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Take {
    /// The file is new: nobody else knows of it, and nothing of it is synced.
    Copied,
    /// An earlier writer wrote it; this one writes in this epoch.
    Found(Generation),
}

impl Io {
    /// Files on `disk`.
    #[must_use]
    pub fn new(disk: Disk) -> Self {
        Self { disk, poisoned: Poisoned::default() }
    }

    /// Nobody opens this directory's journal any more.
    pub(crate) fn poison(&self, directory: &Path) {
        self.poisoned.lock().unwrap_or_else(PoisonError::into_inner).insert(directory.to_owned());
    }

    /// Refuses a journal whose sync failed.
    pub(crate) fn check_poison(&self, directory: &ProcessDirectory) -> Result<(), WriteError> {
        let all = self.poisoned.lock().unwrap_or_else(PoisonError::into_inner);
        if all.contains(directory.path()) { Err(WriteError::Poisoned { path: directory.steps() }) } else { Ok(()) }
    }
}

/// The writer of one journal.
#[derive(Debug)]
pub struct Writer {
    disk: Disk,
    directory: ProcessDirectory,
    file: Arc<DiskFile>,
    blobs: Blobs,
    history: History,
    epoch: Generation,
    events: EventLog,
    /// The record from which events count their places.
    anchor: u64,
    /// Records that the history has and the file has not: those that were deferred, and those of the batch that is just
    /// being appended.
    unwritten: Vec<u8>,
    /// Where the journal ended when this writer took it.
    taken_at: u64,
    /// Where it ended at the last checkpoint of this writer.
    checkpointed_end: u64,
    synced: Arc<SyncTracker>,
    /// The records of the conversation, if they were read ahead and nothing was appended since.
    pub(crate) ahead: Option<Vec<Body>>,
    poisoned: bool,
    all_poisoned: Poisoned,
}

impl Drop for Writer {
    fn drop(&mut self) {
        let (all, path) = (Arc::clone(&self.all_poisoned), self.directory.path().to_owned());
        self.synced.leave(move || {
            all.lock().unwrap_or_else(PoisonError::into_inner).insert(path);
        });
    }
}

impl Writer {
    /// The writer of a locked file of which `history` is all it holds.
    pub(crate) fn new(io: &Io, directory: ProcessDirectory, file: DiskFile, history: History, take: Take) -> Self {
        let (epoch, synced) = match take {
            Take::Copied => (history.epoch.next(), Some(0)),
            Take::Found(epoch) => (epoch, None),
        };
        Self {
            blobs: Blobs::new(io.disk.clone(), directory.path()),
            events: EventLog::new(io.disk.clone(), directory.events(), epoch),
            disk: io.disk.clone(),
            directory,
            file: Arc::new(file),
            epoch,
            anchor: history.seq,
            taken_at: history.end,
            checkpointed_end: history.end,
            synced: SyncTracker::new(synced, history.claimed),
            history,
            unwritten: Vec::new(),
            ahead: None,
            poisoned: false,
            all_poisoned: Arc::clone(&io.poisoned),
        }
    }

    /// The same writer, after its directory got its final name.
    pub(crate) fn renamed(mut self, io: &Io, directory: ProcessDirectory) -> Self {
        self.blobs = Blobs::new(io.disk.clone(), directory.path());
        self.events = EventLog::new(io.disk.clone(), directory.events(), self.epoch);
        self.directory = directory;
        self
    }

    /// Returns the fold of the journal, including this writer's records.
    #[must_use]
    pub fn history(&self) -> &History {
        &self.history
    }

    #[must_use]
    pub fn directory(&self) -> &ProcessDirectory {
        &self.directory
    }

    /// Returns its file, which holds everything but what was deferred.
    pub(crate) fn file(&self) -> &std::fs::File {
        self.file.file()
    }

    /// The payloads too large for a line.
    #[must_use]
    pub fn blobs(&self) -> &Blobs {
        &self.blobs
    }

    /// The events beside the journal.
    pub fn events(&mut self) -> &mut EventLog {
        &mut self.events
    }

    /// Writes one event, whose fields are those of `body`, and returns its id. On return it is in the file.
    pub fn append_event(&mut self, at: Timestamp, step: u32, kind: &str, body: &impl Serialize) -> io::Result<Cursor> {
        let id = self.push_event(at, step, kind, body)?;
        self.events.flush(at)?;
        Ok(id)
    }

    /// Keeps one event for the next [`EventLog::flush`], and returns its id.
    pub fn push_event(&mut self, at: Timestamp, step: u32, kind: &str, body: &impl Serialize) -> io::Result<Cursor> {
        self.events.push(at, (self.anchor, step), kind, body, 1)
    }

    /// The record after which an event happens now, and its step.
    pub(crate) fn event_place(&self) -> (u64, u32) {
        (self.anchor, self.history.step)
    }

    /// Appends records in one write. With [`Durability::Synced`] they, and all before them, are on the disk when this
    /// returns; on an error none of them counts.
    pub fn append(&mut self, now: Moment, batch: Vec<Body>, durability: Durability) -> Result<(), WriteError> {
        if self.poisoned {
            return Err(WriteError::Poisoned { path: self.directory.steps() });
        }
        self.ahead = None;
        self.check_sync()?;
        let (end, deferred) = (self.written_end(), self.unwritten.len());
        let mut buffer = std::mem::take(&mut self.unwritten);
        let encoded = batch.into_iter().try_for_each(|body| self.encode(&mut buffer, now, body));
        self.unwritten = buffer;
        if let Err(error) = encoded {
            self.take_back(end, deferred);
            return Err(error);
        }
        if durability == Durability::Deferred {
            return Ok(());
        }
        if let Err(error) = self.write_out() {
            self.take_back(end, deferred);
            return Err(error);
        }
        match durability {
            Durability::Deferred | Durability::Written | Durability::Beside => Ok(()),
            Durability::Synced => self.sync(),
        }
    }

    fn encode(&mut self, buffer: &mut Vec<u8>, now: Moment, mut body: Body) -> Result<(), WriteError> {
        let kind = body.kind();
        self.history.admits(&body).map_err(|why| WriteError::Misplaced { kind, why })?;
        let step = self.history.step_of(&body);
        let (seq, epoch) = (self.history.seq + 1, self.epoch);
        let start = buffer.len();
        let claimed = self.synced.seq();
        let (at, up) = (now.at, Some(now.up_ms));
        let (skip, synced) = (body.traits().skippable, Some(claimed));
        let head = Head { v: VERSION, seq, epoch, part: None, synced, at, kind: kind.into(), step, skip, up };
        for inline_max in [INLINE_MAX, SMALL_INLINE_MAX] {
            body.for_each_payload(&mut |payload| payload.spill(inline_max, &mut self.blobs))
                .map_err(|source| self.failed(source))?;
            buffer.truncate(start);
            line::encode(buffer, &head, &body).map_err(|error| self.failed(error.into()))?;
            if buffer.len() - start <= LINE_MAX {
                break;
            }
        }
        #[expect(clippy::cast_possible_truncation, reason = "checked against LINE_MAX here")]
        let len = match buffer.len() - start {
            len if len <= LINE_MAX => len as u32,
            _ => return Err(WriteError::TooLong { kind }),
        };
        if body.traits().anchor {
            self.anchor = seq;
        }
        let place = Place { seq, offset: self.history.end, len };
        self.history.apply(&Record { seq, epoch, at, step, up, body }, place);
        self.history.cover(&buffer[start..], claimed);
        Ok(())
    }

    /// Tells whether a batch can be deferred: a long one would take memory, and a payload of its own a write.
    #[must_use]
    pub fn can_defer(&self, batch: &mut [Body]) -> bool {
        let mut bytes = self.unwritten.len();
        for body in batch {
            let counted: Result<(), std::convert::Infallible> = body.for_each_payload(&mut |payload| {
                bytes = bytes.saturating_add(payload.inline_len());
                Ok(())
            });
            let Ok(()) = counted;
        }
        bytes <= INLINE_MAX
    }

    /// Writes what was deferred. If that fails it stays deferred.
    pub fn write_out(&mut self) -> Result<(), WriteError> {
        if self.poisoned {
            return Err(WriteError::Poisoned { path: self.directory.steps() });
        }
        if self.unwritten.is_empty() {
            return Ok(());
        }
        let end = self.written_end();
        match self.disk.append(&self.file, &self.unwritten) {
            Ok(()) => {
                self.unwritten.clear();
                self.unwritten.shrink_to(UNWRITTEN_KEPT);
                Ok(())
            }
            Err(error) => {
                if self.disk.truncate(&self.file, end).is_err() {
                    self.poison();
                }
                Err(self.failed(error))
            }
        }
    }

    /// Returns where the file ends.
    fn written_end(&self) -> u64 {
        self.history.end - self.unwritten.len() as u64
    }

    /// Syncs what was appended and is not on the disk. Does nothing if all of it is.
    ///
    /// If the sync fails, the cache holds what the disk may never get, and no later sync would say so. None of it was
    /// acknowledged: it is cut off, so that no writer of another daemon builds on it, and this writer is poisoned. Where
    /// nobody knows how far back the loss goes, the journal becomes a new file, of which nothing was given up.
    pub fn sync(&mut self) -> Result<(), WriteError> {
        if self.poisoned {
            return Err(WriteError::Poisoned { path: self.directory.steps() });
        }
        self.write_out()?;
        self.synced.wait();
        self.check_sync()?;
        if !self.has_unsynced() {
            return Ok(());
        }
        match self.disk.sync(&self.file) {
            Ok(()) => {
                self.synced.reached(self.mark());
                Ok(())
            }
            Err(error) => Err(self.give_up(error)),
        }
    }

    /// Writes what was deferred, and returns a sync of everything so far, to be run beside what comes next; nothing if
    /// there is nothing to sync, or if a sync that runs takes it on. A failure is found by the next append or sync.
    pub fn sync_beside(&mut self) -> Result<Option<PendingSync>, WriteError> {
        if self.poisoned {
            return Err(WriteError::Poisoned { path: self.directory.steps() });
        }
        self.write_out()?;
        self.check_sync()?;
        Ok(if self.has_unsynced() { self.synced.begin(self.mark(), &self.disk, &self.file) } else { None })
    }

    /// Refuses to continue after a sync beside this writer has failed.
    fn check_sync(&mut self) -> Result<(), WriteError> {
        match self.synced.take_failure() {
            Some(error) => Err(self.give_up(error)),
            None => Ok(()),
        }
    }

    /// Cuts off what a failed sync may have lost.
    fn give_up(&mut self, error: io::Error) -> WriteError {
        self.poison();
        self.unwritten.clear();
        let _ = match self.synced.to() {
            Some(synced) => self.disk.truncate(&self.file, synced),
            None => self.copy_anew(self.taken_at),
        };
        self.failed(error)
    }

    fn mark(&self) -> Mark {
        Mark { end: self.history.end, seq: self.history.seq }
    }

    /// The end of the records that this writer knows to be on the disk: nothing after it may be shown or forked.
    ///
    /// It is 0 for a writer that resumed an epoch and has not synced yet: an earlier writer may have left records
    /// unsynced, and [`Self::sync`] settles that.
    #[must_use]
    pub fn synced_end(&self) -> u64 {
        self.synced.to().unwrap_or(0)
    }

    /// Tells the same to others, also while this writer is busy.
    #[must_use]
    pub fn watch_synced_end(&self) -> SyncedEnd {
        SyncedEnd(Arc::clone(&self.synced))
    }

    /// Whether there are records after [`Self::synced_end`].
    #[must_use]
    pub fn has_unsynced(&self) -> bool {
        self.synced.to() != Some(self.history.end)
    }

    fn copy_anew(&self, len: u64) -> io::Result<()> {
        let path = self.directory.steps();
        let temporary = temporary_beside(&path);
        let copy = self.disk.create(&temporary)?;
        self.disk.append_copy(self.file.file(), len, &copy)?;
        self.disk.sync(&copy)?;
        self.disk.rename(&temporary, &path)?;
        self.disk.sync_dir(self.directory.path())
    }

    fn poison(&mut self) {
        self.poisoned = true;
        let mut all = self.all_poisoned.lock().unwrap_or_else(PoisonError::into_inner);
        all.insert(self.directory.path().to_owned());
    }

    /// Makes the history again what the file holds up to `end` and the first `deferred` bytes that are not written, after
    /// records that are refused were taken in.
    fn take_back(&mut self, end: u64, deferred: usize) {
        if self.poisoned {
            return;
        }
        self.unwritten.truncate(deferred);
        let whole = scan(self.file.file(), History::default())
            .ok()
            .filter(|(history, health)| *health == Health::Good && history.end == end)
            .and_then(|(history, _)| fold_lines(&self.unwritten, history));
        match whole {
            Some(history) => {
                self.anchor = self.anchor.min(history.seq);
                self.history = history;
            }
            None => self.poison(),
        }
    }

    /// Cuts a torn end off, and keeps it as a blob.
    pub(crate) fn cut(&mut self, offset: u64, bytes: u64) -> Result<Repair, WriteError> {
        let repaired = (|| {
            let mut tail = vec![0; usize::try_from(bytes).unwrap_or(usize::MAX).min(CUT_KEPT_MAX)];
            self.file.file().read_exact_at(&mut tail, offset)?;
            let blob = self.blobs.put_bytes(&tail)?;
            self.disk.truncate(&self.file, offset)?;
            Ok(Repair { cut_bytes: bytes, blob })
        })();
        repaired.map_err(|source| self.failed(source))
    }

    fn failed(&self, source: io::Error) -> WriteError {
        let path = self.directory.steps();
        if is_full(&source) && !self.poisoned { WriteError::DiskFull { path } } else { WriteError::Io { path, source } }
    }

    /// Writes `checkpoint.json`; the one before it stays beside it. A failure loses nothing but speed.
    pub fn checkpoint(&mut self) -> io::Result<()> {
        // A checkpoint of what the file has not got would never fit.
        self.write_out().map_err(io::Error::other)?;
        checkpoint::write(&self.disk, &self.directory, &self.history)?;
        self.checkpointed_end = self.history.end;
        Ok(())
    }

    /// Tells whether the journal has grown by a quarter since the last checkpoint. If only then another one is written, all
    /// of them together are no longer than a few times the last one, and a reader scans at most a fifth of the journal.
    #[must_use]
    pub fn is_checkpoint_due(&self) -> bool {
        let grown = self.history.end - self.checkpointed_end.min(self.history.end);
        grown > self.checkpointed_end / 4
    }
}
